"""The events that change a site's arms: its operator changes one, others' changes are heard, and accepted.

A running site gets another arm without a restart: its rows become longer, and nothing else changes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from fedbandit.agent.core.aligned_rows import widened
from fedbandit.agent.core.arm_changes import Accepts, ArmChange, ChangeKind, Sign
from fedbandit.agent.core.arms import Arms
from fedbandit.agent.core.decisions import Decisions
from fedbandit.agent.core.events import OtherFederation, Step
from fedbandit.agent.core.records import ArmChanged
from fedbandit.checks import InvalidArgument, closest, shortened

__all__ = ["ArmEvents"]

_Result = TypeVar("_Result")

Changes = tuple[ArmChange, ...]


class NothingWaits(InvalidArgument):
    """Refused: no change of the arm waits for consent."""

    def __init__(self, arm: str, waiting: Sequence[str]) -> None:
        """``waiting``: the arms of which some do."""
        names = ", ".join(map(repr, waiting))
        super().__init__(
            "arm", arm, f"an arm with changes that wait: {names or 'there is none'}", closest(arm, waiting)
        )
        others = f"; changes of {names} do" if waiting else ""
        self.args = (f"no change of the arm {shortened(repr(arm))} waits{others}. {self.hint}".rstrip(". "),)


class ArmEvents(Decisions):
    """What a site knows, what its application changes of it, and how its arms change. ``site`` adds neighbours."""

    def change_arm(self, kind: ChangeKind, name: str, at: int, sign: Sign) -> Step[ArmChange]:
        """The operator changes an arm: that is this site's own change, signed and accepted. A stop twice is one stop.

        ``at``: in milliseconds since 1970.
        """
        before = self._arms.made_already(kind, name, self.name)
        if before is not None:
            return Step(before)
        if not self._arms.has_room(kind, self.name):
            raise InvalidArgument("change", kind, "left out: this site has made as many changes as others keep")
        change = self._arms.next_change(kind, name, self.name, at, self._digest).signed(sign)
        return self._rearranged(change, self._arms.new([change], self.name, frozenset()))

    def hear_changes(self, changes: Sequence[ArmChange], accepts: Accepts) -> Step[Changes]:
        """Take in changes that others have signed, and whose signatures are good; those that were new.

        ``accepts``: whose changes count without the operator's consent.
        """
        for change in changes:
            if change.federation != self._digest:
                raise OtherFederation(f"{change.by} changes the arms of a federation with other terms")
        records = self._arms.new(changes, self.name, accepts)
        return self._rearranged(tuple(it.change for it in records), records)

    def accept_from(self, accepts: Accepts) -> Step[Changes]:
        """Accept what waits, and comes from whom the configuration trusts."""
        records = self._arms.accepted_of(self._arms.unaccepted, self.name, accepts)
        return self._rearranged(tuple(it.change for it in records), records)

    def accept_arm(self, name: str, retire: bool = False) -> Step[Changes]:
        """The operator accepts all changes of an arm that wait; a retirement, which is final, only with ``retire``."""
        waiting = self._arms.waiting
        names = dict.fromkeys(it.arm for it in waiting)
        if name not in names:
            raise NothingWaits(name, tuple(names))
        chosen = [it for it in waiting if it.arm == name and (retire or it.kind != "retire")]
        if not chosen:
            hint = "It is suspended here until then. To retire it is final."
            raise InvalidArgument("retire", retire, f"true: only the retirement of {name!r} waits", hint)
        records = self._arms.accepted_of(chosen, self.name, "anyone")
        return self._rearranged(tuple(it.change for it in records), records)

    def _rearranged(self, result: _Result, records: Iterable[ArmChanged]) -> Step[_Result]:
        """A step after which there may be other arms."""
        step = self._step(result, *records)
        if step.records:
            self._arms = Arms.of(self.terms.arms, self._stored.arm_changes)
            if len(self._arms.names) > self._player.num_arms:
                self._grow()
        return step

    def _grow(self) -> None:
        """Make room for arms that were accepted; of them nothing is known, nothing flows, nothing was decided."""
        num_arms = len(self._arms.names)
        self._player = self._player.grown(self.stored, num_arms)
        self._tried = self._player.me.tried
        self._slots.grow(num_arms)
        self._standings.grow(num_arms)
        self._watch.name_arms(self._arms.names)
        links = self._stored.links
        for name, link in links.items():
            links[name] = replace(link, register=widened(link.register, num_arms))
        self._look()
