"""Plays rounds of very many agents: as ``round``, in an order in which little is fetched from memory twice."""

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
from fedbandit.simulation.prefetch import AHEAD, fetch_agent
from fedbandit.simulation.streams import EDGES, draw, stream

__all__ = ["rounds_of_many"]


@cache
def rounds_of_many(kit: Kit) -> Callable[..., None]:
    """The compiled loop over rounds of a kit, for so many agents that they do not stay in the cache."""
    begin, mark, act, exchange, learn, gather, watch = phases_of(kit, shows=True)
    has_marks, meets, watches, estimate = kit.has_marks, kit.meets, kit.watches, kit.estimate
    # Where nothing lies between, an agent learns of one round and acts in the next while its record is at hand.
    sweeps = 2 if has_marks or meets or watches else 1
    hears = kit.announces and not kit.has_marks
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
        for t in range(first, last + 2):
            now, bits = time_of(t), draw(edge_stream, np.uint64(t))
            for sweep in range(sweeps):
                learns, acts = t > first and sweep == 0, t <= last and sweep == sweeps - 1
                if has_marks and acts and t > 0:
                    if crew.part == 0:
                        mark(population, links, t, bits)
                    meet(crew)
                for j in range(crew.first, crew.last):
                    i = not_negative(j)
                    if learns:
                        learn(population, t - 1, i)
                    if acts:
                        if i + AHEAD < crew.last:
                            fetch_agent(population, world, links, t, i + AHEAD, hears)
                        act(population, world, links, tape, t, now, i)
                meet(crew)
                if meets and learns and t > 1:
                    if crew.part == 0:
                        gather(population, links)
                    meet(crew)
                if watches and learns and t > 1:
                    for j in range(crew.first, crew.last):
                        i = not_negative(j)
                        watch(population, arm_means, misses, i)
            if exchanges:
                if t <= last and (all_exchange or crew.part == 0):
                    exchange(population, links, tape, t, bits)
                meet(crew)
            if stopped(crew):
                return
        agents, terms = population.agents, population.terms
        for j in range(crew.first, crew.last):
            i = not_negative(j)
            for k in range(theta.shape[1]):
                theta[i, k] = estimate(agents[i], terms[i], agents[i], k)

    return play_rounds
