"""Executes the privacy proof on a live site: change one reward, shift the noise that hides it, and nothing may move.

``fedbandit.testing.coupling`` does this to a page before a site plays it; here it is done to the whole site, with its
disk, slots, restarts and messages. The site gets known noise. For every change of what the application does about one
decision there must be a shift of draws, by what one reward can move, after which everything that leaves the site is
the same, bit for bit: arms, ids, messages, counts, times, state. Laplace noise that moves by delta is at most
e^(|delta| / scale) times less likely, so the change costs at most the sum of |delta| / scale over the draws that were
shifted. That sum must not exceed the claim.

Nothing is drawn: a site that keeps the proof is never accused. What noise is really like, ``noise_tests`` sees.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.messages import Message
from fedbandit.agent.core.records import Decision
from fedbandit.agent.core.site import Site
from fedbandit.audit.neighbour import Neighbour
from fedbandit.audit.script import Entry, OpenSite, Script, play
from fedbandit.privacy.noise import GRID, to_grid
from fedbandit.rules.mean import clamp

__all__ = ["ANOTHER_DECISION", "Change", "Leak", "changes_of", "leaks", "transcript_of"]

SAME = 1e-9
MOST_DRAWS = 30  # that are tried one by one; a run of the site that ships makes half as many
ANOTHER_DECISION = "another decision"


class Moment(NamedTuple):
    """What can be seen of a site in one second.

    ``counts`` tell when rewards were reported, to whoever may read the site's state; they must not tell values.
    """

    decided: tuple[str, int, float] | None
    messages: tuple[Message, ...]
    state: tuple[object, ...]
    counts: tuple[object, ...]


class Transcript(NamedTuple):
    """A run: what was seen each second, the life and the counts of each arm, and the draws of noise."""

    moments: list[Moment]
    pulls: list[tuple[int, tuple[int, ...], tuple[int, ...]]]  # the life, rewards played, decisions handed out
    draws: list[tuple[int, float]]  # the second and the epsilon that it was asked for
    failure: str = ""


@dataclass(frozen=True)
class Change:
    """What the application does differently about one decision."""

    number: int
    before: Entry
    after: Entry

    @property
    def delay_is_kept(self) -> bool:
        """Whether the reward is reported at the same time."""
        return self.before.delay == self.after.delay and (self.before.value is None) == (self.after.value is None)

    def values_in(self, low: float, high: float) -> bool:
        """Whether both are rewards, within the range."""
        return all(entry.value is not None and low <= entry.value <= high for entry in (self.before, self.after))


@dataclass(frozen=True)
class Leak:
    """A change that no noise hides, or too little of it: what could be seen, and in which second."""

    script: Script
    change: Change
    second: int
    what: str
    arms: tuple[int, ...]  # that were handed out in the script as it stands

    @property
    def words(self) -> str:
        """In a sentence."""
        before, after = (_said(entry) for entry in (self.change.before, self.change.after))
        return f"decision {self.change.number} gets {after} instead of {before}: {self.what} in second {self.second}"


def _said(entry: Entry) -> str:
    late = f" after {entry.delay} s" if entry.delay else ""
    return "no reward" if entry.value is None else f"{entry.value:g}{late}"


def leaks(script: Script, claimed: float, open_site: OpenSite = Site) -> Iterator[Leak]:
    """Every change of one entry of the script that costs more than is claimed."""
    neighbour = Neighbour(script.terms, lies=False)
    base = transcript_of(script, neighbour, open_site, {})
    if base.failure:
        raise RuntimeError(f"the site failed: {base.failure}")
    second, what = _difference(base, transcript_of(script, neighbour, open_site, {}), True)
    if what:
        yield Leak(script, next(changes_of(script)), second, f"{what} without any change", _arms(base))
        return
    for change in changes_of(script):
        leak = _leak(script, change, base, neighbour, open_site, claimed)
        if leak is not None:
            yield leak


def _arms(base: Transcript) -> tuple[int, ...]:
    return tuple(moment.decided[1] for moment in base.moments if moment.decided is not None)


def changes_of(script: Script) -> Iterator[Change]:
    """Every decision in turn gets other rewards; with a window also later ones, none, or such as are out of range.

    Without a window the promise assumes that a reward comes when it comes, whatever it is.
    """
    low, high, window = script.terms.low, script.terms.high, int(script.terms.reward_window)
    width = high - low
    for number, before in enumerate(script.entries, start=1):
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


def transcript_of(script: Script, neighbour: Neighbour, open_site: OpenSite, shifts: dict[int, int]) -> Transcript:
    """Play a script with known noise, of which some draws are shifted by so many steps."""
    run, seen = Transcript([], [], []), 0

    def noise(epsilon: float, count: int) -> list[int]:
        first = len(run.draws)
        run.draws.extend([(len(run.moments) + 1, epsilon)] * count)
        return [_known(number) + shifts.get(number, 0) for number in range(first, first + count)]

    def watch(second: int, decision: Decision | None, site: Site) -> None:
        nonlocal seen
        decided = None if decision is None else (decision.id, decision.arm, decision.at)
        run.moments.append(Moment(decided, tuple(neighbour.messages[seen:]), _state(site), _counts(site)))
        run.pulls.append((site.epoch, site.rewards, site.tried))
        seen = len(neighbour.messages)

    try:
        play(script, neighbour, open_site, noise, watch)
    except Exception as failure:  # a broken site may do anything; that it stops is seen, too
        return run._replace(failure=f"{type(failure).__name__}: {failure}")
    return run


def _known(number: int) -> int:
    """Noise that is the same in every run: of either sign, up to the width of the range, no two alike."""
    return number * 40503 % (2 * GRID) - GRID + 7


def _state(site: Site) -> tuple[object, ...]:
    """What messages, state and metrics are made of."""
    return (
        *(site.own, site.own_means, site.gossiped, site.theta, site.radius),
        *(site.releases, site.released, site.rewards, site.tried, site.n_max, site.decided, site.remembered),
        *(site.epoch, site.privacy(), site.errors, site.belief),
    )


def _counts(site: Site) -> tuple[object, ...]:
    return site.pending, site.waiting, site.late, site.clock, site.warnings()


# ---------------------------------------------------------------- the shift that hides a change


def _leak(
    script: Script, change: Change, base: Transcript, neighbour: Neighbour, open_site: OpenSite, claimed: float
) -> Leak | None:
    other, worst = script.changed(change.number, change.after), Leak(script, change, 0, "", _arms(base))
    alike = change.delay_is_kept and change.values_in(script.terms.low, script.terms.high)
    for delta, draws in dict.fromkeys(_shifts(script.terms, change, base)):
        run = transcript_of(other, neighbour, open_site, dict.fromkeys(draws, -delta))
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
    """By how much which draws may have to move: the likeliest first.

    Private is what *some* shift within the claim hides. One reward moves a sum by the difference of what it counts: its
    value within the range, or the default. Without any shift: what is changed is not released in this run.
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
    """What an entry may count, in steps of the grid."""
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
    decided = base.moments[number - 1].decided
    assert decided is not None  # noqa: S101  # every entry of a script has its decision
    arm, (life, _, tried) = decided[1], base.pulls[number - 1]
    counts = [rewards[arm] if epoch == life else 0 for epoch, rewards, _ in base.pulls]
    found: list[list[int]] = []
    for end in _ends(terms, tried[arm], max(counts)):
        reached = next(second for second, count in enumerate(counts, start=1) if count >= end)
        draws = [draw for draw, (second, _) in enumerate(base.draws) if second == reached]
        found += [draws] if draws else []
    return found


def _ends(terms: Federation, slot: int, most: int) -> Sequence[int]:
    """The last pulls of the intervals that hold a pull, as the policy defines them."""
    mechanism = terms.mechanism(lambda _, count: [0] * count)
    intervals = [mechanism.take(0, terms.low) for _ in range(most)]
    return [it.last for it in intervals if it is not None and it.first <= slot <= it.last]


def _difference(base: Transcript, run: Transcript, alike: bool) -> tuple[int, str]:
    """The first second in which something else is seen, and what, in words; empty if nothing is."""
    for second, (one, other) in enumerate(zip(base.moments, run.moments, strict=False), start=1):
        if one.decided != other.decided:
            return second, ANOTHER_DECISION
        if one.messages != other.messages:
            return second, "another message"
        if one.state != other.state:
            return second, "another state"
        if alike and one.counts != other.counts:
            return second, "other counts"
    return (len(run.moments) + 1, f"the end: {run.failure}") if run.failure else (0, "")
