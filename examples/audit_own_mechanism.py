"""Attack your own mechanism: two ways to publish how many of ten people said yes; one of them leaks.

Both add noise and look alike in a histogram. The second adds none when the count is zero, "since there is nothing to
hide". Run it: python examples/audit_own_mechanism.py
"""

from fedbandit.audit.measure import audit
from fedbandit.privacy.noise import GRID, laplace

EPSILON = 1.0
WORLDS = ([0] * 10, [1] + [0] * 9)  # ten answers that differ only in the first person's


def noisy_count(answers, noise):
    """Epsilon-differentially private: one answer moves the count by one, and the noise has scale 1 / epsilon."""
    return sum(answers) + noise / GRID


def careless_count(answers, noise):
    """Publishes a zero without noise."""
    return sum(answers) + noise / GRID if any(answers) else 0.0


def attack(mechanism):
    """Run it many times in both worlds and let the attacker read the count."""

    def sample(which, count):
        return [mechanism(WORLDS[which], noise) for noise in laplace(EPSILON, count)]

    def statistic(seen):  # the log-likelihood ratio; an exact zero gives the careless count away
        return float("-inf") if seen == 0.0 else abs(seen) - abs(seen - 1.0)

    return audit(sample, statistic, claimed=EPSILON, samples=20_000)


if __name__ == "__main__":
    for mechanism in (noisy_count, careless_count):
        found = attack(mechanism)
        verdict = "REFUTED" if found.refuted else "not refuted"
        print(f"{mechanism.__name__}: claims {found.claimed:g}, at least {found.at_least:.2f}: {verdict}")
