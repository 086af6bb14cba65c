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

from math import exp, expm1, log, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np

from fedbandit.simulation.compiled import compilable, compile_rare, compile_small

__all__ = [
    "ARRIVALS",
    "DELAYS",
    "EDGES",
    "NOISE",
    "NORMALS",
    "PICKS",
    "REWARDS",
    "SHARES",
    "SLABS",
    "SLAB_EDGES",
    "beta",
    "draw",
    "laplace",
    "next_bits",
    "normal_in_slab",
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
def standard_normal(bits: Any) -> Any:
    """A standard normal by the ziggurat: layer from bits 0-7, sign from bit 8, position from 11-63."""
    layer = np.int64(bits & np.uint64(255))
    x = uniform(bits) * _SIGNED_X[bits & np.uint64(511)]
    if abs(x) < _X[layer + 1]:
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
