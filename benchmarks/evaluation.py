"""How often intervals of ``fedbandit evaluate`` hold the truth: the table of docs/evaluate.md, and the mean error.

A thousand logs of each logging policy, all of which explore. Their policies learn from the log's own rewards, but for
the first. Rewards are 0 or 1.

    python benchmarks/evaluation.py [--logs 1000] [--write]
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fedbandit.evaluation import Log, LoggedDecision, Target, evaluate

MARK, END = "<!-- coverage: written by benchmarks/evaluation.py -->", "<!-- end of coverage -->"
ARMS, OLD, YOUNG = ("a", "b", "c"), (("age", "old"),), (("age", "young"),)
MEANS = np.array([[0.5, 0.7, 0.3], [0.6, 0.35, 0.45]])  # of the young, who are all where there is no context; the old
BEST, WORST = Target("best", (0.0, 1.0, 0.0)), Target("worst", (0.0, 0.0, 1.0))
UNIFORM = Target("uniform", (1 / 3,) * 3)
BY_AGE = Target("by age", (0.0, 1.0, 0.0), ((OLD, (1.0, 0.0, 0.0)),))
LOGGING = {  # rounds, floor of each arm, whether it learns, whether the log has contexts
    "uniform": (300, 1 / 3, False, False),
    "learns, floors of 0.15": (300, 0.15, True, False),
    "learns, floors of 0.05": (300, 0.05, True, False),
    "learns, floors of 0.05, long": (2000, 0.05, True, False),
    "learns per stratum, floors of 0.1": (600, 0.1, True, True),
}


def logs_of(count: int, rounds: int, floor: float, learns: bool, has_context: bool, seed: int) -> Iterator[Log]:
    """Logs of a policy that gives the best mean so far all but the floors of the others, in each stratum by itself."""
    draws, each = np.random.default_rng(seed), np.arange(count)
    total, seen = np.full((count, 2, 3), 0.5), np.ones((count, 2, 3))
    columns: list[np.ndarray] = []
    for _ in range(rounds):
        stratum = (draws.random(count) < 0.4).astype(int) if has_context else np.zeros(count, int)
        chances = np.full((count, 3), floor)
        best = np.argmax(total[each, stratum] / seen[each, stratum], axis=1) if learns else np.zeros(count, int)
        chances[each, best] += 1.0 - 3 * floor
        arm = (draws.random(count)[:, None] >= np.cumsum(chances, axis=1)[:, :-1]).sum(axis=1)
        reward = (draws.random(count) < MEANS[stratum, arm]).astype(float)
        total[each, stratum, arm] += reward
        seen[each, stratum, arm] += 1.0
        columns.append(np.stack([arm, chances[each, arm], reward, stratum]))
    for rows in np.stack(columns).transpose(2, 0, 1):
        yield Log(
            ARMS,
            tuple(
                LoggedDecision(int(k), float(p), float(r), context=((YOUNG, OLD)[int(s)] if has_context else ()))
                for k, p, r, s in rows
            ),
        )


def truth_of(policy: Target, has_context: bool) -> float:
    """Its mean reward."""
    young = float(np.dot(policy.among(None, YOUNG), MEANS[0]))
    return 0.6 * young + 0.4 * float(np.dot(policy.among(None, OLD), MEANS[1])) if has_context else young


def row(name: str, count: int, seed: int) -> Iterator[str]:
    """Lines of the table for a logging policy."""
    rounds, floor, learns, has_context = LOGGING[name]
    policies = [BEST, WORST, UNIFORM, *([BY_AGE] if has_context else [])]
    found = {it.name: list[tuple[float, ...]]() for it in policies}
    for log in logs_of(count, rounds, floor, learns, has_context, seed):
        for policy in policies:
            it, truth = evaluate(log, policy), truth_of(policy, has_context)
            numbers = [float(not one.low <= truth <= one.high) for one in it.estimates]
            numbers += [one.high - one.low for one in it.estimates] + [one.value - truth for one in it.estimates]
            found[policy.name].append((it.effective, *numbers))
    for policy in policies:
        table = np.array(found[policy.name])
        missed, width, bias = (table[:, k : k + 3].mean(axis=0) for k in (1, 4, 7))
        cells = [f"{m:.1%} ({w:.2f})" for m, w in zip(missed, width, strict=True)]
        error = np.abs(bias / (table[:, 7:10].std(axis=0) / np.sqrt(count))).max()
        print(f"{name}, {policy.name}: means differ from the truth by at most {error:.1f} standard errors")
        size = f"{np.median(table[:, 0]):,.0f} of {rounds:,}"
        yield f"| {name} | {policy.name} | {size} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table; ``--write`` puts it into the document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=1000)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    lines = ["| the log's policy | evaluated | effective | `ips` | `snips` | `dr` |", "|---|---|--:|--:|--:|--:|"]
    for seed, name in enumerate(LOGGING):
        lines += row(name, args.logs, 31 + seed)
    print("\n".join(lines))
    if args.write:
        page = Path(__file__).parents[1] / "docs" / "evaluate.md"
        before, _, rest = page.read_text(encoding="utf-8").partition(MARK)
        after = rest.partition(END)[2]
        page.write_text(f"{before}{MARK}\n\n" + "\n".join(lines) + f"\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
