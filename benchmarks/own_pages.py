"""How fast pages from outside are: copies of built-in pages with another constant, against the originals, in turns.

The copies do the same work and pass the same checks as any own policy, the guard in compiled code included. The
tutorial's epsilon-greedy (docs/own-policy.md) is put beside Gossip_UCB, whose network it uses. Every figure is the best
of several runs in turns, since other programs can only slow a run down.
"""

import re
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from time import process_time

from fedbandit import FedBatch, GossipUCB, LocalUCB, Problem, simulate
from fedbandit.policies import Policy

AGENTS = ARMS = 10
HORIZON, ROUNDS = 200_000, 12
ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "src" / "fedbandit" / "policies"
COPIES = {
    "Local UCB1": (
        "local_ucb",
        "return Terms(local_scale(setting.scale, self.alpha))",
        "return Terms(1.01 * setting.scale)",
    ),
    "Gossip_UCB": ("gossip_ucb", "return terms_of(setting, 1.0)", "return terms_of(setting, 1.01)"),
    "FedBatch Thompson": ("fed_batch", "FACTOR = radii", "FACTOR = 1.01 * radii"),
}


def pairs(folder: Path) -> dict[str, tuple[Policy, Policy]]:
    """An own policy and the built-in one beside it, by name."""
    for module, old, new in COPIES.values():
        text = (PAGES / f"{module}.py").read_text()
        if old not in text:
            raise SystemExit(f"{module}.py has no line '{old}'")
        (folder / f"own_{module}.py").write_text(text.replace(old, new))
    tutorial = (ROOT / "docs" / "own-policy.md").read_text()
    (folder / "my_policies.py").write_text(re.findall(r"```python\n(# my_policies.*?)```", tutorial, re.DOTALL)[0])
    sys.path.insert(0, str(folder))
    own = {name: import_module(f"own_{module}") for name, (module, _, _) in COPIES.items()}
    return {
        "Local UCB1, copied": (own["Local UCB1"].LocalUCB(), LocalUCB()),
        "Gossip_UCB, copied": (own["Gossip_UCB"].GossipUCB(), GossipUCB()),
        "FedBatch, copied": (own["FedBatch Thompson"].FedBatch(1.0), FedBatch(1.0)),
        "epsilon-greedy": (import_module("my_policies").EpsilonGreedy(), GossipUCB()),
    }


def speed(problem: Problem, policy: Policy, horizon: int) -> float:
    """Agent-pulls per second of processor time, of one trial: other programs matter little."""
    start = process_time()
    simulate(problem, policy, horizon, trials=1, checkpoints=[horizon], threads=1)
    return AGENTS * horizon / (process_time() - start)


def main() -> None:
    """Measure and print."""
    problem = Problem.random(AGENTS, ARMS, "path", seed=0, reward_range=(-4.0, 5.0))
    print(f"{'policy':<20}{'own':>12}{'built-in':>14}{'ratio':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for name, pair in pairs(Path(folder)).items():
            best = [speed(problem, policy, 10) for policy in pair]
            for _ in range(ROUNDS):
                for which, policy in enumerate(pair):
                    best[which] = max(best[which], speed(problem, policy, HORIZON))
            print(
                f"{name:<20}{best[0] / 1e6:>8.1f} M/s{best[1] / 1e6:>10.1f} M/s{best[0] / best[1]:>7.2f}x", flush=True
            )


if __name__ == "__main__":
    main()
