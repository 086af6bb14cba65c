"""Stages of a run on a GPU, and what their readings say: the records of ``cpu``, for many trials at once."""

from bisect import bisect
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit.simulation.aggregates import Keep, spread_of, statistics
from fedbandit.simulation.cpu import Record, Truth

__all__ = ["Row", "RowEnd", "Stage", "enter", "stages_of"]


class Stage(NamedTuple):
    """Rounds that one kernel plays."""

    first: int
    last: int
    row: int  # of the readings
    is_fresh: bool  # whether it begins a row
    truth: int  # the period of the means
    links: int  # the period of the links
    has_new_links: bool  # whether it begins that period


class RowEnd(NamedTuple):
    """Where a row of readings ends."""

    checkpoint: int  # the one that it belongs to
    is_checkpoint: bool
    truth: int
    ends_truth: bool


class Row(NamedTuple):
    """Readings: [trial, agent, ...]."""

    tried: Any
    theta: Any
    messages: Any
    clock: Any
    caught_up: Any
    misses: Any


def stages_of(
    times: Sequence[int], truth_starts: Sequence[int], link_starts: Sequence[int], most: int
) -> tuple[list[Stage], list[RowEnd]]:
    """Cut a run where something is read or changes, and after so many rounds at ``most``."""
    changes = sorted({*truth_starts, *link_starts})
    stages: list[Stage] = []
    rows: list[RowEnd] = []
    done, is_fresh = -1, True
    for c, time in enumerate(times):
        while done < time:
            first = done + 1
            truth, links = bisect(truth_starts, first) - 1, bisect(link_starts, first) - 1
            place = bisect(changes, first)
            done = min(done + most, time, changes[place] - 1 if place < len(changes) else time)
            stages.append(Stage(first, done, len(rows), is_fresh, truth, links, first in link_starts))
            ends_truth = bisect(truth_starts, done + 1) - 1 != truth
            is_fresh = done == time or ends_truth
            if is_fresh:
                rows.append(RowEnd(c, done == time, truth, ends_truth))
    return stages, rows


def enter(
    told: Sequence[Row], rows: Sequence[RowEnd], truths: Sequence[Sequence[Truth]], record: Record, keep: Keep
) -> None:
    """Enter readings into a record, as ``cpu`` does trial by trial."""
    trials, num_agents, num_arms = told[0].tried.shape
    lost, best = np.zeros((trials, num_agents)), np.zeros((trials, num_agents), np.int64)
    counted = np.ones((1, 1, num_arms), np.int32)  # R_i(T) counts t >= 1: the pulls at t = 0 do not
    missed = np.zeros((trials, num_agents))
    for row, end in zip(told, rows, strict=True):
        gaps = np.stack([truth[end.truth].gaps for truth in truths])
        means = np.stack([truth[end.truth].arm_means for truth in truths])
        regret = lost + np.cumsum(gaps[:, None, :] * (row.tried - counted), axis=-1)[..., -1]
        arm = np.broadcast_to(gaps.argmin(axis=-1)[:, None, None], (trials, num_agents, 1))
        best_pulls = best + np.take_along_axis(row.tried - counted, arm, axis=-1)[..., 0]
        missed += row.misses
        if end.is_checkpoint:
            error = np.cumsum(np.abs(row.theta - means[:, None, :]), axis=-1)[..., -1] / num_arms
            values = {
                "pulls": row.tried,
                "regret": regret,
                "best_pulls": best_pulls,
                "theta_error": error,
                "messages": row.messages,
                "lagging": row.caught_up / np.maximum(row.clock, 1),
                "misses": missed,
            }
            for name, value in values.items():
                getattr(record, name)[:, :, end.checkpoint] = _told(value, keep)
            if keep == "aggregates":
                record.disagreement[:, end.checkpoint] = [spread_of(theta) for theta in row.theta]
            else:
                missed[:] = 0.0
        if end.ends_truth:
            lost, best, counted = regret, best_pulls, row.tried


def _told(value: NDArray[Any], keep: Keep) -> NDArray[Any]:
    return np.stack([statistics(each) for each in value]) if keep == "aggregates" else value
