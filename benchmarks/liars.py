"""What liars can do to the mean, to the choices of honest sites and to their answer (docs/liars.md).

    python benchmarks/liars.py

Real sites in memory, in virtual time, with simulated signatures. Arms have means 0.2, 0.5 and 0.8; each site decides
eight times a day. After ``CALM`` days each liar signs whatever moves the worst arm most: the most that counts for it
and the least for the others, a thousand million releases or just one, all the weight that there is. It prints the shift
of the estimate of the worst arm at the honest sites, in ranges, its share of their decisions in the last quarter of the
lie, how often an answer is settled for a wrong arm, and how many honest sites name all liars.
"""

from dataclasses import replace
from random import Random

from fedbandit import FedBatch
from fedbandit.agent.core.bulletin import MAX_COUNT, ArmEntry, Bulletin, Signed
from fedbandit.agent.core.federation import DAY, Federation
from fedbandit.testing.memory_network import MemoryNetwork, simulated_signature

MEANS = 0.2, 0.5, 0.8
PER_DAY, CALM, DAYS = 8, 25, 52
HUGE = 1e300


class Lying(MemoryNetwork):
    """What liars publish is their own."""

    liars: frozenset[str] = frozenset()
    releases = 1

    def _publish(self, name: str) -> None:
        if name not in self.liars:
            super()._publish(name)

    def lie(self, name: str, number: int) -> None:
        """Sign a row that is better than can be for the worst arm, and worse for the others."""
        said = [
            ArmEntry(arm, (HUGE if k == 0 else -HUGE, 0.0, HUGE), self.releases, 0, MAX_COUNT)
            for k, arm in enumerate(self.terms.arms)
        ]
        body = Bulletin(self.terms.digest(), name, 10**6, number, 0, arms=tuple(said)).encode()
        self._pass_on(name, (Signed(body, *simulated_signature(name)(body)),))


def play(terms: Federation, num_sites: int, num_liars: int, releases: int, seed: int = 1) -> list[float | str]:
    """A row of the table."""
    names = [f"s{i:02}" for i in range(num_sites)]
    liars = frozenset(names[i * num_sites // 2] for i in range(num_liars))
    links = [(names[i], names[(i + 1) % num_sites]) for i in range(num_sites)]
    network, random = Lying(terms, links, seed, spreads=True), Random(seed)
    network.releases = releases
    honest = [name for name in names if name not in liars]
    for link in links:
        network.exchange(*link)
    network.run()
    late: list[int] = []
    calm, shift, wrong, asked = 0.0, 0.0, 0, 0
    for day in range(DAYS):
        if day == CALM:
            network.liars = liars
            calm = network.site(honest[0]).theta[0] or 0.0
        for k in range(PER_DAY):
            network.now = max(network.now, (day + k / PER_DAY) * DAY)
            for name in names if day < CALM else honest:
                decision = network.decide(name)
                network.report(name, decision.id, float(random.random() < MEANS[decision.arm]))
                if name in honest and day >= DAYS - (DAYS - CALM) // 4:
                    late.append(decision.arm)
            for name in network.liars:
                network.lie(name, day * PER_DAY + k + 1)
            network.run()
        if day >= CALM:
            site = network.site(honest[0])
            shift = max(shift, abs((site.theta[0] or 0.0) - calm))
            asked, wrong = asked + 1, wrong + (site.answer.settled and site.answer.leader != 2)
    named = sum(liars <= set(network.site(name).oddities(network.now)) for name in honest)
    return [f"{shift:.2f}", f"{late.count(0) / len(late):.0%}", f"{wrong} of {asked}", f"{named} of {len(honest)}"]


if __name__ == "__main__":
    sites = Federation("liars", ("worst", "middle", "best"), 0.0, 1.0, FedBatch(1.0), counts="sites")
    patients = replace(sites, counts="patients")
    KINDS = {
        "sites": sites,
        "patients": patients,
        "patients, largest_share = 0.2": replace(patients, largest_share=0.2),
    }
    print("| N | counts | liars | releases claimed | shift | worst arm | settled wrongly, days | named |")
    print("|---|---|---|---|---|---|---|---|")
    for num_sites in (5, 20):
        for kind, terms in KINDS.items():
            for num_liars, releases in ((0, 1), (1, 1), (1, 10**9), (2, 10**9)):
                row = play(terms, num_sites, num_liars, releases)
                claimed = "" if num_liars == 0 else f"{releases:,}"
                print("|", " | ".join(map(str, [num_sites, kind, num_liars, claimed, *row])), "|", flush=True)
