"""Writes what the tests of off-policy evaluation compare with; ``python tests/golden/off_policy.py``.

* ``site_log.jsonl``: the log of a simulated site, with fewer lines and fields than a real one
* ``open_bandit_data.npz``: rows of the six logs of the Open Bandit Data (Saito, Aihara, Matsutani, Narita 2021; CC BY
  4.0), a policy and guesses for each, and the estimates of Open Bandit Pipeline
* ``site_estimates.json``: its estimates from that log

Open Bandit Pipeline is the real one, in an environment of its own (``benchmarks/peer_environments.py``).
"""

import json
import subprocess
import sys
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from fedbandit import FedBatch, Shares
from fedbandit.agent.core.decisions import Request
from fedbandit.agent.core.federation import Federation
from fedbandit.evaluation import read_log, target
from fedbandit.evaluation.exports import bandit_feedback, write_obp
from fedbandit.testing.memory_network import MemoryNetwork

HERE = Path(__file__).parent
BENCHMARKS = HERE.parents[1] / "benchmarks"
SITE_LOG, SITE_ESTIMATES, OPEN_DATA = (
    HERE / name for name in ("site_log.jsonl", "site_estimates.json", "open_bandit_data.npz")
)
ARMS, MEANS = ("metformin", "insulin", "glipizide"), (0.5, 0.65, 0.4)
POLICIES = ("always insulin", "always glipizide", "uniform")
ROWS = 150


def site_log() -> str:
    """600 decisions of a site; every tenth patient may not have glipizide."""
    terms = Federation("diabetes", ARMS, 0, 1, FedBatch(1.0, first_batch=20), shares=Shares(least_share=0.1))
    network, outcomes, lines = MemoryNetwork(terms, [("north", "south")], seed=5), Random(5), list[str]()  # noqa: S311
    for number in range(600):
        asked = Request(exclude=(2,)) if number % 10 == 0 else Request()
        (made,) = network.request("north", asked)
        reward = float(outcomes.random() < MEANS[made.arm])
        network.report("north", made.id, reward)
        fields = {"number": made.number, "arm": made.arm, "name": ARMS[made.arm], "propensity": made.propensity}
        fields |= {"eligible": [0, 1] if asked.exclude else None, "reward": reward}
        lines.append(json.dumps(fields) + "\n")
    return "".join(lines)


def peer(*arguments: str) -> str:
    """What the worker prints, in the environment of Open Bandit Pipeline and Vowpal Wabbit."""
    sys.path.insert(0, str(BENCHMARKS))
    from peer_environments import WORKERS, python_of

    command = [str(python_of("off_policy")), str(WORKERS / "with_off_policy_peers.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout  # our own


def estimates_of_pipeline(log: Path) -> dict[str, dict[str, float]]:
    """Open Bandit Pipeline's estimates from our log, by policy, through the file that we write for it."""
    found: dict[str, dict[str, float]] = {}
    with TemporaryDirectory() as folder:
        for policy in POLICIES:
            file, read = Path(folder) / "log.npz", read_log(log)
            write_obp(file, bandit_feedback(read, target(policy, read.arms)))
            found[policy] = json.loads(peer("estimates", str(file)))
    return found


if __name__ == "__main__":
    SITE_LOG.write_text(site_log(), encoding="utf-8")
    SITE_ESTIMATES.write_text(json.dumps(estimates_of_pipeline(SITE_LOG), indent=1) + "\n", encoding="utf-8")
    peer("data", str(OPEN_DATA), str(ROWS))
