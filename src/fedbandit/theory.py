"""Computes the paper's constants and bounds: L, alpha_1..3, p_0, p_1, radii over time, Theorems 1 and 2; and our own.

Each function states what the paper proves (or claims); ``proved_bound`` is that of docs/theorem.md. The formulas of a
round are in ``fedbandit.rules``, which this file uses for the radii.
"""

from collections.abc import Callable, Sequence
from math import inf, log, pi, sqrt

from fedbandit.checks import InvalidArgument, number_above, whole_number
from fedbandit.policies import MAX_HORIZON
from fedbandit.rules import batch, proved
from fedbandit.rules import radius as rule

__all__ = [
    "alpha1",
    "alpha2",
    "alpha3",
    "clean_radius",
    "conclusion",
    "fed_bound",
    "gossip_bound",
    "is_vacuous",
    "mixing_horizon",
    "p0",
    "p1",
    "private_radius",
    "proved_bound",
    "proved_conclusion",
    "rounds_above",
    "rounds_to_spread",
]


_MANY = 10**9


def mixing_horizon(lambda2: float, num_agents: int) -> int:
    """L (Lemma 4): the smallest whole number with lambda_2^(t/6) / (1 - lambda_2^(1/3)) < 1/(N t) for all t >= L."""
    _check_agents(num_agents)
    _check_lambda2(lambda2)

    def too_early(t: float) -> bool:
        # log(N t) - log(1 - lambda_2^(1/3)) >= (t / 6) log(1 / lambda_2), i.e. the inequality fails
        return log(num_agents * t) - log(1.0 - lambda2 ** (1 / 3)) >= t / 6.0 * log(1.0 / lambda2)

    peak = max(1, int(6.0 / log(1.0 / lambda2)))  # N t lambda_2^(t/6) grows until here and falls after
    low = high = peak + 1
    while too_early(high):
        low, high = high, 2 * high
    if low == high:  # it already holds just past the peak: search backwards for where it began to hold for good
        while low > 1 and not too_early(low - 1):
            low -= 1
        return low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if too_early(middle) else (low, middle)
    return high


def alpha1(num_agents: int) -> float:
    """alpha_1 = 64 / N^17 (Theorem 1)."""
    _check_agents(num_agents)
    return rule.alpha1(num_agents)


def alpha2(num_agents: int, num_arms: int, lambda2: float) -> float:
    """alpha_2 (Theorem 1): pulls lost to catching up, to bad luck and to slow mixing."""
    _check_agents(num_agents)
    _check_lambda2(lambda2)
    whole_number("num_arms", num_arms, 2, _MANY)
    mixing = 2.0 * lambda2 ** (1 / 12) / ((1.0 - lambda2 ** (1 / 3)) * (1.0 - lambda2 ** (1 / 12)))
    return (3 * num_arms - 1) * num_agents + 2.0 * pi**2 / 3.0 + mixing


def alpha3(num_agents: int, num_arms: int, lambda2: float) -> float:
    """alpha_3 = alpha_2 + 4N (Theorem 2)."""
    return alpha2(num_agents, num_arms, lambda2) + 4.0 * num_agents


def p0(n: float, lambda2: float) -> float:
    """p_0 (Lemma 4): the probability that gossip has not mixed after n pulls."""
    _check_lambda2(lambda2)
    number_above("n", n, 0.0)
    return lambda2 ** (n / 12) / (1.0 - lambda2 ** (1 / 3))


def p1(n: float, num_agents: int, lambda2: float) -> float:
    """p_1 = 2N/n + p_0 (Lemma 6)."""
    _check_agents(num_agents)
    return p0(n, lambda2) + 2.0 * num_agents / n


def clean_radius(n: float, t: float, num_agents: int) -> float:
    """C (Theorem 1) after n pulls at time t."""
    _check_radius(n, t, num_agents)
    return rule.clean_radius(rule.gossip_spread(n, num_agents, 1.0), sqrt(log(t)), 1.0, alpha1(num_agents))


def private_radius(n: float, t: float, num_agents: int, horizon: int, epsilon: float) -> float:
    """C~ as printed (Lemma 6) after n pulls at time t, the first of them without noise."""
    _check_radius(n, t, num_agents)
    whole_number("horizon", horizon, 1, MAX_HORIZON)
    number_above("epsilon", epsilon, 0.0, allow_inf=True)
    noise = rule.private_noise(n, n - 1.0, num_agents, log(horizon), epsilon, rule.NOISE_CONSTANT)
    return rule.private_radius(rule.gossip_sampling(n, num_agents, 1.0), noise, log(t), 1.0, alpha1(num_agents))


def rounds_above(threshold: float, num_agents: int, num_arms: int, horizon: int, epsilon: float) -> int:
    """The number of rounds of uniform play (n = t / M) for which the private radius exceeds ``threshold``.

    While it exceeds 1, the width of the means' range, C~ outweighs any difference that theta can show: agents
    play nearly uniformly. The result may exceed ``horizon``, which only sets log T.
    """

    def wide(t: int) -> bool:
        return private_radius(max(1.0, t / num_arms), t, num_agents, horizon, epsilon) > threshold

    high = 4 * num_arms  # after the first rounds the radius decreases
    while wide(high):
        high *= 2
        if high > 2**62:
            raise InvalidArgument("threshold", threshold, "larger", "The radius never falls below it.")
    low = high // 2
    if not wide(low):
        return max((t for t in range(1, low) if wide(t)), default=0)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if wide(middle) else (low, middle)
    return low


def gossip_bound(gaps: Sequence[float], num_agents: int, num_arms: int, horizon: int, lambda2: float) -> float:
    """Theorem 1: an upper bound on every agent's regret under Gossip_UCB (infinite if a gap is below 2 alpha_1)."""
    _check_bound(gaps, num_agents, num_arms, horizon)

    def pulls(margin: float) -> float:
        return 2.0 * num_agents / margin**2 * log(horizon)

    return _bound(gaps, num_agents, num_arms, lambda2, pulls, alpha2(num_agents, num_arms, lambda2))


def fed_bound(
    gaps: Sequence[float], num_agents: int, num_arms: int, horizon: int, lambda2: float, epsilon: float
) -> float:
    """Theorem 2: an upper bound on every agent's regret under Fed_UCB."""
    _check_bound(gaps, num_agents, num_arms, horizon)
    number_above("epsilon", epsilon, 0.0, allow_inf=True)
    log_t = log(horizon)

    def pulls(margin: float) -> float:
        private = 1.0 + sqrt(1.0 + (16.0 * margin / epsilon) ** 2 * log_t**3)
        return num_agents * log_t * private / margin**2

    rest = 4.0 * num_agents * log_t + alpha3(num_agents, num_arms, lambda2)
    return _bound(gaps, num_agents, num_arms, lambda2, pulls, rest)


def _bound(
    gaps: Sequence[float],
    num_agents: int,
    num_arms: int,
    lambda2: float,
    pulls: Callable[[float], float],
    rest: float,
) -> float:
    """What both theorems have in common; ``pulls`` of a worse arm, given gap / 2 - alpha_1."""
    slow_start = max(mixing_horizon(lambda2, num_agents), (3 * num_arms + 1) * num_agents)
    bound = 0.0
    for gap in gaps:
        if gap > 0:
            margin = gap / 2.0 - alpha1(num_agents)
            bound += gap * (max(pulls(margin) if margin > 0 else inf, slow_start) + rest)
    return bound


def rounds_to_spread(num_agents: int, num_edges: int) -> float:
    """The most rounds, in expectation, until a release is on all boards: (N - 1) |E|, with one random edge per round.

    While somebody lacks it, at least one of the |E| edges of a connected graph hands it to one more agent.
    """
    return (num_agents - 1.0) * num_edges


def proved_bound(
    gaps: Sequence[float], num_agents: int, num_arms: int, horizon: int, rounds: float, epsilon: float
) -> float:
    """An upper bound on every agent's regret under FedBatch with the proved radius (docs/theorem.md, Theorem 2).

    For rewards in [0, 1], agents that act in step and count alike, and the default schedule of batches. ``rounds`` is
    the expected time until a release is on all boards: see ``rounds_to_spread``.
    """
    _check_gaps(gaps, whole_number("num_arms", num_arms, 2, _MANY))
    whole_number("num_agents", num_agents, 1, _MANY)
    whole_number("horizon", horizon, 2, MAX_HORIZON)
    number_above("epsilon", epsilon, 0.0, allow_inf=True)
    first, growth, log_t = proved.first_size(None, epsilon, num_arms), proved.GROWTH, log(horizon)
    most, reached = (proved.most_releases(first, growth, pulls) for pulls in (proved.MOST_PULLS, horizon + 1))
    level = log_t + num_agents * log(most + 1.0) + log(2.0)
    radii = _radii_of_schedule(first, growth, reached, epsilon, num_agents, level)
    bound = (sum(gaps) + max(gaps)) * (1.0 + log_t)
    bound += max(gaps) * num_agents * num_arms * reached * rounds
    for gap in gaps:
        enough = next((e for e, radius in enumerate(radii, 1) if 2.0 * radius < gap), None)
        pulls = inf if enough is None else first + proved.released_after(enough, first, growth)
        bound += gap * pulls if gap > 0.0 else 0.0
    return bound


def _radii_of_schedule(
    first: int, growth: float, releases: int, epsilon: float, num_agents: int, level: float
) -> list[float]:
    """The largest radius of a board on which everybody has at least e releases, for e = 1, 2, ..."""
    n, precision, variances, coefficients = 0, 0.0, list[float](), list[float]()
    scale = batch.noise_scale(1.0, epsilon)
    for _ in range(releases):
        size = batch.batch_size(n, first, growth)
        variance = batch.release_variance(size, 0.25, batch.laplace_variance(scale))
        precision += 1.0 / variance
        n += size
        variances.append(1.0 / precision / num_agents)
        weight = batch.last_weight(precision, variance)
        coefficients.append(proved.largest_coefficient(scale, weight, size) / num_agents)
    return [proved.simple_radius(variance, max(coefficients[e:]), level) for e, variance in enumerate(variances)]


def is_vacuous(bound: float, gaps: Sequence[float], horizon: int) -> bool:
    """Whether a bound is vacuous: nobody can lose more than the largest gap in every round."""
    if len(gaps) == 0:
        raise InvalidArgument("gaps", gaps, "at least one number")
    return bound >= max(gaps) * horizon


def conclusion(
    gaps: Sequence[float], num_agents: int, num_arms: int, horizon: int, lambda2: float, epsilon: float = inf
) -> str:
    """What the theorems promise in this setting, in a few sentences; Theorem 2 if ``epsilon`` is finite."""

    def clean(rounds: int) -> float:
        return gossip_bound(gaps, num_agents, num_arms, rounds, lambda2)

    def private(rounds: int) -> float:
        return fed_bound(gaps, num_agents, num_arms, rounds, lambda2, epsilon)

    sentences: list[str] = []
    theorems = [("Theorem 1", "Gossip_UCB", clean), ("Theorem 2", f"Fed_UCB with epsilon {epsilon:g}", private)]
    for theorem, policy, bound in theorems[: 1 if epsilon == inf else 2]:
        sentences.append(_promise(theorem, policy, bound, gaps, horizon))
    if epsilon < inf and clean(horizon) < inf:
        sentences.append(f"Privacy makes the bound {private(horizon) / clean(horizon):,.2f} times as large.")
    return " ".join(sentences)


def proved_conclusion(
    gaps: Sequence[float], num_agents: int, num_arms: int, horizon: int, rounds: float, epsilon: float = inf
) -> str:
    """What ``proved_bound`` promises in this setting, in a sentence or two."""

    def bound(horizon: int) -> float:
        return proved_bound(gaps, num_agents, num_arms, horizon, rounds, epsilon)

    policy = "FedBatch with the proved radius" + (f" and epsilon {epsilon:g}" if epsilon < inf else "")
    return _promise("The bound of docs/theorem.md", policy, bound, gaps, horizon)


def _promise(theorem: str, policy: str, bound: Callable[[int], float], gaps: Sequence[float], horizon: int) -> str:
    found, most, within = bound(horizon), max(gaps) * horizon, f"within {horizon:,} rounds"
    if not is_vacuous(found, gaps, horizon):
        share = f"{100.0 * found / most:.2g} % of gap * T, the most that anybody can lose"
        return f"{theorem}: {policy} loses at most {found:,.0f} per agent {within}, {share}."
    first = _first_horizon(bound, gaps)
    later = f"falls below that after about {first:.1e}" if first else f"stays above that up to {MAX_HORIZON:.1e}"
    return (
        f"{theorem} says nothing about {policy} {within}: its bound is above gap * T = {most:,.0f}, the most that "
        f"anybody can lose. It {later.replace('e+0', 'e')} rounds."
    )


def _first_horizon(bound: Callable[[int], float], gaps: Sequence[float]) -> int | None:
    """The first horizon at which a bound says something, found by bisection; bounds grow more slowly than T."""
    low, high = 2, MAX_HORIZON
    if is_vacuous(bound(high), gaps, high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_vacuous(bound(middle), gaps, middle) else (low, middle)
    return high


def _check_lambda2(lambda2: float) -> None:
    if not 0.0 < lambda2 < 1.0:
        raise InvalidArgument("lambda2", lambda2, "between 0 and 1, both excluded")


def _check_agents(num_agents: int) -> None:
    if whole_number("num_agents", num_agents, 1, _MANY) < 3:
        hint = "The paper's theorems need three agents: with two the model is a centralised one."
        raise InvalidArgument("num_agents", num_agents, f"a whole number from 3 to {_MANY}", hint)


def _check_radius(n: float, t: float, num_agents: int) -> None:
    _check_agents(num_agents)
    for name, value in (("n", n), ("t", t)):
        if not 1.0 <= value < inf:
            raise InvalidArgument(name, value, "a number from 1 up")


def _check_bound(gaps: Sequence[float], num_agents: int, num_arms: int, horizon: int) -> None:
    _check_agents(num_agents)
    whole_number("num_arms", num_arms, 2, _MANY)
    whole_number("horizon", horizon, 2, MAX_HORIZON)
    _check_gaps(gaps, num_arms)


def _check_gaps(gaps: Sequence[float], num_arms: int) -> None:
    if not hasattr(gaps, "__len__") or len(gaps) != num_arms or not all(0.0 <= gap < inf for gap in gaps):
        raise InvalidArgument("gaps", gaps, f"{num_arms} finite numbers of at least 0, one per arm")


def __dir__() -> list[str]:
    return __all__
