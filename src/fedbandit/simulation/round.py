"""Plays rounds of all agents of a trial in compiled code, one phase after the other (``fedbandit.simulation.phases``)."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fedbandit.policies.protocol import time_of
from fedbandit.simulation.compiled import compile_driver
from fedbandit.simulation.kit import Kit
from fedbandit.simulation.phases import phases_of
from fedbandit.simulation.streams import EDGES, draw, stream

__all__ = ["rounds_of"]


@cache
def rounds_of(kit: Kit) -> Callable[..., None]:
    """The compiled loop over rounds of a kit."""
    begin, mark, act, exchange, learn, gather, watch = phases_of(kit)
    has_marks, meets, watches, estimate = kit.has_marks, kit.meets, kit.watches, kit.estimate

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

        ``theta`` receives the final estimates; ``misses`` counts errors against ``arm_means`` larger than the radius.
        """
        num_agents = len(population.agents)
        edge_stream = stream(seed, trial, EDGES, np.uint64(0), np.uint64(0))
        if first == 0:
            for i in range(num_agents):
                begin(population, seed, trial, i)
        for t in range(first, last + 1):
            now, bits = time_of(t), draw(edge_stream, np.uint64(t))
            if has_marks and t > 0:
                mark(population, links, t, bits)
            for i in range(num_agents):
                act(population, world, links, tape, t, now, i)
            exchange(population, links, tape, t, bits)
            for i in range(num_agents):
                learn(population, t, i)
            if meets and t > 0:
                gather(population, links)
            if watches and t > 0:
                for i in range(num_agents):
                    watch(population, arm_means, misses, i)
        agents, terms = population.agents, population.terms
        for i in range(num_agents):
            for k in range(theta.shape[1]):
                theta[i, k] = estimate(agents[i], terms[i], agents[i], k)

    return play_rounds
