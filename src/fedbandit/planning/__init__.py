"""Plans a federation: how many patients per site until the best arm is found, by simulation and by theory."""

from fedbandit.extras import needs

needs("fedbandit.planning", "sim")
