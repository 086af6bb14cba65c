"""Measures from how many patients per site features pay, by their number, epsilon, and size of effect.

    python benchmarks/features.py FILE           # play what FILE does not hold yet, and add it; stop and go on at will
    python benchmarks/features.py FILE --write   # write the table of docs/context.md from FILE
    python benchmarks/features.py --speed        # agent-pulls per second of CPU time beside FedBatch, in one run

Ten sites on a path, one edge per round, four arms, rewards 0 or 1: the worlds of ``fedbandit.planning.break_even``.
"""

import argparse
import json
import time
from collections.abc import Iterator
from itertools import product
from math import inf
from pathlib import Path
from typing import Any

from fedbandit import FedBatch, FedLinear, simulate
from fedbandit.planning.break_even import features_pay, world_with_features

PAGE = Path(__file__).resolve().parents[1] / "docs" / "context.md"
BEGIN, END = "<!-- features: written by benchmarks/features.py -->", "<!-- end of features -->"
TIMES, TRIALS = (1_000, 5_000, 20_000), 12
EFFECTS, SIZES, EPSILONS, PROTECTED = (0.3, 0.1), (2, 4, 9), (0.5, 1.0, 3.0), ("reward", "record")


def play(file: Path) -> None:
    """What the file does not hold yet."""
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    for protects, effect, size, epsilon in product(PROTECTED, EFFECTS, SIZES, EPSILONS):
        name, began = f"{protects} {effect} {size} {epsilon}", time.time()
        if name in found:
            continue
        it = features_pay(size, effect, epsilon, patients=TIMES[-1], protects=protects, trials=TRIALS, seed=1)  # pyright: ignore[reportArgumentType]
        found[name] = {"from": it.from_patients, "interval": it.interval, "at": [it.at(t) for t in TIMES]}
        file.write_text(json.dumps(found))
        print(f"{time.time() - began:5.0f} s  {name}: {it.from_patients:.0f} {it.interval}", flush=True)


def table(file: Path) -> Iterator[str]:
    """The table of docs/context.md."""
    found = json.loads(file.read_text())
    yield (
        "| protected | effect | features | eps | pay from (patients per site) | "
        + " | ".join(f"{t:,}: FedLinear (worst) / FedBatch" for t in TIMES)
        + " |"
    )
    yield "|---|---|---|---|---|" + "---|" * len(TIMES)
    for protects, effect, size, epsilon in product(PROTECTED, EFFECTS, SIZES, EPSILONS):
        it = found.get(f"{protects} {effect} {size} {epsilon}")
        if it is not None:
            cells = [f"{told:,.0f} ({worst:,.0f}) / {untold:,.0f}" for told, worst, untold, _ in it["at"]]
            low, high = map(_patients, it["interval"])
            pays = f"{_patients(it['from'])} ({low} to {high})"
            yield f"| {protects} | {effect} | {size} | {epsilon:g} | {pays} | {' | '.join(cells)} |"


def _patients(count: float) -> str:
    return f"> {TIMES[-1]:,}" if count == inf else f"{round(count, -1 if count < 1000 else -2):,.0f}"


def write(file: Path) -> None:
    """Into docs/context.md."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n" + "\n".join(table(file)) + f"\n\n{END}{after}")


def speed() -> None:
    """Agent-pulls per second of CPU time, in one thread: FedLinear, the constant and four features, and FedBatch."""
    worlds = [world_with_features(10, 4, 4, 0.3, "path:10", (0, 0))]
    for _ in range(2):  # the first time is compiled
        for policy in (FedBatch(1.0), FedLinear(1.0), FedLinear(1.0, protects="record")):
            began = time.process_time()
            simulate(worlds, policy, 200_000, 1, threads=1, checkpoints=[200_000])
            print(f"{2.0e6 / (time.process_time() - began):12,.0f} / s  {policy.label}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--speed", action="store_true")
    given = parser.parse_args()
    if given.speed:
        speed()
    elif given.file is None:
        parser.error("name a file")
    else:
        (write if given.write else play)(given.file)
