"""The names of an agent's streams, as they are where a GPU computes them when asked for."""

from typing import Any, NamedTuple

__all__ = ["Streams"]


class Streams(NamedTuple):
    """The names of one agent's streams; the last four by arm."""

    picks: Any
    arrivals: Any
    shares: Any
    rewards: Any
    noise: Any
    normals: Any
    delays: Any
