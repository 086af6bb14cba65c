"""What researchers call: ``simulate``, its results and their files, replays of a tape, and runs on a cluster."""

from fedbandit.extras import needs

needs("fedbandit.simulation", "sim")
