"""Attacks on a live ``Site`` by its neighbour, who sees every message and lies within the site's bounds.

Both are sites of a ``MemoryNetwork``, which carries their messages. The victim is the site that ships, with a disk in
memory and OpenDP's noise through its own ledger. The neighbour pretends that arm 0 is a wonder, so that the victim
goes on pulling it. From each offer and answer it works out the victim's own row: what the victim gossips less what
has flowed to it. From the rows follow the noisy sums.

The neighbour also sees the arms that the victim hands out, and epochs, versions and counts in its messages. It first
runs both worlds without noise. If this public part differs between them, it decides by that alone.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf

from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.site import Site
from fedbandit.audit.attacks import Attack, log_ratio, prefetched
from fedbandit.audit.neighbour import Neighbour, Seen
from fedbandit.audit.script import Entry, OpenSite, Script
from fedbandit.audit.script import play as play_script
from fedbandit.policies import FedBatch, FedUCB
from fedbandit.privacy.noise import GRID, NoiseSource
from fedbandit.rules.mean import dyadic_intervals, epsilon_per_node

__all__ = [
    "BATCH",
    "Plan",
    "first_batch_sums",
    "on_delays",
    "on_fed_batch",
    "on_fed_ucb",
    "on_plan",
    "play",
    "second_batch_sums",
    "tree_sums",
]

BATCH = 2  # small, so that a short run releases two; what a release costs does not depend on its size
HORIZON = 6  # in a tree of 7 pulls the first reward lies in three intervals
REST, REST_STEPS = 0.5, GRID // 2  # every reward but the changed one, and its steps on the grid
WAIT = 4.0  # the reward window of an attack by delays, longer than any of them


@dataclass(frozen=True)
class Plan:
    """A run of a victim.

    * ``changed``: the decision, counted from 1, whose reward is 0 or 1
    * ``loads``, ``loads_after``: how often the site is restarted from its disk, each time before another exchange, and
      after the exchange of which decision
    * ``delay``: how many decisions later the changed reward is reported if it is 1; if it is 0: at once
    * ``open_site``: makes the site from what its disk holds; known-bad variants plant theirs here
    """

    terms: Federation
    changed: int
    decisions: int
    loads: int = 0
    loads_after: int = 3
    delay: int = 0
    open_site: OpenSite = Site

    def script(self, changed: float) -> Script:
        """What the application does in the world where the changed reward is this one."""
        delay = self.delay if changed else 0
        entries = (Entry(REST),) * self.decisions
        script = Script(self.terms, entries, restarts={self.loads_after: self.loads})
        return script.changed(self.changed, Entry(changed, delay))


def play(plan: Plan, neighbour: Neighbour, changed: float, noise: NoiseSource) -> list[Seen]:
    """Run the victim from an empty disk; what its neighbour sees, message by message.

    The neighbour begins the first exchange, with its lie, and one after each restart. The victim begins all others; the
    neighbour answers where the victim has changed the link since its last lie.
    """
    return play_script(plan.script(changed), neighbour, plan.open_site, noise)


# ---------------------------------------------------------------- what the view tells


def first_batch_sums(view: Sequence[Seen]) -> list[tuple[int, int]]:
    """How many rewards, and their noisy sum in steps of the grid, as the first batch of arm 0 shows them.

    One of ``BATCH`` rewards, unless something is seen too early or drawn again.
    """
    seen = ((min(it.pulls[0], BATCH), it.own[0], it.own[len(it.pulls)]) for it in view if 0 < it.pulls[0] < 2 * BATCH)
    sums = ((size, round(mean * size * GRID)) for size, mean, weight in seen if size == BATCH or mean or weight)
    return list(dict.fromkeys(sums))


def second_batch_sums(view: Sequence[Seen]) -> list[int]:
    """The noisy sums of arm 0's second batch. Batches of equal size weigh alike: twice the mean, less the first."""
    first = [noisy for size, noisy in first_batch_sums(view) if size == BATCH]
    both = dict.fromkeys(round(2.0 * it.own[0] * BATCH * GRID) for it in view if it.pulls[0] == 2 * BATCH)
    return [total - first[0] for total in both] if first else []


def tree_sums(view: Sequence[Seen]) -> list[tuple[int, int]]:
    """How many pulls of arm 0, and the noisy sum of their rewards in steps of the grid; each as often as it differs."""
    sums = ((it.pulls[0], round(it.own[0] * it.pulls[0] * GRID)) for it in view if it.pulls[0] > 0)
    return list(dict.fromkeys(sums))


def _public(view: Sequence[Seen], size: int) -> list[tuple[object, ...]]:
    """All that no reward may move: arms, headers, weights, and means of arms before their first release of ``size``."""
    return [
        (
            it.pulls,
            it.header,
            *(round(weight * GRID) for weight in it.own[len(it.pulls) :]),
            *(round(mean * GRID) for mean, n in zip(it.own, it.pulls, strict=False) if n < size),
        )
        for it in view
    ]


def _zeros(_: float, count: int) -> list[int]:
    return [0] * count


def on_plan(
    label: str, plan: Plan, claimed: float, statistic: Callable[[list[Seen]], float], noise: NoiseSource | None = None
) -> Attack:
    """Attack a plan by the public part of what is seen if that tells the worlds apart, else by ``statistic``."""
    source, neighbour, size = noise or prefetched(), Neighbour(plan.terms), plan.terms.first_batch
    rehearsed = [_public(play(plan, neighbour, changed, _zeros), size) for changed in (0.0, 1.0)]
    tells = rehearsed[0] != rehearsed[1]

    def sample(which: int, count: int) -> Iterable[list[Seen]]:
        return (play(plan, neighbour, float(which), source) for _ in range(count))

    def judge(view: list[Seen]) -> float:
        public = _public(view, size) if tells else None
        if public in rehearsed:
            return inf if public == rehearsed[1] else -inf
        return statistic(view)

    return Attack(label, claimed, sample, judge)


# ---------------------------------------------------------------- the attacks


def _terms(policy: FedBatch | FedUCB) -> Federation:
    return Federation("audit", 2, ("a", "b"), 0.0, 1.0, policy, counts="sites")


def on_fed_batch(
    epsilon: float, later: bool = False, loads: int = 0, open_site: OpenSite = Site, noise: NoiseSource | None = None
) -> Attack:
    """A reward of arm 0's first (or second) batch changes. Arms come as 0, 1, 0, 1 and, by the lie, 0, 0.

    With ``loads`` the site is loaded anew so often after an exchange has shown the release, and goes on.
    """
    label = "site, FedBatch" + (", a later batch" if later else ", restarted" if loads else "")
    changed, decisions = (5, 6) if later else (1, 5) if loads else (1, 3)
    plan = Plan(_terms(FedBatch(epsilon, first_batch=BATCH)), changed, decisions, loads, open_site=open_site)
    return on_plan(label, plan, epsilon, _second_batch(epsilon) if later else _first_batch(epsilon), noise)


def on_delays(
    epsilon: float, open_site: OpenSite = Site, window: float = WAIT, noise: NoiseSource | None = None
) -> Attack:
    """The first reward is reported at once if it is bad, and after the next decisions of its arm if it is good."""
    terms = replace(_terms(FedBatch(epsilon, first_batch=BATCH)), reward_window=window)
    plan = Plan(terms, 1, 7, delay=3, open_site=open_site)
    return on_plan("site, delay by outcome", plan, epsilon, _delayed(epsilon), noise)


def _delayed(epsilon: float) -> Callable[[list[Seen]], float]:
    """The first value that is seen of arm 0 is the noisy mean of its first batch, whenever that is."""
    rest = (BATCH - 1) * REST_STEPS

    def statistic(view: list[Seen]) -> float:
        first = next((it.own[0] for it in view if it.own[len(it.pulls)]), None)
        return 0.0 if first is None else log_ratio(round(first * BATCH * GRID), rest, rest + GRID, epsilon)

    return statistic


def _first_batch(epsilon: float) -> Callable[[list[Seen]], float]:
    def statistic(view: list[Seen]) -> float:
        total = 0.0
        for size, noisy in first_batch_sums(view):
            rest = (size - 1) * REST_STEPS
            total += log_ratio(noisy, rest, rest + GRID, epsilon)
        return total

    return statistic


def _second_batch(epsilon: float) -> Callable[[list[Seen]], float]:
    rest = (BATCH - 1) * REST_STEPS

    def statistic(view: list[Seen]) -> float:
        between = [noisy for size, noisy in first_batch_sums(view) if size == BATCH]
        if len(between) > 1:  # it must not change until the second release: what it shows, decides
            return 1e9 * (between[-1] - between[0])
        return sum(log_ratio(noisy, rest, rest + GRID, epsilon) for noisy in second_batch_sums(view))

    return statistic


def on_fed_ucb(epsilon: float, open_site: OpenSite = Site, noise: NoiseSource | None = None) -> Attack:
    """The first reward changes. Each interval that begins at pull 1 holds it, and is the whole prefix."""
    plan = Plan(_terms(FedUCB(epsilon, horizon=HORIZON)), 1, 5, open_site=open_site)
    per_node = epsilon_per_node(epsilon, HORIZON + 1)

    def statistic(view: list[Seen]) -> float:
        total = 0.0
        for end, noisy in tree_sums(view):
            if dyadic_intervals(end)[0][0] == 1:
                rest = (end - 1) * REST_STEPS
                total += log_ratio(noisy, rest, rest + GRID, per_node)
        return total

    return on_plan("site, Fed_UCB", plan, epsilon, statistic, noise)
