"""The engine: plays the rounds of a policy page for many trials in compiled code, on the cores of a CPU or on a GPU."""

from fedbandit.extras import needs

needs("fedbandit.engine", "sim")
