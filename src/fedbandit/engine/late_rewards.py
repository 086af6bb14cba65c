"""Rewards that count later than their decision, in compiled code: slots, delays, and the news of a round.

A decision takes its slot in the arm's sequence when it is made, as at a live site (``agent.core.slots``). Its reward
comes at the end of the round that its delay names. With a window of W rounds the slot counts at the end of the W-th
round, the decision's own being the first, with the default if the reward has not come by then. Without one it counts
once its reward and those of the arm's earlier slots have come. Either way that round is known when the slot is taken,
so slots wait in lists, one for each coming round.
"""

from math import log
from typing import Any, NamedTuple

import numpy as np

from fedbandit.checks import InvalidArgument
from fedbandit.engine.compiled import compile_inner
from fedbandit.engine.network import add_news
from fedbandit.engine.streams import draw, uniform
from fedbandit.world.delays import ByOutcome, Delays
from fedbandit.world.problem import Problem

MOST_BYTES = 2**30
_BYTES_PER_ROUND = 24  # of one agent


LATE_NETWORKS = ("gossip", "consensus", "alone")
"""Others need the reward of every decision in its own round."""


class Lateness(NamedTuple):
    """Delays and window of a problem, as numbers."""

    rounds: Any  # [N, 2]: the fixed part of delays, for bad outcomes and for good ones
    scale: Any  # [N, 2]: times the logarithm of a uniform draw, the random part
    middle: float  # outcomes above it are good
    window: int
    default: float


class Waiting(NamedTuple):
    """Slots that do not count yet, and what has been observed. A place is a position + 1; 0: none."""

    arm: Any  # [N, C + M]: slots by round modulo C, then those of the first pulls
    reward: Any
    after: Any  # the place of the next slot in its list
    first: Any  # [N, C]: the list of a round, modulo C: its first place
    last: Any  # its last place
    latest: Any  # [N, M]: the round in which the arm's last slot counts
    unobserved: Any  # [N, M]: whether no reward of the arm has counted
    num_unobserved: Any  # [N]
    news: Any  # [N, M]: whether one has in this round
    before: Any  # [N, columns, M]: what was published before it


def lateness_of(problem: Problem) -> Lateness:
    """The numbers of a problem; without delays all are 0."""
    low, high = problem.reward_range or (0.0, 0.0)
    parts = [_parts(each) for each in problem.delays or ()]
    none = np.zeros((problem.num_agents, 2))
    return Lateness(
        rounds=np.array([[rounds for rounds, _ in part] for part in parts] or none, np.int64),
        scale=np.array([[scale for _, scale in part] for part in parts] or none),
        middle=(low + high) / 2.0,
        window=problem.reward_window,
        default=problem.default_reward or 0.0,
    )


def _parts(delays: Delays) -> tuple[tuple[int, float], tuple[int, float]]:
    low, high = (delays.low, delays.high) if isinstance(delays, ByOutcome) else (delays, delays)
    return (low.rounds, low.scale), (high.rounds, high.scale)


def rounds_of_waiting(problem: Problem, horizon: int) -> int:
    """C: how many rounds a slot may wait, its own among them, if it counts within the horizon; 0: none waits."""
    if not problem.is_late:
        return 0
    longest = max((each.longest for each in problem.delays or ()), default=0)
    rounds = min(problem.reward_window or longest + 1, horizon + 1)
    if problem.num_agents * rounds * _BYTES_PER_ROUND > MOST_BYTES:
        name = "reward_window" if problem.reward_window else "delays"
        size = problem.num_agents * rounds * _BYTES_PER_ROUND / 2**30
        hint = f"Rewards that wait would take {size:.0f} GiB in each trial."
        raise InvalidArgument(name, f"up to {rounds:,} rounds", "shorter", hint)
    return rounds


def new_waiting(num_agents: int, num_arms: int, columns: int, rounds: int) -> Waiting:
    """Nothing waits, and nothing has been observed. ``rounds``: C; 0 if rewards come at once."""
    agents, arms = (num_agents, num_arms) if rounds else (1, 1)
    slots = (agents, rounds + arms)
    return Waiting(
        arm=np.zeros(slots, np.int32),
        reward=np.zeros(slots),
        after=np.zeros(slots, np.int32),
        first=np.zeros((agents, max(rounds, 1)), np.int32),
        last=np.zeros((agents, max(rounds, 1)), np.int32),
        latest=np.zeros((agents, arms), np.int64),
        unobserved=np.ones((agents, arms), np.uint8),
        num_unobserved=np.full(agents, arms, np.int64),
        news=np.zeros((agents, arms), np.uint8),
        before=np.zeros((agents, columns, arms)),
    )


# ---------------------------------------------------------------- slots


@compile_inner
def _delay(lateness: Lateness, i: int, reward: float, bits: Any) -> Any:
    good = 1 if reward > lateness.middle else 0
    scale = lateness.scale[i, good]
    return lateness.rounds[i, good] + (np.int64(log(1.0 - uniform(bits)) * scale) if scale < 0.0 else np.int64(0))


@compile_inner
def place_of(waiting: Waiting, arm: Any, t: Any) -> Any:
    """Where a decision of round t waits; at t = 0 there is one of each arm."""
    rounds = waiting.first.shape[1]
    return t % rounds + 1 if t > 0 else rounds + np.int64(arm) + 1


@compile_inner
def put(waiting: Waiting, lateness: Lateness, streams: Any, i: int, arm: Any, slot: Any, t: Any, reward: float) -> None:
    """Put a decision into its slot, to wait until its reward counts; ``slot`` is its number in the arm's sequence."""
    delay = _delay(lateness, i, reward, draw(streams.delays[arm], np.uint64(slot)))
    if lateness.window > 0:
        reward = reward if delay < lateness.window else lateness.default
        delay = np.int64(lateness.window - 1)
    due = max(t + delay, waiting.latest[i, arm])  # not before the arm's earlier slots
    waiting.latest[i, arm] = due
    rounds = waiting.first.shape[1]
    if due - t >= rounds:
        return  # after the last round
    place = place_of(waiting, arm, t)
    waiting.arm[i, place - 1] = arm
    waiting.reward[i, place - 1] = reward
    waiting.after[i, place - 1] = 0
    last = waiting.last[i, due % rounds]
    if last > 0:
        waiting.after[i, last - 1] = place
    else:
        waiting.first[i, due % rounds] = place
    waiting.last[i, due % rounds] = place


@compile_inner
def first_due(waiting: Waiting, i: int, t: Any) -> Any:
    """The first slot of an agent that counts in this round, of which there is no news yet."""
    for k in range(waiting.news.shape[1]):
        waiting.news[i, k] = 0
    rounds = waiting.first.shape[1]
    place = waiting.first[i, t % rounds]
    waiting.first[i, t % rounds] = 0
    waiting.last[i, t % rounds] = 0
    return place


@compile_inner
def next_due(waiting: Waiting, i: int, place: Any) -> Any:
    """The slot after this one."""
    return waiting.after[i, place - 1]


@compile_inner
def note(waiting: Waiting, i: int, arm: Any, before: Any) -> None:
    """A reward of the arm counts now; ``before``: what the agent publishes of it."""
    waiting.num_unobserved[i] -= waiting.unobserved[i, arm]
    waiting.unobserved[i, arm] = 0
    if waiting.news[i, arm] == 0:
        waiting.news[i, arm] = 1
        for c in range(len(before)):
            waiting.before[i, c, arm] = before[c]


# ---------------------------------------------------------------- news of several arms


@compile_inner
def add_late_news(published: Any, population: Any, i: int, fixed: Any) -> None:
    """What an agent's observations of this round have changed in what it publishes."""
    me, waiting = population.agents[i], population.waiting
    num_arms = len(me.tried)
    for k in range(num_arms):
        if waiting.news[i, k] > 0:
            arm = np.uint64(k)
            add_news(population.averages, i, arm, num_arms, published(me, fixed, arm), waiting.before[i, :, k])
