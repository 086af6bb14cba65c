"""Figures of results and sweeps, in one style."""

from fedbandit.extras import needs

needs("fedbandit.figures", "sim")
