"""Figures of results and sweeps, in one style."""
