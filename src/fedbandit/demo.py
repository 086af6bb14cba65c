"""The setting of ``fedbandit demo``: the paper's experiment (a), small enough for a minute."""

from typing import TYPE_CHECKING

from fedbandit.baselines import CentralUCB, LocalUCB
from fedbandit.policy import FedBatch, FedUCB, GossipUCB, Policy
from fedbandit.problem import Problem

if TYPE_CHECKING:
    from fedbandit.simulation.result import Result

__all__ = ["HORIZON", "INTRODUCTION", "TITLE", "TRIALS", "policies", "problem", "reading"]

HORIZON, TRIALS = 500_000, 20

TITLE = "Three agents, five arms, all connected"

INTRODUCTION = """\
Three agents face the same five arms. Each sees rewards with a bias of its own (means uniform in [0, 1], unit
Gaussian noise); each would pick another arm than the one that is best on average. Simulated: no communication,
gossip without privacy, gossip with differential privacy at epsilon 1 in the paper's way (Fed_UCB) and in ours
(FedBatch), and everything pooled in one place without privacy.
Gaussian rewards are unbounded; as in the paper their sensitivity is taken as 1, so epsilon is nominal here.
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


def reading(result: "Result") -> str:
    """What the table shows, in words, from its numbers."""
    regret = result.summary()["regret"]
    local, gossip, paper, ours, central = (float(value) for value in regret)
    return (
        f"Acting alone costs {local / gossip:,.1f} times the regret of gossip and grows for ever.\n"
        f"Privacy (epsilon 1) in the paper's way costs {paper / gossip:,.1f} times the regret of gossip without it.\n"
        f"FedBatch, private and by gossip, loses {ours:,.0f}; UCB with everything pooled and no privacy {central:,.0f}."
    )
