"""Plays rounds of all agents of a trial in compiled code, phase by phase (``fedbandit.simulation.phases``)."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fedbandit.policies.protocol import time_of
from fedbandit.simulation.compiled import compile_driver, not_negative
from fedbandit.simulation.crew import meet, stopped
from fedbandit.simulation.draws import name_streams
from fedbandit.simulation.kit import Kit
from fedbandit.simulation.links import divides
from fedbandit.simulation.phases import phases_of
from fedbandit.simulation.streams import EDGES, draw, stream

__all__ = ["rounds_of"]


@cache
def rounds_of(kit: Kit) -> Callable[..., None]:
    """The compiled loop over rounds of a kit."""
    begin, mark, act, exchange, learn, gather, watch = phases_of(kit)
    has_marks, meets, watches, estimate = kit.has_marks, kit.meets, kit.watches, kit.estimate
    exchanges = kit.network in ("gossip", "consensus", "pooled")
    all_exchange = kit.network != "pooled" and divides(kit.average_links)

    @compile_driver(kit)
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
            for j in range(crew.first, crew.last):
                i = not_negative(j)
                name_streams(seed, trial, population.streams[i], i)
                begin(population, i)
        for t in range(first, last + 1):
            now, bits = time_of(t), draw(edge_stream, np.uint64(t))
            if has_marks and t > 0:
                if crew.part == 0:
                    mark(population, links, t, bits)
                meet(crew)
            for j in range(crew.first, crew.last):
                act(population, world, links, tape, t, now, not_negative(j))
            meet(crew)
            if exchanges:
                if all_exchange or crew.part == 0:
                    exchange(population, links, tape, t, bits)
                meet(crew)
            for j in range(crew.first, crew.last):
                learn(population, t, not_negative(j))
            meet(crew)
            if meets and t > 0:
                if crew.part == 0:
                    gather(population, links)
                meet(crew)
            if watches and t > 0:
                for j in range(crew.first, crew.last):
                    watch(population, arm_means, misses, not_negative(j))
            if stopped(crew):
                return
        agents, terms = population.agents, population.terms
        for j in range(crew.first, crew.last):
            i = not_negative(j)
            for k in range(theta.shape[1]):
                theta[i, k] = estimate(agents[i], terms[i], agents[i], k)

    return play_rounds
