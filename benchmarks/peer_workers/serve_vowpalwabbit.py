"""Vowpal Wabbit's daemon: lines over TCP, no HTTP.

The wheel has no ``vw`` program, but the daemon is in its library.
"""

import sys

from task import NUM_ARMS
from vowpalwabbit import Workspace

if __name__ == "__main__":
    options = (
        f"--daemon --foreground --num_children 1 --port {sys.argv[1]} --cb_explore {NUM_ARMS} --epsilon 0.1 --quiet"
    )
    Workspace(options).run_parser()
