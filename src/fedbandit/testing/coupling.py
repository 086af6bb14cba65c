"""Executes the privacy proof of a page: change one reward, shift the noise that hides it, and nothing may move.

Laplace noise of scale b makes a sum epsilon-private because a sum that moves by delta with noise that moves by -delta
is the same sum, and such noise is at most e^(|delta| / b) times less likely. So: play a page, change one reward, shift
the noise of every interval that holds it, and play again. If all that is published and decided is the same, the page
costs that reward the sum of width / b over these intervals, whatever an attacker computes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import ceil, floor, log2
from typing import Any, NamedTuple

from fedbandit.policies.protocol import LinkRule, Page
from fedbandit.policies.registry import WrongPage
from fedbandit.rules.mean import clamp
from fedbandit.testing.dry_run import Interval, Script, Shown, Stage

__all__ = ["Scene", "check_privacy"]

SAME = 1e-9


class Scene(NamedTuple):
    """Where a page is tried: its agents' terms, the graph, the randomness, and the range of rewards."""

    kind: str
    page: Page
    terms: Sequence[Any]
    num_arms: int
    edges: Sequence[tuple[int, int]]
    script: Script
    horizon: int
    low: float
    high: float
    beyond: bool  # rewards may lie outside the range: the page must clamp them
    rule: LinkRule | None = None
    rounds_without_noise: int = 0  # how long to look for raw numbers, if longer than the horizon


class _Play(NamedTuple):
    shown: list[Shown]
    intervals: list[Interval]


class _Change(NamedTuple):
    agent: int
    arm: int
    pull: int
    time: int
    reward: float


def check_privacy(scene: Scene, epsilon: float) -> None:
    """Refuse a page that does not keep the epsilon it claims, and say how it shows."""
    kind, page = scene.kind, scene.page
    if page.noise_due is None:
        raise WrongPage(kind, f"claims epsilon={epsilon:g} and asks for no noise: the page has no noise_due")
    if page.interval is None:
        raise WrongPage(
            kind, f"claims epsilon={epsilon:g}, but the page has no interval: nobody can tell which rewards noise hides"
        )
    _check_raw_numbers(scene)
    _check_scene(scene._replace(script=_on_grid(scene)), epsilon, False)
    if scene.beyond:
        _check_scene(scene, epsilon, True)


def _check_raw_numbers(scene: Scene) -> None:
    """Play with numbers that refuse to be compared or returned before noise is added."""
    longest = max(scene.horizon, scene.rounds_without_noise)
    _play(scene._replace(horizon=longest), scene.script, tainted=True)


def _quantum(scene: Scene) -> float:
    """A power of two, of which rewards and noise are multiples: then sums are exact, and equal means equal."""
    return 2.0 ** (floor(log2(scene.high - scene.low)) - 12)


def _snapped(scene: Scene, reward: float) -> float:
    """The multiple of the quantum next to a reward, within the range."""
    quantum = _quantum(scene)
    inside = clamp(round(reward / quantum), ceil(scene.low / quantum), floor(scene.high / quantum))
    return quantum * inside


def _on_grid(scene: Scene) -> Script:
    def reward(t: int, i: int, k: int) -> float:
        return _snapped(scene, scene.script.reward(t, i, k))

    return replace(scene.script, reward=reward, quantum=_quantum(scene))


def _check_scene(scene: Scene, epsilon: float, beyond: bool) -> None:
    base, kind = _play(scene, scene.script), scene.kind
    for interval in base.intervals:
        if interval.end != interval.pull:
            raise WrongPage(
                kind,
                f"noise_due returns {interval.end} at reward {interval.pull} of arm {interval.arm}: an interval is "
                "named by the reward that completes it",
            )
    _check_cost(scene, base, epsilon)
    times = _times_of(base)
    for change in _changes(scene, base, times, beyond):
        _compare(scene, base, change, beyond)


def _play(scene: Scene, script: Script, tainted: bool = False) -> _Play:
    stage = Stage(scene.kind, scene.page, scene.terms, scene.num_arms, scene.edges, script, scene.rule, tainted=tainted)
    shown = [stage.first_round(), *(stage.next_round(t) for t in range(1, scene.horizon + 1))]
    return _Play(shown, stage.intervals)


def _times_of(play: _Play) -> dict[tuple[int, int], list[int]]:
    """The rounds in which each agent pulled each arm."""
    num_agents, num_arms = len(play.shown[0].published), len(play.shown[0].published[0])
    times = {(i, k): [0] for i in range(num_agents) for k in range(num_arms)}
    for t, shown in enumerate(play.shown[1:], 1):
        for i, arm in enumerate(shown.arms):
            times[i, arm].append(t)
    return times


def _check_cost(scene: Scene, base: _Play, epsilon: float) -> None:
    """What the intervals that hold one reward cost it together."""
    costs: dict[tuple[int, int, int], float] = {}
    width = scene.high - scene.low
    for interval in base.intervals:
        scale = scene.terms[interval.agent].noise_scale
        for pull in range(interval.first, interval.end + 1):
            place = interval.agent, interval.arm, pull
            costs[place] = costs.get(place, 0.0) + (width / scale if scale > 0.0 else float("inf"))
    if not costs:
        return
    (agent, arm, pull), cost = max(costs.items(), key=lambda entry: entry[1])
    if cost > epsilon * (1.0 + SAME):
        raise WrongPage(
            scene.kind,
            f"claims epsilon={epsilon:g}, but spends {cost:.4g} on reward {pull} of arm {arm} (agent {agent}): the "
            f"range is {width:g} wide and the noise has scale {scene.terms[agent].noise_scale:.4g}",
        )


def _changes(scene: Scene, base: _Play, times: dict[tuple[int, int], list[int]], beyond: bool) -> Iterator[_Change]:
    """Changed rewards of the first and the last agent, all arms, near the edges of intervals."""
    low, high, width = scene.low, scene.high, scene.high - scene.low
    inside = (_snapped(scene, value) for value in (low, high, (low + high) / 2.0))
    values = (low - width, high + 2.0 * width) if beyond else tuple(inside)
    arms = {0, 1, scene.num_arms // 2, scene.num_arms - 1}
    for agent, arm in product(sorted({0, len(scene.terms) - 1}), sorted(arms)):
        last = len(times[agent, arm])
        near = {1, 2, last}
        for interval in [x for x in base.intervals if (x.agent, x.arm) == (agent, arm)][:3]:
            near |= {interval.first, interval.end - 1, interval.end, interval.end + 1}
        for pull in sorted(near if not beyond else {1, last}):
            if 1 <= pull <= last:
                for value in values:
                    yield _Change(agent, arm, pull, times[agent, arm][pull - 1], value)


def _compare(scene: Scene, base: _Play, change: _Change, beyond: bool) -> None:
    """Play with the changed reward and shifted noise; what others see must be as before."""
    script, (agent, arm, pull, time, reward) = scene.script, change
    before = script.reward(time, agent, arm)
    delta = clamp(reward, scene.low, scene.high) - clamp(before, scene.low, scene.high)
    hiding = {x.end for x in base.intervals if (x.agent, x.arm) == (agent, arm) and x.first <= pull <= x.end}

    def changed_reward(t: int, i: int, k: int) -> float:
        return reward if (t, i, k) == (time, agent, arm) else script.reward(t, i, k)

    def shift(end: int, i: int, k: int) -> float:
        return -delta if (i, k) == (agent, arm) and end in hiding else 0.0

    again = Stage(
        scene.kind,
        scene.page,
        scene.terms,
        scene.num_arms,
        scene.edges,
        replace(script, reward=changed_reward, shift=shift),
        scene.rule,
    )
    for t, expected in enumerate(base.shown):
        shown = again.first_round() if t == 0 else again.next_round(t)
        if t >= time and (fault := _moved(scene, expected, shown, t, beyond)):
            what = f"reward {pull} of arm {arm} at agent {agent} changed from {before:.4g} to {reward:.4g}"
            if beyond:
                fault = f"does not clamp rewards to their range {scene.low:g} to {scene.high:g}; it {fault}"
            raise WrongPage(scene.kind, f"{fault}: {what}, and the noise that hides it changed with it")


def _moved(scene: Scene, expected: Shown, shown: Shown, t: int, beyond: bool) -> str:
    """The first thing that differs, in words; empty if nothing does."""
    for i, (arm, other) in enumerate(zip(expected.arms, shown.arms, strict=True)):
        if arm != other:
            return f"decides by rewards that no noise hides yet (round {t}, agent {i} chooses arm {other}, not {arm})"
    for i, (row, other_row) in enumerate(zip(expected.published, shown.published, strict=True)):
        scale = scene.high - scene.low + scene.terms[i].noise_scale
        for k, (values, others) in enumerate(zip(row, other_row, strict=True)):
            if any(abs(x - y) > SAME * (scale + abs(x)) for x, y in zip(values, others, strict=True)):
                return f"publishes rewards of arm {k} before noise is added (round {t}, agent {i})"
            if values != others and not beyond:  # beyond its range a reward may lie off the grid
                return (
                    f"publishes numbers of arm {k} whose last digits depend on rewards (round {t}, agent {i}): add "
                    "noise to the sum of the rewards first, then compute with the noisy sum"
                )
    if expected.announced != shown.announced:
        return f"announces counts that depend on rewards (round {t})"
    return ""
