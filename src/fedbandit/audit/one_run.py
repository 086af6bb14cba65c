"""Audits one run: coins set thousands of rewards, and an attacker guesses the coins from all that others see.

Steinke, Nasr and Jagielski (2023), Theorem 5.2: where each of these rewards is epsilon-private, the number of right
ones among r guesses is stochastically at most that of r tosses which come out right with probability e^eps / (1 +
e^eps), whatever the guesses depend on. So one run with many rewards shows what many runs with one reward show: here
every reward is a canary, at the top or the bottom of its range, and each release holds one of them. The attacker knows
its noise to be Laplace, and guesses where that decides: where what it reads is at or beyond an end of the range.
"""

import time
from collections.abc import Callable, Sequence
from math import inf, log
from random import Random  # coins, from a seed
from typing import NamedTuple

import numpy as np

from fedbandit.agent.core.decisions import Request
from fedbandit.agent.core.federation import Federation
from fedbandit.audit.measure import AuditResult, clopper_pearson
from fedbandit.audit.noise_tests import noisy_sums
from fedbandit.engine.streams import draw, laplace, stream
from fedbandit.policies import FedBatch
from fedbandit.privacy.noise import GRID, NoiseSource
from fedbandit.testing.memory_network import MemoryNetwork

__all__ = ["Guesses", "audit_run", "bound_of", "guess", "live_run", "simulated_run"]

GROWTH = 1.0001  # a release holds one reward for 10,000 rewards of an arm
ARMS = ("a", "b")
SITES = ("east", "north", "west")
NOISE = np.uint64(7)  # the purpose of a stream that nothing else has


class Guesses(NamedTuple):
    """What an attacker has guessed in one run: so many coins of all, and so many of them rightly."""

    right: int
    guesses: int
    coins: int


def guess(noisy: Sequence[float], coins: Sequence[bool]) -> Guesses:
    """Guess each coin from a noisy reward in steps of the grid, if that lies at or beyond an end of the range."""
    steps = [round(x) for x in noisy]  # readings differ in their last digits
    guessed = [(x >= GRID, coin) for x, coin in zip(steps, coins, strict=True) if x <= 0 or x >= GRID]
    return Guesses(sum(one == coin for one, coin in guessed), len(guessed), len(noisy))


def bound_of(found: Guesses, false_alarm: float) -> float:
    """A lower bound on epsilon that exceeds it with a probability of at most ``false_alarm``; 0 if nothing shows."""
    least, _ = clopper_pearson(found.right, found.guesses, false_alarm) if found.guesses else (0.0, 1.0)
    return log(least / (1.0 - least)) if 0.5 < least < 1.0 else inf if least == 1.0 else 0.0


def audit_run(
    run: Callable[[int], Guesses], *, claimed: float, false_alarm: float, canaries: int, seconds: float = inf
) -> AuditResult:
    """Bound epsilon by runs of so many coins together, each afresh; after these CPU seconds there is no further run.

    Runs are independent, so that their coins are those of one long run.
    """
    started, found = time.process_time(), Guesses(0, 0, 0)
    while found.coins < canaries and (not found.coins or time.process_time() - started < seconds):
        found = Guesses(*(one + more for one, more in zip(found, run(canaries - found.coins), strict=True)))
    at_least = bound_of(found, false_alarm)
    return AuditResult(claimed, at_least, 1.0 - false_alarm, found.guesses, time.process_time() - started)


# ---------------------------------------------------------------- a federation of live sites

AT_ONCE = 300  # decisions of a run: what sites know grows with it


def live_run(epsilon: float, coins: int, seed: int, noise: NoiseSource) -> Guesses:
    """Three live sites in memory: each reports the rewards that coins set, and reads what the others publish."""
    tosses = Random(seed)  # noqa: S311  # the coins of an audit
    terms = Federation("audit", ARMS, 0.0, 1.0, FedBatch(epsilon, first_batch=1, growth=GROWTH), counts="sites")
    network = MemoryNetwork(terms, [SITES[:2], SITES[1:]], seed, noise=noise, spreads=True)
    network.exchange(*SITES[:2])
    network.exchange(*SITES[1:])
    network.run()
    told: dict[tuple[str, int], list[bool]] = {(name, arm): [] for name in SITES for arm in range(len(ARMS))}
    means: dict[tuple[str, int], list[float]] = {place: [] for place in told}
    for number in range(min(coins, AT_ONCE)):
        name, arm = SITES[number % len(SITES)], number // len(SITES) % len(ARMS)
        (decision,) = network.request(name, Request(eligible=(arm,)))
        coin = tosses.random() < 0.5
        network.report(name, decision.id, terms.high if coin else terms.low)
        network.now += 1.0
        network.run(network.now)
        told[name, arm].append(coin)
        held = network.site(SITES[1] if name != SITES[1] else SITES[0]).board.held(name)
        entry = None if held is None else held.bulletin.by_arm[ARMS[arm]]
        known = entry is not None and entry.rewards == len(told[name, arm])
        means[name, arm].append(entry.row[0] if known and entry is not None else GRID / 2.0)
    noisy = [it for place in told for it in noisy_sums(terms, means[place], len(told[place]))]
    return guess(noisy, [coin for place in told for coin in told[place]])


# ---------------------------------------------------------------- the simulator


def _laplace(seed: int, agent: int, arm: int, end: int) -> float:
    """The simulator's noise of scale 1."""
    one = np.uint64(stream(np.uint64(seed), np.uint64(0), NOISE, np.uint64(agent), np.uint64(arm)))
    return float(laplace(np.uint64(draw(one, np.uint64(end)))))


def simulated_run(epsilon: float, coins: int, seed: int, factor: float = 1.0) -> Guesses:
    """Three agents of the simulator, with its own noise; ``factor``: by how much that is too small.

    The attacker reads each agent's mean after each release, which holds one reward.
    """
    from fedbandit.simulation.replay import Tape, replay  # compiles
    from fedbandit.world.graph import path

    agents, arms = len(SITES), len(ARMS)
    rounds = max(2, -(-coins // agents))
    source = np.random.default_rng(seed)  # coins, from a seed
    tosses = source.random((rounds + 1, agents, arms)) < 0.5
    noise = np.array(
        [[[_laplace(seed, i, k, end) for k in range(arms)] for i in range(agents)] for end in range(rounds + 2)]
    )
    edges, picks = np.tile(np.array([0, 1]), (rounds, 1)), np.full((rounds, agents), 0.5)
    tape = Tape(tosses.astype(float), edges, picks, path(agents), noise / factor, (0.0, 1.0))
    trace = replay(tape, FedBatch(epsilon, first_batch=1, growth=GROWTH))
    noisy: list[float] = []
    coins_of: list[bool] = []
    for t in range(rounds + 1):
        for i in range(agents):
            for k in range(arms):
                n, before = int(trace.n[t, i, k]), int(trace.n[t - 1, i, k]) if t else 0
                if n == before + 1:  # releases of equal size weigh alike
                    mean = float(trace.x_mean[t - 1, i, k]) if before else 0.0
                    noisy.append(GRID * (n * float(trace.x_mean[t, i, k]) - before * mean))
                    coins_of.append(bool(tosses[t, i, k]))
    return guess(noisy, coins_of)
