"""Counter-based random streams: (seed, trial, purpose, agent, arm) names a stream, a counter a draw.

All randomness of the simulator comes from here. A draw is a pure function of its name, so results do
not depend on the number of threads, the order of trials, or other draws; policies
compared on one seed see the same rewards, edges and noise (common random numbers).

The generator is SplitMix64 (Steele, Lea, Flood 2014; finaliser by Stafford) used by counter: draw c of
stream s is mix(s + c * golden). Distributions that may need more than one draw continue from the bits of
their first one, never from a shared state.

Fast, and NOT fit for real data: floating-point Laplace noise leaks (Mironov 2012). Noise that protects
people is drawn elsewhere.
"""

from collections.abc import Callable
from functools import cache
from math import exp, expm1, log, sqrt
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from fedbandit.engine.compiled import INLINE, compilable, compile_inner, compile_rare, compile_small, leave_out
from fedbandit.policies import protocol
from fedbandit.policies.registry import digest_of
from fedbandit.rules.choose import drawn, highest_drawn
from fedbandit.world.rewards import Family, Own

__all__ = [
    "ARRIVALS",
    "CONTEXTS",
    "DELAYS",
    "EDGES",
    "NOISE",
    "NOISES",
    "NORMALS",
    "PICKS",
    "REWARDS",
    "SHARES",
    "SLABS",
    "SLAB_EDGES",
    "SimulatedDraws",
    "Streams",
    "beta",
    "code_of",
    "draw",
    "draw_noise",
    "draw_of",
    "inner_edge",
    "laplace",
    "name_streams",
    "next_bits",
    "normal_in_slab",
    "signed_edge",
    "slab_edge",
    "slab_of",
    "standard_normal",
    "stream",
    "student_t",
    "uniform",
    "whole_below",
]


# What a stream is for.
REWARDS, EDGES, PICKS, NOISE = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
ARRIVALS, NORMALS, DELAYS, SHARES = np.uint64(5), np.uint64(6), np.uint64(7), np.uint64(8)
CONTEXTS = np.uint64(9)

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)


@compile_small
def _mix(z: Any) -> Any:
    z = (z ^ (z >> _S30)) * _MIX_1
    z = (z ^ (z >> _S27)) * _MIX_2
    return z ^ (z >> _S31)


@compile_small
def stream(seed: Any, trial: Any, purpose: Any, agent: Any, arm: Any) -> Any:
    """The stream of a name: each part is mixed in turn, so different names give unrelated streams."""
    s = _mix(np.uint64(seed) + GOLDEN)
    s = _mix((s ^ np.uint64(trial)) + GOLDEN)
    s = _mix((s ^ purpose) + GOLDEN)
    s = _mix((s ^ np.uint64(agent)) + GOLDEN)
    return _mix((s ^ np.uint64(arm)) + GOLDEN)


@compile_small
def draw(stream: Any, counter: Any) -> Any:
    """64 random bits: number ``counter`` of a stream."""
    return _mix(stream + np.uint64(counter) * GOLDEN)


@compile_small
def _next_bits(bits: Any) -> Any:
    return _mix((bits ^ _MIX_2) + GOLDEN)


def next_bits(bits: Any) -> Any:
    """Further bits for a draw that needs more than one word."""
    return np.uint64(_next_bits(bits))  # called from Python, compiled code returns an int, which it does not take


compilable(next_bits)


@compile_small
def uniform(bits: Any) -> Any:
    """A float in [0, 1) on a grid of 2^-53."""
    return np.float64(bits >> np.uint64(11)) * 1.1102230246251565e-16


@compile_small
def whole_below(bits: Any, limit: int) -> Any:
    """A whole number in [0, limit), for limit < 2^32; its bias is below limit / 2^32."""
    return np.int64(((bits >> np.uint64(32)) * np.uint64(limit)) >> np.uint64(32))


@compile_small
def laplace(bits: Any) -> Any:
    """Laplace noise of scale 1 (simulation only): a sign and an exponential magnitude."""
    # A product, not a branch: a random branch is mispredicted every other time.
    return log(1.0 - uniform(bits)) * (1.0 - 2.0 * np.float64(bits & np.uint64(1)))


def _ziggurat_tables() -> tuple[Any, Any]:
    """Marsaglia and Tsang's 256 layers of equal area for exp(-x^2 / 2): right edges and their heights."""
    edge, area = 3.6541528853610088, 0.00492867323399
    x = np.empty(257)
    x[0] = area / exp(-0.5 * edge * edge)  # the base layer with its tail, as wide as its area demands
    x[1] = edge
    for i in range(2, 256):
        x[i] = sqrt(-2.0 * log(area / x[i - 1] + exp(-0.5 * x[i - 1] ** 2)))
    x[256] = 0.0
    return x, np.exp(-0.5 * x**2)


_X, _HEIGHT = _ziggurat_tables()
_SIGNED_X = np.concatenate([_X[:256], -_X[:256]])  # by layer and sign: a random branch is mispredicted every other time
_EDGE = 3.6541528853610088


@compile_small
def _beyond(bits: Any, edge: float) -> Any:
    """A standard normal above ``edge`` (Marsaglia 1964). ``bits`` is only gone on from."""
    while True:
        bits = next_bits(bits)
        beyond = -log(1.0 - uniform(bits)) / edge
        bits = next_bits(bits)
        if -2.0 * log(1.0 - uniform(bits)) > beyond * beyond:
            return edge + beyond


@compile_rare
def _normal_slow(bits: Any, layer: Any, negative: Any, x: Any) -> Any:
    """The one draw in eighty that the ziggurat's fast path does not settle: x in the wedge of a layer, or its tail.

    ``bits`` is only gone on from.
    """
    while True:
        if layer == 0:
            x = _beyond(bits, _EDGE)
            break
        bits = next_bits(bits)
        if _HEIGHT[layer] + uniform(bits) * (_HEIGHT[layer + 1] - _HEIGHT[layer]) < exp(-0.5 * x * x):
            break
        bits = next_bits(bits)
        layer = np.int64(bits & np.uint64(255))
        negative = bits & np.uint64(256)
        x = uniform(bits) * _X[layer]
        if x < _X[layer + 1]:
            break
    return -x if negative else x


@compile_small
def signed_edge(place: Any) -> Any:
    """The right edge of a layer, with the sign of the draw: the layer is the lower eight bits."""
    return _SIGNED_X[place]


@compile_small
def inner_edge(layer: Any) -> Any:
    """The right edge of the next narrower layer."""
    return _X[layer + 1]


@compile_small
def standard_normal(bits: Any) -> Any:
    """A standard normal by the ziggurat: layer from bits 0-7, sign from bit 8, position from 11-63."""
    layer = np.int64(bits & np.uint64(255))
    x = uniform(bits) * signed_edge(bits & np.uint64(511))
    if abs(x) < inner_edge(layer):
        return x
    return _normal_slow(bits, layer, bits & np.uint64(256), abs(x))


# ---------------------------------------------------------------- normals that are drawn no finer than needed

# A draw is first told to lie in one of 256 slabs of equal probability, for which a byte will do. Where the slab
# decides, as it mostly does when draws are compared with each other, nothing else is drawn.

SLABS = 256
_FARTHEST = 40.0  # in standard deviations: no draw of the outer slabs comes near it, and times 0 it is 0


def _slab_edges() -> Any:
    """Edges of the slabs, symmetric."""
    edges, half = np.zeros(SLABS + 1), SLABS // 2
    edges[half + 1 : SLABS] = [NormalDist().inv_cdf(0.5 + k / SLABS) for k in range(1, half)]
    edges[SLABS] = _FARTHEST
    edges[:half] = -edges[:half:-1]
    return edges


SLAB_EDGES = _slab_edges()
_INNER, _OUTER = SLAB_EDGES[SLABS // 2 : SLABS].copy(), SLAB_EDGES[SLABS // 2 + 1 :].copy()  # of slabs above the mean
_LEAST_DENSITY = np.exp((_INNER**2 - _OUTER**2) / 2.0)  # at the outer edge, relative to the inner one


@compile_small
def slab_edge(place: Any) -> Any:
    """The lower edge of a slab."""
    return SLAB_EDGES[place]


@compile_small
def slab_of(bits: Any, k: Any) -> Any:
    """The slab of draw k: byte k % 8 of its word."""
    return (bits >> ((np.uint64(k) & np.uint64(7)) << np.uint64(3))) & np.uint64(255)


@compile_rare
def normal_in_slab(slab: Any, bits: Any) -> Any:
    """A standard normal, given its slab: by rejection below the density at the slab's inner edge."""
    negative = slab < np.uint64(SLABS // 2)
    layer = np.uint64(SLABS // 2 - 1) - slab if negative else slab - np.uint64(SLABS // 2)
    inner = _INNER[layer]
    if layer == np.uint64(SLABS // 2 - 1):
        x = _beyond(bits, inner)
    else:
        while True:
            x = inner + np.float64(bits >> np.uint64(32)) * 2.3283064365386963e-10 * (_OUTER[layer] - inner)
            height = np.float64(bits & np.uint64(0xFFFFFFFF)) * 2.3283064365386963e-10
            if height < _LEAST_DENSITY[layer] or height < exp(0.5 * (inner - x) * (inner + x)):
                break
            bits = next_bits(bits)
    return -x if negative else x


@compile_small
def _log_gamma_draw(bits: Any, shape: float) -> Any:
    """The logarithm of a Gamma(shape) draw (Marsaglia and Tsang 2000), and the bits to go on from.

    In logarithms, because a Gamma with a small shape underflows.
    """
    boost = 0.0
    if shape < 1.0:
        bits = next_bits(bits)
        boost = log(1.0 - uniform(bits)) / shape
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / sqrt(9.0 * d)
    while True:
        bits = next_bits(bits)
        z = standard_normal(bits)
        v = (1.0 + c * z) ** 3
        if v > 0.0:
            bits = next_bits(bits)
            if log(1.0 - uniform(bits)) < 0.5 * z * z + d - d * v + d * log(v):
                return log(d * v) + boost, bits


@compile_small
def beta(bits: Any, a: float, b: float) -> Any:
    """A Beta(a, b) draw as a ratio of two Gamma draws."""
    log_x, bits = _log_gamma_draw(bits, a)
    log_y, bits = _log_gamma_draw(bits, b)
    return 1.0 / (1.0 + exp(min(log_y - log_x, 700.0)))


@compile_small
def student_t(bits: Any, degrees_of_freedom: float) -> Any:
    """A draw of Student's t by Bailey's polar method (1994), which is exact for any degrees of freedom."""
    while True:
        u = 2.0 * uniform(bits) - 1.0
        bits = next_bits(bits)
        v = 2.0 * uniform(bits) - 1.0
        w = u * u + v * v
        if 0.0 < w <= 1.0:
            # d (w^(-2 / d) - 1), which is a difference of nearly equal numbers for large d
            return u * sqrt(degrees_of_freedom * expm1(-2.0 / degrees_of_freedom * log(w)) / w)
        bits = next_bits(bits)


# ---------------------------------------------------------------- the randomness of a round


class SimulatedDraws(NamedTuple):
    """The randomness of one decision of an agent: see ``protocol.uniform``, ``fill_with_normals``, ``highest_draw``."""

    agent: int
    clock: int
    last_arm: Any  # of the agent's last decision
    streams: Any
    tape: Any


def _is_simulated(draws: Any) -> bool:
    return isinstance(draws, types.NamedTuple) and draws.instance_class is SimulatedDraws


@overload(protocol.uniform, strict=False, jit_options=INLINE)
def _uniform(draws: Any) -> Any:
    if not _is_simulated(draws):
        return None

    def pick(draws: Any) -> Any:
        if draws.tape.on:
            return draws.tape.picks[draws.clock - 1, draws.agent]
        return uniform(draw(draws.streams.picks, np.uint64(draws.clock)))

    return pick


@overload(protocol.fill_with_normals, strict=False, jit_options=INLINE)
def _fill_with_normals(row: Any, draws: Any) -> Any:
    if not _is_simulated(draws):
        return None

    def fill(row: Any, draws: Any) -> None:
        if draws.tape.has_normals:
            for k in range(len(row)):
                row[k] = draws.tape.normals[draws.clock - 1, draws.agent, k]
            return
        for k in range(len(row)):
            row[k] = _normal(draws, k)

    return fill


@compile_inner
def _slab(draws: Any, k: Any) -> Any:
    """In which slab the normal of arm k lies."""
    return slab_of(draw(draws.streams.normals[np.uint64(k) >> np.uint64(3)], np.uint64(2 * draws.clock)), k)


@compile_inner
def _normal(draws: Any, k: Any) -> Any:
    """The normal of arm k."""
    return normal_in_slab(_slab(draws, k), draw(draws.streams.normals[k], np.uint64(2 * draws.clock + 1)))


@overload(protocol.highest_draw, strict=False, jit_options=INLINE)
def _highest_draw(means: Any, spreads: Any, draws: Any) -> Any:
    if not _is_simulated(draws):
        return None

    def choose(means: Any, spreads: Any, draws: Any) -> Any:
        if len(spreads) < len(means):
            raise IndexError
        if draws.tape.has_normals:
            return np.int64(highest_drawn(means, spreads, draws.tape.normals[draws.clock - 1, draws.agent]))
        # The arm of the agent's last decision is likely to win again. Which other draws may reach the least that its
        # own can be? Mostly none, and only the slabs of the draws are known by then.
        likely = min(np.int64(draws.last_arm), len(means) - 1)
        least = drawn(means[likely], spreads[likely], slab_edge(_slab(draws, likely)))
        contenders = 0
        for k in range(len(means)):
            if drawn(means[k], spreads[k], slab_edge(_slab(draws, k) + np.uint64(1))) >= least:
                contenders += 1
        return likely if contenders == 1 else _highest_contender(means, spreads, draws, least)

    return choose


@compile_rare
def _highest_contender(means: Any, spreads: Any, draws: Any, least: float) -> Any:
    """The arm with the highest draw among those whose draws may reach ``least``."""
    arm, best = np.int64(0), -np.inf
    for k in range(len(means)):
        if drawn(means[k], spreads[k], slab_edge(_slab(draws, k) + np.uint64(1))) >= least:
            x = drawn(means[k], spreads[k], _normal(draws, k))
            if x > best:
                arm, best = k, x
    return arm


for _rule in (drawn, highest_drawn):
    compilable(_rule)
leave_out(protocol.uniform)
leave_out(protocol.fill_with_normals)
leave_out(protocol.highest_draw)


@compile_inner
def _noise(tape: Any, streams: Any, i: int, arm: Any, end: Any) -> Any:
    """The noise of scale 1 of the interval that ends at ``end``: always the same draw."""
    if end == 0:
        return 0.0
    if tape.has_noise:
        if end < 0 or end >= len(tape.noise):
            raise IndexError  # a user's page names an interval that the tape does not reach
        return tape.noise[end, i, arm]
    return laplace(draw(streams.noise[arm], np.uint64(end)))


def draw_noise(tape: Any, streams: Any, i: int, arm: Any, scale: float, due: Any) -> Any:
    """The noise of an interval, or of several: see ``Page.noise_due``."""
    raise NotImplementedError  # compiled only


@overload(draw_noise, strict=False, jit_options=INLINE)
def _draw_noise(tape: Any, streams: Any, i: int, arm: Any, scale: float, due: Any) -> Any:
    if isinstance(due, types.BaseTuple):

        def several(tape: Any, streams: Any, i: int, arm: Any, scale: float, due: Any) -> Any:
            first, second = due
            return (
                scale * _noise(tape, streams, i, arm, first),
                scale * _noise(tape, streams, i, arm, second),
            )

        return several

    def one(tape: Any, streams: Any, i: int, arm: Any, scale: float, due: Any) -> Any:
        return scale * _noise(tape, streams, i, arm, due)

    return one


# ---------------------------------------------------------------- rows of noise, for pages that take features


def _noises(draw_entry: Any) -> Any:
    """Compile a function that fills in the noise of one release, each entry by itself."""

    @compile_inner
    def fill(population: Any, tape: Any, i: int, arm: Any, end: Any, scale: float) -> None:
        records, which = population.records, np.uint64(0)
        number, first = np.uint64(0), np.int64(0)
        if records.per_arm:
            which, first = np.uint64(arm), np.int64(arm) * np.int64(records.noises)
        name = population.streams[i].noise[which]
        for p in range(len(records.noise)):
            for c in range(records.noise[p, 1]):
                if tape.has_noise:
                    z = tape.noise[end, i, first + np.int64(number)]
                else:
                    z = draw_entry(draw(name, end * np.uint64(records.noises) + number))
                population.averages[i, records.noise[p, 0] + c] = scale * z
                number += np.uint64(1)

    return fill


_fill_with_normals_of_noise = _noises(standard_normal)


@compile_inner
def _fill_spherically(population: Any, tape: Any, i: int, arm: Any, end: Any, scale: float) -> None:
    """Noise with density exp(-|z| / scale): a direction from normals, a Gamma radius from exponentials."""
    _fill_with_normals_of_noise(population, tape, i, arm, end, scale)
    if tape.has_noise:
        return
    records, row, name = population.records, population.averages[i], population.streams[i].noise[arm]
    size, start, square, radius = records.noises, records.noise[0, 0], 0.0, 0.0
    for c in range(size):
        square += row[start + c] * row[start + c]
        counter = end * np.uint64(size) + np.uint64(c)
        radius -= log(1.0 - uniform(next_bits(draw(name, counter) ^ GOLDEN)))
    for c in range(size):
        row[start + c] *= scale * radius / sqrt(square)


NOISES = {"laplace": _noises(laplace), "gaussian": _fill_with_normals_of_noise, "spherical": _fill_spherically}
"""How rows of noise are drawn, by ``Page.noise``."""


class Streams(NamedTuple):
    """The names of one agent's streams; the last four by arm."""

    picks: Any
    arrivals: Any
    shares: Any
    rewards: Any
    noise: Any
    normals: Any
    delays: Any


@compile_rare
def name_streams(seed: Any, trial: Any, mine: Any, i: Any) -> None:
    """Fill in the names of an agent's streams."""
    agent = np.uint64(i)
    mine.picks = stream(seed, trial, PICKS, agent, np.uint64(0))
    mine.arrivals = stream(seed, trial, ARRIVALS, agent, np.uint64(0))
    mine.shares = stream(seed, trial, SHARES, agent, np.uint64(0))
    for k in range(len(mine.rewards)):
        arm = np.uint64(k)
        mine.rewards[k] = stream(seed, trial, REWARDS, agent, arm)
        mine.normals[k] = stream(seed, trial, NORMALS, agent, arm)
        mine.delays[k] = stream(seed, trial, DELAYS, agent, arm)
    for k in range(len(mine.noise)):  # by cell, for a page that takes strata
        mine.noise[k] = stream(seed, trial, NOISE, agent, np.uint64(k))


# ---------------------------------------------------------------- rewards

# One small function for each family, of 64 random bits and the means. ``numbers`` is what the family says that its draw
# reads besides: ``Family.numbers``.


def _gaussian(numbers: Any, bits: Any, means: Any, i: Any, arm: Any) -> Any:
    (sigma,) = numbers
    return means[i, arm] + sigma * standard_normal(bits)


def _bernoulli(numbers: Any, bits: Any, means: Any, i: Any, arm: Any) -> Any:
    return 1.0 if uniform(bits) < means[i, arm] else 0.0


def _beta(numbers: Any, bits: Any, means: Any, i: Any, arm: Any) -> Any:
    (concentration,) = numbers
    return beta(bits, means[i, arm] * concentration, (1.0 - means[i, arm]) * concentration)


def _student_t(numbers: Any, bits: Any, means: Any, i: Any, arm: Any) -> Any:
    degrees_of_freedom, scale = numbers
    return means[i, arm] + scale * student_t(bits, degrees_of_freedom)


def _empirical(numbers: Any, bits: Any, means: Any, i: Any, arm: Any) -> Any:
    values, first, count = numbers
    return values[first[i, arm] + np.int64(uniform(bits) * count[i, arm])]


_DRAWS: dict[str, Callable[..., Any]] = {
    "gaussian": _gaussian,
    "bernoulli": _bernoulli,
    "beta": _beta,
    "student_t": _student_t,
    "empirical": _empirical,
}


@cache
def _own(draw: Any, code: str) -> Callable[..., Any]:
    """A user's draw, called as the others."""
    compilable(draw)

    def draw_reward(numbers: Any, bits: Any, means: Any, i: Any, arm: Any) -> Any:
        return 0.0 + draw(bits, means[i, arm])  # a whole number becomes a float

    return draw_reward


def draw_of(family: Family) -> Callable[..., Any]:
    """The function ``(numbers, bits, means, i, arm)`` that draws a reward of agent i from an arm."""
    return _own(family.draw, code_of(family)) if isinstance(family, Own) else _DRAWS[family.kind]


def code_of(family: Family) -> str:
    """A hash of a user's draw, and nothing for families of this package, whose names suffice."""
    return digest_of(family.draw) if isinstance(family, Own) else ""
