"""``python -m fedbandit``."""

from fedbandit.cli import main

main()
