"""Features of decisions in compiled code: drawn, kept until rewards count, and what a decision loses by its arm."""

from math import sqrt
from typing import Any

import numpy as np

from fedbandit.engine.compiled import compile_inner
from fedbandit.engine.streams import draw, standard_normal, uniform
from fedbandit.world.features import SHAPES

SPHERE, CUBE = SHAPES.index("sphere"), SHAPES.index("cube")


@compile_inner
def see_features(contexts: Any, world: Any, tape: Any, i: int, number: Any) -> None:
    """Draw the features of an agent's decision; the first pulls have the numbers of their arms."""
    x = contexts.x
    if tape.on:
        for c in range(x.shape[1]):
            x[i, c] = tape.features[number, i, c]
        return
    rows = x.shape[1] // len(world.features.average)
    for k in range(rows):
        _draw_row(x[i], contexts.names[i], world.features, i, number * rows + k, k)


@compile_inner
def _draw_row(x: Any, name: Any, drawn: Any, i: int, number: Any, k: int) -> None:
    """Draw a row of features: all that a decision has, or those of arm k."""
    start = k * len(drawn.average)
    size = len(drawn.average)
    if drawn.intercept:
        x[start] = 1.0
        start += 1
        size -= 1
    counter = np.uint64(number) * np.uint64(size + 1)
    u = uniform(draw(name, counter))
    if drawn.are_rows:
        row = drawn.first[i] + np.int64(u * drawn.count[i])
        for c in range(size):
            x[start + c] = drawn.rows[row, c]
        return
    if drawn.shape == CUBE:
        for c in range(size):
            u = uniform(draw(name, counter + np.uint64(c + 1)))
            x[start + c] = drawn.centres[i, c] + drawn.radius[i] * (2.0 * u - 1.0) / sqrt(float(size))
        return
    square = 0.0
    for c in range(size):
        z = standard_normal(draw(name, counter + np.uint64(c + 1)))
        x[start + c] = z
        square += z * z
    within = 1.0 if drawn.shape == SPHERE else u ** (1.0 / size)
    scale = drawn.radius[i] * within / sqrt(square)  # a direction, and a radius
    for c in range(size):
        x[start + c] = drawn.centres[i, c] + scale * x[start + c]


@compile_inner
def set_mean(contexts: Any, world: Any, i: int, arm: Any) -> None:
    """The mean of a reward of this arm for the features in hand."""
    mean, size = 0.0, world.theta.shape[2]
    start = np.int64(arm) * size if world.features.by_arm else 0
    for c in range(size):
        mean += world.theta[i, arm, c] * contexts.x[i, start + c]
    contexts.mean[i, arm] = mean


@compile_inner
def count_loss(contexts: Any, world: Any, i: int, arm: Any) -> None:
    """Count what a decision loses against the best arm of the average model for its features."""
    theta, best, mine = world.average_theta, -np.inf, 0.0
    for k in range(len(theta)):
        mean, start = 0.0, k * theta.shape[1] if world.features.by_arm else 0
        for c in range(theta.shape[1]):
            mean += theta[k, c] * contexts.x[i, start + c]
        best = max(best, mean)
        if np.uint64(k) == arm:
            mine = mean
    contexts.lost[i] += best - mine
    contexts.best[i] += np.int64(best == mine)


@compile_inner
def put_features(contexts: Any, i: int, place: Any) -> None:
    """Keep the features of a decision until its reward counts."""
    for c in range(contexts.x.shape[1]):
        contexts.waiting[i, place, c] = contexts.x[i, c]


@compile_inner
def take_features(contexts: Any, i: int, place: Any) -> None:
    """Those of a decision whose reward counts now."""
    for c in range(contexts.x.shape[1]):
        contexts.x[i, c] = contexts.waiting[i, place, c]
