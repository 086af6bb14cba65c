"""Draws of one's own, right and wrong, for ``test_rewards.py``."""

import math
import random

import numpy as np
from numba import njit

from fedbandit.engine.streams import next_bits, standard_normal, uniform

SPREAD = 0.5
heard = []


def wide(bits, mean):
    """A triangle around the mean, of two words of bits."""
    return mean + SPREAD * (uniform(bits) + uniform(next_bits(bits)) - 1.0)


def coin(bits, mean):
    return uniform(bits) < mean


def alone(bits):
    return standard_normal(bits)


def of_a_die(bits, mean):
    return mean + random.random() - 0.5  # noqa: S311


def of_numpy(bits, mean):
    return mean + np.random.normal()


def nothing(bits, mean):
    heard.clear()


def text(bits, mean):
    return str(mean)


def remembers(bits, mean):
    heard.append(mean)
    return mean + standard_normal(bits)


def lists(bits, mean):
    both = [mean, standard_normal(bits)]
    return both[0] + both[1]


def rarely_nan(bits, mean):
    return mean + standard_normal(bits) if uniform(bits) < 0.9999 else math.nan


def divides(bits, mean):
    return 1.0 / (mean - mean)


def biased(bits, mean):
    return mean + 0.05 + standard_normal(bits)


def forgets_the_mean(bits, mean):
    return standard_normal(bits)


def loud(bits, mean):
    return mean + 3.0 * standard_normal(bits)


def strays(bits, mean):
    return mean + uniform(bits) - 0.5


def half_compiled(bits, mean):
    return mean + ((bits + 1) % 1000 - 499.5) / 500.0  # Numba adds 1 to 64 bits as floats


@njit
def compiled(bits, mean):
    return mean
