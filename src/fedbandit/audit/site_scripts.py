"""The runs in which a live site is attacked: two arms, four releases and more, restarts, crashes, late rewards.

Rewards are spread over a range that is not [0, 1], no two alike; draws make both arms come and let a small difference
between them decide now and then.
"""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Literal

from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.memory_network import Crash
from fedbandit.agent.core.site import DecisionDraws
from fedbandit.audit.script import Entry, Script
from fedbandit.policies import FedBatch, FedUCB

__all__ = ["HIGH", "LOW", "draws_for", "random_scripts", "scripts_of", "with_real_noise"]

LOW, HIGH = -1.0, 3.0
WINDOW = 4
DAY = 86400.0
MUCH = 1e9  # more than any estimate
DECISIONS = {"fed_batch": 26, "fed_ucb": 12}


def scripts_of(policy: str, epsilon: float) -> dict[str, Script]:
    """The runs for one policy, by name."""
    chosen = _policy(policy, epsilon)
    count = DECISIONS[policy]
    terms = Federation("audit", 2, ("a", "b"), LOW, HIGH, chosen, counts="sites")
    window = replace(terms, reward_window=float(WINDOW))
    values = _values(count)
    at_once = Script(
        terms, tuple(Entry(value) for value in values), _draws(count), offers=frozenset(range(1, 2 * count, 3))
    )
    late = replace(at_once, terms=window, entries=_late(values), seconds=count + WINDOW + 2)
    missing = tuple(entry._replace(value=None) if n in (3, 4) else entry for n, entry in enumerate(at_once.entries))
    half = count // 2
    by_rate: dict[str, Script] = {}
    if policy == "fed_batch":
        patients = replace(terms, counts="patients", reward_window=WINDOW * DAY)
        by_rate = {"late rewards, patients count": replace(late, terms=patients, pace=DAY, restarts={half: 1})}
    return {
        "rewards at once": at_once,
        "restarts and crashes": replace(
            at_once,
            restarts={half: 1, half + 3: 2},
            crashes={(3, "report"): "torn", (5, "decide"): "before", (7, "report"): "before", (8, "report"): "after"},
        ),
        **by_rate,
        "late rewards": late,
        "late rewards, restarts": replace(
            late,
            restarts={5: 1, half: 1},
            crashes={(7, "decide"): "before", (8, "decide"): "after", (11, "decide"): "torn"},
        ),
        "missing rewards, lost disk": replace(at_once, entries=missing, keeps={10: 2}, losses=frozenset({half + 2})),
    }


def with_real_noise(epsilon: float) -> Script:
    """Four releases of each arm, by turns, and a restart in the middle: short, to be played often."""
    terms = Federation("audit", 2, ("a", "b"), 0.0, 1.0, FedBatch(epsilon, first_batch=2), counts="sites")
    draws = tuple(draws_for(number % 2) for number in range(16))
    return Script(terms, tuple(Entry(value) for value in _values(16, 0.0, 1.0)), draws, restarts={9: 1})


def draws_for(arm: int) -> DecisionDraws:
    """Draws that decide for an arm, whatever the estimates are."""
    return DecisionDraws((MUCH, -MUCH) if arm == 0 else (-MUCH, MUCH), 0.5)


def random_scripts(policy: str, epsilon: float, count: int, seed: int = 0) -> Iterator[Script]:
    """Runs with any delays, restarts, crashes and lost disks; the same ones for the same seed."""
    source = Random(seed)  # noqa: S311  # what is attacked, not what protects
    for _ in range(count):
        yield _random(policy, epsilon, source)


def _policy(policy: str, epsilon: float) -> FedBatch | FedUCB:
    return FedBatch(epsilon, first_batch=2, growth=1.5) if policy == "fed_batch" else FedUCB(epsilon, horizon=10)


def _values(count: int, low: float = LOW, high: float = HIGH) -> list[float]:
    return [low + (high - low) * (number * 0.381966 % 1.0) for number in range(1, count + 1)]


def _draws(count: int) -> tuple[DecisionDraws, ...]:
    sizes = [1.5 * (2.0 * (number * 0.618034 % 1.0) - 1.0) for number in range(1, count + 1)]
    return tuple(DecisionDraws((size, -size), 0.5) for size in sizes)


def _late(values: list[float]) -> tuple[Entry, ...]:
    """At once, later, in the last moment, too late, never, out of range."""
    found: list[Entry] = []
    for number, value in enumerate(values):
        kinds = (
            *(Entry(value), Entry(value, WINDOW - 1), Entry(value, 1), Entry(value, WINDOW + 2)),
            *(Entry(None), Entry(value + 2.0 * (HIGH - LOW)), Entry(value, 2)),
        )
        found.append(kinds[number % len(kinds)])
    return tuple(found)


def _random(policy: str, epsilon: float, source: Random) -> Script:
    chosen = _policy(policy, epsilon)
    low = source.choice([0.0, -1.0, 5.0])
    high, count = low + source.choice([1.0, 4.0, 0.3]), source.randint(8, DECISIONS[policy])
    if isinstance(chosen, FedBatch):
        index: Literal["thompson", "ucb", "kl"] = source.choice(["thompson", "ucb"])
        index = "kl" if (low, high) == (0.0, 1.0) and source.random() < 0.5 else index
        chosen = replace(chosen, index=index, first_batch=source.randint(1, 4), growth=source.choice([1.1, 1.25, 2.0]))
        if index == "ucb" and source.random() < 0.5:
            chosen = replace(chosen, radius="safe")
    window, pace = source.choice([0, 3, 6]), source.choice([1.0, DAY])
    terms = Federation(
        "audit",
        2,
        ("a", "b"),
        low,
        high,
        chosen,
        reward_window=window * pace,
        default_reward=source.choice([None, high]),
        counts=source.choice([None, "sites"]),
    )
    delays = [0, 0, 1, 2, 5, 9] if window else [0]
    entries = [
        Entry(source.choice([low, high, source.uniform(low, high)]), source.choice(delays)) for _ in range(count)
    ]
    entries = [entry._replace(value=None) if source.random() < 0.1 else entry for entry in entries]
    kinds: list[Crash] = ["before", "torn", "after"]
    crashes: dict[tuple[int, str], Crash] = {}
    for _ in range(2):
        crashes[source.randint(1, count), "decide"] = source.choice(kinds)
    second = source.randint(1, count)
    if not window and entries[second - 1].value is not None:  # with one, no fault may depend on when a reward comes
        crashes[second, "report"] = source.choice(kinds)
    return Script(
        terms,
        tuple(entries),
        tuple(DecisionDraws((source.gauss(0.0, 1.5), source.gauss(0.0, 1.5)), source.random()) for _ in entries),
        seconds=count + window + 2,
        pace=pace,
        offers=frozenset(second for second in range(1, 60) if source.random() < 0.4),
        restarts={source.randint(1, count): source.randint(1, 2) for _ in range(source.randint(0, 2))},
        crashes=crashes,
        losses=frozenset({source.randint(2, count)}) if source.random() < 0.3 else frozenset(),
        keeps={source.randint(1, count): source.randint(0, 4)} if source.random() < 0.3 else {},
    )
