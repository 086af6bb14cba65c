"""The kernel for all other teams: a block of threads for a trial, or all threads for one trial of very many agents.

Everything lies in the GPU's memory, where all threads of a team can look at it.
"""

from functools import cache
from math import ceil
from typing import Any, NamedTuple, cast

import numpy as np
from numba import cuda
from numba import typeof as _type_of  # pyright: ignore[reportUnknownVariableType]

from fedbandit.checks import InvalidArgument
from fedbandit.engine.cpu import CompiledPolicy
from fedbandit.engine.cuda.device import (
    TABLES,
    GpuWorld,
    Readings,
    RoundTimes,
    WorldOnGpu,
    block_team,
    expect_clock,
    fill_tables,
    grid_team,
    loop_of,
    on_gpu,
    tell_clock,
)
from fedbandit.engine.cuda.memory import as_bytes, as_rows, streams_of
from fedbandit.engine.late_rewards import Waiting
from fedbandit.engine.layout import LinkArrays, Population, Sharing, ShownCounts, new_population, no_tape
from fedbandit.engine.links import Matching
from fedbandit.engine.phases import Specialisation
from fedbandit.engine.streams import EDGES, stream
from fedbandit.engine.threads import barrier

_cuda: Any = cuda


class OpenTrials(NamedTuple):
    """All trials: [trial, ...], each as in ``layout.Population`` and ``layout.LinkArrays``."""

    agents: Any
    steps: Any
    n_max: Any
    rows: Any
    stirred: Any
    pooled: Any
    before: Any
    waiting: Any
    sharing: Any
    present: Any
    degree: Any
    mixed: Any
    choice: Any
    is_free: Any
    searching: Any
    counters: Any  # [3]: by which threads of a grid add up


@cache
def open_kernel(spec: Specialisation, in_step: bool, is_grid: bool) -> Any:
    """The kernel for teams that are a block, or with ``is_grid`` all threads."""
    play_rounds, estimate = loop_of(spec, False), spec.page.estimate
    team_of = grid_team if is_grid else block_team
    has_caught_up, is_guarded, columns = "caught_up" in spec.page.knows, spec.is_guarded, len(spec.page.averaged)

    @_cuda.jit
    def play(
        first: int,
        last: int,
        seed: Any,
        first_trial: Any,
        trials: Any,
        terms: Any,
        means: Any,
        numbers: Any,
        rates: Any,
        lateness: Any,
        links: Any,
        tape: Any,
        times: Any,
        arm_means: Any,
        tables: Any,
        checkpoint: int,
        is_fresh: bool,
        has_new_links: bool,
        readings: Any,
    ) -> None:
        fill_tables(tables)
        r = np.uint32(0 if is_grid else _cuda.blockIdx.x)
        which = r if len(means) > 1 else np.uint32(0)
        trial = np.uint64(first_trial) + np.uint64(r)
        agents, steps, wait, share = trials.agents[r], trials.steps[r], trials.waiting, trials.sharing
        team = team_of(len(agents), trials.counters)
        misses = readings.misses[checkpoint, r]
        for i in range(team.first, team.last):
            if is_fresh:
                misses[i] = 0.0
            if has_new_links:  # to a new neighbour, all is news
                trials.stirred[r, 0, i], trials.stirred[r, 1, i] = 1, 1
            if is_guarded:
                expect_clock(readings, checkpoint, r, i, is_fresh)
        barrier(team)
        play_rounds(
            first,
            last,
            stream(seed, trial, EDGES, np.uint64(0), np.uint64(0)),
            Population(
                agents,
                terms,
                as_rows(agents),
                trials.n_max[r],
                ShownCounts(trials.rows[r], trials.stirred[r]),
                steps,
                streams_of(seed, trial),
                trials.pooled[r],
                trials.before[r],
                Waiting(
                    wait.arm[r],
                    wait.reward[r],
                    wait.after[r],
                    wait.first[r],
                    wait.last[r],
                    wait.latest[r],
                    wait.unobserved[r],
                    wait.num_unobserved[r],
                    wait.news[r],
                    wait.before[r],
                ),
                Sharing(
                    share.control,
                    share.control_share,
                    share.least_share,
                    share.few[r],
                    as_bytes(share.few[r]),
                    share.fresh[r],
                    as_bytes(agents),
                    share.places,
                    share.unobserved[r],
                ),
                0,
                0,
                0,
            ),
            GpuWorld(means[which], numbers, in_step, rates, lateness, times),
            LinkArrays(
                links.edges,
                links.first_neighbour,
                links.neighbours,
                links.presence,
                links.weight,
                links.contact_times,
                links.contact_edges,
                trials.present[r][: len(links.edges)],
                trials.degree[r],
                trials.mixed[r],
                Matching(trials.choice[r], trials.is_free[r], trials.searching[r]),
                team,
            ),
            tape,
            arm_means[which],
            misses,
        )
        for i in range(team.first, team.last):
            me, step = agents[i], steps[i]
            for k in range(len(me.tried)):
                readings.theta[checkpoint, r, i, k] = estimate(me, terms[i], me, k)
                readings.tried[checkpoint, r, i, k] = me.tried[k]
            readings.messages[checkpoint, r, i] = step.messages
            if is_guarded:
                tell_clock(readings, checkpoint, r, i, step.clock, as_rows(agents), columns * len(me.tried))
            else:
                readings.clock[checkpoint, r, i] = step.clock
            readings.caught_up[checkpoint, r, i] = me.caught_up if has_caught_up else 0

    return play


# ---------------------------------------------------------------- starting it

_THREADS_PER_WARP = 32
_BLOCK = 128  # threads of a team that is a block
_GRID_AGENTS = 4_096  # from so many on, a trial has the whole grid


def open_launcher(
    policy: CompiledPolicy,
    num_agents: int,
    num_arms: int,
    in_step: bool,
    trials: range,
    seed: int,
    stream: Any,
    times: RoundTimes,
) -> Any:
    """A function that starts a kernel for a segment."""
    count = len(trials)
    is_grid = num_agents >= _GRID_AGENTS
    if is_grid and policy.specialisation.is_guarded:
        # A page that fails ends its thread, and threads of a grid may wait for it for ever.
        accepted = f"'cpu' for a policy of one's own with {_GRID_AGENTS:,} agents or more"
        raise InvalidArgument("engine", "cuda", accepted)
    states = [_new_trials(policy, num_arms, 1 if is_grid else count, stream) for _ in range(count if is_grid else 1)]
    kernel = open_kernel(policy.specialisation, in_step, is_grid)
    terms, tape = _cuda.to_device(policy.terms, stream), on_gpu(no_tape(), stream)
    tables = _cuda.to_device(TABLES, stream)

    def launch(segment: Any, row: int, world: WorldOnGpu, links: LinkArrays, readings: Readings) -> None:
        rounds = times.of(segment)
        for position, state in enumerate(states):
            mine = Readings(*(array[:, position : position + 1] for array in readings)) if is_grid else readings
            several = len(world.means) > 1 and is_grid
            one = slice(position, position + 1)
            arguments = (
                segment.first,
                segment.last,
                np.uint64(seed),
                np.uint64(trials.start + position),
                state,
                terms,
                world.means[one] if several else world.means,
                world.rewards,
                world.rates,
                world.lateness,
                links,
                tape,
                rounds,
                world.arm_means[one] if several else world.arm_means,
                tables,
                row,
                segment.is_fresh,
                segment.has_new_links,
                mine,
            )
            blocks = _blocks_of_grid(kernel, arguments, num_agents) if is_grid else count
            threads = _BLOCK if is_grid else min(_BLOCK, _THREADS_PER_WARP * ceil(num_agents / _THREADS_PER_WARP))
            kernel[blocks, threads, stream, TABLES.nbytes](*arguments)

    return launch


def _blocks_of_grid(kernel: Any, arguments: Any, num_agents: int) -> int:
    """As many blocks as can wait for each other."""
    compiled = kernel.compile(tuple(cast(Any, _type_of)(argument) for argument in arguments))
    return min(compiled.max_cooperative_grid_blocks(_BLOCK), ceil(num_agents / _BLOCK))


def _new_trials(policy: CompiledPolicy, num_arms: int, count: int, stream: Any) -> OpenTrials:
    one = new_population(policy.page, policy.terms, num_arms, policy.rounds_of_waiting, policy.shares)
    links = policy.links[0][1]

    def all_of(array: Any) -> Any:
        return _cuda.to_device(np.broadcast_to(array, (count, *array.shape)).copy(), stream)

    agents = all_of(one.agents)
    sharing = one.sharing
    most = max(len(each.present) for _, each in policy.links)
    return OpenTrials(
        agents=agents,
        steps=all_of(one.steps),
        n_max=all_of(one.n_max),
        rows=all_of(one.shown.rows),
        stirred=all_of(one.shown.stirred),
        pooled=all_of(one.pooled),
        before=all_of(one.before),
        waiting=type(one.waiting)(*(all_of(array) for array in one.waiting)),
        sharing=sharing._replace(
            few=all_of(sharing.few),
            few_bytes=0,  # the kernel sees the same memory so
            fresh=all_of(sharing.fresh),
            all_bytes=0,
            places=_cuda.to_device(sharing.places, stream),
            unobserved=all_of(sharing.unobserved),
        ),
        present=all_of(np.zeros(most, np.int64)),
        degree=all_of(links.degree),
        mixed=all_of(links.mixed),
        choice=all_of(links.matching.choice),
        is_free=all_of(links.matching.is_free),
        searching=all_of(links.matching.waiting),
        counters=_cuda.to_device(np.zeros(3, np.int64), stream),
    )
