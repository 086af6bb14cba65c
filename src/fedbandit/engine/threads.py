"""Teams of threads that play one trial, in compiled code: each has a slice of agents; a barrier ends each phase.

A thread spins for some microseconds until the others have come, and then sleeps. Numba has no atomic numbers
for CPUs, so the three operations that a barrier needs are LLVM's own.
"""

import os
from collections.abc import Sequence
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import extending, types
from numpy.typing import NDArray

from fedbandit.engine.compiled import compile_rare, leave_out

_extending: Any = extending
_WORD = ir.IntType(64)
_SPINS, _MICROSECONDS = 2_000, 20
_ARRIVED, _MEETINGS, _STOPPED, _TOTALS = 0, 8, 16, 24  # bytes: three totals, used in turn


class Team(NamedTuple):
    """One of the threads that play a trial: its slice of the agents, and where the threads meet."""

    first: int  # agent
    last: int  # one more than the last agent
    part: int  # 0 does alone what is not divided
    parts: int
    counters: int  # the address of the numbers by which they meet


def single_thread(num_agents: int) -> Team:
    """A single thread."""
    return Team(0, num_agents, 0, 1, 0)


def team_of(num_agents: int, parts: int) -> tuple[NDArray[np.int64], Sequence[Team]]:
    """Threads with slices of nearly equal size, and the memory by which they meet: keep it while they run."""
    counters = np.zeros(8, np.int64)
    ends = [num_agents * part // parts for part in range(parts + 1)]
    team = [Team(ends[part], ends[part + 1], part, parts, counters.ctypes.data) for part in range(parts)]
    return counters, team


def stop(counters: NDArray[np.int64]) -> None:
    """One thread has failed: the others must not wait for it."""
    counters[_STOPPED // 8] = 1


# ---------------------------------------------------------------- LLVM's atomic operations


@_extending.intrinsic
def _add(typing: Any, address: Any, number: Any) -> Any:
    """Add to a number in memory; returns what it was before."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], _WORD.as_pointer())
        return builder.atomic_rmw("add", place, arguments[1], "seq_cst")

    return types.int64(types.int64, types.int64), build


@_extending.intrinsic
def _look(typing: Any, address: Any) -> Any:
    """A number in memory, as it is now."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], _WORD.as_pointer())
        return builder.load_atomic(place, "seq_cst", 8)

    return types.int64(types.int64), build


@_extending.intrinsic
def _give_way(typing: Any) -> Any:
    """Let other threads have this core for a moment: who sleeps comes back soon, who yields may wait for everybody."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if os.name == "posix":
            kind = ir.FunctionType(ir.IntType(32), [ir.IntType(32)])
            function = builder.module.globals.get("usleep") or ir.Function(builder.module, kind, "usleep")
            builder.call(function, [ir.IntType(32)(_MICROSECONDS)])
        return context.get_dummy_value()

    return types.none(), build


# ---------------------------------------------------------------- barriers


@compile_rare
def _wait(team: Any) -> None:
    meeting = _look(team.counters + _MEETINGS)
    if _add(team.counters + _ARRIVED, 1) == team.parts - 1:
        _add(team.counters + _ARRIVED, -team.parts)
        _add(team.counters + _MEETINGS, 1)
        return
    spins = 0
    while _look(team.counters + _MEETINGS) == meeting and _look(team.counters + _STOPPED) == 0:
        spins += 1
        if spins > _SPINS:
            _give_way()


def barrier(team: Any) -> None:
    """Wait for the others of the team."""
    raise NotImplementedError  # compiled only; each kind of team has its own


def total_of(team: Any, number: Any, pass_number: Any) -> Any:
    """The sum of what the threads bring to a meeting, or whether any brings more than 0. Passes count from 0."""
    raise NotImplementedError


def stopped(team: Any) -> bool:
    """Whether a thread has failed."""
    raise NotImplementedError


def _barrier(team: Any) -> None:
    if team.parts > 1:
        _wait(team)


def _total_of(team: Any, number: Any, pass_number: Any) -> Any:
    """Of three places, one is being summed up, the next is empty, and some may still read the one before."""
    if team.parts == 1:
        return number
    here = team.counters + _TOTALS + 8 * (pass_number % 3)
    _add(here, number)
    _wait(team)
    total = _look(here)
    if team.part == 0:  # nobody adds to the next but one before all have met again
        after = team.counters + _TOTALS + 8 * ((pass_number + 2) % 3)
        _add(after, -_look(after))
    return total


def _stopped(team: Any) -> bool:
    return team.parts > 1 and _look(team.counters + _STOPPED) != 0


def for_team(kind: type, function: Any, version: Any, overload: Any = _extending.overload) -> None:
    """Let compiled code call a ``version`` of one of these functions for a kind of team."""

    def choose(team: Any, *rest: Any) -> Any:
        return version if getattr(team, "instance_class", None) is kind else None

    choose.__signature__ = signature(version)  # pyright: ignore[reportFunctionMemberAccess]  # Numba compares names
    overload(function, strict=False, jit_options={"_nrt": False})(choose)
    leave_out(function)


for_team(Team, barrier, _barrier)
for_team(Team, total_of, _total_of)
for_team(Team, stopped, _stopped)
