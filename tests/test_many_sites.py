"""A thousand sites in memory: what each has released is everywhere."""

from functools import lru_cache
from random import Random

import networkx as nx
import pytest

from fedbandit import FedBatch
from fedbandit.agent.core import board
from fedbandit.agent.core.federation import Federation
from fedbandit.testing.memory_network import MemoryNetwork

TERMS = Federation("test", ("a", "b"), 0.0, 1.0, FedBatch(1.0, first_batch=4), counts="sites")


@pytest.mark.parametrize("num_sites", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_sites_know_all_of_each_other(num_sites, monkeypatch):
    """On a tree, links in the order of its levels and back: each bulletin goes over each link once."""
    monkeypatch.setattr(board, "decode", lru_cache(None)(board.decode))  # one process reads what a thousand would
    tree = nx.full_rary_tree(10, num_sites)
    links = [(f"s{i}", f"s{j}") for i, j in nx.bfs_edges(tree, 0)]
    network, source = MemoryNetwork(TERMS, links, seed=1), Random(1)  # noqa: S311
    for link in (*reversed(links), *links):  # nobody is shown before a neighbour has answered
        network.exchange(*link)
        network.run()
    for name in network.names[:30]:
        for _ in range(10):
            decision = network.decide(name)
            network.report(name, decision.id, float(source.random() < 0.3 + 0.4 * decision.arm))
    for link in (*reversed(links), *links):
        network.exchange(*link)
        network.run()
    assert network.differences() == []
    first, last = network.site("s0"), network.site(f"s{num_sites - 1}")
    assert first.num_agents == last.num_agents == num_sites
    assert first.theta == last.theta != (None, None)
