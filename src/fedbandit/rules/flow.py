"""Averages two neighbours by a flow that survives faults: Algorithm 1, line 20, made robust (beyond the paper).

This file has the two ends of one link, and no message, site or disk. With plain averaging, one lost reply is wrong for
ever: one end has moved, the other has not. So an agent never overwrites the values it gossips:
gossiped_i = own_i + sum_j flow_ij, and an exchange changes only the flow of its link. When the ends of every link hold
flow_ij = -flow_ji, the gossiped values sum to the own values, whatever happened before.

A link is a register replicated at both ends; the last writer wins:

    i -> j : offers flow_ij with its stamp, and the values that i gossips now
    j      : ``answer``: if the stamp is older than its own, j returns its own flow and changes nothing; otherwise it
             adopts -flow_ij, moves it until both would gossip the average, increments the version, and returns flow_ji
    i      : ``adopt``: takes -flow_ji if the stamp of the answer is newer

So lost, repeated, late and crossing messages heal at the next contact. Without faults this is the paper's average.
Rows have a column for each gossiped number: values of all arms, then weights.

Whoever writes a register clamps it to what a link may carry (``Limits``). Both ends clamp alike, so flows stay
opposite and nothing is refused for its size: a neighbour's whole influence is its own row, and that is bounded.
"""

from collections.abc import Sequence
from math import inf, sqrt
from typing import NamedTuple

from fedbandit.rules.gossip import average

__all__ = [
    "FIRST",
    "UNLIMITED",
    "Limits",
    "Register",
    "Stamp",
    "above_low",
    "adopt",
    "answer",
    "clamped",
    "empty",
    "gossiped",
    "held",
    "largest_cut",
    "largest_noise",
    "mirrored",
    "moved",
    "noise_of_gossiped",
]

Stamp = tuple[int, str]
"""How often the link was written, and by whom last: the name breaks the tie when both ends write at once."""

Register = tuple[tuple[float, ...], Stamp]
"""One end's copy of a link: the flow towards it, and its stamp."""

FIRST: Stamp = (0, "")
"""The stamp of a link that nothing has flowed over: older than any other."""


class Limits(NamedTuple):
    """What a link may carry of an arm: ``span`` of value, counted from the ``low``est reward, and ``weight``."""

    low: float
    span: float
    weight: float


UNLIMITED = Limits(0.0, inf, inf)

ROUNDING = 1e-9
"""The share of a limit by which a flow that was clamped elsewhere may exceed it."""


def largest_cut(num_agents: int) -> float:
    """The most that a link carries of numbers from 0 to 1, one at each agent, once all agree.

    A link whose cut has n agents on one side carries the imbalance of the cut: n (N - n) / N times the difference of
    the two sides' means.
    """
    return num_agents / 4.0


def largest_noise(scale: float, num_agents: int, q: float) -> float:
    """What Laplace noise of this scale at each agent adds to a cut, but with probability 2 e^-q.

    The imbalance is sum c_i L_i with sum c_i^2 = n (N - n) / N <= N / 4 and |c_i| <= 1. A Laplace draw is sub-gamma:
    log E e^(xL) = -log(1 - (xb)^2) <= (xb)^2 / (1 - xb). So is the sum, with variance factor b^2 N / 2 and scale b, and
    exceeds b (sqrt(q N) + q) with probability e^-q on each side (Boucheron, Lugosi and Massart 2013, section 2.4).
    """
    return scale * (sqrt(q * num_agents) + q)


def noise_of_gossiped(scale: float, weight: float, num_agents: int, q: float, by_patients: bool) -> float:
    """What noise of this scale at each agent adds to a gossiped value of this weight, but with probability 2 e^-q.

    Once mixed, a value is sum w_i L_i / N over the agents that have released. Where all weigh 1 these are weight * N
    draws; where patients count, one agent may have nearly all of the weight.
    """
    if by_patients:
        return scale * abs(weight) * (2.0 * sqrt(q) + q)
    return scale * (2.0 * sqrt(q * abs(weight) * num_agents) + q) / num_agents


def empty(num_arms: int) -> Register:
    """A link that is new, was dropped, or was forgotten with a lost disk."""
    return (0.0,) * (2 * num_arms), FIRST


def gossiped(own: Sequence[float], flows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """The values that an agent gossips: its own plus the flows over its links."""
    total = list(own)
    for flow in flows:
        for c in range(len(total)):
            total[c] += flow[c]
    return tuple(total)


def mirrored(flow: Sequence[float]) -> tuple[float, ...]:
    """A flow seen from the other end: the negative; 0.0, never -0.0."""
    return tuple(0.0 - x for x in flow)


def moved(flow: Sequence[float], here: Sequence[float], there: Sequence[float]) -> tuple[float, ...]:
    """The flow that makes an agent that gossips ``here`` gossip the average with ``there`` instead.

    Algorithm 1, line 20: once the other end has adopted the mirrored flow, it gossips the same average.
    """
    return tuple(flow[c] + (average(here[c], there[c]) - here[c]) for c in range(len(flow)))


def above_low(value: float, weight: float, low: float) -> float:
    """A value counted from the lowest reward: a site's own one is then from 0 to its weight times the range."""
    return value - low * weight


def clamped(flow: tuple[float, ...], limits: Limits, slack: float = 0.0) -> tuple[float, ...]:
    """The nearest flow that a link may carry: the same one if it may, up to a share ``slack`` of the limits."""
    low, span, heaviest = limits
    num_arms = len(flow) // 2
    most, heavy = span * (1.0 + slack), heaviest * (1.0 + slack)
    for k in range(num_arms):
        weight = flow[num_arms + k]
        room = most + slack * abs(low * weight)
        if not (-heavy <= weight <= heavy and -room <= above_low(flow[k], weight, low) <= room):
            break
    else:
        return flow
    weights = [min(max(weight, -heaviest), heaviest) for weight in flow[num_arms:]]
    values = [
        low * weight + min(max(above_low(value, before, low), -span), span)
        for value, before, weight in zip(flow, flow[num_arms:], weights, strict=False)
    ]
    return *values, *weights


def answer(
    mine: Register,
    rest: Sequence[float],
    offered: Register,
    there: Sequence[float],
    writer: str,
    limits: Limits = UNLIMITED,
) -> Register:
    """The register of ``writer`` after an offer, which is also its answer.

    ``rest`` is what it gossips without this link, ``there`` what the other end gossips. An older offer changes nothing.
    """
    flow, stamp = offered
    if stamp < mine[1]:
        return mine
    flow = mirrored(flow)
    return clamped(moved(flow, gossiped(rest, [flow]), there), limits), (stamp[0] + 1, writer)


def adopt(mine: Register, answered: Register, writer: str = "", limits: Limits = UNLIMITED) -> Register:
    """The offerer's register after an answer: the other end's flow if its stamp is newer."""
    flow, stamp = answered
    return held((mirrored(flow), stamp), writer, limits) if mine[1] < stamp else mine


def held(register: Register, writer: str, limits: Limits) -> Register:
    """A register of another's making: where it is beyond the limits, ``writer`` writes it anew.

    Only a liar makes one. The other end adopts what was written.
    """
    flow, (version, _) = register
    within = clamped(flow, limits, ROUNDING)
    return register if within is flow else (within, (version + 1, writer))
