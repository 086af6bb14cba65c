"""What agents act in: graphs, problems, rewards, delays, and the hospitals of the paper."""

from fedbandit.extras import needs

needs("fedbandit.world", "sim")
