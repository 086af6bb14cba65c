"""What theory says about the number of patients per site: a lower bound, an ordinary trial, FedBatch's own radius.

Formulas of rewards, noise and radii are those of ``fedbandit.rules``.
"""

from math import erf, exp, inf, log, pi, sqrt

from fedbandit.planning.question import CERTAINTY, Question
from fedbandit.rules import batch
from fedbandit.rules import radius as radii
from fedbandit.rules.kl import bernoulli_kl

__all__ = ["chance_of_equal_arms", "fewest_patients", "patients_of_equal_arms", "patients_until_radius"]

_MOST = 1e15


def fewest_patients(question: Question) -> float:
    """No method can find the best arm with fewer patients per site, not even with all rewards in one place.

    Let every arm be the best one in turn, and p_k(j) be the chance that arm j leads at a site if k is the best. Between
    the worlds of k and a, all N n rewards together differ by a divergence of at most N n kl, kl that of one reward.
    Whatever is computed from them differs by no more: N n kl >= kl(p_k(k), p_a(k)). On average over pairs, and since
    the divergence is convex, that is at least kl(c, (1 - c) / (M - 1)) for the certainty c. Biases are granted to
    whoever decides; kl is the largest that they allow.
    """
    shifted = [(question.highest_mean + b, question.lowest_mean + b) for b in (-question.bias, question.bias)]
    largest = max(max(bernoulli_kl(high, low), bernoulli_kl(low, high)) for high, low in shifted)
    needed = bernoulli_kl(CERTAINTY, (1.0 - CERTAINTY) / (question.arms - 1))
    return needed / (question.sites * largest)


def chance_of_equal_arms(question: Question, patients: float) -> float:
    """The chance that the best arm has the highest mean in a trial of equal arms, all rewards in one place.

    Means are taken for normal. Sites have as many patients of each arm, so that biases cancel and variances average.
    """
    bias_variance = question.bias**2 * (question.sites + 1) / (3.0 * (question.sites - 1))  # of evenly spread numbers
    variance = question.highest_mean * (1.0 - question.highest_mean) - bias_variance
    lead = question.gap * sqrt(patients * question.sites / question.arms / variance)
    step, chance = 0.01, 0.0
    for position in range(-800, 801):
        z = position * step
        below = 0.5 * (1.0 + erf((z + lead) / sqrt(2.0)))
        chance += step * exp(-z * z / 2.0) / sqrt(2.0 * pi) * below ** (question.arms - 1)
    return chance


def patients_of_equal_arms(question: Question) -> float:
    """Patients per site of an ordinary randomised trial with equal arms that pools all rewards, for the certainty."""
    low, high = 0.0, 1.0
    while chance_of_equal_arms(question, high) < CERTAINTY:
        low, high = high, 2.0 * high
    for _ in range(30):
        middle = (low + high) / 2.0
        low, high = (middle, high) if chance_of_equal_arms(question, middle) < CERTAINTY else (low, middle)
    return high


def patients_until_radius(question: Question, expected_decisions: int | None) -> float:
    """Patients per site, arms in turn, until FedBatch's radius is half the gap: then no worse arm looks best.

    The radius is the calibrated one, sqrt(2 log t V / N), for releases at the ends of batches.
    """
    first = batch.first_size(expected_decisions, question.epsilon, question.arms)
    noise = batch.laplace_variance(batch.noise_scale(1.0, question.epsilon))
    factor = radii.calibrated_factor(radii.CALIBRATED_ALPHA)
    released, patients = 0, 0.0
    while patients < _MOST:
        released += batch.batch_size(released, first, batch.BATCH_GROWTH)
        patients = float(question.arms * released)
        own = batch.scheduled_variance(
            released, first, batch.BATCH_GROWTH, batch.largest_reward_variance(0.0, 1.0), noise
        )
        deviation = radii.deviation(own / question.sites)
        if 2.0 * radii.calibrated_radius(deviation, factor, sqrt(log(patients))) <= question.gap:
            return patients
    return inf
