"""Regret accounting, the same for all engines: where a run is cut and read, and what readings say of its cost.

With ``keep="aggregates"`` a record has statistics over agents instead of an entry for each. The mean keeps the
variable's name, so ``regret`` is the mean regret per agent; the others add to it: ``regret_min``, ``regret_max``,
``regret_std``.
"""

from bisect import bisect
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit.checks import InvalidArgument
from fedbandit.engine.layout import World

_MOST_NUMBERS_AT_ONCE = 1_000_000


class Truth(NamedTuple):
    """The world of a trial while its means stay the same, and the truth for its regret and errors."""

    first: int  # round
    world: World
    gaps: NDArray[np.float64]
    arm_means: NDArray[np.float64]


# ---------------------------------------------------------------- statistics over agents

Keep = Literal["agents", "aggregates"]
STATISTICS = ("", "_min", "_max", "_std")
"""What is added to a variable's name, in the order of the engine's arrays."""

_WORDS = {"": "mean over agents of: ", "_min": "least of any agent: ", "_max": "largest of any agent: "}


def checked_keep(keep: Any) -> Keep:
    """What a result keeps, or an error."""
    if keep not in ("agents", "aggregates"):
        raise InvalidArgument("keep", keep, "'agents' or 'aggregates'")
    return keep


def statistics(values: NDArray[Any]) -> NDArray[np.float64]:
    """Of numbers with an entry for each agent first: one row for each of the ``STATISTICS``."""
    numbers = values.astype(np.float64)
    return np.stack([numbers.mean(axis=0), numbers.min(axis=0), numbers.max(axis=0), numbers.std(axis=0)])


def spread_of(theta: NDArray[np.float64]) -> float:
    """How far agents disagree: the standard deviation over agents of an arm's estimate, on average over arms."""
    return float(theta.std(axis=0).mean())


def named(name: str, array: NDArray[Any], about: str) -> dict[str, tuple[NDArray[Any], str]]:
    """The variables of the ``STATISTICS``, which are the third axis: [policy, trial, statistic, ...]."""
    return {
        name + suffix: (array[:, :, position], _WORDS.get(suffix, "standard deviation over agents of: ") + about)
        for position, suffix in enumerate(STATISTICS)
    }


class Record(NamedTuple):
    """The numbers recorded at each checkpoint. Where aggregates are kept, statistics stand where agents would.

    Where decisions have strata, cells stand where arms would, one stratum after the other.
    """

    regret: NDArray[np.float64]  # [trial, agent, time]
    pulls: NDArray[Any]  # [trial, agent, time, arm]
    best_pulls: NDArray[Any]  # [trial, agent, time]: pulls of the best arm of the moment
    messages: NDArray[Any]
    lagging: NDArray[np.float64]
    theta_error: NDArray[np.float64]
    misses: NDArray[np.float64]  # estimates off by more than their radius since the last checkpoint, if watched
    regret_by_stratum: NDArray[np.float64]  # [trial, agent, time, stratum]
    disagreement: NDArray[np.float64]  # [trial, time]: where aggregates are kept

    def of(self, trials: slice) -> "Record":
        """Views of some trials."""
        return Record(*(array[trials] for array in self))


def new_record(
    num_trials: int, num_agents: int, num_times: int, num_arms: int, keep: Keep = "agents", num_strata: int = 0
) -> Record:
    """Zeros of the right shapes."""
    aggregated = keep == "aggregates"
    shape = (num_trials, len(STATISTICS) if aggregated else num_agents, num_times)
    return Record(
        regret=np.zeros(shape),
        pulls=np.zeros((*shape, num_arms), np.float64 if aggregated else np.int32),
        best_pulls=np.zeros(shape, np.float64 if aggregated else np.int64),
        messages=np.zeros(shape, np.float64 if aggregated else np.int64),
        lagging=np.zeros(shape),
        theta_error=np.zeros(shape),
        misses=np.zeros(shape),
        regret_by_stratum=np.zeros((*shape, num_strata)),
        disagreement=np.zeros((num_trials, num_times if aggregated else 0)),
    )


# ---------------------------------------------------------------- where a run is cut


class Segment(NamedTuple):
    """Rounds that an engine plays at once."""

    first: int
    last: int
    row: int  # of the readings
    is_fresh: bool  # whether it begins a row
    truth: int  # the period of the means
    links: int  # the period of the links
    has_new_links: bool  # whether it begins that period


class ReadingEnd(NamedTuple):
    """Where a row of readings ends."""

    checkpoint: int  # the one that it belongs to
    is_checkpoint: bool
    truth: int
    ends_truth: bool


def segments_of(
    times: Sequence[int], truth_starts: Sequence[int], link_starts: Sequence[int], most: int
) -> tuple[list[Segment], list[ReadingEnd]]:
    """Cut a run where something is read or changes, and after so many rounds at ``most``."""
    changes = sorted({*truth_starts, *link_starts})
    segments: list[Segment] = []
    rows: list[ReadingEnd] = []
    done, is_fresh = -1, True
    for c, time in enumerate(times):
        while done < time:
            first = done + 1
            truth, links = bisect(truth_starts, first) - 1, bisect(link_starts, first) - 1
            place = bisect(changes, first)
            done = min(done + most, time, changes[place] - 1 if place < len(changes) else time)
            segments.append(Segment(first, done, len(rows), is_fresh, truth, links, first in link_starts))
            ends_truth = bisect(truth_starts, done + 1) - 1 != truth
            is_fresh = done == time or ends_truth
            if is_fresh:
                rows.append(ReadingEnd(c, done == time, truth, ends_truth))
    return segments, rows


# ---------------------------------------------------------------- what readings say


class Reading(NamedTuple):
    """What an engine reads where a row of readings ends: [trial, agent, ...]."""

    tried: Any
    theta: Any
    messages: Any
    clock: Any
    caught_up: Any  # decisions by the consistency rule
    misses: Any  # since the reading before
    counted: Any = None  # where decisions have features: regret, and decisions for the best arm, so far


class RegretAccounting:
    """What trials have cost so far: pulls since the last change of the means, and the loss before it."""

    def __init__(
        self,
        record: Record,
        truths: Sequence[Sequence[Truth]],
        keep: Keep,
        num_agents: int,
        num_strata: int = 0,
        first: NDArray[np.int32] | None = None,
    ) -> None:
        """``truths``: of each trial, or one for all: the truth of each period with the same means.

        ``first``: where decisions have strata, each agent's pulls of each cell at t = 0.
        """
        trials, num_arms = len(record.regret), record.pulls.shape[-1]
        self._record, self._truths, self._keep = record, truths, keep
        self._lost, self._best = np.zeros((trials, num_agents)), np.zeros((trials, num_agents), np.int64)
        self._missed = np.zeros((trials, num_agents))
        # R_i(T) counts t >= 1: the pulls at t = 0 do not
        self._counted = np.ones((1, 1, num_arms), np.int32) if first is None else first[np.newaxis]
        self._num_strata, self._lost_by_stratum = num_strata, np.zeros((trials, num_agents, num_strata))

    def enter(self, reading: Reading, end: ReadingEnd) -> None:
        """Enter a reading of all trials."""
        tried, counted = reading.tried, np.broadcast_to(self._counted, reading.tried.shape)
        gaps = np.stack([truth[end.truth].gaps for truth in self._truths])[:, None, :]
        best_arm = np.broadcast_to(self._best_of(gaps), (*tried.shape[:-1], max(self._num_strata, 1)))
        regret = self._lost + _sum_over_arms(lambda part: gaps * (tried[:, part] - counted[:, part]), tried.shape)
        best_pulls = self._best + np.take_along_axis(tried, best_arm, -1).sum(axis=-1)
        best_pulls -= np.take_along_axis(counted, best_arm, -1).sum(axis=-1)
        if reading.counted is not None:  # the gap depends on the features: it was counted decision by decision
            regret, best_pulls = reading.counted
        by_stratum = self._lost_by_stratum + self._by_stratum(gaps * (tried - counted)) if self._num_strata else None
        self._missed += reading.misses
        if end.is_checkpoint:
            means = np.stack([truth[end.truth].arm_means for truth in self._truths])[:, None, :]
            error = _sum_over_arms(lambda part: np.abs(reading.theta[:, part] - means), tried.shape) / tried.shape[-1]
            values = {
                "pulls": tried,
                "regret": regret,
                "best_pulls": best_pulls,
                "theta_error": error,
                "messages": reading.messages,
                "lagging": reading.caught_up / np.maximum(reading.clock, 1),
                "misses": self._missed,
            }
            if by_stratum is not None:
                values["regret_by_stratum"] = by_stratum
            for name, value in values.items():
                kept = np.stack([statistics(each) for each in value]) if self._keep == "aggregates" else value
                getattr(self._record, name)[:, :, end.checkpoint] = kept
            if self._keep == "aggregates":
                self._record.disagreement[:, end.checkpoint] = [spread_of(theta) for theta in reading.theta]
            else:
                self._missed[:] = 0.0
        if end.ends_truth:
            self._lost, self._best, self._counted = regret, best_pulls, tried.copy()
            if by_stratum is not None:
                self._lost_by_stratum = by_stratum

    def _best_of(self, gaps: NDArray[np.float64]) -> NDArray[np.intp]:
        """The best arm; where decisions have strata, the best cell of each."""
        if not self._num_strata:
            return gaps.argmin(axis=-1, keepdims=True)
        per_stratum = gaps.reshape(*gaps.shape[:-1], self._num_strata, -1)
        return per_stratum.argmin(axis=-1) + np.arange(self._num_strata) * per_stratum.shape[-1]

    def _by_stratum(self, terms: NDArray[np.float64]) -> NDArray[np.float64]:
        return terms.reshape(*terms.shape[:-1], self._num_strata, -1).sum(axis=-1)


def _sum_over_arms(terms: Callable[[slice], NDArray[np.float64]], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """For each agent the sum of its terms, one arm after the other; in parts, to save memory."""
    trials, num_agents, num_arms = shape
    at_once = max(1, _MOST_NUMBERS_AT_ONCE // (trials * num_arms))
    sums = np.empty((trials, num_agents))
    for start in range(0, num_agents, at_once):
        part = slice(start, start + at_once)
        sums[:, part] = terms(part).cumsum(axis=-1)[..., -1]
    return sums
