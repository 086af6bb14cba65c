"""Who calls an agent, and what that caller may do: rights, roles, and callers with names.

Rights come from the token of a caller, or from the groups that a trusted proxy names.
"""

import os
import pwd
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal, cast, get_args

from fedbandit.agent.core.trail import Act, Deed, Entry, Kind
from fedbandit.checks import InvalidArgument, closest

__all__ = [
    "ALL_RIGHTS",
    "ANYBODY",
    "ROLES",
    "TOKEN_FILE",
    "Caller",
    "Right",
    "Rights",
    "Role",
    "Way",
    "acts_of_rights",
    "deed_here",
    "person_name",
    "rights_from",
    "rights_in_words",
    "taken_names",
]

Right = Literal["decide", "report", "view", "members", "restore", "arms", "log", "audit"]
"""To ask for arms, to report rewards, to read state and metrics, to exclude members, to say which file is the latest,
to change arms, to read the log of decisions and rewards, to read the audit trail."""

Rights = frozenset[Right]

Role = Literal["application", "viewer", "operator"]

ALL_RIGHTS: Rights = frozenset(get_args(Right))

ROLES: Mapping[Role, Rights] = {
    "application": frozenset({"decide", "report", "view"}),
    "viewer": frozenset({"view"}),
    "operator": frozenset({"view", "members", "restore", "arms", "log", "audit"}),
}
"""All read the state: an application shows the page, and whoever excludes a member must see whose agent answers. Only
an operator reads the log: it has raw rewards."""

TOKEN_FILE = "token_file"  # noqa: S105 - a name
"""Who calls with the token of ``listen.token_file``."""

LONGEST_NAME = 64

Way = Literal["token", "session", "proxy", "no token"]
"""How a caller is known: by a token, by a session that began with one, by the word of a trusted proxy, or not at all,
since the agent requires none."""


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


def taken_names() -> tuple[str, ...]:
    """Names that no person has: those of tokens without a person."""
    return TOKEN_FILE, *ROLES


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


def deed_here(reason: str) -> Deed:
    """What the user of this machine asks for, and why."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = f"user {os.getuid()}"
    return Deed(name, "user of this machine", reason)


# ---------------------------------------------------------------- what the audit trail says of rights


def rights_in_words(tokens: Mapping[str, Caller] | None, key: bytes) -> dict[tuple[Kind, str], str]:
    """The rights of everybody. Of a token it says when it is another one, by a hash that only this site can make."""
    if tokens is None:
        return {("rights", "anybody"): ", ".join(sorted(ALL_RIGHTS))}
    marks = {token: blake2b(token.encode(), key=key[:64], digest_size=4).hexdigest() for token in tokens}
    found = {it.name: f"{', '.join(sorted(it.rights))}; token {marks[token]}" for token, it in tokens.items()}
    return {("rights", name): words for name, words in found.items()}


def acts_of_rights(now: Mapping[tuple[Kind, str], str], last: Mapping[tuple[str, str], Entry]) -> Iterator[Act]:
    """What has changed since the audit trail spoke of it last: rights, and members that the configuration refuses."""
    ended = ("revoke", "admit")
    for (kind, subject), words in now.items():
        it = last.get((kind, subject))
        if it is None or it.what in ended:
            yield Act(kind, "refuse" if kind == "member" else "grant", subject, detail=words)
        elif it.detail != words:
            yield Act(kind, "change", subject, detail=words)
    for (kind, subject), it in last.items():
        if (kind, subject) not in now and it.what not in ended:
            yield Act(it.kind, "admit" if kind == "member" else "revoke", subject)
