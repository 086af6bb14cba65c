"""Fed1-UCB (Shi and Shen 2021): phases with a server. No privacy."""

from dataclasses import dataclass
from math import inf, log
from typing import Any, ClassVar, NamedTuple

from fedbandit.policies.protocol import ARMS, Count, Fields, Flag, Now, Number, Page, Setting, needs_company, needs_step
from fedbandit.rules.choose import fewest_pulls
from fedbandit.rules.radius import elimination_radius, is_beaten, pulls_per_phase

KNOWS = Fields(
    n=Count[ARMS],  # rewards of each arm
    total=Number[ARMS],  # their sum
    x_mean=Number[ARMS],
    live=Flag[ARMS],  # arms that the server has not dropped
    num_live=Count,
    phase_end=Count,  # pulls of each live arm at the end of the last phase
)


class Terms(NamedTuple):
    """Numbers that are fixed before the first round."""

    num_agents: int
    share: float  # N times the agent's weight in the server's average
    scale: float
    log_horizon: float
    phase: int  # pulls of each live arm in a phase


def start(me: Any, terms: Terms) -> None:
    """All arms are live."""
    me.num_live = len(me.n)
    for k in range(len(me.n)):
        me.live[k] = 1


def decide(me: Any, terms: Terms, seen: Any, now: Now, draws: Any) -> int:
    """Live arms, in turn."""
    return fewest_pulls(me.tried, me.live)


def observe(me: Any, terms: Terms, arm: int, reward: float, noise: float) -> None:
    """Count the reward and update the mean."""
    me.total[arm] += reward
    me.n[arm] += 1
    me.x_mean[arm] = me.total[arm] / me.n[arm]


def published(me: Any, terms: Terms, arm: int) -> tuple[float, ...]:
    """The mean, which the server averages at the end of a phase."""
    return (terms.share * me.x_mean[arm],)


def meet(agents: Any, terms: Any, seen: Any, edges: Any, present: Any) -> int:
    """The network of this page: at the end of a phase the server averages, drops beaten arms and informs all agents."""
    first, fixed = agents[0], terms[0]
    pulls = first.n[fewest_pulls(first.n, first.live)]  # agents act in step: all have pulled equally often
    if first.num_live == 1 or pulls < first.phase_end + fixed.phase:
        return 0
    radius = fixed.scale * elimination_radius(pulls, fixed.num_agents, fixed.log_horizon)
    best_lower = -inf
    for k in range(len(first.n)):
        if first.live[k]:
            mean = 0.0
            for j in range(len(agents)):
                mean += terms[j].share / fixed.num_agents * agents[j].x_mean[k]
            for i in range(len(agents)):
                seen[i].theta[k] = mean
            best_lower = max(best_lower, mean - radius)
    for i in range(len(agents)):
        agents[i].phase_end = pulls
    for k in range(len(first.n)):
        if first.live[k] and is_beaten(seen[0].theta[k], radius, best_lower):
            for i in range(len(agents)):
                agents[i].live[k] = 0
                agents[i].num_live -= 1
    return 1


def estimate(me: Any, terms: Terms, seen: Any, arm: int) -> float:
    """The server's last average."""
    return seen.theta[arm]


PAGE = Page(
    knows=KNOWS,
    averaged=("theta",),
    network="server",
    start=start,
    decide=decide,
    observe=observe,
    published=published,
    estimate=estimate,
    radius=None,
    meet=meet,
)


@dataclass(frozen=True)
class Fed1UCB:
    """Fed1-UCB (Shi and Shen 2021): phases with a server.

    In a phase each agent pulls each live arm ceil(10 log T) times; then the server averages the agents' means
    and drops arms whose upper bound is below the best lower bound, with radius sqrt(4 log T / (N F)) after F
    pulls. It knows T. No privacy. Agents must act in step.
    """

    kind: ClassVar[str] = "fed1_ucb"
    label: ClassVar[str] = "Fed1-UCB"

    def page(self) -> Page:
        """Fed1-UCB."""
        return PAGE

    def check(self, setting: Setting) -> None:
        """Refuse agents that do not act in step, and a single agent."""
        needs_company(self, setting)
        needs_step(self, setting)

    def terms(self, setting: Setting) -> Terms:
        """Numbers that follow from the setting."""
        return Terms(
            num_agents=setting.num_agents,
            share=setting.share,
            scale=setting.scale,
            log_horizon=log(setting.horizon),
            phase=pulls_per_phase(setting.horizon),
        )
