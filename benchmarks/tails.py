"""Measures how bad FedBatch Thompson can get: mean, worst 1 % and worst regret over many trials of many problems.

    python benchmarks/tails.py FILE            # play what FILE does not hold yet, and add it; stop and go on at will
    python benchmarks/tails.py FILE --quick    # a few trials of a few problems
    python benchmarks/tails.py FILE --write    # then write the table and figure of docs/fedbatch.md

Rewards are 0 or 1, the graph is complete, one edge per round. One arm has mean 0.5 + gap / 2, all others 0.5 - gap / 2,
at every agent alike ("same"), or on average over agents that differ by up to 0.4 ("own"). A trial is called linear if
it loses, in the second half of its rounds, more than half of what the second best arm would lose there. Files of two
versions of the project can be compared line by line: same problems, same seed.
"""

import argparse
import json
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib import pyplot as plt
from numpy.typing import NDArray

from fedbandit import FedBatch, Problem, simulate

ROOT = Path(__file__).resolve().parents[1]
PAGE, FIGURE = ROOT / "docs" / "fedbatch.md", ROOT / "docs" / "images" / "tails.png"
BEGIN, END = "<!-- tails: written by benchmarks/tails.py -->", "<!-- end of tails -->"

TRIALS = {1: 1000, 2: 1000, 3: 600, 5: 300, 10: 100, 30: 30}  # of each number of agents
ARMS = (2, 5, 10)
HORIZONS = {0.2: 20_000, 0.05: 20_000, 0.02: 60_000}  # of each gap
EPSILONS = (0.3, 1.0, 3.0)
BIAS = 0.2
SEED = 20_000
AIM = 5.0
"""The worst 1 % should lose at most so many times the mean."""


class Cell(NamedTuple):
    """One problem."""

    agents: int
    arms: int
    gap: float
    epsilon: float
    means: str  # same or own

    @property
    def problem(self) -> Problem:
        """The first arm is the best; agents' own means are spread evenly around the average, in an order by arm."""
        means = np.full((self.agents, self.arms), 0.5 - self.gap / 2)
        means[:, 0] += self.gap
        if self.means == "own":
            order = np.random.default_rng(7)
            for k in range(self.arms):
                means[:, k] += order.permutation(np.linspace(-BIAS, BIAS, self.agents))
        return Problem.bernoulli(means, f"complete:{self.agents}")


class Tail(NamedTuple):
    """What was lost in one cell, per agent."""

    mean: float
    error: float
    worst_hundredth: float  # the mean over the worst 1 % of the trials, one at least
    worst: float
    linear: int
    trials: int

    @property
    def ratio(self) -> float:
        """How many times the mean the worst 1 % lose."""
        return self.worst_hundredth / self.mean


def cells() -> Iterator[Cell]:
    """All of them, those of many agents last; a lone agent has no own means."""
    for agents, gap, arms, epsilon, means in product(TRIALS, HORIZONS, ARMS, EPSILONS, ("same", "own")):
        if agents > 1 or means == "same":
            yield Cell(agents, arms, gap, epsilon, means)


def measured(cell: Cell, trials: int) -> Tail:
    """Play FedBatch Thompson."""
    horizon = HORIZONS[cell.gap]
    half, whole = horizon // 2, horizon
    run = simulate(cell.problem, FedBatch(cell.epsilon), horizon, trials, SEED, [half, whole], threads=1)
    regret: NDArray[np.float64] = run.regret.mean("agent").isel(policy=0).transpose("trial", "time").to_numpy()
    losses, late = np.sort(regret[:, 1]), regret[:, 1] - regret[:, 0]
    return Tail(
        mean=round(float(losses.mean()), 3),
        error=round(float(losses.std(ddof=1)) / trials**0.5, 3),
        worst_hundredth=round(float(losses[-max(1, trials // 100) :].mean()), 3),
        worst=round(float(losses[-1]), 3),
        linear=int(np.sum(late > 0.5 * cell.gap * (whole - half))),
        trials=trials,
    )


def read(path: Path) -> dict[Cell, Tail]:
    """What a file holds."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {Cell(*cell): Tail(*tail) for cell, tail in map(json.loads, lines)}


def play(path: Path, quick: bool) -> None:
    """Add to the file what it does not hold."""
    done = read(path)
    for cell in cells():
        if cell in done or (quick and (cell.agents > 3 or cell.gap < 0.05 or cell.means == "own")):
            continue
        begun = time.perf_counter()
        tail = measured(cell, TRIALS[cell.agents] // (10 if quick else 1))
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([cell, tail]) + "\n")
        print(f"{shown(cell)}: {described(tail)}, {time.perf_counter() - begun:.0f} s", flush=True)


def shown(cell: Cell) -> str:
    """A cell in words."""
    return (
        f"N = {cell.agents}, M = {cell.arms}, gap {cell.gap:g}, eps {cell.epsilon:g}, {cell.means} means"
        if cell.agents > 1
        else f"N = 1, M = {cell.arms}, gap {cell.gap:g}, eps {cell.epsilon:g}"
    )


def described(tail: Tail) -> str:
    """A tail in words."""
    return (
        f"{tail.mean:.1f} ± {tail.error:.1f}, worst 1 % {tail.worst_hundredth:.0f} ({tail.ratio:.1f} times), "
        f"worst {tail.worst:.0f}, {tail.linear} linear of {tail.trials}"
    )


def table(found: dict[Cell, Tail]) -> str:
    """A line for each number of agents and gap, over all arms, epsilons and kinds of means."""
    lines = [
        "| N | gap | T | trials | problems | mean | worst 1 % | worst 1 % / mean: median, most "
        f"| problems above {AIM:g} | linear trials |",
        f"|{'---|' * 10}",
    ]
    for agents, gap in product(TRIALS, HORIZONS):
        tails = [tail for cell, tail in found.items() if (cell.agents, cell.gap) == (agents, gap)]
        if not tails:
            continue
        ratios = [tail.ratio for tail in tails]
        numbers = [
            f"{agents}",
            f"{gap:g}",
            f"{HORIZONS[gap]:,}",
            f"{TRIALS[agents]:,}",
            f"{len(tails)}",
            f"{float(np.mean([tail.mean for tail in tails])):,.0f}",
            f"{float(np.mean([tail.worst_hundredth for tail in tails])):,.0f}",
            f"{float(np.median(ratios)):.1f}, {max(ratios):.1f}",
            f"{sum(ratio > AIM for ratio in ratios)}",
            f"{sum(tail.linear for tail in tails):,} of {sum(tail.trials for tail in tails):,}",
        ]
        lines.append(f"| {' | '.join(numbers)} |")
    return "\n".join(lines)


def draw(found: dict[Cell, Tail]) -> None:
    """The tail of every problem over its mean."""
    figure, panel = plt.subplots(figsize=(8, 4.2), layout="constrained")
    for agents, colour in zip(TRIALS, plt.get_cmap("viridis")(np.linspace(0.0, 0.9, len(TRIALS))), strict=True):
        tails = [tail for cell, tail in found.items() if cell.agents == agents]
        means, ratios = [tail.mean for tail in tails], [tail.ratio for tail in tails]
        panel.loglog(
            means, ratios, "o", color=colour, markersize=4, label=f"{agents} agents, {TRIALS[agents]:,} trials"
        )
    panel.axhline(AIM, color="grey", linestyle="--", linewidth=1)
    panel.set(xlabel="mean regret per agent", ylabel="worst 1 % / mean")
    panel.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
    panel.minorticks_off()
    panel.grid(alpha=0.25)
    figure.legend(*panel.get_legend_handles_labels(), fontsize=8, loc="outside right upper")
    figure.savefig(FIGURE, dpi=130)


def write(found: dict[Cell, Tail]) -> None:
    """Replace this script's part of the page, and its figure."""
    draw(found)
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}\n\n{table(found)}\n\n{END}{after}", encoding="utf-8")


def main() -> None:
    """Play, and write if wanted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # pyright: ignore[reportOptionalMemberAccess]
    parser.add_argument("file", type=Path)
    parser.add_argument("--quick", action="store_true", help="a tenth of the trials of a few problems")
    parser.add_argument("--write", action="store_true", help="write the page")
    arguments = parser.parse_args()
    play(arguments.file, arguments.quick)
    if arguments.write:
        write(read(arguments.file))


if __name__ == "__main__":
    main()
