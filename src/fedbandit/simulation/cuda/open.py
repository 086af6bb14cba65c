"""The kernel for all other teams: a block of threads for a trial, or all threads for one trial of very many agents.

Everything lies in the GPU's memory, where all threads of a team can look at it.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import cuda

from fedbandit.simulation.crew import meet
from fedbandit.simulation.cuda.crews import block_crew, grid_crew
from fedbandit.simulation.cuda.loop import GpuWorld, expect_clock, loop_of, tell_clock
from fedbandit.simulation.cuda.memory import as_bytes, as_rows, streams_of
from fedbandit.simulation.cuda.tables import fill_tables
from fedbandit.simulation.kit import Kit
from fedbandit.simulation.late_rewards import Waiting
from fedbandit.simulation.layout import Links, Population, Shown
from fedbandit.simulation.matching import Matching
from fedbandit.simulation.sharing import Sharing

__all__ = ["OpenTrials", "open_kernel"]

_cuda: Any = cuda


class OpenTrials(NamedTuple):
    """All trials: [trial, ...], each as in ``layout.Population`` and ``layout.Links``."""

    agents: Any
    turns: Any
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
    board: Any  # [3]: by which threads of a grid add up


@cache
def open_kernel(kit: Kit, in_step: bool, is_grid: bool) -> Any:
    """The kernel for teams that are a block, or with ``is_grid`` all threads."""
    play_rounds, estimate = loop_of(kit, False), kit.estimate
    crew_of = grid_crew if is_grid else block_crew
    has_caught_up, is_guarded, columns = kit.has_caught_up, kit.is_guarded, kit.num_averaged

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
        agents, turns, wait, share = trials.agents[r], trials.turns[r], trials.waiting, trials.sharing
        crew = crew_of(len(agents), trials.board)
        misses = readings.misses[checkpoint, r]
        for i in range(crew.first, crew.last):
            if is_fresh:
                misses[i] = 0.0
            if has_new_links:  # to a new neighbour, all is news
                trials.stirred[r, 0, i], trials.stirred[r, 1, i] = 1, 1
            if is_guarded:
                expect_clock(readings, checkpoint, r, i, is_fresh)
        meet(crew)
        play_rounds(
            first,
            last,
            seed,
            trial,
            Population(
                agents,
                terms,
                as_rows(agents),
                trials.n_max[r],
                Shown(trials.rows[r], trials.stirred[r]),
                turns,
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
            ),
            GpuWorld(means[which], numbers, in_step, rates, lateness, times),
            Links(
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
                crew,
            ),
            tape,
            arm_means[which],
            misses,
        )
        for i in range(crew.first, crew.last):
            me, turn = agents[i], turns[i]
            for k in range(len(me.tried)):
                readings.theta[checkpoint, r, i, k] = estimate(me, terms[i], me, k)
                readings.tried[checkpoint, r, i, k] = me.tried[k]
            readings.messages[checkpoint, r, i] = turn.messages
            if is_guarded:
                tell_clock(readings, checkpoint, r, i, turn.clock, as_rows(agents), columns * len(me.tried))
            else:
                readings.clock[checkpoint, r, i] = turn.clock
            readings.caught_up[checkpoint, r, i] = me.caught_up if has_caught_up else 0

    return play
