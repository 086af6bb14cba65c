"""Features of decisions: numbers known before an arm is chosen, such as a patient's age, and how they are distributed.

Each decision has a row of features x; the first is the constant 1 unless ``intercept=False``. A problem with features
has a row theta of the same length by agent and arm: the mean of a reward is theta . x (``Problem.linear``).

With ``by_arm`` each arm has a row of its own in every decision, x_k, as articles have that one of them is shown: the
mean is theta . x_k, with a theta that may be the same for all arms.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedbandit.checks import LARGEST, InvalidArgument, true_or_false, whole_number
from fedbandit.world.tables import UserTable, is_table, rows_of

__all__ = ["Ball", "Distribution", "FeatureArrays", "Rows", "ball", "checked_theta", "drawn_theta", "parse", "rows"]

MAX_FEATURES = 64

Matrix = NDArray[np.float64]


class FeatureArrays(NamedTuple):
    """How features are drawn, as numbers: uniformly from a ball or the like, or from rows with replacement."""

    are_rows: bool
    shape: int  # of what is no rows: its place in SHAPES
    intercept: bool
    centres: Any  # [N, d], without the constant
    radius: Any  # [N]
    rows: Any  # [R, d]
    first: Any  # [N], into rows
    count: Any  # [N]
    average: Any  # [F]: of all agents, with the constant
    by_arm: bool


Shape = Literal["ball", "sphere", "cube"]
SHAPES = get_args(Shape)


@dataclass(frozen=True, eq=False)
class Ball:
    """Uniform in a ball: ``centres`` and ``radius`` are those of every agent, or one for each.

    ``shape``: or on the sphere around it, or in the cube within it, whose corners have that radius.
    """

    size: int
    intercept: bool = True
    centres: Matrix = None  # pyright: ignore[reportAssignmentType]  # made from None: 0
    radius: Any = 1.0
    shape: Shape = "ball"
    by_arm: bool = False

    def __post_init__(self) -> None:
        """Check the numbers."""
        object.__setattr__(self, "size", whole_number("features (without the constant)", self.size, 1, MAX_FEATURES))
        true_or_false("intercept", self.intercept)
        true_or_false("by_arm", self.by_arm)
        if self.shape not in SHAPES:
            raise InvalidArgument("shape", self.shape, f"one of {', '.join(SHAPES)}")
        given = np.zeros(self.size) if self.centres is None else self.centres  # pyright: ignore[reportUnnecessaryComparison]
        object.__setattr__(self, "centres", _matrix("centres", given, self.size))
        radii = np.atleast_1d(np.array(self.radius, np.float64))
        if radii.ndim != 1 or not np.isfinite(radii).all() or (radii < 0).any() or radii.max() > LARGEST:
            raise InvalidArgument("radius", self.radius, "a number of at least 0, or one for each agent")
        object.__setattr__(self, "radius", radii)

    @property
    def length(self) -> int:
        """Of a row of features, with the constant."""
        return self.size + int(self.intercept)

    @property
    def name(self) -> str:
        """In messages."""
        return f"uniform {'on' if self.shape == 'sphere' else 'in'} a {self.shape} of {self.size} dimensions"

    @property
    def digest(self) -> str:
        """The same for equal distributions."""
        return _digest((self.intercept, self.shape, self.by_arm), self.centres, self.radius)

    def arrays(self, num_agents: int) -> FeatureArrays:
        """For so many agents."""
        centres, radius = _for_agents(self.centres, num_agents), np.broadcast_to(self.radius, num_agents).copy()
        nothing = np.zeros(num_agents, np.int64)
        average = _with_constant(centres.mean(axis=0), self.intercept)
        shape, rows = SHAPES.index(self.shape), np.zeros((1, self.size))
        return FeatureArrays(
            False, shape, self.intercept, centres, radius, rows, nothing, nothing, average, self.by_arm
        )

    def check_agents(self, num_agents: int) -> None:
        """Refuse centres or radii of another number of agents."""
        for name, count in (("centres", len(self.centres)), ("radius", len(self.radius))):
            if count not in (1, num_agents):
                raise InvalidArgument(f"features, {name}", f"those of {count} agents", f"one, or {num_agents}")

    def averages(self, num_agents: int) -> Matrix:
        """The mean row of each agent."""
        return _with_constant(_for_agents(self.centres, num_agents), self.intercept)

    @property
    def norm(self) -> float:
        """The largest norm of a row."""
        farthest = np.linalg.norm(self.centres, axis=1) + self.radius
        return float(np.sqrt(farthest.max() ** 2 + self.intercept))

    def extremes(self, theta: Matrix) -> tuple[Matrix, Matrix]:
        """The least and the largest mean of each agent and arm."""
        slopes = theta[:, :, int(self.intercept) :]
        middle = (self.averages(len(theta))[:, np.newaxis] * theta).sum(axis=-1)
        norms = np.linalg.norm(slopes, axis=-1)
        if self.shape == "cube":
            norms = np.abs(slopes).sum(axis=-1) / self.size**0.5
        reach = np.broadcast_to(self.radius, len(theta))[:, np.newaxis] * norms
        return middle - reach, middle + reach

    def parameters(self) -> dict[str, Any]:
        """In JSON types."""
        return {
            "kind": self.shape,
            "size": self.size,
            "intercept": self.intercept,
            "by_arm": self.by_arm,
            "centres": self.centres.tolist(),
            "radius": self.radius.tolist(),
        }


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows that were observed, drawn with replacement: those of all agents alike, or of each agent its own."""

    of_agents: tuple[Matrix, ...]  # one for all, or one for each
    intercept: bool = True
    names: tuple[str, ...] = ()  # of the columns
    agents: tuple[str, ...] = ()
    by_arm: bool = False

    def __post_init__(self) -> None:
        """Check the numbers."""
        true_or_false("intercept", self.intercept)
        true_or_false("by_arm", self.by_arm)
        width = np.shape(self.of_agents[0])[-1] if self.of_agents else 0
        whole_number("features (without the constant)", width, 1, MAX_FEATURES)
        found = tuple(_matrix(f"features[{i}]", each, width) for i, each in enumerate(self.of_agents))
        object.__setattr__(self, "of_agents", found)

    @property
    def size(self) -> int:
        """Columns, without the constant."""
        return self.of_agents[0].shape[1]

    @property
    def length(self) -> int:
        """Of a row of features, with the constant."""
        return self.size + int(self.intercept)

    @property
    def name(self) -> str:
        """In messages."""
        return f"{sum(map(len, self.of_agents)):,} rows of {self.size}"

    @property
    def digest(self) -> str:
        """The same for equal distributions."""
        return _digest((self.intercept, self.by_arm), *self.of_agents)

    def arrays(self, num_agents: int) -> FeatureArrays:
        """For so many agents."""
        each = [self.of_agents[i if len(self.of_agents) > 1 else 0] for i in range(num_agents)]
        kept = each if len(self.of_agents) > 1 else each[:1]
        count = np.array([len(mine) for mine in each], np.int64)
        first = np.cumsum(count) - count if len(self.of_agents) > 1 else np.zeros(num_agents, np.int64)
        average = self.averages(num_agents).mean(axis=0)
        nothing = np.zeros((num_agents, self.size))
        radius, rows = np.zeros(num_agents), np.concatenate(kept)
        return FeatureArrays(True, 0, self.intercept, nothing, radius, rows, first, count, average, self.by_arm)

    def check_agents(self, num_agents: int) -> None:
        """Refuse rows of another number of agents."""
        if len(self.of_agents) not in (1, num_agents):
            raise InvalidArgument("features", f"rows of {len(self.of_agents)} agents", f"of all, or of {num_agents}")

    def averages(self, num_agents: int) -> Matrix:
        """The mean row of each agent."""
        means = _for_agents(np.array([mine.mean(axis=0) for mine in self.of_agents]), num_agents)
        return _with_constant(means, self.intercept)

    @property
    def norm(self) -> float:
        """The largest norm of a row."""
        largest = max(float((mine**2).sum(axis=1).max()) for mine in self.of_agents)
        return float(np.sqrt(largest + self.intercept))

    def extremes(self, theta: Matrix) -> tuple[Matrix, Matrix]:
        """The least and the largest mean of each agent and arm."""
        low, high = np.zeros(theta.shape[:2]), np.zeros(theta.shape[:2])
        for i, mine in enumerate(theta):
            x = _with_constant(self.of_agents[i if len(self.of_agents) > 1 else 0], self.intercept)
            means = (x[:, np.newaxis] * mine).sum(axis=-1)
            low[i], high[i] = means.min(axis=0), means.max(axis=0)
        return low, high

    def parameters(self) -> dict[str, Any]:
        """In JSON types: a hash of the rows."""
        told = {"names": list(self.names), "sha256": self.digest}
        return {"kind": "rows", "intercept": self.intercept, "by_arm": self.by_arm, **told}


Distribution = Ball | Rows


def ball(
    size: int,
    intercept: bool = True,
    centres: ArrayLike | None = None,
    radius: ArrayLike = 1.0,
    shape: Shape = "ball",
    by_arm: bool = False,
) -> Ball:
    """Features uniform in a ball of so many dimensions.

    * ``centres`` and ``radius``: of all agents, or a row and a number for each; default: around 0, radius 1.
    * ``shape``: ``"sphere"``: on it; ``"cube"``: in the one within the ball, whose corners touch it.
    * ``by_arm``: each arm has a row of its own in every decision.
    """
    return Ball(size, intercept, centres, radius, shape, by_arm)  # pyright: ignore[reportArgumentType]


def rows(
    source: UserTable | ArrayLike | Sequence[ArrayLike],
    columns: Mapping[str, tuple[float, float]] | None = None,
    agent: str | None = None,
    intercept: bool = True,
    by_arm: bool = False,
) -> Rows:
    """Features that were observed, drawn with replacement; ``by_arm``: each arm has a row of its own.

    ``source``: a matrix, a list of matrices, one for each agent, or the path of a CSV file, or a DataFrame. Of a table,
    ``columns`` names those to use, each with its range: values are clamped to it and scaled so that rows have norm 1 at
    most. ``agent`` is the column that says whose row it is, in order of first appearance; without it every agent draws
    from all rows.
    """
    if is_table(source):
        return replace(_from_table(source, columns, agent, intercept), by_arm=by_arm)
    if columns is not None or agent is not None:
        raise InvalidArgument("columns", columns or agent, "left out, unless features come from a table")
    each = source if _is_list_of_matrices(source) else [source]
    return Rows(tuple(each), intercept, by_arm=by_arm)  # pyright: ignore[reportArgumentType]


def _is_list_of_matrices(source: Any) -> bool:
    return isinstance(source, (list, tuple)) and len(source) > 0 and np.ndim(source[0]) == 2  # pyright: ignore[reportUnknownArgumentType]


def _from_table(
    source: UserTable, columns: Mapping[str, tuple[float, float]] | None, agent: str | None, intercept: bool
) -> Rows:
    if not columns:
        hint = 'Such as columns={"age": (18, 100)}: a range that was computed from data would reveal it.'
        raise InvalidArgument("columns", columns, "given for a table: each with its range", hint)
    ranges = [_checked_range(name, limits) for name, limits in columns.items()]
    wanted = [*([agent] if agent else []), *columns]
    found: dict[str, list[list[float]]] = {}
    for place, cells in rows_of("features", source, {name: (name,) for name in wanted}):
        mine, numbers = (cells[0], cells[1:]) if agent else ("", cells)
        if agent and not mine:
            raise InvalidArgument(f"{place}, column {agent}", mine, "a number or a name")
        row = [
            _scaled(f"{place}, column {name}", cell, limits)
            for name, cell, limits in zip(columns, numbers, ranges, strict=True)
        ]
        found.setdefault(mine, []).append([value / len(columns) ** 0.5 for value in row])
    if not found:
        raise InvalidArgument("features", str(source), "a table with at least one row")
    return Rows(
        tuple(np.array(each) for each in found.values()), intercept, tuple(columns), tuple(found) if agent else ()
    )


def _scaled(place: str, cell: str, limits: tuple[float, float]) -> float:
    """A value, clamped to its range, between -1 and 1."""
    try:
        value = float(cell)
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise InvalidArgument(place, cell, "a number")
    low, high = limits
    return 2.0 * (min(max(value, low), high) - low) / (high - low) - 1.0


def _checked_range(name: str, limits: Any) -> tuple[float, float]:
    try:
        low, high = (float(end) for end in limits)
    except (TypeError, ValueError):
        low = high = 0.0
    if not -LARGEST <= low < high <= LARGEST:
        raise InvalidArgument(f"columns[{name!r}]", limits, "two finite numbers (low, high) with low < high")
    return low, high


def parse(text: str) -> Distribution:
    """The distribution that a text names, such as "ball:4"."""
    kind, _, size = text.partition(":")
    shape: Any = kind
    if kind not in SHAPES or not size.isdigit():
        shapes = "'ball:4' ('sphere:4', 'cube:4')"
        raise InvalidArgument("features", text, f"a distribution of fedbandit.features, or a text like {shapes}")
    return ball(int(size), shape=shape)


def checked_theta(theta: ArrayLike, features: Distribution) -> Matrix:
    """Theta by agent and arm, a read-only row for each; one without agents is that of all."""
    accepted = f"by agent, arm and feature: {features.length} numbers for each agent and arm"
    accepted += ", the first for the constant" if features.intercept else ""
    try:
        given = np.array(theta, np.float64)
    except (TypeError, ValueError):
        raise InvalidArgument("theta", theta, accepted) from None
    if given.ndim != 3 or given.shape[-1] != features.length:
        raise InvalidArgument("theta", f"of shape {given.shape}", accepted)
    if not np.isfinite(given).all() or np.abs(given).max() > LARGEST:
        raise InvalidArgument("theta", theta, "finite numbers")
    given.flags.writeable = False
    return given


MOST_EFFECT = 0.32
"""Of features on the mean of an arm, such that it stays between 0 and 1."""
_CONSTANTS, _OFF, _OWN = 0.1, 0.05, 1.0 / 12.0


def drawn_theta(num_agents: int, num_arms: int, size: int, effect: float, seed: int | tuple[int, int]) -> Matrix:
    """A theta for features in a ball of radius 1 and the constant, for rewards between 0 and 1.

    Arms' constants are 0.5 -+ 0.1, those of an agent off by at most 0.05. Slopes have the norm ``effect``, in a
    direction that is drawn for each arm; an agent's own are off by a twelfth of it.
    """
    source = np.random.default_rng(seed)
    theta = np.zeros((num_agents, num_arms, size + 1))
    theta[:, :, 0] = 0.5 + source.uniform(-_CONSTANTS, _CONSTANTS, num_arms)
    theta[:, :, 0] += source.uniform(-_OFF, _OFF, (num_agents, num_arms))
    for length, agents in ((effect, 1), (_OWN * effect, num_agents)):
        direction = source.normal(size=(agents, num_arms, size))
        theta[:, :, 1:] += length * direction / np.linalg.norm(direction, axis=-1, keepdims=True)
    return theta


# ---------------------------------------------------------------- arrays


def _matrix(name: str, given: Any, width: int) -> Matrix:
    accepted = f"rows of {width} finite numbers"
    try:
        found = np.atleast_2d(np.array(given, np.float64))
    except (TypeError, ValueError):
        raise InvalidArgument(name, given, accepted) from None
    if found.ndim != 2 or found.shape[1] != width or len(found) == 0:
        raise InvalidArgument(name, f"of shape {found.shape}", accepted)
    if not np.isfinite(found).all() or np.abs(found).max() > LARGEST:
        raise InvalidArgument(name, given, accepted)
    found.flags.writeable = False
    return found


def _for_agents(matrix: Matrix, num_agents: int) -> Matrix:
    return np.broadcast_to(matrix, (num_agents, matrix.shape[1])).copy()


def _with_constant(matrix: Matrix, intercept: bool) -> Matrix:
    return np.concatenate([np.ones((*matrix.shape[:-1], 1)), matrix], axis=-1) if intercept else matrix.copy()


def _digest(options: object, *arrays: Matrix) -> str:
    told = hashlib.sha256(str(options).encode())
    for array in arrays:
        told.update(str(array.shape).encode() + array.tobytes())
    return told.hexdigest()


def __dir__() -> list[str]:
    return __all__
