"""A thousand sites in memory: what each has released is everywhere."""

from functools import lru_cache
from random import Random
from time import process_time

import networkx as nx
import pytest

from fedbandit import FedBatch
from fedbandit.agent.core import board
from fedbandit.agent.core.arms import ArmChange, receipts_of
from fedbandit.agent.core.bulletin import Bulletin, Signed
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import Numbering, Stored
from fedbandit.agent.core.site import Site
from fedbandit.agent.http.snapshot import change_body
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


def test_who_of_a_thousand_sites_has_a_stop_is_known_in_time():
    """Nobody waits while it is looked up. Fails if every site is compared with every other: a second for each stop."""
    site = Site("own", TERMS, Stored(Numbering(1, 0)))
    stop = site.change_arm("suspend", "a", 5, "recalled").result
    site.publish(lambda _: (b"", b""), 1.0)
    (receipt,) = receipts_of([stop])
    for k in range(1000):
        it = Bulletin(TERMS.digest(), f"s{k}", 1, 1, 0, receipts={"own": receipt} if k % 2 else {})
        site.merge(Signed(it.encode(), b"", b""), "s0", 1.0)
    resume = ArmChange(2, "resume", "a", "s1", 6, (stop.id,))
    it = Bulletin(TERMS.digest(), "s1", 1, 2, 0, changes=(resume,), receipts={"own": receipt})
    site.merge(Signed(it.encode(), b"", b""), "s0", 1.0)
    it = Bulletin(TERMS.digest(), "s3", 1, 2, 0, receipts=(knows := {"own": receipt, "s1": receipts_of([resume])[0]}))
    site.merge(Signed(it.encode(), b"", b""), "s0", 1.0)
    it = Bulletin(TERMS.digest(), "s5", 1, 2, 0, receipts=knows, accepted={"s1": "1"})
    site.merge(Signed(it.encode(), b"", b""), "s0", 1.0)
    start = process_time()
    told = change_body(site, stop)
    assert process_time() - start < 0.3
    assert sum(it.has_it for it in told.receipts) == 498
    assert {it.site: it.resumed_by for it in told.receipts if it.resumed_by} == {"s1": "s1", "s5": "s1"}
