"""What a site that joins late loses with its first decisions, with what the network knows and as it was before.

Eight sites that know, a ninth joins: `python benchmarks/joining.py` prints the tables of docs/fedbatch.md. In memory,
with seeded noise; ``before``: N is given, and others' words about what they have released are not heard.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from math import sqrt
from random import Random
from statistics import mean, stdev

from fedbandit import FedBatch
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.memory_network import MemoryNetwork
from fedbandit.agent.core.site import Site
from fedbandit.agent.core.standings import Standings

MEANS = (0.60, 0.52, 0.50, 0.45, 0.40)
BIAS = 0.03  # standard deviation of a site's own mean of an arm around that of all
SITES, MINUTE = 8, 60.0


class Before(Standings):
    """As it was: N from the file, and own releases alone say how much is known."""

    @property
    def num_agents(self):
        """All that will ever be there."""
        return self._most_agents

    def others(self, terms):
        """Nothing."""
        return []


class Network(MemoryNetwork):
    """All sites play by the new rule or as before."""

    is_before = False

    def open_site(self, name, disk) -> Site:
        """As before, if asked."""
        site = super().open_site(name, disk)
        if self.is_before:
            site._standings.__class__ = Before
        return site


def one(seed, counts, index, is_before, known, first, later):
    """Regret of the eight in their second half, of the ninth's first decisions, and of its later ones."""
    random = Random(seed)
    arms = tuple("abcde")
    means = [[m + random.gauss(0.0, BIAS) for m in MEANS] for _ in range(SITES + 1)]
    best = [mean(it[k] for it in means) for k in range(len(arms))]
    gaps = [max(best) - it for it in best]
    names = [f"s{i}" for i in range(SITES)]
    ring = [(names[i], names[(i + 1) % SITES]) for i in range(SITES)]
    terms = Federation("joining", SITES + 1, arms, 0.0, 1.0, FedBatch(1.0, index=index), counts=counts)
    kind = type("Kind", (Network,), {"is_before": is_before})
    network = kind(terms, ring, seed)

    def minute(names):
        lost = []
        for i, name in enumerate(names):
            decision = network.decide(name)
            lost.append(gaps[decision.arm])
            network.report(name, decision.id, float(random.random() < means[i][decision.arm]))
        for a, b in network.links:
            network.exchange(a, b)
        network.run(network.now + MINUTE)
        for name in names:
            network.expire(name, network.now - 60 * MINUTE)
        return lost

    lost = [sum(minute(names)) for t in range(known)]
    network.join("late", [names[0], names[SITES // 2]])
    for a, b in network.links[-2:]:
        network.exchange(a, b)
        network.run()
    ninth = [minute([*names, "late"])[-1] for _ in range(first + later)]
    return sum(lost[known // 2 :]) / SITES, sum(ninth[:first]), sum(ninth[first:])


def _one(arguments):
    return one(*arguments)


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--known", type=int, default=2000)
    parser.add_argument("--first", type=int, default=200)
    parser.add_argument("--later", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    print(f"| counts, index | rule | eight, second half | ninth, first {given.first} | ninth, next {given.later} |")
    print("|---|---|---|---|---|")
    with ProcessPoolExecutor(given.workers) as pool:
        for counts, index in (("sites", "thompson"), ("patients", "thompson"), ("sites", "ucb"), ("patients", "ucb")):
            for is_before in (True, False):
                jobs = [
                    (seed, counts, index, is_before, given.known, given.first, given.later)
                    for seed in range(given.seeds)
                ]
                columns = zip(*pool.map(_one, jobs), strict=True)
                cells = [f"{mean(x):.2f} ± {stdev(x) / sqrt(len(x)):.2f}" for x in columns]
                print(f"| {counts}, {index} | {'before' if is_before else 'now'} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
