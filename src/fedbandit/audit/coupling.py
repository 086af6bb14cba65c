"""Executes the privacy proof on a live site: change one reward, shift the noise that hides it, and nothing may move.

The site plays a scenario with known noise. For every change of one entry there must be a shift of draws, by what one
reward can move, after which everything that leaves the site is the same, bit for bit: arms, ids, bulletins, counts,
times, state. Laplace noise that moves by delta is at most e^(|delta| / scale) times less likely, so the change costs at
most the sum of |delta| / scale over the draws that were shifted. That sum must not exceed the claim.

Nothing is random here: a site that keeps the proof is never accused. ``noise_tests`` judges the noise itself.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product, zip_longest
from typing import NamedTuple

from fedbandit.agent.core.federation import Federation
from fedbandit.audit.scenarios import NOTHING, Entry, Report, Scenario, once
from fedbandit.audit.victim import OpenSite, Seen, Victim, open_site
from fedbandit.privacy.noise import GRID, to_grid
from fedbandit.rules.mean import clamp

SAME = 1e-9
MOST_DRAWS = 30  # that are tried one by one; a scenario makes half as many
KINDS = ("decision", "refusal", "bulletin", "Have", "state", "counts")
NOW = 1e-3  # seconds after a decision


class Transcript(NamedTuple):
    """A run: all that could be seen, and the draws of noise.

    * ``draws``: the number of the event, and the epsilon that the noise was drawn for
    * ``slots``: of each decision its incarnation and arm, and which of the arm's rewards there it is
    * ``steps``: after each event the incarnation, and how many rewards of each arm the page has observed
    """

    seen: list[Seen]
    draws: list[tuple[int, float]]
    slots: list[tuple[int, int, int] | None]
    steps: list[tuple[int, tuple[int, ...]]]
    arms: tuple[int, ...] = ()
    failure: str = ""


@dataclass(frozen=True)
class Change:
    """Another entry for one decision."""

    number: int
    before: Entry
    after: Entry

    @property
    def times_are_kept(self) -> bool:
        """Whether the same number of rewards is reported at the same times."""
        return [it.delay for it in self.before] == [it.delay for it in self.after]

    def values_in(self, low: float, high: float) -> bool:
        """Whether all are rewards within the range."""
        return all(low <= it.value <= high for it in (*self.before, *self.after))


@dataclass(frozen=True)
class Leak:
    """A change that the noise does not hide within the claim: what differs, and when."""

    scenario: Scenario
    change: Change
    at: float
    what: str
    arms: tuple[int, ...]  # of the decisions of the unchanged scenario

    @property
    def words(self) -> str:
        """The leak in a sentence."""
        before, after = (_said(entry) for entry in (self.change.before, self.change.after))
        return f"decision {self.change.number} gets {after} instead of {before}: {self.what} after {self.at:g} s"


def _said(entry: Entry) -> str:
    each = (f"{it.value:g}" + (f" after {it.delay:g} s" if it.delay else "") for it in entry)
    return ", then ".join(each) or "no reward"


def first_leak(
    scenarios: Iterable[Scenario], claimed: float, opened: OpenSite = open_site, process: type[Victim] = Victim
) -> Leak | None:
    """The first leak that the scenarios show; None if there is none."""
    return next((leak for scenario in scenarios for leak in leaks(scenario, claimed, opened, process)), None)


def leaks(
    scenario: Scenario, claimed: float, opened: OpenSite = open_site, process: type[Victim] = Victim
) -> Iterator[Leak]:
    """Every change of one entry of the scenario that costs more than is claimed."""

    def played(entries: Scenario, shifts: Mapping[int, int]) -> Transcript:
        return transcript_of(entries, opened, shifts, process)

    base = played(scenario, {})
    if base.failure:
        raise RuntimeError(f"the site failed: {base.failure}")
    difference = _difference(base, played(scenario, {}), True)
    if difference is not None:
        at, what = difference
        yield Leak(scenario, next(changes_of(scenario)), at, f"{what} without any change", base.arms)
        return
    for change in changes_of(scenario):
        leak = _leak(scenario, change, base, played, claimed)
        if leak is not None:
            yield leak


def changes_of(scenario: Scenario) -> Iterator[Change]:
    """Every decision in turn gets other rewards.

    With a window also late, missing and repeated ones, and some out of range. Without one the promise assumes that the
    time of a report does not depend on the reward. A cancelled decision has no reward before it is cancelled.
    """
    low, high, window = scenario.terms.low, scenario.terms.high, scenario.terms.reward_window
    width, pace = high - low, scenario.pace
    for number, before in enumerate(scenario.entries, start=1):
        if number in scenario.cancelled:
            after = scenario.cancelled[number] + 0.1 * pace
            others = [NOTHING, once(low, after), once(high, after)]
        elif window:
            others = [
                once(low),
                once(high),
                once(high, NOW),
                once(high, window - 0.7 * pace),
                once(high, window + 2.1 * pace),
                NOTHING,
                once(low - 2.0 * width),
                (Report(high + 3.0 * width, 0.0), Report(low, 0.3 * pace), Report(high, 0.6 * pace)),
            ]
        else:
            others = [tuple(it._replace(value=value) for it in before) for value in (low, high)]
        yield from (Change(number, before, after) for after in others if after != before)


# ---------------------------------------------------------------- a run with known noise


def transcript_of(
    scenario: Scenario, opened: OpenSite, shifts: Mapping[int, int], process: type[Victim] = Victim
) -> Transcript:
    """Play a scenario with known noise; ``shifts`` has the steps by which draws are shifted, by their number."""
    draws: list[tuple[int, float]] = []
    victim: Victim | None = None

    def noise(epsilon: float, count: int) -> list[int]:
        first = len(draws)
        draws.extend([(0 if victim is None else len(victim.steps), epsilon)] * count)
        return [_known(number) + shifts.get(number, 0) for number in range(first, first + count)]

    failure = ""
    try:
        victim = process(scenario, opened, noise)
        victim.play()
    except Exception as error:  # a broken site may do anything; that it stops is visible, too
        failure = f"{type(error).__name__}: {error}"
    if victim is None:
        return Transcript([], draws, [], [], (), failure)
    arms = tuple(it.arm for it in victim.decisions if it is not None)
    return Transcript(victim.seen, draws, _slots_of(scenario, victim), victim.steps, arms, failure)


def _known(number: int) -> int:
    """Noise that is the same in every run: of either sign, up to the width of the range, no two alike."""
    return number * 40503 % (2 * GRID) - GRID + 7


def _slots_of(scenario: Scenario, victim: Victim) -> list[tuple[int, int, int] | None]:
    """Which of an arm's rewards each decision has, if it is neither refused nor cancelled: slots move up."""
    slots = victim.slots[:]
    for number, after in scenario.cancelled.items():
        gone, decision = victim.slots[number - 1], victim.decisions[number - 1]
        if gone is None or decision is None:
            continue
        slots[number - 1] = None
        for other in range(number, len(slots)):
            place, made = slots[other], victim.decisions[other]
            if place is not None and made is not None and place[:2] == gone[:2] and made.at < decision.at + after:
                slots[other] = (*place[:2], place[2] - 1)
    return slots


# ---------------------------------------------------------------- the shift that hides a change


_Played = Callable[[Scenario, Mapping[int, int]], Transcript]


def _leak(scenario: Scenario, change: Change, base: Transcript, played: _Played, claimed: float) -> Leak | None:
    other, worst = scenario.changed(change.number, change.after), Leak(scenario, change, 0.0, "", base.arms)
    alike = change.times_are_kept and change.values_in(scenario.terms.low, scenario.terms.high)
    for delta, draws in dict.fromkeys(_shifts(scenario, change, base)):
        run = played(other, dict.fromkeys(draws, -delta))
        difference = _difference(base, run, alike)
        if difference is None:
            cost = sum(abs(delta) * base.draws[draw][1] / GRID for draw in draws)
            if cost <= claimed * (1.0 + SAME):
                return None
            return replace(worst, what=f"noise that costs {cost:.3g}")
        if difference.at >= worst.at:
            worst = replace(worst, at=difference.at, what=difference.what)
    return worst


def _shifts(scenario: Scenario, change: Change, base: Transcript) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Shifts that may hide a change, the likeliest first: by how many steps, and of which draws.

    A change is hidden if *some* shift within the claim hides it. One reward moves a sum by the difference of what it
    counts: a value within the range, or the default. No shift is needed if the reward is not released in this run. What
    is reported of a decision that was cancelled counts nowhere: nothing may move.
    """
    if change.number in scenario.cancelled:
        yield 0, ()
        return
    terms = scenario.terms
    before, after = (_counted(terms, entry) for entry in (change.before, change.after))
    deltas = dict.fromkeys(there - here for here, there in product(before, after))
    levels = _draws_of(terms, change.number, base)
    likely = list(product(*levels))  # one that is empty if no interval was completed
    others = [(draw,) for draw in range(len(base.draws))][:MOST_DRAWS] if len(levels) < 2 else []
    for among, sign in ((likely, 1), ([(), *others], 1), ([*likely, *others], -1)):  # noise may enter with either sign
        for delta, draws in product(deltas, among):
            yield (sign * delta, draws) if delta else (0, ())


def _counted(terms: Federation, entry: Entry) -> list[int]:
    """The values that an entry may count as, in steps of the grid, the likelier first."""
    default = to_grid(terms.missing_reward, terms.low, terms.high)
    inside = [to_grid(clamp(it.value, terms.low, terms.high), terms.low, terms.high) for it in entry]
    punctual = [
        steps
        for steps, it in zip(inside, entry, strict=True)
        if it.value == clamp(it.value, terms.low, terms.high)
        and (not terms.reward_window or it.delay < terms.reward_window)
    ]
    return list(dict.fromkeys([*punctual[:1], default, *inside]))


def _draws_of(terms: Federation, number: int, base: Transcript) -> list[list[int]]:
    """For each interval that holds a decision's reward: the draws of the event that completed it."""
    slot = base.slots[number - 1]
    if slot is None:
        return []
    incarnation, arm, place = slot
    counts = [rewards[arm] if of == incarnation else 0 for of, rewards in base.steps]
    found: list[list[int]] = []
    for end in _ends(terms, place, max(counts)):
        reached = next(step for step, count in enumerate(counts) if count >= end)
        draws = [draw for draw, (step, _) in enumerate(base.draws) if step == reached]
        found += [draws] if draws else []
    return found


def _ends(terms: Federation, slot: int, most: int) -> Sequence[int]:
    """The last pull of each interval that holds a pull, as the policy defines intervals."""
    mechanism = terms.mechanism(lambda _, count: [0] * count)
    intervals = [mechanism.take(0, terms.low) for _ in range(most)]
    return [it.last for it in intervals if it is not None and it.first <= slot <= it.last]


class Difference(NamedTuple):
    """Where two runs differ first: when, and in what."""

    at: float
    what: str


def _difference(base: Transcript, run: Transcript, alike: bool) -> Difference | None:
    """None: they do not differ."""
    both = ([it for it in seen if alike or it.what != "counts"] for seen in (base.seen, run.seen))
    for pair in zip_longest(*both):
        if pair[0] != pair[1]:
            first = min((it for it in pair if it is not None), key=lambda it: (it.at, KINDS.index(it.what)))
            return Difference(first.at, f"another {first.what}" if first.what != "counts" else "other counts")
    return Difference(base.seen[-1].at, f"the end: {run.failure}") if run.failure else None
