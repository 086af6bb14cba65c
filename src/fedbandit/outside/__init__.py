"""Code from outside the package: finds it, names it, and decides whether it may run."""
