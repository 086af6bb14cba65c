"""Executes the privacy proof on a live site: change one reward, shift the noise that hides it, and nothing may move.

The site plays a scenario with known noise. For every change of one entry there must be a shift of draws, by what one
reward can move, after which everything that leaves the site is the same, bit for bit: arms, ids, messages, counts,
times, state. Laplace noise that moves by delta is at most e^(|delta| / scale) times less likely, so the change costs at
most the sum of |delta| / scale over the draws that were shifted. That sum must not exceed the claim.

Nothing is random here: a site that keeps the proof is never accused. ``noise_tests`` judges the noise itself.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.messages import Message
from fedbandit.agent.core.records import DecisionRecord
from fedbandit.agent.core.site import Site
from fedbandit.audit.scenarios import Attacker, Entry, OpenSite, Scenario, play
from fedbandit.privacy.noise import GRID, to_grid
from fedbandit.rules.mean import clamp

SAME = 1e-9
MOST_DRAWS = 30  # that are tried one by one; a scenario makes half as many
ANOTHER_DECISION = "another decision"


class Visible(NamedTuple):
    """What can be seen of a site in one second.

    ``counts`` reveal when rewards were reported, to readers of the site's state; they must not reveal values.
    """

    decided: tuple[str, int, float] | None
    messages: tuple[Message, ...]
    state: tuple[object, ...]
    counts: tuple[object, ...]


class Transcript(NamedTuple):
    """A run: what was visible each second, the site's counts, and the draws of noise."""

    seconds: list[Visible]
    pulls: list[tuple[int, tuple[int, ...], tuple[int, ...]]]  # incarnation; of each arm: rewards played, decisions
    draws: list[tuple[int, float]]  # the second, and the epsilon that the noise was drawn for
    failure: str = ""


@dataclass(frozen=True)
class Change:
    """Another entry for one decision."""

    number: int
    before: Entry
    after: Entry

    @property
    def delay_is_kept(self) -> bool:
        """Whether the reward is reported at the same time."""
        return self.before.delay == self.after.delay and (self.before.value is None) == (self.after.value is None)

    def values_in(self, low: float, high: float) -> bool:
        """Whether both entries are rewards within the range."""
        return all(entry.value is not None and low <= entry.value <= high for entry in (self.before, self.after))


@dataclass(frozen=True)
class Leak:
    """A change that the noise does not hide within the claim: what differs, and in which second."""

    scenario: Scenario
    change: Change
    second: int
    what: str
    arms: tuple[int, ...]  # of the decisions of the unchanged scenario

    @property
    def words(self) -> str:
        """The leak in a sentence."""
        before, after = (_said(entry) for entry in (self.change.before, self.change.after))
        return f"decision {self.change.number} gets {after} instead of {before}: {self.what} in second {self.second}"


def _said(entry: Entry) -> str:
    late = f" after {entry.delay} s" if entry.delay else ""
    return "no reward" if entry.value is None else f"{entry.value:g}{late}"


def first_leak(scenarios: Iterable[Scenario], claimed: float, open_site: OpenSite = Site) -> Leak | None:
    """The first leak that the scenarios show; None if there is none."""
    return next((leak for scenario in scenarios for leak in leaks(scenario, claimed, open_site)), None)


def leaks(scenario: Scenario, claimed: float, open_site: OpenSite = Site) -> Iterator[Leak]:
    """Every change of one entry of the scenario that costs more than is claimed."""
    attacker = Attacker(scenario.terms, lies=False)
    base = transcript_of(scenario, attacker, open_site, {})
    if base.failure:
        raise RuntimeError(f"the site failed: {base.failure}")
    second, what = _difference(base, transcript_of(scenario, attacker, open_site, {}), True)
    if what:
        yield Leak(scenario, next(changes_of(scenario)), second, f"{what} without any change", _arms(base))
        return
    for change in changes_of(scenario):
        leak = _leak(scenario, change, base, attacker, open_site, claimed)
        if leak is not None:
            yield leak


def _arms(base: Transcript) -> tuple[int, ...]:
    return tuple(visible.decided[1] for visible in base.seconds if visible.decided is not None)


def changes_of(scenario: Scenario) -> Iterator[Change]:
    """Every decision in turn gets other rewards; with a window also late, missing and out-of-range ones.

    Without a window the promise assumes that the time of a report does not depend on the reward.
    """
    low, high, window = scenario.terms.low, scenario.terms.high, int(scenario.terms.reward_window)
    width = high - low
    for number, before in enumerate(scenario.entries, start=1):
        if window:
            others = [
                Entry(low),
                Entry(high),
                Entry(high, window - 1),
                Entry(high, window + 2),
                Entry(None),
                Entry(low - 2.0 * width),
                Entry(high + 3.0 * width),
            ]
        else:
            others = [before._replace(value=value) for value in (low, high) if before.value is not None]
        yield from (Change(number, before, after) for after in others if after != before)


# ---------------------------------------------------------------- a run with known noise


def transcript_of(scenario: Scenario, attacker: Attacker, open_site: OpenSite, shifts: dict[int, int]) -> Transcript:
    """Play a scenario with known noise; ``shifts`` has the steps by which draws are shifted, by their number."""
    run, seen = Transcript([], [], []), 0

    def noise(epsilon: float, count: int) -> list[int]:
        first = len(run.draws)
        run.draws.extend([(len(run.seconds) + 1, epsilon)] * count)
        return [_known(number) + shifts.get(number, 0) for number in range(first, first + count)]

    def watch(second: int, decision: DecisionRecord | None, site: Site) -> None:
        nonlocal seen
        decided = None if decision is None else (decision.id, decision.arm, decision.at)
        run.seconds.append(Visible(decided, tuple(attacker.messages[seen:]), _state(site), _counts(site)))
        run.pulls.append((site.incarnation, site.rewards, site.tried))
        seen = len(attacker.messages)

    try:
        play(scenario, attacker, open_site, noise, watch)
    except Exception as failure:  # a broken site may do anything; that it stops is visible, too
        return run._replace(failure=f"{type(failure).__name__}: {failure}")
    return run


def _known(number: int) -> int:
    """Noise that is the same in every run: of either sign, up to the width of the range, no two alike."""
    return number * 40503 % (2 * GRID) - GRID + 7


def _state(site: Site) -> tuple[object, ...]:
    """All that messages, state and metrics are made from."""
    return (
        *(site.own, site.own_means, site.gossiped, site.theta, site.radius),
        *(site.releases, site.released, site.rewards, site.tried, site.n_max, site.decided, site.remembered),
        *(site.incarnation, site.privacy(), site.errors, site.belief),
    )


def _counts(site: Site) -> tuple[object, ...]:
    return site.pending, site.waiting, site.late, site.clock, site.warnings()


# ---------------------------------------------------------------- the shift that hides a change


def _leak(
    scenario: Scenario, change: Change, base: Transcript, attacker: Attacker, open_site: OpenSite, claimed: float
) -> Leak | None:
    other, worst = scenario.changed(change.number, change.after), Leak(scenario, change, 0, "", _arms(base))
    alike = change.delay_is_kept and change.values_in(scenario.terms.low, scenario.terms.high)
    for delta, draws in dict.fromkeys(_shifts(scenario.terms, change, base)):
        run = transcript_of(other, attacker, open_site, dict.fromkeys(draws, -delta))
        second, what = _difference(base, run, alike)
        if not what:
            cost = sum(abs(delta) * base.draws[draw][1] / GRID for draw in draws)
            if cost <= claimed * (1.0 + SAME):
                return None
            return replace(worst, second=base.draws[draws[-1]][0], what=f"noise that costs {cost:.3g}")
        if second >= worst.second:
            worst = replace(worst, second=second, what=what)
    return worst


def _shifts(terms: Federation, change: Change, base: Transcript) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Shifts that may hide a change, the likeliest first: by how many steps, and of which draws.

    A change is hidden if *some* shift within the claim hides it. One reward moves a sum by the difference of what it
    counts: its value within the range, or the default. No shift is needed if the reward is not released in this run.
    """
    before, after = (_counted(terms, entry) for entry in (change.before, change.after))
    deltas = dict.fromkeys(there - here for here, there in product(before, after))
    levels = _draws_of(terms, change.number, base)
    likely = list(product(*levels))  # one that is empty if no interval was completed
    others = [(draw,) for draw in range(len(base.draws))][:MOST_DRAWS] if len(levels) < 2 else []
    for among, sign in ((likely, 1), ([*others, ()], 1), ([*likely, *others], -1)):  # noise may enter with either sign
        for delta, draws in product(deltas, among):
            yield (sign * delta, draws) if delta else (0, ())


def _counted(terms: Federation, entry: Entry) -> list[int]:
    """The values that an entry may count as, in steps of the grid, the likelier first."""
    default = to_grid(terms.missing_reward, terms.low, terms.high)
    if entry.value is None:
        return [default]
    inside = to_grid(clamp(entry.value, terms.low, terms.high), terms.low, terms.high)
    punctual = entry.value == clamp(entry.value, terms.low, terms.high) and (
        not terms.reward_window or entry.delay < terms.reward_window
    )
    return [inside, default] if punctual else [default, inside]


def _draws_of(terms: Federation, number: int, base: Transcript) -> list[list[int]]:
    """For each interval that holds a decision's reward: the draws of the second in which it was completed."""
    decided = base.seconds[number - 1].decided
    assert decided is not None  # noqa: S101  # every entry of a scenario has its decision
    arm, (incarnation, _, tried) = decided[1], base.pulls[number - 1]
    counts = [rewards[arm] if epoch == incarnation else 0 for epoch, rewards, _ in base.pulls]
    found: list[list[int]] = []
    for end in _ends(terms, tried[arm], max(counts)):
        reached = next(second for second, count in enumerate(counts, start=1) if count >= end)
        draws = [draw for draw, (second, _) in enumerate(base.draws) if second == reached]
        found += [draws] if draws else []
    return found


def _ends(terms: Federation, slot: int, most: int) -> Sequence[int]:
    """The last pull of each interval that holds a pull, as the policy defines intervals."""
    mechanism = terms.mechanism(lambda _, count: [0] * count)
    intervals = [mechanism.take(0, terms.low) for _ in range(most)]
    return [it.last for it in intervals if it is not None and it.first <= slot <= it.last]


def _difference(base: Transcript, run: Transcript, alike: bool) -> tuple[int, str]:
    """The first second in which the runs differ, and in what; empty if they do not."""
    for second, (one, other) in enumerate(zip(base.seconds, run.seconds, strict=False), start=1):
        if one.decided != other.decided:
            return second, ANOTHER_DECISION
        if one.messages != other.messages:
            return second, "another message"
        if one.state != other.state:
            return second, "another state"
        if alike and one.counts != other.counts:
            return second, "other counts"
    return (len(run.seconds) + 1, f"the end: {run.failure}") if run.failure else (0, "")
