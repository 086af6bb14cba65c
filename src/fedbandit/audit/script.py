"""Runs a live site and its neighbour by a script: decisions, rewards, exchanges and faults, second by second.

A script says what the application does about each decision, and when the site fails. The site is any that can be opened
from what its disk holds: the one that ships, or a broken one. It knows nothing of the script.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.memory_network import Crash, Down, MemoryJournal, MemoryNetwork
from fedbandit.agent.core.records import Decision, Refused, Stored
from fedbandit.agent.core.site import DecisionDraws, Site
from fedbandit.audit.neighbour import NEIGHBOUR, VICTIM, Neighbour, Seen
from fedbandit.checks import InvalidArgument
from fedbandit.privacy.noise import NoiseSource

__all__ = ["DRAWS", "Entry", "OpenSite", "Script", "play"]

DRAWS = DecisionDraws((0.0, 0.0), 0.5)  # the attacker even knows what decisions are drawn with

OpenSite = Callable[[str, Federation, Stored, NoiseSource], Site]
Watch = Callable[[int, Decision | None, Site], None]

_Result = TypeVar("_Result")


class Entry(NamedTuple):
    """What the application does about a decision: the value that it reports, so many seconds later; None: nothing."""

    value: float | None
    delay: int = 0


@dataclass(frozen=True)
class Script:
    """A run of a victim: a decision every second, and an exchange after each.

    * ``entries``: what becomes of each decision
    * ``draws``: what each decision is drawn with; all alike if there are none
    * ``seconds``: how long the run goes on, beyond the last decision if that is less
    * ``pace``: how long each of these seconds really is: with days a site's rate moves
    * ``offers``: the seconds in which the neighbour begins the exchange; in all others the victim does
    * ``restarts``: after the exchange of which second the victim is restarted, how often, each time before another one
    * ``crashes``: where the victim dies at its next write, and is restarted: at the decision or the report of a second,
      which must come
    * ``losses``: the seconds before which the victim loses its disk
    * ``keeps``: before which second it forgets all but the newest so many decisions
    """

    terms: Federation
    entries: tuple[Entry, ...]
    draws: tuple[DecisionDraws, ...] = ()
    seconds: int = 0
    pace: float = 1.0
    offers: frozenset[int] = frozenset({1})
    restarts: Mapping[int, int] = field(default_factory=dict[int, int])
    crashes: Mapping[tuple[int, str], Crash] = field(default_factory=dict[tuple[int, str], Crash])
    losses: frozenset[int] = frozenset()
    keeps: Mapping[int, int] = field(default_factory=dict[int, int])

    def changed(self, number: int, entry: Entry) -> "Script":
        """The same, but for what becomes of one decision, counted from 1."""
        return replace(self, entries=(*self.entries[: number - 1], entry, *self.entries[number:]))


class _Attacked(MemoryNetwork):
    """The victim and its neighbour."""

    def __init__(self, terms: Federation, neighbour: Neighbour, open_site: OpenSite, noise: NoiseSource) -> None:
        self._victim, self._neighbour, self._source = open_site, neighbour, noise
        super().__init__(terms, [(VICTIM, NEIGHBOUR)])

    def open_site(self, name: str, disk: MemoryJournal) -> Site:
        return self._neighbour if name == NEIGHBOUR else self._victim(name, self.terms, disk.load(), self._source)

    def exchanged(self, neighbour_begins: bool) -> None:
        self._insist(lambda: self.exchange(*(NEIGHBOUR, VICTIM) if neighbour_begins else (VICTIM, NEIGHBOUR)))
        self.run()

    def crash_at(self, crash: Crash | None) -> None:
        """Die at the next write, if at all."""
        if crash is not None:
            self.crash(VICTIM, at_next_write=crash)

    def decided(self, draws: DecisionDraws) -> Decision:
        return self._insist(lambda: self.decide(VICTIM, draws))

    def reported(self, decision_id: str, value: float) -> None:
        """As an application does: it takes no for an answer, and tries again if there is none."""
        try:
            self._insist(lambda: self.report(VICTIM, decision_id, value))
        except Refused:  # of a life that is over, or forgotten
            return
        except InvalidArgument as refusal:
            if refusal.argument != "reward":
                raise
            # Out of range: the default counts.

    def _insist(self, event: Callable[[], _Result]) -> _Result:
        try:
            return event()
        except Down:
            self.restart(VICTIM)
            return event()


def play(
    script: Script, neighbour: Neighbour, open_site: OpenSite, noise: NoiseSource, watch: Watch | None = None
) -> list[Seen]:
    """Run the victim from an empty disk; what its neighbour sees, message by message.

    ``watch`` is shown the victim at the end of each second, with the decision that it made.
    """
    neighbour.begin()
    network = _Attacked(script.terms, neighbour, open_site, noise)
    reports: dict[int, list[tuple[str, float]]] = {}
    for second in range(1, max(len(script.entries), script.seconds) + 1):
        network.run(second * script.pace)
        if second in script.losses:
            network.lose_disk(VICTIM)
            network.restart(VICTIM)
        if second in script.keeps:
            network.expire(VICTIM, 0.0, script.keeps[second])
        decision = None
        if second <= len(script.entries):
            network.crash_at(script.crashes.get((second, "decide")))
            draws = script.draws[second - 1] if script.draws else DRAWS
            decision = network.decided(draws)
            neighbour.watch(decision.arm)
            value, delay = script.entries[second - 1]
            if value is not None:
                reports.setdefault(second + delay, []).insert(0, (decision.id, value))
        network.crash_at(script.crashes.get((second, "report")))
        for decision_id, value in reports.get(second, ()):
            network.reported(decision_id, value)
        network.exchanged(neighbour_begins=second in script.offers)
        for _ in range(script.restarts.get(second, 0)):
            network.restart(VICTIM)
            network.exchanged(neighbour_begins=True)
        if watch is not None:
            watch(second, decision, network.site(VICTIM))
    if network.refused:
        raise RuntimeError(f"the attack failed: {network.refused[0]}")
    return neighbour.view
