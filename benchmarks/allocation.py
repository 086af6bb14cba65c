"""What it costs that nobody can predict an arm: regret beside a rotation of unknown arms, and of a ``least_share``.

Run with ``python benchmarks/allocation.py``; ``--quick`` plays a tenth of the instances. Prints Markdown. Instances are
paired: all ways see the same means, rewards, links and noise.
"""

import argparse
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbandit import FedBatch, Problem, Shares, delays, simulate
from fedbandit.policies import fed_batch
from fedbandit.policies.protocol import Page, highest_draw
from fedbandit.rules.choose import fewest_pulls, highest

SHARES = (0.0, 0.02, 0.05, 0.1)

LATE = {"reward_window": 500, "delays": delays.geometric(100)}

SETTINGS = {  # sites, arms, decisions of each, instances, rewards that come late
    "3 sites, 2 arms, 500 decisions": (3, 2, 500, 300, {}),
    "5 sites, 4 arms, 2,000 decisions": (5, 4, 2_000, 300, {}),
    "3 sites, 3 arms, 3,000 decisions, a window of 500": (3, 3, 3_000, 300, LATE),
    "10 sites, 10 arms, 20,000 decisions": (10, 10, 20_000, 100, {}),
    "10 sites, 5 arms, 100,000 decisions": (10, 5, 100_000, 100, {}),
}


def in_turn(me: Any, terms: Any, seen: Any, now: Any, draws: Any) -> int:
    """As FedBatch Thompson, but for unknown arms, which come in turn."""
    if me.num_unknown > 0:
        return fewest_pulls(me.tried, me.unknown)
    return highest_draw(me.theta, me.spread, draws)


def in_turn_by_radius(me: Any, terms: Any, seen: Any, now: Any, draws: Any) -> int:
    """As FedBatch UCB, but for unknown arms."""
    if me.num_unknown > 0:
        return fewest_pulls(me.tried, me.unknown)
    for k in range(len(me.belief)):
        me.belief[k] = me.theta[k] + fed_batch.radius(me, terms, seen, now, k)
    return highest(me.belief)


@dataclass(frozen=True)
class Rotating:
    """FedBatch with a rotation of unknown arms."""

    epsilon: float
    index: Any

    def page(self) -> Page:
        """FedBatch's, with another ``decide``."""
        decide = in_turn if self.index == "thompson" else in_turn_by_radius
        return FedBatch(self.epsilon, self.index).page()._replace(decide=decide)

    def terms(self, setting: Any) -> Any:
        """FedBatch's."""
        return FedBatch(self.epsilon, self.index).terms(setting)


def main() -> None:
    """Print both tables. With every share the floors of all arms sum to less than 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the instances")
    part = 10 if parser.parse_args().quick else 1
    warnings.simplefilter("ignore")
    print("| | index | in turn: mean (worst 1 %) | urn: mean (worst 1 %) | urn - in turn |\n|---|---|---|---|---|")
    for name in SETTINGS:
        for index in ("thompson", "ucb"):
            policies = {"in turn": Rotating(1.0, index), "urn": FedBatch(1.0, index)}
            rotating, urn = regret(name, policies, part)
            said = f"{cell(rotating)} | {cell(urn)} | {pair(urn - rotating)} |"
            print(f"| {name} | {index} | {said}", flush=True)
    headings = [*(f"`least_share` {share:g}" for share in SHARES), "all arms alike"]
    print(f"\n| | {' | '.join(headings)} |\n{'|---' * (1 + len(headings))}|")
    for name in SETTINGS:
        given = [share for share in SHARES if share * SETTINGS[name][1] < 1.0]
        cells = [
            cell(regret(name, {"urn": FedBatch(1.0)}, part, Shares(least_share=share) if share else None)[0])
            for share in given
        ] + ["not possible"] * (len(SHARES) - len(given))
        cells.append(f"{np.mean([alike(it, SETTINGS[name][2]) for it in instances(name, part)]):.0f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def regret(name: str, policies: dict[str, Any], part: int, shares: Shares | None = None) -> NDArray[np.float64]:
    """Per site: [policy, instance]."""
    horizon, problems = SETTINGS[name][2], instances(name, part)
    count = len(problems)
    options = {} if shares is None else {"shares": shares}
    found = simulate(
        problems, policies, horizon=horizon, trials=count, seed=9, checkpoints=[horizon], **options
    ).dataset.regret
    return found.mean("agent").values.reshape(len(policies), count)


def instances(name: str, part: int) -> list[Problem]:
    """The problems of a setting, or a part of them."""
    sites, arms, _, count, late = SETTINGS[name]
    links = "ring" if sites > 2 else "path"
    return [
        Problem.random(sites, arms, links, seed=7000 + i, rewards="bernoulli", **late) for i in range(count // part)
    ]


def alike(problem: Problem, horizon: int) -> float:
    """The regret of giving all arms alike often, per site."""
    means = np.asarray(problem.means).mean(axis=0)
    return float(horizon * (means.max() - means.mean()))


def cell(found: NDArray[np.float64]) -> str:
    """The mean with its standard error, and the mean of the worst hundredth."""
    worst = np.sort(found)[-max(len(found) // 100, 1) :].mean()
    return f"{pair(found)} ({worst:.1f})"


def pair(found: Sequence[float] | NDArray[np.float64]) -> str:
    """A mean with its standard error."""
    return f"{np.mean(found):.2f} ± {np.std(found) / len(found) ** 0.5:.2f}"


if __name__ == "__main__":
    main()
