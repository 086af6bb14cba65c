"""How often a guardrail acts without cause, and after how many patients with one: tables of docs/guardrails.md.

Federations with two arms, looked at after every release for a year, while each site gives both arms alike often.
Batches and noise are those of FedBatch; the bound is that of ``rules.guardrail``.

    python benchmarks/guardrails.py [--trials 1000]
"""

import argparse
from dataclasses import dataclass

import numpy as np

from fedbandit import FedBatch
from fedbandit.agent.core.federation import Federation
from fedbandit.rules import batch, guardrail, proved

DAYS, PATIENTS = 365, 10  # of each arm at each site, per day


@dataclass(frozen=True)
class Schedule:
    """What 1, 2, ... releases of an arm are; weights of the releases in the mean of the first e."""

    sizes: np.ndarray
    ends: np.ndarray
    variances: np.ndarray
    scale: float

    @classmethod
    def of(cls, page, most: int) -> "Schedule":
        """In units of a reward."""
        sizes, n, width = [], 0, page.high - page.low
        while n <= most:
            sizes.append(batch.batch_size(n, page.first_batch, page.growth))
            n += sizes[-1]
        sizes = np.array(sizes)
        variances = [
            batch.release_variance(int(m), page.most_variance / width**2, page.noise_variance / width**2) for m in sizes
        ]
        return cls(sizes, np.cumsum(sizes), np.array(variances), page.noise_scale / width)

    def mean_of_releases(self, releases: int) -> guardrail.MeanOfReleases:
        """Without a mean."""
        precision = float(np.sum(1.0 / self.variances[:releases]))
        weights = 1.0 / self.variances[:releases] / precision
        noise = float(np.sum((weights * self.scale / self.sizes[:releases]) ** 2) * 2.0)
        return guardrail.MeanOfReleases(
            0.0, releases, 1.0 / precision, noise, float(self.scale * weights[-1] / self.sizes[releases - 1])
        )


def means_of(schedule: Schedule, means: np.ndarray, trials: int, draws: np.random.Generator) -> np.ndarray:
    """The mean of the first e releases, [trial, site, arm, e]."""
    shape = (trials, *means.shape, len(schedule.sizes))
    sums = draws.binomial(schedule.sizes, means[None, :, :, None], shape).astype(float)
    sums += draws.laplace(0.0, schedule.scale, shape)
    weights = 1.0 / schedule.variances
    return np.cumsum(sums / schedule.sizes * weights, axis=-1) / np.cumsum(weights)


def acts_after(terms: Federation, means: np.ndarray, worse_by: float, trials: int, seed: int, looks: str = "always"):
    """Patients of the second arm at one site when its guardrail acts, [trial]; infinite: never within the year.

    ``means``: [site, arm]; sites get 1, 2, 3, ... times fewer patients. ``looks``: "once" takes every look for the
    only one: a plain interval of 95 %.
    """
    page, sites = terms.page_terms, len(means)
    schedule = Schedule.of(page, DAYS * PATIENTS)
    most = proved.most_releases(page.first_batch, page.growth, proved.MOST_PULLS)
    found = means_of(schedule, means, trials, np.random.default_rng(seed))
    when, before = np.full(trials, np.inf), None
    for day in range(1, DAYS + 1):
        patients = np.array([day * PATIENTS // (j + 1) for j in range(sites)])
        releases = np.searchsorted(schedule.ends, patients, side="right")
        have = np.flatnonzero(releases)
        if not len(have) or (releases == before).all():
            continue
        before = releases.copy()
        of_site = [schedule.mean_of_releases(int(releases[j])) for j in have]
        pairs = [(it, it) for it in of_site]
        shares = guardrail.shares_by_precision(pairs, terms.largest_share)
        radius = -guardrail.deficit(pairs, shares, sites, most, guardrail.ERROR / 2.0).certain
        if looks == "once":
            radius = 1.645 * np.sqrt(sum(s * s * 2.0 * it.variance for s, it in zip(shares, of_site, strict=True)))
        gaps = np.stack([found[:, j, 0, releases[j] - 1] - found[:, j, 1, releases[j] - 1] for j in have])
        acts = np.array(shares) @ gaps - radius > worse_by
        when = np.minimum(when, np.where(acts, patients.sum(), np.inf))
    return when


def terms_of(sites: int, epsilon: float = 1.0) -> Federation:
    """A federation of so many sites."""
    return Federation("g", ("reference", "arm"), 0.0, 1.0, FedBatch(epsilon), max_agents=sites)


def means(sites: int, gap: float, spread: float = 0.1) -> np.ndarray:
    """Success rates, [site, arm]: sites differ in both arms alike."""
    bias = np.linspace(-spread, spread, sites) if sites > 1 else np.zeros(1)
    return np.stack([0.6 + bias, 0.6 - gap + bias], axis=1)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    trials = parser.parse_args().trials
    print("| sites | arm worse by | limit | acted within a year | a plain 95 % interval would have |")
    for sites in (1, 3, 10):
        for gap, limit in ((0.0, 0.0), (0.1, 0.1)):
            given = terms_of(sites), means(sites, gap), limit, trials, 100 * sites
            acted, naive = (np.isfinite(acts_after(*given, looks=it)).mean() for it in ("always", "once"))
            print(f"| {sites} | {gap:g} | {limit:g} | {acted:.1%} | {naive:.1%} |")
    print("| sites | arm worse by | limit | patients of it before, median | 95 % | never within a year |")
    for sites in (1, 3, 10):
        for gap, limit in ((0.1, 0.0), (0.2, 0.05), (0.2, 0.1), (0.4, 0.1)):
            when = acts_after(terms_of(sites), means(sites, gap), limit, trials, 100 * sites + 1)
            some = [f"{q:,.0f}" if np.isfinite(q) else "-" for q in np.quantile(when, [0.5, 0.95], method="higher")]
            print(f"| {sites} | {gap:g} | {limit:g} | {some[0]} | {some[1]} | {np.isinf(when).mean():.1%} |")


if __name__ == "__main__":
    main()
