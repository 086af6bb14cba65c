"""Plays rounds of all agents of a trial in compiled code, phase by phase (``fedbandit.simulation.phases``)."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fedbandit.policies.protocol import Now, time_of
from fedbandit.simulation.compiled import compilable, compile_driver
from fedbandit.simulation.crew import meet, stopped
from fedbandit.simulation.draws import name_streams
from fedbandit.simulation.kit import Kit
from fedbandit.simulation.links import divides
from fedbandit.simulation.phases import phases_of
from fedbandit.simulation.streams import EDGES, draw, stream

__all__ = ["loop_of", "rounds_of"]


@cache
def rounds_of(kit: Kit) -> Callable[..., None]:
    """The compiled loop over rounds of a kit."""
    return compile_driver(kit)(loop_of(kit, _time_of_round, True))


def _time_of_round(world: Any, t: int, first: int) -> Now:
    return time_of(t)


compilable(_time_of_round)


def loop_of(kit: Kit, time_of_round: Callable[..., Now], keeps_names: bool) -> Callable[..., None]:
    """The loop over rounds of a kit, for an engine to compile.

    ``time_of_round(world, t, first)``: the time of decisions in round t. ``keeps_names``: names of streams are stored.
    """
    begin, mark, act, exchange, learn, gather, watch = phases_of(kit)
    has_marks, meets, watches, estimate = kit.has_marks, kit.meets, kit.watches, kit.estimate
    all_exchange = kit.network in ("gossip", "consensus") and divides(kit.average_links)
    exchanges = kit.network in ("gossip", "consensus", "pooled")

    def play_rounds(
        first: int,
        last: int,
        seed: Any,
        trial: Any,
        population: Any,
        world: Any,
        links: Any,
        tape: Any,
        theta: Any,
        arm_means: Any,
        misses: Any,
    ) -> None:
        """Play rounds ``first`` to ``last`` of a trial; round 0 is the first pull of every arm.

        The thread plays the agents of its slice, ``links.crew``, and alone what is not divided if it is the first.
        ``theta`` receives the final estimates; ``misses`` counts errors against ``arm_means`` larger than the radius.
        """
        crew = links.crew
        edge_stream = stream(seed, trial, EDGES, np.uint64(0), np.uint64(0))
        if first == 0:
            for i in range(crew.first, crew.last):
                if keeps_names:
                    name_streams(seed, trial, population.streams[i], i)
                begin(population, i)
        for t in range(first, last + 1):
            now, bits = time_of_round(world, t, first), draw(edge_stream, np.uint64(t))
            if has_marks and t > 0:
                if crew.part == 0:
                    mark(population, links, t, bits)
                meet(crew)
            for i in range(crew.first, crew.last):
                act(population, world, links, tape, t, now, i)
            if exchanges:
                meet(crew)
                if all_exchange or crew.part == 0:
                    exchange(population, links, tape, t, bits)
                meet(crew)
            for i in range(crew.first, crew.last):
                learn(population, t, i)
            meet(crew)
            if meets and t > 0:
                if crew.part == 0:
                    gather(population, links)
                meet(crew)
            if watches and t > 0:
                for i in range(crew.first, crew.last):
                    watch(population, arm_means, misses, i)
            if stopped(crew):
                return
        agents, terms = population.agents, population.terms
        for i in range(crew.first, crew.last):
            for k in range(theta.shape[1]):
                theta[i, k] = estimate(agents[i], terms[i], agents[i], k)

    return play_rounds
