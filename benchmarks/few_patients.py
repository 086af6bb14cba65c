"""Measures FedBatch with few decisions, beside playing alone, and writes the tables and figure of docs/few-patients.md.

    python benchmarks/few_patients.py           # about twelve minutes of processor time
    python benchmarks/few_patients.py --quick   # a tenth of the trials; writes nothing

All numbers are regret over that of uniform play, which is gap (M - 1) / M per decision. Rewards are 0 or 1; one arm has
mean 0.5 + gap / 2, all others 0.5 - gap / 2, at every agent: the world in which playing alone does best. Agents gossip
on a ring, a random maximal matching per round.
"""

import argparse
import warnings
from itertools import pairwise, product
from math import ceil, exp, inf, log
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt
from numpy.typing import NDArray

from fedbandit import FedBatch, FewPatientsWarning, LocalUCB, Problem, simulate
from fedbandit.policies import Policy
from fedbandit.rules.batch import LEAST_FIRST_BATCH, break_even_decisions, default_first_batch

ROOT = Path(__file__).resolve().parents[1]
PAGE, FIGURE = ROOT / "docs" / "few-patients.md", ROOT / "docs" / "images" / "few-patients.png"
MARK = "<!-- from here on written by benchmarks/few_patients.py -->"

DECISIONS = [100, 200, 500, 1000, 2000, 5000]
EPSILONS = [0.1, 0.3, 1.0, 3.0]
AGENTS = {3: 600, 10: 300, 30: 200}  # and trials: agents of one trial share their luck
ARMS = [2, 5]
GAP, SMALL_GAP = 0.2, 0.1
ALONE_TRIALS = 1500
SHARES = [0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 1.0, inf]
SHARE_GAPS, SHARE_EPSILONS = (0.05, 0.1, 0.2), (0.1, 0.3, 1.0)

Row = NDArray[np.float64]  # a number for each of DECISIONS, and its standard error


class World:
    """One instance; measures policies at all of DECISIONS."""

    def __init__(self, num_agents: int, num_arms: int, gap: float, trials: int) -> None:
        """The best arm is the first."""
        means = np.full((num_agents, num_arms), 0.5 - gap / 2)
        means[:, 0] += gap
        graph = "complete:1" if num_agents == 1 else f"ring:{num_agents}"
        self.problem = Problem.bernoulli(means, graph, edges_per_round="matching")
        self.uniform, self.trials = gap * (num_arms - 1) / num_arms, trials

    def at(self, policies: dict[str, Policy], horizon: int) -> dict[str, Row]:
        """Means and standard errors over trials, [2, times], up to this horizon."""
        times = [t for t in DECISIONS if t <= horizon]
        regret = simulate(self.problem, policies, horizon, self.trials, checkpoints=times).regret.mean("agent")
        ratio = regret / (self.uniform * np.array(times))
        return {
            name: np.stack(
                [ratio.sel(policy=name).mean("trial"), ratio.sel(policy=name).std("trial") / self.trials**0.5]
            )
            for name in policies
        }

    def expecting(self, epsilons: list[float]) -> dict[float, Row]:
        """FedBatch that is told the horizon, each of DECISIONS in turn."""
        rows: dict[float, list[Row]] = {epsilon: [] for epsilon in epsilons}
        for horizon in DECISIONS:
            policies: dict[str, Policy] = {str(e): FedBatch(e, expected_decisions=horizon) for e in epsilons}
            for name, row in self.at(policies, horizon).items():
                rows[float(name)].append(row[:, -1])
        return {epsilon: np.stack(row, axis=1) for epsilon, row in rows.items()}

    def not_expecting(self, epsilons: list[float]) -> dict[float, Row]:
        """FedBatch with the default first batch."""
        found = self.at({str(e): FedBatch(e) for e in epsilons}, DECISIONS[-1])
        return {float(name): row for name, row in found.items()}


class Measured:
    """All rows for one gap."""

    def __init__(self, gap: float, quick: int) -> None:
        """Measure."""
        self.ucb: dict[int, Row] = {}
        self.thompson: dict[int, Row] = {}
        self.private_alone: dict[int, dict[float, Row]] = {}
        self.told: dict[tuple[int, int], dict[float, Row]] = {}
        self.untold: dict[tuple[int, int], dict[float, Row]] = {}
        for num_arms in ARMS:
            alone = World(1, num_arms, gap, ALONE_TRIALS // quick)
            self.ucb[num_arms] = alone.at({"ucb": LocalUCB()}, DECISIONS[-1])["ucb"]
            self.thompson[num_arms] = alone.not_expecting([inf])[inf]
            self.private_alone[num_arms] = alone.expecting(EPSILONS)
            for num_agents, trials in AGENTS.items():
                world = World(num_agents, num_arms, gap, trials // quick)
                self.told[num_agents, num_arms] = world.expecting(EPSILONS)
                self.untold[num_agents, num_arms] = world.not_expecting(EPSILONS)
                print(f"gap {gap}, {num_arms} arms, {num_agents} agents", flush=True)

    @property
    def largest_error(self) -> float:
        """The largest standard error of a number in the tables."""
        alone = [
            *self.ucb.values(),
            *self.thompson.values(),
            *(r for x in self.private_alone.values() for r in x.values()),
        ]
        together = [row for group in (*self.told.values(), *self.untold.values()) for row in group.values()]
        return max(float(row[1].max()) for row in [*alone, *together])


def crossing(row: Row, alone: Row) -> str:
    """From how many decisions the row stays below the other, on a logarithmic axis."""
    lead = row[0] - alone[0]
    if lead[0] < 0.0:
        return f"< {DECISIONS[0]}"
    for (before, after), (t, later) in zip(pairwise(lead), pairwise(DECISIONS), strict=True):
        if after < 0.0:
            part = before / (before - after)
            return f"{float(f'{exp(log(t) + part * log(later / t)):.2g}'):,.0f}"
    return f"> {DECISIONS[-1]:,}"


def cell(told: float, untold: float, ucb: float, thompson: float) -> str:
    """Told, and untold in brackets; bold: better than Thompson alone; italic: worse than UCB1 alone."""
    shown = f"**{told:.2f}**" if told < thompson else f"*{told:.2f}*" if told > ucb else f"{told:.2f}"
    return f"{shown} ({untold:.2f})"


def table(measured: Measured, num_arms: int) -> str:
    """All agents and epsilons for so many arms, and playing alone first."""
    ucb, thompson = measured.ucb[num_arms], measured.thompson[num_arms]
    lines = [
        f"| N | epsilon | {' | '.join(f'T = {t:,}' for t in DECISIONS)} |",
        f"|---|---|{'---|' * len(DECISIONS)}",
    ]

    def plain(name: str, epsilon: str, row: Row) -> str:
        return f"| {name} | {epsilon} | {' | '.join(f'{x:.2f}' for x in row[0])} |"

    lines.append(plain("alone, UCB1", "", ucb))
    lines.append(plain("alone, Thompson", "", thompson))
    lines += [plain("alone, FedBatch", f"{e:g}", row) for e, row in measured.private_alone[num_arms].items()]
    for num_agents, epsilon in product(AGENTS, EPSILONS):
        told, untold = (found[num_agents, num_arms][epsilon] for found in (measured.told, measured.untold))
        cells = [cell(*four) for four in zip(told[0], untold[0], ucb[0], thompson[0], strict=True)]
        lines.append(f"| {num_agents} | {epsilon:g} | {' | '.join(cells)} |")
    return "\n".join(lines)


def break_evens(wide: Measured, narrow: Measured) -> str:
    """Where FedBatch begins to lose less than a site alone, for both gaps, beside the formula of the warning."""
    lines = [
        f"| M | N | epsilon | UCB1 alone, gap {GAP:g} | gap {SMALL_GAP:g} | the warning's formula "
        f"| Thompson alone, gap {GAP:g} | gap {SMALL_GAP:g} |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for m, n, epsilon in product(ARMS, AGENTS, EPSILONS):
        ucb = [crossing(it.told[n, m][epsilon], it.ucb[m]) for it in (wide, narrow)]
        thompson = [crossing(it.told[n, m][epsilon], it.thompson[m]) for it in (wide, narrow)]
        formula = f"{float(f'{break_even_decisions(epsilon, n, m):.2g}'):,.0f}"
        lines.append(f"| {m} | {n} | {epsilon:g} | {' | '.join([*ucb, formula, *thompson])} |")
    return "\n".join(lines)


def shares(quick: int) -> str:
    """How much of the decisions all first batches may take: the excess over the best share of each instance."""
    excess: list[list[float]] = []
    for num_agents, num_arms, gap in product(AGENTS, ARMS, SHARE_GAPS):
        world = World(num_agents, num_arms, gap, AGENTS[num_agents] // (4 * quick) + 1)
        for epsilon, horizon in product(SHARE_EPSILONS, DECISIONS):
            sizes = [first_size(share, horizon, epsilon, num_arms, num_agents) for share in SHARES]
            found = world.at({str(size): FedBatch(epsilon, first_batch=size) for size in set(sizes)}, horizon)
            losses = [float(found[str(size)][0, -1]) for size in sizes]
            excess.append([loss - min(losses) for loss in losses])
        print(f"shares: {num_agents} agents, {num_arms} arms, gap {gap}", flush=True)
    lines = [
        f"| share | {' | '.join('none' if s == inf else f'{s:g}' for s in SHARES)} |",
        f"|---|{'---|' * len(SHARES)}",
        f"| mean | {' | '.join(f'{x:.3f}' for x in np.mean(excess, axis=0))} |",
        f"| worst | {' | '.join(f'{x:.2f}' for x in np.max(excess, axis=0))} |",
    ]
    return "\n".join(lines)


def first_size(share: float, decisions: int, epsilon: float, num_arms: int, num_agents: int) -> int:
    """``rules.batch.first_size`` with another share."""
    most = default_first_batch(epsilon, num_agents)
    return ceil(min(most, max(share * decisions / num_arms, LEAST_FIRST_BATCH)))


def draw(measured: Measured, num_arms: int) -> None:
    """A panel for each number of agents."""
    figure, panels = plt.subplots(1, len(AGENTS), figsize=(12, 3.6), sharey=True, layout="constrained")
    colours = plt.get_cmap("viridis")(np.linspace(0.85, 0.1, len(EPSILONS)))
    for panel, num_agents in zip(panels, AGENTS, strict=True):
        for epsilon, colour in zip(EPSILONS, colours, strict=True):
            told, untold = (found[num_agents, num_arms][epsilon][0] for found in (measured.told, measured.untold))
            panel.plot(DECISIONS, told, "o-", color=colour, markersize=3.5, label=f"FedBatch, epsilon {epsilon:g}")
            panel.plot(DECISIONS, untold, ":", color=colour, linewidth=1.2)
        panel.plot([], [], ":", color="grey", label="the same, not told T")
        panel.plot(DECISIONS, measured.ucb[num_arms][0], "--", color="black", label="alone, UCB1")
        panel.plot(DECISIONS, measured.thompson[num_arms][0], "-", color="firebrick", label="alone, Thompson")
        panel.set(title=f"{num_agents} sites", xlabel="decisions of a site, T", xscale="log", ylim=(0, 1.05))
        panel.set_xticks(DECISIONS, [f"{t:,}" for t in DECISIONS])
        panel.minorticks_off()
        panel.grid(alpha=0.25)
    panels[0].set_ylabel("regret / that of uniform play")
    figure.legend(*panels[0].get_legend_handles_labels(), fontsize=8, loc="outside right upper")
    figure.savefig(FIGURE, dpi=130)


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # pyright: ignore[reportOptionalMemberAccess]
    parser.add_argument("--quick", action="store_true", help="a tenth of the trials; writes nothing")
    quick = 10 if parser.parse_args().quick else 1
    warnings.simplefilter("ignore", FewPatientsWarning)
    wide, narrow = Measured(GAP, quick), Measured(SMALL_GAP, quick)
    written = (
        f"{MARK}\n\n"
        f"### Two arms, gap {GAP:g}\n\n{table(wide, 2)}\n\n### Five arms, gap {GAP:g}\n\n{table(wide, 5)}\n\n"
        f"The largest standard error of a number is {max(wide.largest_error, narrow.largest_error):.3f}.\n\n"
        f"### The break-even\n\n{break_evens(wide, narrow)}\n\n"
        f"### The share of the first batches\n\n{shares(quick)}\n"
    )
    if quick > 1:
        print(written)
        return
    draw(wide, ARMS[-1])
    head, _, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    PAGE.write_text(head + written, encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)} and {FIGURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
