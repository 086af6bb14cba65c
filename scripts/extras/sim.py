"""A small simulation, its figure, and an experiment file. Needs the extra ``sim``, without ``agent``."""

import subprocess
import sys
import tempfile
from pathlib import Path

from fedbandit import FedBatch, GossipUCB, Problem, load, simulate
from fedbandit.extras import needs
from fedbandit.testing import check_policy

EXPERIMENT = """
name = "small"
graph = "path:3"
horizon = 200
trials = 2
problem = { rewards = "bernoulli", num_arms = 2, seed = 2 }
policies = [{ kind = "gossip_ucb" }]
"""


def command(*arguments: str) -> tuple[int, str]:
    """Exit code, and all that ``fedbandit`` prints."""
    ran = subprocess.run([sys.executable, "-m", "fedbandit", *arguments], capture_output=True, text=True)
    return ran.returncode, ran.stdout + ran.stderr


def check(folder: Path) -> None:
    """From Python and from the command line."""
    problem = Problem.bernoulli([[0.9, 0.1], [0.2, 0.6], [0.5, 0.5]], "path:3")
    result = simulate(problem, [GossipUCB(), FedBatch(1.0)], horizon=300, trials=2, seed=1)
    assert len(result.summary()) == 2
    result.plot().savefig(folder / "regret.png")
    assert (folder / "regret.png").read_bytes().startswith(b"\x89PNG")
    assert load(result.save(folder / "run.nc")).experiment["seed"] == 1
    check_policy(GossipUCB(), seeds=[0], horizon=20)
    code, said = command("graph", "path:10")
    assert (code, "0.99" in said) == (0, True), said
    (folder / "small.toml").write_text(EXPERIMENT, encoding="utf-8")
    code, said = command("run", str(folder / "small.toml"), "-o", str(folder / "out"))
    assert code == 0, said
    assert (folder / "out" / "regret.png").exists()
    code, said = command("agent")
    assert (code, said) == (
        2,
        "error: fedbandit agent needs the packages of a live site: pip install 'fedbandit[agent]'\n",
    )


if __name__ == "__main__":
    needs("this test", "sim")
    with tempfile.TemporaryDirectory() as scratch:
        check(Path(scratch))
    print("simulated, drew figures, ran an experiment file")
