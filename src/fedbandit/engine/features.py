"""Features of decisions in compiled code: drawn, kept until rewards count, and what a decision loses by its arm."""

from math import sqrt
from typing import Any

import numpy as np

from fedbandit.engine.compiled import compile_inner
from fedbandit.engine.streams import draw, standard_normal, uniform


@compile_inner
def see_features(contexts: Any, world: Any, tape: Any, i: int, number: Any) -> None:
    """Draw the features of an agent's decision; the first pulls have the numbers of their arms."""
    x = contexts.x
    if tape.on:
        for c in range(x.shape[1]):
            x[i, c] = tape.features[number, i, c]
        return
    drawn, first = world.features, 0
    if drawn.intercept:
        x[i, 0] = 1.0
        first = 1
    size = x.shape[1] - first
    counter = np.uint64(number) * np.uint64(size + 1)
    u = uniform(draw(contexts.names[i], counter))
    if drawn.are_rows:
        row = drawn.first[i] + np.int64(u * drawn.count[i])
        for c in range(size):
            x[i, first + c] = drawn.rows[row, c]
        return
    square = 0.0
    for c in range(size):
        z = standard_normal(draw(contexts.names[i], counter + np.uint64(c + 1)))
        x[i, first + c] = z
        square += z * z
    scale = drawn.radius[i] * u ** (1.0 / size) / sqrt(square)  # a direction, and a radius
    for c in range(size):
        x[i, first + c] = drawn.centres[i, c] + scale * x[i, first + c]


@compile_inner
def set_mean(contexts: Any, world: Any, i: int, arm: Any) -> None:
    """The mean of a reward of this arm for the features in hand."""
    mean = 0.0
    for c in range(contexts.x.shape[1]):
        mean += world.theta[i, arm, c] * contexts.x[i, c]
    contexts.mean[i, arm] = mean


@compile_inner
def count_loss(contexts: Any, world: Any, i: int, arm: Any) -> None:
    """Count what a decision loses against the best arm of the average model for its features."""
    theta, best, mine = world.average_theta, -np.inf, 0.0
    for k in range(len(theta)):
        mean = 0.0
        for c in range(theta.shape[1]):
            mean += theta[k, c] * contexts.x[i, c]
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
