"""Agent-pulls per CPU second beside other bandit libraries, and a live agent beside other servers.

    make bench-peers                          # fills the tables of benchmarks/README.md; about ten minutes
    python benchmarks/peers.py --quick        # two short runs, printed only

Every peer plays the same task (peer_workers/task.py) in a process and a virtual environment of its own, in turns: five
runs, each with all peers, every other one in the opposite order. A ratio is taken within a run, so that both sides saw
the machine in the same mood. CPU seconds, user and system, of all threads and children; imports and compilation are
left out. Only the call that plays is measured. A peer that does not install or fails is named with the reason.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peer_environments import WORKERS, NotInstalled, python_of
from peer_servers import live_table
from readme_tables import markdown, rounded, spread, where_and_when, write

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Peer:
    """A row of the table."""

    label: str
    script: str
    arguments: tuple[str, ...] = ()
    environment: str | None = None  # None: ours
    runs: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    failed: str = ""

    def speeds(self) -> list[float]:
        """Agent-pulls per CPU second, an entry per run."""
        return [run["pulls"] / run["cpu"] for run in self.runs]

    def python(self) -> str:
        """The interpreter that runs it."""
        return sys.executable if self.environment is None else str(python_of(self.environment))

    def run(self, seed: int, seconds: float) -> None:
        """Measure once more, unless it has failed before."""
        if self.failed:
            return
        try:
            command = [self.python(), str(WORKERS / self.script), *self.arguments]
        except NotInstalled as error:
            self.failed = f"does not install: {error}"
            return
        if not (WORKERS / self.script).exists():
            self.failed = "installs by now, but has no worker yet"
            return
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        if self.environment is None:
            env["PYTHONPATH"] = str(ROOT / "src")
        env |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # idle threads that spin would count
        command += ["--seed", str(seed), "--seconds", str(seconds)]
        ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False)  # noqa: S603  # our scripts
        if ran.returncode:
            self.failed = f"fails: {(ran.stderr.strip().splitlines() or ['no message'])[-1][:120]}"
        else:
            self.runs.append(json.loads(ran.stdout.splitlines()[-1]))


def peers() -> list[Peer]:
    """All rows. The first is what the others are compared with: the same policy, one agent."""
    return [
        Peer("**fedbandit**, one agent", "with_fedbandit.py", ("LocalUCB", "1")),
        Peer("**fedbandit**, ten agents", "with_fedbandit.py", ("LocalUCB", "10")),
        Peer("**fedbandit**, ten agents that gossip", "with_fedbandit.py", ("GossipUCB", "10")),
        Peer("a loop by hand in Numba", "with_numba.py"),
        Peer("plain NumPy, 1000 trials at once", "with_numpy.py", ("1000",)),
        Peer("plain NumPy, one trial", "with_numpy.py", ("1",)),
        Peer("pure Python", "with_pure_python.py"),
        Peer("pymab, its Rust core alone (private)", "with_pymab.py", ("core",), "pymab"),
        Peer("pymab, `Experiment.run`", "with_pymab.py", ("experiment",), "pymab"),
        Peer("pymab, `select_action`, `update`", "with_pymab.py", ("policy",), "pymab"),
        Peer("river, `pull`, `update`", "with_river.py", (), "river"),
        Peer("coba, `predict`, `learn`", "with_coba.py", (), "coba"),
        Peer("SMPyBandits, `choice`, `getReward`", "with_smpybandits.py", (), "smpybandits"),
        Peer("Vowpal Wabbit, `predict`, `learn`", "with_vowpalwabbit.py", (), "vowpalwabbit"),
        Peer("MABWiser, `predict`, `partial_fit`", "with_mabwiser.py", (), "mabwiser"),
        Peer("jax-bandits", "with_jax_bandits.py", (), "jax_bandits"),
    ]


def measured(rows: list[Peer], runs: int, seconds: float) -> None:
    """All peers in turns."""
    for run in range(runs):
        for peer in rows if run % 2 == 0 else rows[::-1]:
            peer.run(run, seconds)
            latest = f"{rounded(peer.speeds()[-1])} pulls/s" if peer.runs and not peer.failed else peer.failed
            print(f"run {run + 1}: {peer.label}: {latest}", file=sys.stderr, flush=True)


def cells(ours: Peer, peer: Peer) -> list[str]:
    """One row of the table."""
    if peer.failed:
        return [peer.label, "", "", peer.failed, "", ""]
    first = peer.runs[0]
    versions = ", ".join(f"{name} {version}" for name, version in first["versions"].items())
    ratios = [a / b for a, b in zip(ours.speeds(), peer.speeds(), strict=True)]
    regret = statistics.mean(run["regret"] for run in peer.runs)
    return [
        peer.label,
        versions,
        first["policy"],
        spread(peer.speeds()),
        "1" if peer is ours else spread(ratios, letters=False),
        f"{regret:.0f}",
    ]


def simulator_table(rows: list[Peer]) -> str:
    """The table with its heading."""
    headings = ["", "version", "policy", "agent-pulls per CPU second", "one agent of ours is faster by", "regret"]
    return markdown(headings, [cells(rows[0], peer) for peer in rows], left=3)


def main() -> None:
    """Measure; print, and fill the README."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two short runs; prints, and leaves the README alone")
    parser.add_argument("--only", choices=["simulator", "live"], help="one of the two tables")
    given = parser.parse_args()
    runs, seconds, pairs = (2, 0.2, 200) if given.quick else (5, 1.5, 1500)
    parts: dict[str, str] = {}
    if given.only != "live":
        rows = peers()
        measured(rows, runs, seconds)
        parts["peers"] = f"{simulator_table(rows)}\n\nMedian (smallest to largest) of {runs} runs. {where_and_when()}."
    if given.only != "simulator":
        table = live_table(runs, pairs)
        parts["live peers"] = f"{table}\n\nMedian (smallest to largest) of {runs} runs. {where_and_when()}."
    for name, text in parts.items():
        print(f"{text}\n")
        if not given.quick:
            write(name, text)


if __name__ == "__main__":
    main()
