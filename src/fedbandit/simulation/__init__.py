"""The simulator: plays policy pages for many trials in compiled code."""
