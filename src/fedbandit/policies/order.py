"""The order of events in a round, stated once, for all that play a page: cores, GPUs, and dry runs in plain Python.

In each round links are marked; every agent acts (receives n~, decides, draws its reward, observes); links exchange;
every agent learns (adds what changed to its averages, believes). In ``act`` and ``learn`` an agent writes nothing that
another one reads in the same phase, so agents may come in any order, or at once. Who plays which agent, and where
memory lies, is an engine's own business: an ``Arrangement``.
"""

from collections.abc import Callable
from typing import Any, NamedTuple


class Phases(NamedTuple):
    """What happens in a round, in its order; ``i`` is one agent. ``None``: it does not happen.

    * ``begin(population, i)``: before round 0, in which every arm is pulled once
    * ``mark(population, links, t, edges)``: which links are present; n~ of all agents where that depends on it
    * ``act(population, world, links, tape, t, now, i)``
    * ``exchange(population, links, tape, t, edges)``: averages over links, or sums of what all publish
    * ``learn(population, t, i)``
    * ``gather(population, links)``: a page's own meeting of all agents
    * ``watch(population, arm_means, misses, i)``: counts estimates that lie further from the truth than their radius

    ``edges`` is what the engine draws links from.
    """

    begin: Callable[..., None]
    act: Callable[..., None]
    learn: Callable[..., None]
    exchange: Any = None
    mark: Any = None
    gather: Any = None
    watch: Any = None


def _no_barrier(team: Any) -> None:
    """There is one thread."""


def _never_stopped(team: Any) -> bool:
    return False


def _as_it_is(i: Any) -> Any:
    return i


class Arrangement(NamedTuple):
    """How a thread of an engine plays its agents; the defaults are those of plain Python, one thread for all."""

    now_at: Callable[..., Any]  # (world, t, first): the time of round t
    barrier: Callable[..., None] = _no_barrier  # waits for the other threads of the team
    stopped: Callable[..., bool] = _never_stopped  # whether another thread has failed
    index: Callable[..., Any] = _as_it_is  # an agent's number, as the compiler likes it best
    fetch: Any = None  # (population, world, links, t, i): asks for memory ahead of its use
    one_each: bool = False  # a thread has one agent or none: what depends on the agent alone is computed once
    is_apart: bool = False  # n~ lies apart from records: an agent may act before others have learnt
    all_exchange: bool = False  # threads divide the exchange; otherwise the first one computes all of it


def rounds_of(phases: Phases, arrangement: Arrangement) -> Callable[..., None]:
    """``play_rounds(first, last, edges, population, world, links, tape, arm_means, misses)``, to be compiled or called.

    It plays rounds ``first`` to ``last`` of a trial; round 0 is the first pull of every arm. The thread plays the
    agents of its slice, ``links.team``, and alone what is not divided if it is the first.
    """
    begin, act, learn, exchange, mark, gather, watch = phases
    now_at, barrier, stopped, index, fetch, one_each, is_apart, all_exchange = arrangement
    marks, exchanges, gathers, watches = (phase is not None for phase in (mark, exchange, gather, watch))
    fetches = fetch is not None
    # Where nothing lies between, an agent learns of one round and acts in the next while its record is at hand.
    is_fused = fetches and is_apart and not (marks or gathers or watches)
    ahead = int(is_fused)  # then the last round is learnt of after it
    waits = not is_apart or marks or gathers

    def play_rounds(
        first: int,
        last: int,
        edges: Any,
        population: Any,
        world: Any,
        links: Any,
        tape: Any,
        arm_means: Any,
        misses: Any,
    ) -> None:
        team = links.team
        mine, is_mine = team.first, team.first < team.last
        if first == 0:
            for j in range(team.first, team.last):
                begin(population, index(j))
        for t in range(first, last + 1 + ahead):
            if marks and t > 0:
                if team.part == 0:
                    mark(population, links, t, edges)
                barrier(team)
            now = now_at(world, t, first)
            if one_each:
                if is_mine:
                    act(population, world, links, tape, t, now, mine)
            else:
                for j in range(team.first, team.last):
                    i = index(j)
                    if is_fused and t > first:
                        learn(population, t - 1, i)
                    if not is_fused or t <= last:
                        if fetches:
                            fetch(population, world, links, t, i)
                        act(population, world, links, tape, t, now, i)
            barrier(team)
            if exchanges:
                if (not is_fused or t <= last) and (all_exchange or team.part == 0):
                    exchange(population, links, tape, t, edges)
                barrier(team)
            if not is_fused:
                if one_each:
                    if is_mine:
                        learn(population, t, mine)
                else:
                    for j in range(team.first, team.last):
                        learn(population, t, index(j))
                if waits:
                    barrier(team)
                if gathers and t > 0:
                    if team.part == 0:
                        gather(population, links)
                    barrier(team)
                if watches and t > 0:
                    for j in range(team.first, team.last):
                        watch(population, arm_means, misses, index(j))
            if stopped(team):
                return

    return play_rounds
