"""What a caller of the HTTP API may do, and which token gives which rights."""

from collections.abc import Mapping
from typing import Literal, get_args

__all__ = ["ALL_RIGHTS", "ROLES", "Right", "Rights", "Role"]

Right = Literal["decide", "report", "view", "neighbours", "lives", "arms", "log"]
"""To ask for arms, to report rewards, to read state and metrics, to change neighbours, to say which file lives, to
change arms, to read the log of decisions and rewards."""

Rights = frozenset[Right]

Role = Literal["application", "viewer", "operator"]

ALL_RIGHTS: Rights = frozenset(get_args(Right))

ROLES: Mapping[Role, Rights] = {
    "application": frozenset({"decide", "report", "view"}),
    "viewer": frozenset({"view"}),
    "operator": frozenset({"view", "neighbours", "lives", "arms", "log"}),
}
"""All read the state: an application shows the page, and whoever drops a neighbour must see whose agent answers. Only
an operator reads the log: it has raw rewards."""
