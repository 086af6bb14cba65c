"""Measures what strata cost and save: FedBatch that ignores them, one for each, and one that learns if they matter.

    python benchmarks/strata.py FILE            # play what FILE does not hold yet, and add it; stop and go on at will
    python benchmarks/strata.py FILE --tuning   # on other instances: those on which the design may be chosen
    python benchmarks/strata.py FILE --write    # write the table and the figure of docs/context.md from FILE
    python benchmarks/strata.py --speed         # agent-pulls per second beside FedBatch, in one run

Path, one edge per round, releases, rewards 0 or 1. Worlds: a, strata do not matter; b, every stratum has its own order
of arms, the same at all sites; c, small interactions of standard deviation 0.05; d, every cell of every site its own.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedbandit import FedBatch, Problem, simulate
from fedbandit.figures.regret import COLOURS, STYLE

PAGE = Path(__file__).resolve().parents[1] / "docs" / "context.md"
FIGURE = PAGE.parent / "images" / "context.png"
BEGIN, END = "<!-- strata: written by benchmarks/strata.py -->", "<!-- end of strata -->"
POLICIES = ("ignore", "separate", "strata")
TUNING, FRESH = 4_000, 800_000  # the first instance
AT_ONCE = 8
GOAL, TAIL_GOAL = 1.1, 5.0
UNEQUAL = (0.6, 0.25, 0.1, 0.05)


class Row(NamedTuple):
    """A line of the table."""

    world: str
    agents: int
    arms: int
    strata: int
    epsilon: float
    horizon: int
    instances: int
    kind: str = ""  # what else is special

    @property
    def name(self) -> str:
        """The line in files."""
        return " ".join(map(str, self._replace(instances=0)))


ROWS = (
    *(Row(world, 10, 5, 4, 1.0, T, 80) for T in (2_000, 20_000, 100_000) for world in "abcd"),
    *(Row(world, 10, 5, 4, eps, 20_000, 80) for eps in (0.5, 3.0) for world in "ab"),
    *(Row(world, 5, 3, 2, 1.0, 20_000, 80) for world in "abc"),
    *(Row(world, 20, 5, 8, 1.0, 20_000, 80) for world in "ab"),
    *(Row(world, 10, 5, 4, 1.0, 20_000, 80, "60/25/10/5 %") for world in "ab"),
    *(Row(world, 10, 5, 4, 1.0, 20_000, 80, "half act in a tenth of the rounds") for world in "ab"),
    *(Row(world, 10, 5, 4, 1.0, 20_000, 80, "half act in a tenth of the rounds, patients count") for world in "ab"),
    *(Row(world, 10, 5, 4, 1.0, 20_000, 80, "delays geometric:200") for world in "ab"),
)


def means_of(row: Row, seed: int) -> NDArray[np.float64]:
    """The means of an instance, by site, stratum and arm."""
    source = np.random.default_rng(seed)
    sites, arms, strata = row.agents, row.arms, row.strata
    if row.world == "a":
        means = np.repeat(source.random((sites, 1, arms)), strata, 1)
    elif row.world == "b":
        means = source.uniform(0.2, 0.8, (1, strata, arms)) + source.uniform(-0.15, 0.15, (sites, 1, arms))
    elif row.world == "c":
        means = source.uniform(0.25, 0.75, (1, 1, arms)) + source.normal(0, 0.05, (1, strata, arms))
        means = means + source.uniform(-0.15, 0.15, (sites, 1, arms))
    else:
        means = source.random((sites, strata, arms))
    return np.clip(means, 0.02, 0.98)


def problem_of(row: Row, seed: int) -> Problem:
    """An instance."""
    options: dict[str, Any] = {}
    if row.kind == "60/25/10/5 %":
        options["strata"] = UNEQUAL
    if "half act" in row.kind:
        options["rates"] = [1.0 if i % 2 == 0 else 0.1 for i in range(row.agents)]
    if "patients" in row.kind:
        options["counts"] = "patients"
    if "delays" in row.kind:
        options["delays"] = "geometric:200"
    return Problem.bernoulli(means_of(row, seed), f"path:{row.agents}", gossip="releases", **options)


def play(row: Row, first: int, last: int) -> dict[str, list[float]]:
    """The regret per agent of instances, by policy; per decision of a site where sites do not act in step."""
    problems = [problem_of(row, first + j) for j in range(last - first)]
    policies = [FedBatch(row.epsilon, context=context) for context in POLICIES]  # pyright: ignore[reportArgumentType]
    result = simulate(problems, policies, row.horizon, last - first, seed=first, checkpoints=[row.horizon])
    regret = result.mean_regret.isel(time=-1).transpose("policy", "trial").values
    return dict(zip(POLICIES, regret.tolist(), strict=True))


def measure(file: Path, start: int, limit: int | None, only: str, longest: int) -> None:
    """Play what is missing, a few instances of each line in turn."""
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    began = time.time()
    for upto in range(AT_ONCE, max(row.instances for row in ROWS) + 1, AT_ONCE):
        for row in ROWS:
            if only not in row.name or row.horizon > longest:
                continue
            known = found.setdefault(row.name, {context: [] for context in POLICIES})
            done = len(known["strata"])
            if done >= min(upto, row.instances if limit is None else limit):
                continue
            news = play(row, start + done, start + done + AT_ONCE)
            for context in POLICIES:
                known[context] += news[context]
            file.write_text(json.dumps(found))
            print(f"{time.time() - began:6.0f} s  {told(row, known)}", flush=True)


def told(row: Row, known: dict[str, list[float]]) -> str:
    """A line of the table."""
    ignore, separate, learnt = (np.array(known[context]) for context in POLICIES)
    better = ignore if ignore.mean() <= separate.mean() else separate
    ratio = learnt.mean() / better.mean()
    error = np.std(learnt - ratio * better) / better.mean() / len(learnt) ** 0.5  # of a ratio of means, paired
    tail = np.sort(learnt)[-max(len(learnt) // 100, 1) :].mean()
    mark = "**" if ratio > GOAL else ""
    tail_mark = "**" if tail > TAIL_GOAL * learnt.mean() else ""
    world = row.world + (f", {row.kind}" if row.kind else "")
    sizes = f"{row.agents},{row.arms},{row.strata} | {row.epsilon:g} | {row.horizon:,} | {len(learnt)}"
    cells = [f"{x.mean():,.1f} ± {x.std() / len(x) ** 0.5:,.1f}" for x in (ignore, separate, learnt)]
    last = f"{mark}{ratio:.2f} ± {error:.2f}{mark} | {tail_mark}{tail:,.0f}{tail_mark}"
    return f"| {world} | {sizes} | {' | '.join(cells)} | {last} |"


def table(file: Path) -> Iterator[str]:
    """The table of docs/context.md."""
    found = json.loads(file.read_text())
    yield "| world | N,M,S | eps | T | instances | ignored | separate | learnt | ratio to the better | worst 1 % |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for row in ROWS:
        if row.name in found and found[row.name]["strata"]:
            yield told(row, found[row.name])


WORLDS = {
    "a": "strata do\nnot matter",
    "c": "they matter\na little",
    "b": "each has its own\norder of arms",
    "d": "each has its own,\nat every site",
}
WORDS = {"ignore": "one arm for all", "separate": "each stratum by itself", "strata": "FedBatch with strata"}


def figure(file: Path) -> None:
    """Regret in four worlds: of one arm for all, of each stratum by itself, and of what learns which is better."""
    found = json.loads(file.read_text())
    with mpl.rc_context(STYLE):
        drawing = Figure(figsize=(7.2, 3.6), layout="constrained")
        axes = drawing.subplots()
        for p, context in enumerate(POLICIES):
            lost = [np.array(found[Row(world, 10, 5, 4, 1.0, 20_000, 0).name][context]) for world in WORLDS]
            means, errors = [x.mean() for x in lost], [x.std() / len(x) ** 0.5 for x in lost]
            places = np.arange(len(WORLDS)) + 0.26 * (p - 1)
            axes.bar(places, means, 0.24, yerr=errors, color=COLOURS[p], label=WORDS[context], error_kw={"lw": 1})
            for x, y, e in zip(places, means, errors, strict=True):
                axes.annotate(f"{y:,.0f}", (x, y + e), (0, 3), textcoords="offset points", ha="center", fontsize=8)
        axes.set_yscale("log")
        axes.set_ylim(10, 5_000)
        axes.set_xticks(range(len(WORLDS)), list(WORLDS.values()))
        axes.set_ylabel("regret per site, 20,000 decisions")
        axes.legend(loc="upper left", frameon=False)
        drawing.savefig(FIGURE, dpi=150, facecolor="white", metadata={"Software": None})


def speed() -> None:
    """Agent-pulls per second of CPU time, in turns, beside FedBatch on the same problem."""
    problem = problem_of(Row("c", 10, 5, 4, 1.0, 0, 0), 1)
    pulls: dict[str, list[float]] = {context: [] for context in POLICIES}
    for turn in range(6):
        for context in POLICIES:
            policy = FedBatch(1.0, context=context)  # pyright: ignore[reportArgumentType]
            began = time.process_time()
            simulate(problem, policy, 100_000, 2, seed=turn)
            pulls[context].append(2e6 / (time.process_time() - began))
    best = {context: max(each[1:]) for context, each in pulls.items()}  # the first turn compiles
    for context in POLICIES:
        print(f"{context}: {best[context] / best['ignore']:.2f} times FedBatch, T = 100,000")


def main() -> None:
    """Measure, or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--tuning", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--instances", type=int, help="so many of each line")
    parser.add_argument("--only", default="", help="lines whose name has this text, such as 'a 10 5 4 1.0 2000'")
    parser.add_argument("--longest", type=int, default=10**9, help="lines of at most so many rounds")
    given = parser.parse_args()
    if given.speed:
        speed()
        return
    if not given.write:
        measure(given.file, TUNING if given.tuning else FRESH, given.instances, given.only, given.longest)
    lines = list(table(given.file))
    print("\n".join(lines))
    if given.write:
        text = PAGE.read_text()
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        figure(given.file)
        PAGE.write_text(f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}{after}")


if __name__ == "__main__":
    main()
