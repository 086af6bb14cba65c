"""Runs the command line: ``python -m fedbandit``."""

from fedbandit.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
