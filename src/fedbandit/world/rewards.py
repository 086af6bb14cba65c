"""Families of rewards: what a problem and its agents know of the distribution of one reward, given its mean.

Every family has

* ``kind``: its name in files; ``name``: its name in messages
* ``reward_range``: the declared range, if any
* ``bounded``: rewards lie in the range by themselves; otherwise a private policy clamps them to it
* ``variance``: an upper bound on the variance of one reward that agents know; infinite if there is none
* ``scale``: the unit of radii
* ``numbers``: what its draw reads besides the bits and the mean
* ``check(means)``: refuses means that its rewards cannot have
* ``parameters()``: what identifies it besides its kind, in JSON types

``fedbandit.engine.streams`` has the draws, one small function per family: this file runs without an engine.
``empirical_of`` reads rewards that were observed: nested lists, or a table.
"""

import hashlib
import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite, sqrt
from types import FunctionType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedbandit.checks import LARGEST, InvalidArgument, number_above, true_or_false
from fedbandit.rules.batch import largest_reward_variance
from fedbandit.world.tables import UserTable, is_table, rows_of

Range = tuple[float, float]


class _Rewards:
    """What most families have in common."""

    @property
    def numbers(self) -> tuple[Any, ...]:
        """What its draw reads besides the bits and the mean: the parameters."""
        return tuple(self.parameters().values())

    def check(self, means: NDArray[np.float64]) -> None:
        """Any means."""

    def parameters(self) -> dict[str, Any]:
        """None."""
        return {}


# ---------------------------------------------------------------- unbounded


@dataclass(frozen=True)
class Gaussian(_Rewards):
    """The mean plus ``sigma`` times a standard normal."""

    sigma: float = 1.0
    reward_range: Range | None = None
    kind: ClassVar[str] = "gaussian"
    name: ClassVar[str] = "gaussian"
    bounded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", number_above("sigma", self.sigma, 0.0))
        object.__setattr__(self, "reward_range", _checked_range(self.reward_range))

    @property
    def variance(self) -> float:
        """sigma^2."""
        return self.sigma**2

    @property
    def scale(self) -> float:
        """Sigma."""
        return self.sigma

    def parameters(self) -> dict[str, Any]:
        """Sigma."""
        return {"sigma": self.sigma}


@dataclass(frozen=True)
class StudentT(_Rewards):
    """The mean plus ``scale`` times Student's t: heavy tails, so that no radius of a sub-Gaussian policy holds.

    With more than two degrees of freedom the unit of radii is the standard deviation: an average of many
    rewards is close to normal. With two or fewer the variance is infinite; the unit is then ``scale`` itself.
    """

    degrees_of_freedom: float = 3.0
    width: float = 1.0  # the parameter ``scale`` of the problem
    reward_range: Range | None = None
    kind: ClassVar[str] = "student_t"
    name: ClassVar[str] = "Student's t"
    bounded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the parameters; with one degree of freedom or fewer there is no mean."""
        freedom = number_above("degrees_of_freedom", self.degrees_of_freedom, 1.0)
        object.__setattr__(self, "degrees_of_freedom", freedom)
        object.__setattr__(self, "width", number_above("scale", self.width, 0.0))
        object.__setattr__(self, "reward_range", _checked_range(self.reward_range))

    @property
    def variance(self) -> float:
        """scale^2 d / (d - 2); infinite for d <= 2."""
        d = self.degrees_of_freedom
        return self.width**2 * d / (d - 2.0) if d > 2.0 else inf

    @property
    def scale(self) -> float:
        """The standard deviation if it is finite, else the parameter ``scale``."""
        return sqrt(self.variance) if self.variance < inf else self.width

    def parameters(self) -> dict[str, Any]:
        """Degrees of freedom and scale."""
        return {"degrees_of_freedom": self.degrees_of_freedom, "scale": self.width}


# ---------------------------------------------------------------- in [0, 1]


@dataclass(frozen=True)
class Bernoulli(_Rewards):
    """0 or 1."""

    kind: ClassVar[str] = "bernoulli"
    name: ClassVar[str] = "bernoulli"
    reward_range: ClassVar[Range] = (0.0, 1.0)
    bounded: ClassVar[bool] = True
    variance: ClassVar[float] = largest_reward_variance(0.0, 1.0)
    scale: ClassVar[float] = 1.0

    def check(self, means: NDArray[np.float64]) -> None:
        """Probabilities."""
        _refuse(means, (means < 0) | (means > 1), "between 0 and 1")


@dataclass(frozen=True)
class Beta(_Rewards):
    """Beta(m c, (1 - m) c) with the mean m and the ``concentration`` c."""

    concentration: float = 2.0
    kind: ClassVar[str] = "beta"
    name: ClassVar[str] = "beta"
    reward_range: ClassVar[Range] = (0.0, 1.0)
    bounded: ClassVar[bool] = True
    variance: ClassVar[float] = largest_reward_variance(0.0, 1.0)
    scale: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "concentration", number_above("concentration", self.concentration, 0.0))

    def check(self, means: NDArray[np.float64]) -> None:
        """Strictly inside: at the ends there is no Beta distribution."""
        _refuse(means, (means <= 0) | (means >= 1), "strictly between 0 and 1")

    def parameters(self) -> dict[str, Any]:
        """The concentration."""
        return {"concentration": self.concentration}


# ---------------------------------------------------------------- from data, and a user's own


@dataclass(frozen=True)
class Empirical(_Rewards):
    """Samples, drawn with replacement; their means are the means.

    ``values`` has all of them; those of agent i and arm k are the ``count[i, k]`` from ``first[i, k]``. Two families
    with the same ``digest`` are equal. A range that is not declared stays unknown to private policies.
    """

    values: NDArray[np.float64] = field(compare=False, repr=False)
    first: NDArray[np.int64] = field(compare=False, repr=False)
    count: NDArray[np.int64] = field(compare=False, repr=False)
    digest: str
    agents: tuple[str, ...] = ()  # their names, if the file has names
    arms: tuple[str, ...] = ()
    reward_range: Range | None = None
    kind: ClassVar[str] = "empirical"
    name: ClassVar[str] = "empirical"

    def __post_init__(self) -> None:
        """Check the range; rewards that are all equal have no unit."""
        object.__setattr__(self, "reward_range", _checked_range(self.reward_range))
        number_above("samples (largest minus smallest)", self._spread, 0.0)

    @property
    def _spread(self) -> float:
        return float(self.values.max() - self.values.min())

    @property
    def bounded(self) -> bool:
        """Whether all samples lie in the declared range."""
        if self.reward_range is None:
            return False
        return bool(self.reward_range[0] <= self.values.min() and self.values.max() <= self.reward_range[1])

    @property
    def variance(self) -> float:
        """The most that rewards can vary between the ends of the range, or of the samples."""
        return largest_reward_variance(0.0, self.scale)

    @property
    def scale(self) -> float:
        """The width of the range that contains the rewards, or of the samples."""
        if self.reward_range is not None and self.bounded:
            return self.reward_range[1] - self.reward_range[0]
        return self._spread

    @property
    def numbers(self) -> tuple[Any, Any, Any]:
        """The samples."""
        return self.values, self.first, self.count

    @property
    def means(self) -> NDArray[np.float64]:
        """The mean of each agent's samples of each arm."""
        sums = np.add.reduceat(self.values, self.first.ravel())
        return sums.reshape(self.first.shape) / self.count

    def check(self, means: NDArray[np.float64]) -> None:
        """Those of the samples, and no others."""
        if not np.array_equal(means, self.means):
            raise InvalidArgument("means", "other means", "those of the samples of empirical rewards")

    def parameters(self) -> dict[str, Any]:
        """A hash of the samples, not the samples; and the names of agents and arms, if they have any."""
        named = {"agents": list(self.agents)} if self.agents else {}
        named |= {"arms": list(self.arms)} if self.arms else {}
        return {"samples": {"sha256": self.digest, "number": len(self.values)}} | named


@dataclass(frozen=True)
class Own(_Rewards):
    """A user's own draw, a plain function of 64 random bits and the mean.

    ``known_variance``: an upper bound on the variance of one reward, or infinity; ``None`` if rewards are bounded.
    """

    draw: Callable[[Any, Any], Any]
    known_variance: float | None = None
    reward_range: Range | None = None
    bounded: bool = False
    kind: ClassVar[str] = "own"

    def __post_init__(self) -> None:
        """Check what can be seen without a call: the simulator tries the draw."""
        _check_signature(self.draw)
        object.__setattr__(self, "reward_range", _checked_range(self.reward_range))
        if true_or_false("bounded", self.bounded) and self.reward_range is None:
            raise InvalidArgument("reward_range", None, "declared where bounded=True")
        if self.known_variance is not None:
            object.__setattr__(self, "known_variance", number_above("variance", self.known_variance, 0.0, True))
        elif not self.bounded:
            raise InvalidArgument(
                "variance",
                None,
                "an upper bound on the variance of one reward (inf: there is none), unless bounded=True",
            )

    @property
    def name(self) -> str:
        """``module:name`` of the function."""
        return f"{self.draw.__module__}:{self.draw.__qualname__}"

    @property
    def variance(self) -> float:
        """The least of what is known."""
        known = inf if self.known_variance is None else self.known_variance
        return min(known, largest_reward_variance(*self.reward_range)) if self.reward_range and self.bounded else known

    @property
    def scale(self) -> float:
        """The width of the range of bounded rewards, else the standard deviation; 1 if nothing is known."""
        if self.reward_range is not None and (self.bounded or self.variance == inf):
            return self.reward_range[1] - self.reward_range[0]
        return sqrt(self.variance) if self.variance < inf else 1.0

    def check(self, means: NDArray[np.float64]) -> None:
        """Means of bounded rewards lie in the range."""
        if self.bounded and self.reward_range is not None:
            low, high = self.reward_range
            _refuse(means, (means < low) | (means > high), f"in the reward_range ({low:g}, {high:g})")

    def parameters(self) -> dict[str, Any]:
        """What was declared; the code is in ``engine.streams.code_of``."""
        known = "inf" if self.known_variance == inf else self.known_variance  # JSON has no infinity
        return {"variance": known, "bounded": self.bounded}

    @property
    def numbers(self) -> tuple[()]:
        """None."""
        return ()


Family = Gaussian | Bernoulli | Beta | StudentT | Empirical | Own

FAMILIES = ("gaussian", "bernoulli", "beta", "student_t", "empirical")
"""The kinds of rewards that a file may name; others are a user's own, ``module:function``."""


# ---------------------------------------------------------------- checks


def _check_signature(draw: Any) -> None:
    accepted = "a plain function of two arguments, (bits, mean)"
    if hasattr(draw, "py_func"):
        raise InvalidArgument("draw", draw, accepted, "Leave out @njit: the simulator compiles it.")
    if not isinstance(draw, FunctionType):
        raise InvalidArgument("draw", draw, accepted)
    parameters = inspect.signature(draw).parameters.values()
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if len(parameters) != 2 or any(p.kind not in plain or p.default is not p.empty for p in parameters):
        raise InvalidArgument("draw", f"{draw.__name__}{inspect.signature(draw)}", accepted)


def _refuse(means: NDArray[np.float64], bad: NDArray[np.bool_], accepted: str) -> None:
    if bad.any():
        place = np.argwhere(bad)[0].tolist()
        raise InvalidArgument(f"means[{', '.join(map(str, place))}]", float(means[tuple(place)]), accepted)


def _checked_range(reward_range: Any) -> Range | None:
    if reward_range is None:
        return None
    accepted = "None or two finite numbers (low, high) with low < high"
    try:
        low, high = (float(end) for end in reward_range)
    except (TypeError, ValueError):
        raise InvalidArgument("reward_range", reward_range, accepted) from None
    if not (-LARGEST <= low < high <= LARGEST):
        raise InvalidArgument("reward_range", reward_range, accepted)
    return low, high


# ---------------------------------------------------------------- samples


Samples = Sequence[Sequence[Sequence[float]]] | UserTable

_COLUMNS = {"agent": ("agent", "site", "hospital"), "arm": ("arm", "treatment"), "reward": ("reward", "outcome")}
_LISTS = "a list of rewards for each agent and arm, samples[agent][arm], the path of a CSV file, or a DataFrame"


def empirical_of(samples: Samples, reward_range: Range | None) -> Empirical:
    """The family of these samples."""
    if is_table(samples):
        agents, arms, cells = _from_table(samples)
    else:
        agents, arms, cells = (), (), _from_lists(samples)
    count = np.array([[len(cell) for cell in row] for row in cells], np.int64)
    ends = np.cumsum(count.ravel())
    first = (ends - count.ravel()).reshape(count.shape)
    values = np.concatenate([cell for row in cells for cell in row])
    for array in (values, first, count):
        array.flags.writeable = False
    told = hashlib.sha256(repr((count.shape, agents, arms)).encode() + count.tobytes() + values.tobytes())
    return Empirical(values, first, count, told.hexdigest(), agents, arms, reward_range)


# ---------------------------------------------------------------- nested lists


def _from_lists(samples: Any) -> list[list[NDArray[np.float64]]]:
    cells = [
        [_cell(f"samples[{i}][{k}]", cell) for k, cell in enumerate(_listed(f"samples[{i}]", row))]
        for i, row in enumerate(_listed("samples", samples))
    ]
    for i, row in enumerate(cells):
        if len(row) != len(cells[0]):
            raise InvalidArgument(f"samples[{i}]", f"{len(row)} arms", f"as long as samples[0], {len(cells[0])} arms")
    return cells


def _listed(place: str, value: Any) -> list[Any]:
    try:
        listed = [] if isinstance(value, (str, bytes)) else list(value)
    except TypeError:
        listed = []
    if not listed:
        raise InvalidArgument(place, value, _LISTS)
    return listed


def _cell(place: str, cell: Any) -> NDArray[np.float64]:
    accepted = "at least one reward, all finite numbers"
    try:
        values = np.array(cell, np.float64)
    except (TypeError, ValueError):
        raise InvalidArgument(place, cell, accepted) from None
    if values.ndim != 1 or values.size == 0:
        raise InvalidArgument(place, cell, accepted)
    bad = ~np.isfinite(values) | (np.abs(values) > LARGEST)
    if bad.any():
        position = int(bad.argmax())
        raise InvalidArgument(f"{place}[{position}]", float(values[position]), f"at most {LARGEST:g} in size")
    return values


# ---------------------------------------------------------------- a table


def _from_table(source: UserTable) -> tuple[tuple[str, ...], tuple[str, ...], list[list[NDArray[np.float64]]]]:
    """Names of agents and arms (none if they are numbers), and the rewards of each pair."""
    name = "samples" if not isinstance(source, (str, os.PathLike)) else str(source)
    places: list[str] = []
    agents: list[str] = []
    arms: list[str] = []
    rewards: list[float] = []
    for place, (agent, arm, reward) in rows_of("samples", source, _COLUMNS):
        for column, cell in (("agent", agent), ("arm", arm)):
            if not cell:
                raise InvalidArgument(f"{place}, column {column}", cell, "a number or a name")
        places.append(place)
        agents.append(agent)
        arms.append(arm)
        rewards.append(_reward(place, reward))
    if not places:
        raise InvalidArgument("samples", name, "a table with at least one reward")
    agent_names, agent_of = _numbered("agent", agents, places)
    arm_names, arm_of = _numbered("arm", arms, places)
    num_agents, num_arms = int(agent_of.max()) + 1, int(arm_of.max()) + 1
    cell_of = agent_of * num_arms + arm_of
    order = np.argsort(cell_of, kind="stable")
    count = np.bincount(cell_of, minlength=num_agents * num_arms)
    if (count == 0).any():
        i, k = divmod(int(count.argmin()), num_arms)
        agent, arm = agent_names[i] if agent_names else i, arm_names[k] if arm_names else k
        hint = f"Agent {agent} has none of arm {arm}."
        raise InvalidArgument("samples", name, "at least one reward for every agent and arm", hint)
    parts = np.split(np.array(rewards)[order], np.cumsum(count)[:-1])
    return agent_names, arm_names, [parts[i * num_arms : (i + 1) * num_arms] for i in range(num_agents)]


def _reward(place: str, text: str) -> float:
    try:
        reward = float(text)
    except ValueError:
        reward = float("nan")
    if not isfinite(reward) or abs(reward) > LARGEST:
        raise InvalidArgument(f"{place}, column reward", text, f"a number of at most {LARGEST:g} in size")
    return reward


def _numbered(column: str, values: list[str], places: list[str]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """The names in a column, in order of first appearance, and the position of each entry.

    A column of whole numbers counts from 0 and has no names. One of both kinds is a typing error, not a list of names.
    """

    def bad(value: str, accepted: str) -> InvalidArgument:
        return InvalidArgument(f"{places[values.index(value)]}, column {column}", value, accepted)

    distinct = list(dict.fromkeys(values))
    numeric = [value.isascii() and value.isdigit() for value in distinct]
    if not any(numeric):
        place = {name: position for position, name in enumerate(distinct)}
        return tuple(distinct), np.array([place[value] for value in values], np.int64)
    if not all(numeric):
        odd = distinct[numeric.index(not numeric[0])]
        raise bad(odd, f"a {'whole number' if numeric[0] else 'name'}, as in the rows before it")
    numbers = {value: int(value) for value in distinct}
    missing = set(range(len(set(numbers.values())))) - set(numbers.values())
    if missing:
        raise bad(max(distinct, key=int), f"numbered from 0 without gaps; there is no {min(missing)}")
    return (), np.array([numbers[value] for value in values], np.int64)
