"""Runs a whole federation on this machine: ``fedbandit up`` and the live part of ``fedbandit demo``."""
