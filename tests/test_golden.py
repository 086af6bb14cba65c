"""A small network, round by round, in a file that a person can read.

If a change of the rules is meant to change it: ``pytest tests/test_golden.py --update-golden``, then read
the difference before committing it.
"""

from pathlib import Path

import numpy as np

from fedbandit import GossipUCB, Tape, replay
from fedbandit.world import graph

GOLDEN = Path(__file__).parent / "golden" / "path3.txt"


def tape():
    """A path of 3 agents, 2 arms, rewards in tenths: everything can be followed on paper."""
    rounds = 24
    t, i, k = np.meshgrid(np.arange(rounds + 1), np.arange(3), np.arange(2), indexing="ij")
    rewards = np.round(0.1 * ((7 * t + 5 * i + 3 * k * (t + 1)) % 11) + 0.3 * (i == 1) * (k == 1), 1)
    edges = [[0, 1] if t % 3 else [1, 2] for t in range(rounds)]
    return Tape(rewards, edges, np.full((rounds, 3), 0.5), graph.path(3))


def rendered():
    recording, trace = tape(), replay(tape(), GossipUCB())
    lines = [
        "Gossip_UCB on a path of agents 0 - 1 - 2 with arms A, B. Columns per agent: the arm pulled and its reward,",
        "n (A B), n~ at t+1 (A B), own means X~ (A B), estimates theta (A B). 'edge': who averaged theta(t-1).",
        "",
    ]
    for t in range(len(trace.theta)):
        edge = "start" if t == 0 else "edge {}-{}".format(*recording.edges[t - 1])
        lines.append(f"t = {t:2d}  {edge}")
        for i in range(3):
            arm = -1 if t == 0 else trace.arms[t - 1, i]
            pulled = "A, B   " if t == 0 else f"{'AB'[arm]}  {recording.rewards[t, i, arm]:4.1f}"
            numbers = "  ".join(
                " ".join(f"{value:{form}}" for value in row)
                for row, form in (
                    (trace.n[t, i], "2d"),
                    (trace.n_max[t + 1, i], "2d"),
                    (trace.x_mean[t, i], "7.4f"),
                    (trace.theta[t, i], "7.4f"),
                )
            )
            lines.append(f"  agent {i}: {pulled}  n {numbers}")
    return "\n".join(lines) + "\n"


def test_golden_trace(request):
    if request.config.getoption("--update-golden"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(rendered())
    assert rendered() == GOLDEN.read_text()
