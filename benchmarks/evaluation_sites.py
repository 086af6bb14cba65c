"""Other policies over several sites: bias, width and how often intervals hold the truth; table and figure of the docs.

Sites of 1,000 decisions each, whose policies learn and give every arm at least with 0.05, so weights go up to 20. Sums,
noise and estimates are those of ``rules.evaluation_sums``, for two policies. Rewards are 0 or 1.

    python benchmarks/evaluation_sites.py [--trials 300] [--write]
"""

import argparse
from pathlib import Path

import numpy as np

from fedbandit.rules.evaluation_sums import PolicySums, epsilon_of_sum, pooled
from fedbandit.rules.off_policy import student_quantile

DOCS = Path(__file__).parents[1] / "docs"
MARK, END = "<!-- sites: written by benchmarks/evaluation_sites.py -->", "<!-- end of sites -->"
ROUNDS, FLOOR, MEANS, POLICIES, SHARE = 1000, 0.05, np.array([0.5, 0.7, 0.3]), 2, 0.5
TARGETS = {"best": (0.0, 1.0, 0.0), "worst": (0.0, 0.0, 1.0), "uniform": (1 / 3, 1 / 3, 1 / 3)}
SITES, EPSILONS, BATCHES, LARGEST = (1, 3, 10, 30), (0.5, 1.0, 3.0), (50, 200, 1000), (2, 5, 10, 20)
USUAL = {"sites": 10, "epsilon": 1.0, "batch": 200, "largest": 10}


def decisions(count: int, draws: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Arms, propensities and rewards of so many sites, [site, round]."""
    each = np.arange(count)
    total, seen = np.full((count, 3), 0.5), np.ones((count, 3))
    arms, chances_of, rewards = (np.empty((count, ROUNDS)) for _ in range(3))
    for t in range(ROUNDS):
        chances = np.full((count, 3), FLOOR)
        chances[each, np.argmax(total / seen, axis=1)] += 1.0 - 3 * FLOOR
        arm = (draws.random(count)[:, None] >= np.cumsum(chances, axis=1)[:, :-1]).sum(axis=1)
        reward = (draws.random(count) < MEANS[arm]).astype(float)
        total[each, arm] += reward
        seen[each, arm] += 1.0
        arms[:, t], chances_of[:, t], rewards[:, t] = arm, chances[each, arm], reward
    return arms, chances_of, rewards


def estimates(
    logs: tuple[np.ndarray, np.ndarray, np.ndarray],
    shares: tuple[float, ...],
    draws: np.random.Generator,
    sites: int,
    epsilon: float,
    batch: int,
    largest: int,
) -> np.ndarray:
    """Value, half width and mean weight of each federation, [trial, 3]."""
    arms, chances, rewards = logs
    weights = np.minimum(np.array(shares)[arms.astype(int)] / chances, largest)
    scale = 1.0 / epsilon_of_sum(epsilon, POLICIES, largest)
    releases = ROUNDS // batch
    last = releases * batch
    sums = np.stack([(weights[:, :last] ** k * x).sum(axis=1) for k, x in ((1, 1.0), (2, 1.0), (1, rewards[:, :last]))])
    noise = draws.laplace(0.0, scale, (releases, len(arms))).sum(axis=0)
    found = []
    for first in range(0, len(arms) - sites + 1, sites):
        rows = [
            (PolicySums(last, sums[0, j], sums[1, j], sums[2, j] + noise[j]), releases)
            for j in range(first, first + sites)
        ]
        it = pooled(rows, scale, SHARE)
        found.append((it.value, student_quantile(1.96, it.effective - 1.0) * it.error, it.kept))
    return np.array(found)


def settings() -> list[dict[str, float]]:
    """One thing after the other, all else as usual."""
    found = [USUAL | {"sites": n} for n in SITES]
    found += [USUAL | {"epsilon": e} for e in EPSILONS if e != USUAL["epsilon"]]
    found += [USUAL | {"batch": b} for b in BATCHES if b != USUAL["batch"]]
    return found + [USUAL | {"largest": w} for w in LARGEST if w != USUAL["largest"]]


def main() -> None:
    """Print the table; ``--write`` puts it into the document, and draws the figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    lines = ["| sites | epsilon | batch | largest weight | evaluated | bias | half width | missed | mean weight |"]
    lines.append("|--:|--:|--:|--:|---|--:|--:|--:|--:|")
    widths: dict[tuple[str, float, int], float] = {}
    for number, it in enumerate(settings()):
        draws = np.random.default_rng(70 + number)
        logs = decisions(args.trials * int(it["sites"]), draws)
        for name, shares in TARGETS.items():
            found = estimates(logs, shares, draws, **it)
            error = found[:, 0] - float(np.dot(shares, MEANS))
            missed = (np.abs(error) > found[:, 1]).mean()
            cells = f"{error.mean():+.3f} | {np.median(found[:, 1]):.3f} | {missed:.1%} | {found[:, 2].mean():.2f}"
            what = f"{it['sites']} | {it['epsilon']:g} | {it['batch']:,} | {it['largest']}"
            lines.append(f"| {what} | {name} | {cells} |")
    print("\n".join(lines))
    if not args.write:
        return
    for number, epsilon in enumerate(EPSILONS):
        draws = np.random.default_rng(90 + number)
        for sites in SITES:
            logs = decisions(60 * sites, draws)
            for name, shares in TARGETS.items():
                found = estimates(logs, shares, draws, **(USUAL | {"sites": sites, "epsilon": epsilon}))
                widths[name, epsilon, sites] = float(np.median(found[:, 1]))
    draw(widths)
    page = DOCS / "evaluate.md"
    before, _, rest = page.read_text(encoding="utf-8").partition(MARK)
    page.write_text(f"{before}{MARK}\n\n" + "\n".join(lines) + f"\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def draw(widths: dict[tuple[str, float, int], float]) -> None:
    """How wide intervals are, by how many sites there are."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "fedbandit"
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(9.0, 3.0), sharey=True, layout="constrained")
    for axes, name in zip(panels, TARGETS, strict=True):
        for epsilon, colour in zip(EPSILONS, ("#b3541e", "#1f6f8b", "#4b4b4b"), strict=True):
            each = [widths[name, epsilon, n] for n in SITES]
            axes.plot(SITES, each, "o-", color=colour, label=f"epsilon {epsilon:g}")
        title = "every arm alike often" if name == "uniform" else f"the {name} arm for everybody"
        axes.set(xscale="log", yscale="log", xlabel="sites of 1,000 patients each", title=title)
        axes.set_xticks(SITES, [str(n) for n in SITES])
        axes.set_yticks((0.02, 0.05, 0.1, 0.2, 0.5), ("0.02", "0.05", "0.1", "0.2", "0.5"))
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("half width of a 95 % interval")
    panels[0].legend(frameon=False)
    figure.savefig(DOCS / "images" / "evaluation-sites.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
