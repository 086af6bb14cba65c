"""Who calls an agent, and what that caller may do: rights, roles, and callers with names.

Rights come from the token of a caller, or from the groups that a trusted proxy names.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, cast, get_args

from fedbandit.agent.core.trail import Deed
from fedbandit.checks import InvalidArgument, closest

__all__ = ["ALL_RIGHTS", "ANYBODY", "ROLES", "Caller", "Right", "Rights", "Role", "Way", "person_name", "rights_from"]

Right = Literal["decide", "report", "view", "members", "restore", "arms", "log"]
"""To ask for arms, to report rewards, to read state and metrics, to exclude members, to say which file is the latest,
to change arms, to read the log of decisions and rewards."""

Rights = frozenset[Right]

Role = Literal["application", "viewer", "operator"]

ALL_RIGHTS: Rights = frozenset(get_args(Right))

ROLES: Mapping[Role, Rights] = {
    "application": frozenset({"decide", "report", "view"}),
    "viewer": frozenset({"view"}),
    "operator": frozenset({"view", "members", "restore", "arms", "log"}),
}
"""All read the state: an application shows the page, and whoever excludes a member must see whose agent answers. Only
an operator reads the log: it has raw rewards."""

LONGEST_NAME = 64

Way = Literal["token", "proxy", "no token"]
"""How a caller is known: by a token, by the word of a trusted proxy, or not at all, since the agent requires none."""


@dataclass(frozen=True)
class Caller:
    """Somebody who calls.

    * ``name``: of the person, or of the role whose token it is; empty: not known
    """

    name: str
    rights: Rights
    way: Way = "token"

    def deed(self, reason: str) -> Deed:
        """What this caller asks for, and why."""
        return Deed(self.name, self.way, reason)


ANYBODY = Caller("", ALL_RIGHTS, "no token")
"""Every caller of an agent that requires no token."""


def person_name(value: str) -> str:
    """The name of a person, or of a program."""
    if not 0 < len(value) <= LONGEST_NAME or not value.isprintable() or value != value.strip():
        raise InvalidArgument("", value, f"a name of 1 to {LONGEST_NAME} printable characters")
    return value


def rights_from(names: Iterable[str]) -> Rights:
    """The rights that these names add up to: each is a right, or a role with its rights."""
    found: set[Right] = set()
    known = (*ROLES, *get_args(Right))
    for name in names:
        if name not in known:
            raise InvalidArgument("", name, f"a list of roles and rights: {', '.join(known)}", closest(name, known))
        found |= ROLES[cast("Role", name)] if name in ROLES else {cast("Right", name)}
    if not found:
        raise InvalidArgument("", [], f"a list of roles and rights: {', '.join(known)}")
    return frozenset(found)
