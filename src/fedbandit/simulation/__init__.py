"""The simulator: plays policy pages for many trials in compiled code."""

from fedbandit.extras import needs

needs("fedbandit.simulation", "sim")
