"""The question that a plan answers, checked, and the worlds in which it is simulated.

Rewards are 0 or 1. Over all sites together the best arm has mean rate + gap, every other arm rate; by default these are
0.5 -+ gap / 2. Sites differ: at the sites an arm's means are evenly spread over its mean -+ ``bias``, in an order that
is drawn anew for each arm and trial. These biases sum to zero, so they change nothing for all sites together, and
everything for a site alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedbandit.checks import (
    InvalidArgument,
    InvalidArguments,
    finite_number,
    instance,
    number_above,
    number_between,
    whole_number,
)
from fedbandit.world import graph as graphs
from fedbandit.world.graph import Graph
from fedbandit.world.problem import Problem

CERTAINTY = 0.95
DAYS_PER_MONTH = 365.25 / 12.0
MOST_SITES, MOST_ARMS, MOST_PATIENTS = 1000, 100, 1_000_000
LARGEST_GAP = 0.9
_MARGIN = 0.01  # between any mean and 0 or 1
_LARGEST_EPSILON = 1e6
_BAD: Any = object()  # in place of an argument that is refused

Way = Literal["together", "pooled", "alone"]
"""A way to act: sites that gossip, all rewards in one place, a site on its own."""


@dataclass(frozen=True)
class Question:
    """Sites, arms, the gap between the best arm and the others, epsilon, patients per day, graph; all checked.

    * ``patients``: per site, if the question is what so many would give.
    * ``bias``: how far an arm's mean at a site may lie from its mean over all sites; ``has_bias``: whether it was
      given; otherwise it is the gap, or as much as fits between 0 and 1.
    * ``rate``: the chance of success of every arm but the best; None: 0.5 - gap / 2.
    * ``reward_window``: days until a reward counts.
    """

    sites: int
    arms: int
    gap: float
    epsilon: float
    patients_per_day: float
    graph: Graph
    patients: int | None
    bias: float
    seed: int
    rate: float | None = None
    reward_window: float = 0.0
    has_bias: bool = True

    @classmethod
    def checked(
        cls,
        sites: Any,
        arms: Any,
        gap: Any,
        epsilon: Any,
        patients_per_day: Any,
        graph: Any,
        patients: Any,
        bias: Any,
        seed: Any,
        rate: Any = None,
        reward_window: Any = 0.0,
    ) -> "Question":
        """Refuse a bad question, with the names of all bad arguments.

        What an argument accepts may depend on another one: it is not judged if that one is bad.
        """
        errors: list[InvalidArgument] = []

        def found(check: Callable[..., Any], *given: Any) -> Any:
            """What a check returns, if it can be asked and accepts the argument."""
            try:
                return _BAD if any(it is _BAD for it in given) else check(*given)
            except InvalidArgument as error:
                errors.append(error)
                return _BAD

        sites = found(whole_number, "sites", sites, 2, MOST_SITES)
        arms = found(whole_number, "arms", arms, 2, MOST_ARMS)
        gap = found(_gap, gap)
        rate = found(_rate, rate, gap)
        checked = cls(
            sites,
            arms,
            gap,
            found(_epsilon, epsilon),
            found(number_above, "patients_per_day", patients_per_day, 0.0),
            found(_graph, graph, sites),
            found(_patients, patients, arms),
            found(_bias, bias, gap, rate),
            found(whole_number, "seed", seed, 0, 2**63 - 1),
            rate,
            found(_reward_window, reward_window),
            bias is not None,
        )
        if len(errors) > 1:
            raise InvalidArguments(errors)
        if errors:
            raise errors[0]
        return checked

    @property
    def best_arm(self) -> int:
        """The last: wherever estimates are equal, the first of them leads, and that is then a wrong one."""
        return self.arms - 1

    @property
    def highest_mean(self) -> float:
        """Of the best arm, over all sites."""
        return 0.5 + self.gap / 2.0 if self.rate is None else self.rate + self.gap

    @property
    def lowest_mean(self) -> float:
        """Of every other arm, over all sites."""
        return 0.5 - self.gap / 2.0 if self.rate is None else self.rate

    @property
    def waiting(self) -> int:
        """Patients of a site whose rewards do not count yet."""
        return round(self.reward_window * self.patients_per_day)

    @property
    def pace(self) -> str:
        """How many patients a site has in a day, in words."""
        return f"{self.patients_per_day:g} patient{'' if self.patients_per_day == 1 else 's'} per site and day"

    def days(self, patients: float) -> float:
        """How long a site takes to see so many."""
        return patients / self.patients_per_day


def _gap(given: Any) -> float:
    gap = number_between("gap", given, 0.0, LARGEST_GAP)
    if gap < 1e-4:
        raise InvalidArgument("gap", gap, f"a number from 0.0001 to {LARGEST_GAP}")
    return gap


def _rate(given: Any, gap: float) -> float | None:
    if given is None:
        return None
    rate = finite_number("rate", given)
    if not _MARGIN <= rate <= 1.0 - _MARGIN - gap:
        accepted = f"a number from {_MARGIN} to {1.0 - _MARGIN - gap:.4g} with this gap"
        raise InvalidArgument("rate", rate, accepted, "The best arm succeeds with rate + gap.")
    return rate


def _reward_window(given: Any) -> float:
    days = finite_number("reward_window", given)
    if days < 0.0:
        raise InvalidArgument("reward_window", days, "a number of days from 0 up")
    return days


def _epsilon(given: Any) -> float:
    epsilon = number_above("epsilon", given, 0.0, allow_inf=True)
    if _LARGEST_EPSILON < epsilon < inf:
        raise InvalidArgument("epsilon", epsilon, f"at most {_LARGEST_EPSILON:,.0f}, or inf")
    return epsilon


def _patients(given: Any, arms: int) -> int | None:
    if given is None:
        return None
    try:
        return whole_number("patients", given, 1 + arms, MOST_PATIENTS)
    except InvalidArgument:
        accepted = f"a whole number from {1 + arms} (more than arms: each comes first once) to {MOST_PATIENTS:,}"
        raise InvalidArgument("patients", given, accepted) from None


def _graph(given: Any, sites: int) -> Graph:
    """A graph, or a text such as ``ring``, ``ring:12`` or ``erdos_renyi:12:0.3``; with one agent per site."""
    if isinstance(given, str):
        try:
            given = graphs.parse(given if ":" in given else f"{given}:{sites}")
        except InvalidArgument as error:
            raise InvalidArgument("graph", given, error.accepted, error.hint) from None
    instance("graph", given, Graph, "a Graph, or a text like 'ring' or 'grid:3x4'")
    if given.num_agents != sites:
        raise InvalidArgument("graph", given.name, f"a graph of {sites} sites", f"This one has {given.num_agents}.")
    return given


def _bias(given: Any, gap: float, rate: float | None) -> float:
    room = (0.5 - gap / 2.0 if rate is None else min(rate, 1.0 - rate - gap)) - _MARGIN
    if given is None:
        return min(gap, room)
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0.0 <= given <= room:
        accepted = f"a number from 0 to {room:.4g} with this gap{' and rate' * (rate is not None)}"
        raise InvalidArgument("bias", given, accepted, "Means must stay between 0 and 1.")
    return float(given)


def means_of_trials(question: Question, trials: int) -> NDArray[np.float64]:
    """The means of each trial's world [trial, site, arm]; those of a trial do not depend on how many there are."""
    spread = np.linspace(-question.bias, question.bias, question.sites)
    means = np.full((trials, question.sites, question.arms), question.lowest_mean)
    means[:, :, question.best_arm] = question.highest_mean
    for trial in range(trials):
        drawn = np.random.default_rng([question.seed, trial])
        for arm in range(question.arms):
            means[trial, :, arm] += drawn.permutation(spread)
    return means


def problems(question: Question, means: NDArray[np.float64], way: Way) -> list[Problem]:
    """A problem for each trial; alone, of one site: the sites take turns.

    Pooled rewards that come late are those of one site with the patients of all: who is treated at a site that is drawn
    at random succeeds with the average of its arm.
    """
    late: Any = {}
    if question.waiting > 0:
        per_round = question.sites if way == "pooled" else 1
        late = {"reward_window": 1 + question.waiting * per_round}  # the decision's own round is the first
    if way == "alone":
        return [Problem.bernoulli(world[r % question.sites, None], "path:1", **late) for r, world in enumerate(means)]
    if way == "pooled" and late:
        return [Problem.bernoulli(world.mean(axis=0, keepdims=True), "path:1", **late) for world in means]
    return [Problem.bernoulli(world, question.graph, edges_per_round="all", **late) for world in means]
