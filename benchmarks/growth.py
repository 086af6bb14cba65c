"""How the cost of ``simulate`` grows with agents, arms, rounds, trials and threads.

    python benchmarks/growth.py            # fills a table of benchmarks/README.md and docs/images/growth.png
    python benchmarks/growth.py --quick    # a tenth of the rounds, printed only

Five points each, all else as in the base: ten agents on a ring, ten arms, one thread. CPU seconds of the whole call,
all threads, compiled before; the least of several runs in turns, since other programs can only slow a run down. The
exponent is the slope of a straight line through the logarithms, by least squares: 1 is linear, 0 is free.
"""

import argparse
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import process_time

from fedbandit import FedBatch, FedUCB, GossipUCB, Problem, simulate
from fedbandit.policies import Policy
from fedbandit.world import graph
from readme_tables import markdown, where_and_when, write

FIGURE = Path(__file__).resolve().parent.parent / "docs" / "images" / "growth.png"

POLICIES: dict[str, Policy] = {
    "Gossip_UCB": GossipUCB(),
    "Fed_UCB": FedUCB(1.0, assume_sensitivity=1.0),
    "FedBatch Thompson": FedBatch(1.0, assume_sensitivity=1.0),
}

RUNS = 3

STYLES = (("o-", "#0072B2"), ("s--", "#D55E00"), ("^-.", "#009E73"))
"""Marker, dash and colour of each policy (Okabe and Ito 2008)."""


@dataclass(frozen=True)
class Case:
    """One call of ``simulate``."""

    agents: int = 10
    arms: int = 10
    rounds: int = 50_000
    trials: int = 1
    threads: int = 1

    def seconds(self, policy: Policy) -> float:
        """CPU seconds."""
        problem = Problem.random(self.agents, self.arms, graph.ring(self.agents), seed=0)
        began = process_time()
        simulate(problem, policy, self.rounds, self.trials, checkpoints=[self.rounds], threads=self.threads)
        return process_time() - began


@dataclass(frozen=True)
class Growth:
    """What grows, and the five cases."""

    what: str
    field: str
    values: tuple[int, ...]
    base: Case = Case()

    def cases(self) -> list[Case]:
        """The base with each value."""
        return [replace(self.base, **{self.field: value}) for value in self.values]

    def shrunk(self, by: int) -> "Growth":
        """The same with fewer rounds."""
        values = tuple(value // by for value in self.values) if self.field == "rounds" else self.values
        return replace(self, values=values, base=replace(self.base, rounds=self.base.rounds // by))


GROWTHS = (
    Growth("agents N", "agents", (10, 30, 100, 300, 1000)),
    Growth("arms M", "arms", (5, 10, 20, 40, 80)),
    Growth("rounds T", "rounds", (10_000, 30_000, 100_000, 300_000, 1_000_000)),
    Growth("trials", "trials", (1, 3, 10, 30, 100)),
    Growth("threads, 16 trials", "threads", (1, 2, 4, 8, 16), Case(trials=16)),
)


def exponent(values: Sequence[float], costs: Sequence[float]) -> float:
    """The slope of the costs over the values, both as logarithms, by least squares."""
    x, y = [math.log(it) for it in values], [math.log(it) for it in costs]
    x_mean, y_mean = sum(x) / len(x), sum(y) / len(y)
    above = sum((a - x_mean) * (b - y_mean) for a, b in zip(x, y, strict=True))
    return above / sum((a - x_mean) ** 2 for a in x)


def measured(growth: Growth, policy: Policy, runs: int) -> list[float]:
    """The least CPU seconds of each case, all cases in turns."""
    cases = growth.cases()
    for case in cases:
        replace(case, rounds=10, trials=1).seconds(policy)  # compiles; another M again
    least = [math.inf] * len(cases)
    for run in range(runs):
        for which in range(len(cases)) if run % 2 == 0 else reversed(range(len(cases))):
            least[which] = min(least[which], cases[which].seconds(policy))
    return least


def rounded_tick(value: int) -> str:
    """A value of an axis: 10,000 is 10k."""
    return f"{value // 10**6}M" if value >= 10**6 else f"{value // 1000}k" if value >= 10_000 else f"{value}"


def draw(found: dict[tuple[str, str], list[float]], to: Path) -> None:
    """A panel for each thing that grows, a line for each policy; dotted: linear."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 3.2), layout="constrained")
    panels = figure.subplots(1, len(GROWTHS))
    for panel, growth in zip(panels, GROWTHS, strict=True):
        lines = [found[growth.what, policy] for policy in POLICIES]
        for policy, costs, style in zip(POLICIES, lines, STYLES, strict=True):
            label = f"{policy}: {exponent(growth.values, costs):.2f}"
            panel.loglog(growth.values, costs, style[0], color=style[1], markersize=4, linewidth=1, label=label)
        if growth.field != "threads":
            straight = [lines[0][-1] * it / growth.values[-1] for it in growth.values]
            panel.loglog(growth.values, straight, ":", color="gray", linewidth=1)
        low, high = min(map(min, lines)), max(map(max, lines))
        panel.set_ylim(low / 2, 8 * high if high > 10 * low else 30 * high)  # room for the legend
        panel.set_xticks(growth.values, [rounded_tick(it) for it in growth.values])
        panel.minorticks_off()
        panel.set_xlabel(growth.what)
        panel.legend(fontsize=7, title="exponent", title_fontsize=7, loc="upper left", frameon=False)
        panel.tick_params(labelsize=7)
    panels[0].set_ylabel("CPU seconds")
    to.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(to, dpi=130)


def main() -> None:
    """Measure; print, fill the README and draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the rounds; leaves README and figure alone")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    runs, shrink = (1, 10) if given.quick else (RUNS, 1)
    found: dict[tuple[str, str], list[float]] = {}
    rows: list[list[str]] = []
    for growth in (each.shrunk(shrink) for each in GROWTHS):
        for name, policy in POLICIES.items():
            found[growth.what, name] = costs = measured(growth, policy, runs)
            points = ", ".join(
                f"{value:,}: {1e3 * cost:,.0f}" for value, cost in zip(growth.values, costs, strict=True)
            )
            rows.append([growth.what, name, points, f"{exponent(growth.values, costs):.2f}"])
            print(" | ".join(rows[-1]), flush=True)
    base = Growth("", "", ()).shrunk(shrink).base
    text = (
        f"{markdown(['grows', 'policy', 'CPU milliseconds at each value', 'exponent'], rows, left=3)}\n\n"
        f"Base: {base.agents} agents on a ring, {base.arms} arms, {base.rounds:,} rounds, one trial, one thread, "
        f"unless the row says otherwise; the least of {runs} runs. {where_and_when()}."
    )
    if given.quick:
        print(text.rpartition("\n\n")[2])
    else:
        write("growth", text)
        draw(found, FIGURE)


if __name__ == "__main__":
    main()
