"""The setting of ``fedbandit demo``: the paper's experiment (a), scaled down to a minute."""

from typing import TYPE_CHECKING

from fedbandit.policies import CentralUCB, FedBatch, FedUCB, GossipUCB, LocalUCB, Policy
from fedbandit.world.problem import Problem

if TYPE_CHECKING:
    from fedbandit.local.up import LocalSetting
    from fedbandit.simulation.result import Result

HORIZON, TRIALS = 500_000, 20

LIVE_SECONDS = 20.0
LIVE_SPEED = 50.0  # patients per second at each site: two busy cores keep up

TITLE = "Three agents, five arms, all connected"

INTRODUCTION = """\
Three agents face the same five arms. Each sees rewards with its own bias (means uniform in [0, 1], unit
Gaussian noise), and alone would pick an arm that is not the best on average. Simulated: no communication,
gossip without privacy, gossip with differential privacy at epsilon 1 by the paper's algorithm (Fed_UCB) and by ours
(FedBatch), and everything pooled without privacy.
Gaussian rewards are unbounded; as in the paper, their sensitivity is taken as 1, so epsilon is nominal here.
"""

LIVE_INTRODUCTION = f"""
The same arms live: three hospitals on this machine for {LIVE_SECONDS:.0f} seconds, each a real agent process with
its own certificate, journal and HTTP API. Simulated patients ask the agent of their hospital for an arm and report
0 or 1, with the same means; the agents gossip over mutual TLS with FedBatch, and epsilon 1 holds. A reward counts when
its window ends, a second after the decision, so that not even the times of releases tell of it.
"""


def problem() -> Problem:
    """The paper's setting (a), with a draw of its random means in which every agent alone is wrong."""
    return Problem.random(num_agents=3, num_arms=5, graph="complete", seed=24)


def policies() -> list[Policy]:
    """The floor, the paper's two algorithms, ours, the ceiling."""
    return [
        LocalUCB(),
        GossipUCB(),
        FedUCB(epsilon=1.0, assume_sensitivity=1.0),
        FedBatch(epsilon=1.0, assume_sensitivity=1.0),
        CentralUCB(),
    ]


def live_setting() -> "LocalSetting":
    """The same means with rewards 0 or 1, for ``fedbandit.local.up.run``."""
    from fedbandit.local.up import LocalSetting

    world = Problem.bernoulli(problem().means, problem().graph)
    names, arms = (tuple(f"{word}{i + 1}" for i in range(count)) for word, count in (("hospital-", 3), ("arm ", 5)))
    return LocalSetting("demo", world, names, arms, epsilon=1.0, speed=LIVE_SPEED, seed=0)


def reading(result: "Result") -> str:
    """Summarises the table in words."""
    regret = result.summary()["regret"]
    local, gossip, paper, ours, central = (float(value) for value in regret)
    return (
        f"Acting alone costs {local / gossip:,.1f} times the regret of gossip, and keeps growing.\n"
        f"The paper's privacy (epsilon 1) costs {paper / gossip:,.1f} times the regret of gossip without it.\n"
        f"FedBatch, private gossip by Thompson sampling, loses {ours:,.0f}; UCB, a weaker index, loses {central:,.0f} "
        "with everything pooled and no privacy."
    )
