"""What the changes of the arms add up to at one site: which arms there are, in which order, and which are stopped.

A stop counts at once, whoever made it. To add or resume an arm, or to retire it for good, counts once this site has
accepted it. A resume lifts the stops that it names and no others: one that was made without knowing of it stands. So
two sites with the same changes and the same acceptances agree, in whatever order they heard.
"""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from fedbandit.agent.core.arm_changes import (
    KEPT_FOR_STOPS,
    MAX_ADDED,
    MAX_CHANGES,
    MAX_LIFTED,
    Accepts,
    ArmChange,
    ChangeKind,
)
from fedbandit.agent.core.arm_names import new_arm_name, same_to_readers
from fedbandit.agent.core.records import ArmChanged
from fedbandit.checks import InvalidArgument, closest

__all__ = ["ArmStatus", "Arms", "Verdict", "in_words_of_stops"]

ArmStatus = Literal["active", "suspended", "retired"]


class Verdict(NamedTuple):
    """The status of an arm, and the change that made it so; None: it has been so from the start."""

    status: ArmStatus
    by: ArmChange | None


@dataclass(frozen=True)
class Arms:
    """The arms of a site.

    * ``names``: those of the terms, then those that were added, in the order in which this site accepted them
    * ``num_initial``: how many are in the terms
    * ``stopped``: the numbers of those that are given to nobody
    * ``changes``: all that this site knows, accepted or not
    """

    names: tuple[str, ...]
    num_initial: int
    stopped: frozenset[int]
    changes: Mapping[str, ArmChanged]

    @classmethod
    def of(cls, initial: tuple[str, ...], changes: Mapping[str, ArmChanged]) -> "Arms":
        """The arms of the terms, and what became of them."""
        accepted = sorted((it for it in changes.values() if it.accepted), key=lambda it: it.accepted)
        added = dict.fromkeys(it.change.arm for it in accepted if it.change.kind == "add")
        names = (*initial, *(name for name in added if name not in initial))
        stopping = {it.change.arm for it in _in_force(changes)}
        stopped = frozenset(k for k, name in enumerate(names) if name in stopping)
        return cls(names, len(initial), stopped, changes)

    @property
    def added(self) -> tuple[str, ...]:
        """Names of those that are not in the terms."""
        return self.names[self.num_initial :]

    @property
    def version(self) -> int:
        """How many changes this site knows."""
        return len(self.changes)

    @cached_property
    def waiting(self) -> tuple[ArmChange, ...]:
        """Changes that wait for the operator: those that would change something here.

        Not an arm that is there already, nor a resume of which no stop is in force here. If a stop that it lifts is
        heard of later, it waits from then on.
        """
        stops = {(it.change.arm, it.change.id) for it in _in_force(self.changes)}

        def is_idle(it: ArmChange) -> bool:
            if it.kind == "add":
                return it.arm in self.names
            return it.kind == "resume" and stops.isdisjoint((it.arm, name) for name in it.lifts)

        return tuple(it for it in self.unaccepted if not is_idle(it))

    @cached_property
    def unaccepted(self) -> tuple[ArmChange, ...]:
        """Changes that do not count here until they are accepted; a retirement only suspends until then.

        None of an arm that is retired here, which is final, and no retirement that a resume has lifted.
        """
        stops = {it.change.id for it in _in_force(self.changes)}
        found = (it.change for it in self.changes.values() if not it.accepted and it.change.kind != "suspend")
        open_ = (it for it in found if it.kind != "retire" or it.id in stops)
        return tuple(sorted((it for it in open_ if self.standing(it.arm).status != "retired"), key=lambda it: it.order))

    def standing(self, name: str) -> Verdict:
        """The status of an arm, and why."""
        return self._verdicts.get(name, Verdict("active", None))

    @cached_property
    def _verdicts(self) -> dict[str, Verdict]:
        """Of each arm that a change names: what the last one made of it that counts."""
        found: dict[str, Verdict] = {}
        for it in sorted((it for it in self.changes.values() if it.accepted), key=_order):
            found[it.change.arm] = Verdict("active", it.change)
        stops = sorted(_in_force(self.changes), key=_order)
        for it in sorted(stops, key=_is_final):
            found[it.change.arm] = Verdict("retired" if _is_final(it) else "suspended", it.change)
        return found

    # ---------------------------------------------------------------- new changes

    def next_change(self, kind: ChangeKind, name: str, by: str, at: int, federation: str) -> ArmChange:
        """The change that a site's operator asks for, without proof; refuses one that makes no sense here."""
        name = new_arm_name(name) if kind == "add" else name
        self._check(kind, name)
        lifts: tuple[str, ...] = ()
        if kind == "resume":
            stops = sorted(it.change.id for it in _in_force(self.changes) if it.change.arm == name)
            lifts = tuple(stops[:MAX_LIFTED])
        return ArmChange(self.version + 1, kind, name, by, at, federation, lifts)

    def made_already(self, kind: ChangeKind, name: str, by: str) -> ArmChange | None:
        """The stop of this kind that a site has made already, and that is in force: a repetition changes nothing."""
        if kind not in ("suspend", "retire"):
            return None
        same = (it.change for it in _in_force(self.changes) if (it.change.kind, it.change.arm) == (kind, name))
        return next((it for it in same if it.by == by), None)

    def _check(self, kind: ChangeKind, name: str) -> None:
        if kind == "add":
            if (known := next((it for it in self.names if same_to_readers((it, name))), None)) is not None:
                hint = f"{known!r} is there already{'.' if known == name else ', and people cannot tell them apart.'}"
                raise InvalidArgument("arm", name, "the name of a new arm", hint)
            if len(self.added) >= MAX_ADDED:
                raise InvalidArgument("arm", name, f"left out: {MAX_ADDED} arms have been added, the most there can be")
            return
        known = self.names if kind == "resume" else dict.fromkeys((*self.names, *(it.arm for it in self.waiting)))
        if name not in known:
            waits = any(it.arm == name for it in self.waiting)
            hint = f"It waits to be added: fedbandit arm accept {shlex.quote(name)}" if waits else closest(name, known)
            raise InvalidArgument("arm", name, f"one of {', '.join(map(repr, known))}", hint)
        status = self.standing(name).status
        if status == "retired":
            raise InvalidArgument("arm", name, "one that is not retired: that is final")
        if kind == "resume" and status == "active":
            raise InvalidArgument("arm", name, "a suspended one", f"{name!r} is active.")

    def new(self, changes: Iterable[ArmChange], own: str, accepts: Accepts) -> list[ArmChanged]:
        """The records of changes that this site does not know yet: at most so many of each site."""
        room = self._room()
        found: dict[str, ArmChanged] = {}
        for change in changes:
            if change.id in self.changes or change.id in found or room.get(change.by, MAX_CHANGES) <= 0:
                continue
            room[change.by] = room.get(change.by, MAX_CHANGES) - 1
            found[change.id] = ArmChanged(change, 0)
        taken = {it.change.id: it for it in self.accepted_of([it.change for it in found.values()], own, accepts)}
        return [taken.get(name, it) for name, it in found.items()]

    def _room(self) -> dict[str, int]:
        room: dict[str, int] = {}
        for it in self.changes.values():
            room[it.change.by] = room.get(it.change.by, MAX_CHANGES) - 1
        return room

    def has_room(self, kind: ChangeKind, by: str) -> bool:
        """Whether another change of this site would be kept; there is room for stops when there is none for others."""
        least = 0 if kind in ("suspend", "retire") else KEPT_FOR_STOPS
        return self._room().get(by, MAX_CHANGES) > least

    def accepted_of(self, changes: Iterable[ArmChange], own: str, accepts: Accepts) -> list[ArmChanged]:
        """The records of those changes that this site accepts now: its own, and those of whom it trusts."""
        last = max((it.accepted for it in self.changes.values()), default=0)
        names, records = set(self.names), list[ArmChanged]()
        for change in sorted(changes, key=lambda it: it.order):
            if change.by != own and accepts != "anyone" and change.by not in accepts:
                continue
            if change.kind == "add" and change.arm not in names:
                if len(names) >= self.num_initial + MAX_ADDED:
                    continue  # it waits for ever: messages have no column for it
                names.add(change.arm)
            last += 1
            records.append(ArmChanged(change, last))
        return records


def _order(it: ArmChanged) -> tuple[int, str, str]:
    return it.change.order


def _is_final(it: ArmChanged) -> bool:
    return it.change.kind == "retire" and it.accepted > 0


def _in_force(changes: Mapping[str, ArmChanged]) -> list[ArmChanged]:
    """Stops that no accepted resume has lifted; a retirement that was accepted is never lifted."""
    lifted = {
        (it.change.arm, name)
        for it in changes.values()
        if it.change.kind == "resume" and it.accepted
        for name in it.change.lifts
    }
    return [
        it
        for it in changes.values()
        if it.change.is_stop and (_is_final(it) or (it.change.arm, it.change.id) not in lifted)
    ]


def in_words_of_stops(arms: Arms, which: Iterable[int]) -> str:
    """Who has stopped these arms: "a: suspended by north"."""
    found = ((arms.names[k], arms.standing(arms.names[k])) for k in sorted(which))
    return "; ".join(f"{name}: {status} by {change.by}" for name, (status, change) in found if change is not None)
