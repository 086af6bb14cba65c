"""A live site without the simulator: agents with certificates, and a policy of one's own. Needs the extra ``agent``."""

import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from fedbandit import Client, FedBatch
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.process.config import read_config
from fedbandit.extras import EXTRAS, needs
from fedbandit.local.processes import LocalFederation
from fedbandit.testing.memory_network import MemoryNetwork

OWN_POLICY = """
from dataclasses import dataclass

from fedbandit import FedBatch
from fedbandit.policies.fed_batch import decide_by_thompson


def decide(me, terms, seen, now, draws):
    return decide_by_thompson(me, terms, seen, now, draws)


@dataclass(frozen=True)
class Own:
    epsilon: float

    def page(self):
        return FedBatch(self.epsilon).page()._replace(decide=decide, on_releases=None)

    def terms(self, setting):
        return FedBatch(self.epsilon, first_batch=1).terms(setting)
"""

SITE = """
name = "north"
data = "data"
trust_policy = "own_policy:Own"

[federation]
name = "f"
max_agents = 2
arms = ["a", "b"]
rewards = [0, 1]
policy = { kind = "own_policy:Own", epsilon = 1.0 }
"""


def check_absent() -> None:
    """Nothing of the simulator is there, and what needs it says so."""
    for name in (*EXTRAS["sim"], "llvmlite", "scipy"):
        with suppress(ModuleNotFoundError):
            assert find_spec(name) is None, f"{name} is installed"
    ran = subprocess.run([sys.executable, "-m", "fedbandit", "up"], capture_output=True, text=True)
    words = "error: fedbandit up needs the simulator: pip install 'fedbandit[agent,sim]'\n"
    assert (ran.returncode, ran.stderr) == (2, words), ran


def check_agents(folder: Path) -> None:
    """Two processes decide, take rewards, and exchange over mutual TLS; noise is OpenDP's."""
    terms = Federation("f", ("a", "b"), 0.0, 1.0, FedBatch(1.0, first_batch=1), max_agents=2)
    with LocalFederation(folder, terms, [("north", "east")]) as federation:
        with Client(federation.url("north")) as north, Client(federation.url("east")) as east:
            until = time.monotonic() + 60.0
            while not all(arm.weight > 0.0 for arm in east.state().arms):
                assert time.monotonic() < until, f"east hears nothing: {federation.last_words('east')}"
                north.reward(north.decide(), 1.0)
                time.sleep(0.1)
            assert sum(arm.releases for arm in north.state().arms) > 0
            assert sum(arm.pulls for arm in east.state().arms) == 0, "east knows both arms by gossip alone"
        assert "insecure" not in federation.log("east").read_text(encoding="utf-8").lower()


def check_own_policy(folder: Path) -> None:
    """A site admits a policy from outside, with its privacy proof executed, and plays it."""
    (folder / "own_policy.py").write_text(OWN_POLICY, encoding="utf-8")
    (folder / "site.toml").write_text(SITE, encoding="utf-8")
    network = MemoryNetwork(read_config(folder / "site.toml").terms, [("north", "east")])
    network.report("north", network.decide("north").id, 1.0)
    network.exchange("north", "east")
    network.run()
    assert network.site("north").releases == (1, 0)
    assert network.site("east").board.rows("a")[0] != [(0.0, 0.0)] * 2, "east knows what north has released"


if __name__ == "__main__":
    needs("this test", "agent")
    with tempfile.TemporaryDirectory() as scratch:
        check_absent()
        check_own_policy(Path(scratch))
        check_agents(Path(scratch) / "sites")
    heavy = {name.partition(".")[0] for name in sys.modules} & set(EXTRAS["sim"])
    assert not heavy, heavy
    print("two agents exchanged, and a policy from outside was admitted")
