"""Plays rounds of all agents of a trial in compiled code, phase by phase (``fedbandit.simulation.phases``)."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fedbandit.policies.protocol import time_of
from fedbandit.simulation.compiled import compile_driver
from fedbandit.simulation.crew import meet, stopped
from fedbandit.simulation.draws import name_streams
from fedbandit.simulation.kit import Kit
from fedbandit.simulation.matching import average_matching
from fedbandit.simulation.phases import phases_of
from fedbandit.simulation.streams import EDGES, draw, stream

__all__ = ["rounds_of"]


@cache
def rounds_of(kit: Kit) -> Callable[..., None]:
    """The compiled loop over rounds of a kit."""
    begin, mark, act, exchange, learn, gather, watch = phases_of(kit)
    has_marks, meets, watches, estimate = kit.has_marks, kit.meets, kit.watches, kit.estimate
    divides = kit.average_links is average_matching and kit.network in ("gossip", "consensus")

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
            for i in range(crew.first, crew.last):
                name_streams(seed, trial, population.streams[i], i)
                begin(population, i)
        for t in range(first, last + 1):
            now, bits = time_of(t), draw(edge_stream, np.uint64(t))
            if has_marks and t > 0:
                if crew.part == 0:
                    mark(population, links, t, bits)
                meet(crew)
            for i in range(crew.first, crew.last):
                act(population, world, links, tape, t, now, i)
            meet(crew)
            if divides or crew.part == 0:
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
