"""The GPU engine: all trials of all policies in flight at once, played from checkpoint to checkpoint by kernels.

Results agree with the CPU engine's but for last bits: the GPU may join a product and a sum into one rounding, and its
logarithms and exponentials may differ. Then so may a choice between two nearly equal arms.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Generator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numba import cuda
from numpy.typing import NDArray

from fedbandit.checks import InvalidArgument
from fedbandit.engine.accounting import Keep, Reading, Record, RegretAccounting, Truth, new_record, segments_of
from fedbandit.engine.cpu import CompiledPolicy
from fedbandit.engine.cuda.blocks import open_launcher
from fedbandit.engine.cuda.device import NOT_FINITE, Readings, RoundTimes, links_on_gpu, scratch_of, world_on_gpu
from fedbandit.engine.cuda.warp import fits_in_a_warp, warp_launcher
from fedbandit.engine.layout import Population, new_population
from fedbandit.policies.registry import WrongPage

_cuda: Any = cuda
_MOST_PULLS_AT_ONCE, _MOST_ROUNDS_AT_ONCE = 10**10, 200_000  # of a kernel: about a second
_KERNELS_AHEAD = 3  # started before the first of them has ended
_MOST_MEMORY = 0.6  # of what is free on the GPU


def why_not() -> str | None:
    """Why this machine cannot play on a GPU; ``None`` if it can."""
    if not _cuda.is_available():
        return "No NVIDIA GPU with a driver that numba-cuda can use was found."
    return None


def description() -> str:
    """What plays: a digest of this package, and the GPU."""
    sources = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    name = _cuda.get_current_device().name
    return f"cuda {hashlib.sha256(sources).hexdigest()[:8]} on {name.decode() if isinstance(name, bytes) else name}"


def run_trials(
    truths: Sequence[Sequence[Truth]],
    policies: Sequence[CompiledPolicy],
    times: NDArray[np.int64],
    trials: range,
    seed: int,
    on_rounds: Callable[[int], None],
    keep: Keep = "agents",
) -> list[Record]:
    """Play all trials of all policies; return a record per policy: as ``cpu.run_trials``."""
    logs = RoundTimes(int(times[-1]))
    flights = [_fly(truths, policy, times, trials, seed, keep, logs) for policy in policies]
    records: dict[int, Record] = {}
    rounds = 0
    while len(records) < len(flights):
        for which, flight in enumerate(flights):
            if which not in records:
                try:
                    rounds += next(flight)
                except StopIteration as end:
                    records[which] = end.value
        on_rounds(rounds)
    return [records[which] for which in range(len(flights))]


def _fly(
    truths: Sequence[Sequence[Truth]],
    policy: CompiledPolicy,
    times: NDArray[np.int64],
    trials: range,
    seed: int,
    keep: Keep,
    logs: RoundTimes,
) -> Generator[int, None, Record]:
    """Play all trials of a policy; yields rounds times trials whenever a kernel is on its way."""
    num_agents, num_arms = truths[0][0].world.means.shape
    record = new_record(len(trials), num_agents, len(times), num_arms, keep)
    rows = 1 if keep == "aggregates" else len(times) + len(truths[0])
    at_once = _trials_at_once(policy, num_agents, num_arms, rows, len(trials))
    for start in range(0, len(trials), at_once):
        part = slice(start, min(start + at_once, len(trials)))
        mine = truths[part] if len(truths) > 1 else truths
        some = record.of(part)
        yield from _play(mine, policy, times, trials[part], seed, keep, some, logs)
    return record


def _trials_at_once(policy: CompiledPolicy, num_agents: int, num_arms: int, rows: int, trials: int) -> int:
    """How many trials the GPU has memory for."""
    state = _bytes_of(new_population(policy.page, policy.terms, num_arms, policy.rounds_of_waiting, policy.shares))
    each = state + sum(array.nbytes for _, links in policy.links for array in scratch_of(links))
    each += rows * num_agents * (12 * num_arms + 28)
    free = _MOST_MEMORY * _cuda.current_context().get_memory_info().free
    if each > free:
        raise InvalidArgument(
            "problem", f"{num_agents:,} agents", "smaller", f"A trial takes {each / 2**30:.1f} GiB on the GPU."
        )
    return max(1, min(trials, int(free / each), 2**20))


def _bytes_of(population: Population) -> int:
    """Of all arrays of a trial."""
    arrays = [*population, *population.shown, *population.waiting, *population.sharing]
    return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))


def _play(
    truths: Sequence[Sequence[Truth]],
    policy: CompiledPolicy,
    times: NDArray[np.int64],
    trials: range,
    seed: int,
    keep: Keep,
    record: Record,
    logs: RoundTimes,
) -> Generator[int]:
    num_agents, num_arms = truths[0][0].world.means.shape
    most = max(1, min(_MOST_ROUNDS_AT_ONCE, _MOST_PULLS_AT_ONCE // (num_agents * len(trials))))
    segments, rows = segments_of(
        times.tolist(), [truth.first for truth in truths[0]], [first for first, _ in policy.links], most
    )
    one_by_one = keep == "aggregates"
    readings = _new_readings(1 if one_by_one else len(rows), len(trials), num_agents, num_arms)
    stream = _cuda.stream()
    make = warp_launcher if fits_in_a_warp(policy, num_agents, num_arms) else open_launcher
    launch = make(policy, num_agents, num_arms, truths[0][0].world.in_step, trials, seed, stream, logs)
    links = [links_on_gpu(each, stream) for _, each in policy.links]
    worlds = [world_on_gpu(truths, period, stream) for period in range(len(truths[0]))]
    told: list[Reading] = []
    ends: deque[Any] = deque()
    for segment, after in zip_longest(segments, segments[1:]):
        row = 0 if one_by_one else segment.row
        launch(segment, row, worlds[segment.truth], links[segment.links], readings)
        ends.append(_cuda.event())
        ends[-1].record(stream)
        if len(ends) > _KERNELS_AHEAD:
            ends.popleft().synchronize()
        yield (segment.last - max(segment.first, 1) + 1) * len(trials)
        if one_by_one and (after is None or after.row != segment.row):
            stream.synchronize()
            told.append(_row_of(readings, 0))
    stream.synchronize()
    if not one_by_one:
        whole = Readings(*(array.copy_to_host() for array in readings))
        told = [Reading(*(array[row] for array in whole)) for row in range(len(rows))]
    _refuse_stopped(policy, told)
    accounting = RegretAccounting(record, truths, keep, num_agents)
    for reading, end in zip(told, rows, strict=True):
        accounting.enter(reading, end)


def _refuse_stopped(policy: CompiledPolicy, told: Sequence[Reading]) -> None:
    """Say that a user's page has failed: on the GPU that ends its thread, and the agent does not tell its clock."""
    least = min(int(row.clock.min()) for row in told)
    if least < 0:
        fault = "published makes an average infinite or NaN" if least == NOT_FINITE else "a function of its page fails"
        raise WrongPage(policy.kind, f'{fault}. The GPU does not tell where: engine="cpu" does')


def _row_of(readings: Readings, row: int) -> Reading:
    return Reading(*(array[row].copy_to_host() for array in readings))


def _new_readings(rows: int, trials: int, num_agents: int, num_arms: int) -> Readings:
    shape = (rows, trials, num_agents)
    kinds = {"tried": np.int32, "theta": np.float64, "messages": np.int64, "clock": np.int64, "caught_up": np.int32}
    per_arm = ("tried", "theta")
    return Readings(
        *(
            _cuda.device_array((*shape, num_arms) if name in per_arm else shape, kinds.get(name, np.float64))
            for name in Readings._fields
        )
    )
