"""What a site that joins late loses with its first decisions, with what the network knows and as it was before.

Eight sites that know, a ninth joins: `python benchmarks/joining.py` prints the tables of docs/fedbatch.md. In memory,
with seeded noise; ``before``: N is given, and others' words about what they have released are not heard.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from copy import deepcopy
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


class World:
    """Eight sites on a ring, decisions once a minute, and two exchanges anywhere in that time."""

    def __init__(self, seed, counts, index, is_before):
        """Nothing decided yet."""
        self.random = Random(seed)  # rewards from an explicit seed
        arms = tuple("abcde")
        self.means = [[m + self.random.gauss(0.0, BIAS) for m in MEANS] for _ in range(SITES + 1)]
        best = [mean(it[k] for it in self.means) for k in range(len(arms))]
        self.gaps = [max(best) - it for it in best]
        self.names = [f"s{i}" for i in range(SITES)]
        ring = [(self.names[i], self.names[(i + 1) % SITES]) for i in range(SITES)]
        terms = Federation("joining", arms, 0.0, 1.0, FedBatch(1.0, index=index), counts=counts, max_agents=SITES + 1)
        self.network = Network(terms, ring, seed)
        self.use(is_before)

    def use(self, is_before):
        """Play by this rule from now on."""
        self.network.is_before = is_before
        for name in self.network.running:
            self.network.site(name)._standings.__class__ = Before if is_before else Standings

    def minute(self):
        """What each site loses."""
        network, lost = self.network, []
        for i, name in enumerate(self.names):
            decision = network.decide(name)
            lost.append(self.gaps[decision.arm])
            network.report(name, decision.id, float(self.random.random() < self.means[i][decision.arm]))
        for _ in range(2):
            network.exchange(*self.random.choice(network.links))
        network.run(network.now + MINUTE)
        return lost

    def join(self):
        """The ninth comes, and exchanges once with each of its two neighbours before its first patient."""
        self.network.join("late", [self.names[0], self.names[SITES // 2]])
        self.names.append("late")
        for link in self.network.links[-2:]:
            self.network.exchange(*link)
            self.network.run()

    def hour(self):
        """Forget old decisions."""
        for name in self.names:
            self.network.expire(name, self.network.now - 60 * MINUTE)


def one(seed, counts, index, known, first):
    """What the ninth loses with its first decisions before and now, in the same world."""
    world = World(seed, counts, index, is_before=False)
    for t in range(known):
        world.minute()
        if t % 60 == 0:
            world.hour()
    lost = []
    for is_before in (True, False):
        copy = deepcopy(world)
        copy.use(is_before)
        copy.join()
        lost.append(sum(copy.minute()[-1] for _ in range(first)))
    return lost


def _one(arguments):
    return one(*arguments)


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--known", type=int, default=2000, help="decisions of each of the eight before")
    parser.add_argument("--first", type=int, default=200, help="decisions of the ninth that are measured")
    parser.add_argument("--index", choices=["thompson", "ucb", "kl"], default="thompson")
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    print(f"| counts | index | first {given.first} decisions, before | now |\n|---|---|---|---|")
    with ProcessPoolExecutor(given.workers) as pool:
        for counts in ("sites", "patients"):
            jobs = [(seed, counts, given.index, given.known, given.first) for seed in range(given.seeds)]
            columns = zip(*pool.map(_one, jobs), strict=True)
            cells = [f"{mean(x):.2f} ± {stdev(x) / sqrt(len(x)):.2f}" for x in columns]
            print(f"| {counts} | {given.index} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
