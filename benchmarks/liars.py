"""What a liar within all bounds can do to the mean and to the choices of honest sites (docs/liars.md).

    python benchmarks/liars.py
    python benchmarks/liars.py invented

Real sites in memory, in virtual time. Arms have means 0.2, 0.5 and 0.8; each site decides eight times a day. After
``CALM`` days the liars push the worst arm: they offer all the value that their links may carry, and in the last rows
take away all the weight that they can, too. It prints the largest
shift of an honest site's estimate of the worst arm, in ranges, the share of honest sites' decisions for it in the last
quarter of the lie, and how many of them warn.

``invented``: two arms that are alike, a ring of 8, 200 patients at each site; then a liar tells of 92 more sites, with
10^9 rewards of each arm. It prints N at its neighbour, the typical error of the difference that this tells, against
that without the lie, and at how many of 40 neighbours, one in each federation, the answer is settled.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from statistics import median

from fedbandit import FedBatch
from fedbandit.agent.core.answer import losses_of
from fedbandit.agent.core.bounds import DAY, Bounds
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.memory_network import MemoryNetwork
from fedbandit.agent.core.messages import Offer, Reply
from fedbandit.agent.core.standings import Standing

MEANS = 0.2, 0.5, 0.8
PER_DAY, CALM, DAYS = 8, 25, 52
BOUNDS = 16, 12, 8
EXCHANGES_PER_DAY = 16


class Lying(MemoryNetwork):
    """What liars send pretends that the worst arm has all the value that a link may carry."""

    liars: frozenset[str] = frozenset()
    takes_weight = False

    def send(self, message: Offer | Reply) -> None:
        """Change an offer of a liar: value, and no weight or less than none."""
        if message.sender in self.liars and isinstance(message, Offer):
            limits = Bounds.of(self.terms).limits
            row = list(message.gossiped)
            row[0] = 2.0 * limits.span * self.terms.num_agents
            if self.takes_weight:
                row[self.terms.num_arms] = -2.0 * limits.weight * self.terms.num_agents
            message = replace(message, gossiped=tuple(row))
        super().send(message)


def links_of(graph: str, num_agents: int) -> list[tuple[str, str]]:
    """A ring, or a ring with a chord from each site to the one opposite."""
    names = [f"s{i}" for i in range(num_agents)]
    ring = [(names[i], names[(i + 1) % num_agents]) for i in range(num_agents)]
    half = num_agents // 2
    return ring if graph == "ring" else ring + [(names[i], names[i + half]) for i in range(half)]


def play(
    terms: Federation, graph: str, num_liars: int, seed: int, takes_weight: bool = False
) -> tuple[float, float, int]:
    """The largest shift of the worst arm's estimate, its share of late decisions, and how many honest sites warn."""
    links = links_of(graph, terms.num_agents)
    network, random = Lying(terms, links, seed), Random(seed)
    network.takes_weight = takes_weight
    liars = frozenset(f"s{i * terms.num_agents // 2}" for i in range(num_liars))
    honest = [name for name in network.names if name not in liars]
    chosen: list[int] = []
    for day in range(DAYS):
        network.liars = liars if day >= CALM else frozenset()
        for name in network.names:
            for k in range(PER_DAY):
                network.now = (day + k / PER_DAY) * DAY
                decision = network.decide(name)
                network.report(name, decision.id, float(random.random() < MEANS[decision.arm]))
                if name in honest and day >= DAYS - (DAYS - CALM) // 4:
                    chosen.append(decision.arm)
        for _ in range(EXCHANGES_PER_DAY):
            for a, b in links:
                network.exchange(*((b, a) if b in liars else (a, b)))
                network.run()
    shifts = [abs((network.site(name).theta[0] or 0.0) - MEANS[0]) for name in honest]
    warned = sum(any("bound" in it or "lie" in it for it in network.site(name).warnings()) for name in honest)
    return max(shifts), chosen.count(0) / len(chosen), warned


def invent(terms: Federation, seed: int) -> Iterator[tuple[float, bool, int]]:
    """The typical error of the difference, whether the answer is settled, and N, at a neighbour of the liar.

    Without a lie, with one, and with one and each bound: on the same rewards.
    """
    links = links_of("ring", 8)
    network, random = MemoryNetwork(terms, links, seed), Random(seed)
    for patient in range(200):
        network.now = patient / PER_DAY * DAY
        for name in network.names:
            network.report(name, network.decide(name).id, float(random.random() < 0.5))
        _sweep(network, 1)
    site, weight = network.site("s1"), network.site("s0").offer("s1").result.standings[0].weight
    invented = tuple(Standing(f"x{i}", 1, 1, weight, (10**9,) * 2) for i in range(92))
    for most_sites, lie in ((None, ()), (None, invented), *((most, ()) for most in BOUNDS)):
        site.limit_sites(most_sites)
        offer = network.site("s0").offer("s1").result
        site.receive_offer(replace(offer, standings=(*offer.standings, *lie)))
        _sweep(network, 40)  # estimates come to rest
        losses = losses_of(site.answer.leader, site.theta, site.errors, site.stopped)
        yield max(it.radius or 0.0 for it in losses), site.answer.settled, site.num_agents


def _sweep(network: MemoryNetwork, times: int) -> None:
    for a, b in network.links * times:
        network.exchange(a, b)
        network.run()


def _invented() -> Iterator[str]:
    base = Federation("liars", ("one", "other"), 0.0, 1.0, FedBatch(1.0))
    yield "| counts | lie | most_sites | N | error | settled |\n|---|---|---|---|---|---|"
    for terms in (replace(base, counts="sites"), replace(base, max_decisions_per_day=2.0 * PER_DAY)):
        found = [[*invent(terms, seed)] for seed in range(40)]
        for column, (lie, most) in enumerate((("no", "none"), ("yes", "none"), *(("yes", most) for most in BOUNDS))):
            ratio = median(row[column][0] / row[0][0] for row in found)
            settled = sum(row[column][1] for row in found)
            yield f"| {terms.counted} | {lie} | {most} | {found[0][column][2]} | {ratio:.2f} | {settled} of 40 |"


def main() -> None:
    """Print the tables of docs/liars.md."""
    if sys.argv[1:] == ["invented"]:
        for line in _invented():
            print(line, flush=True)
        return
    print("| N | graph | counts | liars | limit of a link | shift | worst arm | warn |")
    print("|---|---|---|---|---|---|---|---|")
    for num_agents in (5, 20):
        base = Federation("liars", ("worst", "middle", "best"), 0.0, 1.0, FedBatch(1.0), max_agents=num_agents)
        kinds = {
            "sites": replace(base, counts="sites"),
            "patients, max_decisions_per_day = 16": replace(base, max_decisions_per_day=16.0),
            "patients": base,
        }
        for graph in ("ring",) if num_agents == 20 else ("ring", "chords"):
            for kind, terms in kinds.items():
                for num_liars in (0, 1, 2):
                    _row(terms, graph, kind, num_liars, False)
        _row(kinds["sites"], "ring", "sites", 1, True)


def _row(terms: Federation, graph: str, kind: str, num_liars: int, takes_weight: bool) -> None:
    shift, worst, warned = play(terms, graph, num_liars, 1, takes_weight)
    bounds, liars = Bounds.of(terms), f"{num_liars}, taking weight" if takes_weight else str(num_liars)
    print(
        f"| {terms.num_agents} | {graph} | {kind} | {liars} | {bounds.limits.span / bounds.weight:.1f} | {shift:.3g} | "
        f"{worst:.0%} | {warned} of {terms.num_agents - num_liars} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
