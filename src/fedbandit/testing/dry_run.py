"""Stand-ins for a page's arguments that refuse what compiled code would do wrongly or not at all.

A row has a fixed length and whole indices within it; a field takes numbers of its kind; only ``me`` can be written to.
Each refusal says in words what the function did.
"""

import operator as _operator
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, NoReturn, cast

from fedbandit.policies.plain import Me, Seen
from fedbandit.policies.protocol import ARMS, Count, Field, LinkRule, Now, Number, Page, time_of
from fedbandit.policies.registry import WrongPage
from fedbandit.rules.gossip import average, heard, metropolis_weight, with_news
from fedbandit.testing.page_code import known_names, unknown_name

__all__ = [
    "Edges",
    "Fault",
    "Interval",
    "Noise",
    "Raw",
    "Script",
    "Shown",
    "Stage",
    "StrictDraws",
    "StrictRow",
    "strict_me",
    "strict_now",
    "strict_seen",
    "strict_terms",
]


MAX_COUNT = 2**31


class Fault(Exception):
    """What a function of a page did wrong: a phrase that begins with a verb."""


def _is_whole(value: Any) -> bool:
    return type(value) is int


class StrictRow:
    """A view of a list."""

    __slots__ = ("_field", "_items", "_name", "_writable")

    def __init__(self, name: str, field: Field, items: list[Any], writable: bool) -> None:
        """Look at ``items``, the row of a field."""
        self._name, self._field, self._items, self._writable = name, field, items, writable

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return (self[k] for k in range(len(self._items)))

    def __bool__(self) -> NoReturn:
        raise Fault(f"asks whether {self._name} is true: it is a row, ask of its entries")

    def __getattr__(self, name: str) -> NoReturn:
        raise Fault(f"uses {self._name}.{name}: a row has a fixed length and its entries, nothing else")

    def __getitem__(self, index: Any) -> Any:
        self._check(index, "reads")
        value = self._items[index]
        return (
            StrictRow(f"{self._name}[{index}]", self._field, cast("list[Any]", value), self._writable)
            if isinstance(value, list)
            else value
        )

    def __setitem__(self, index: Any, value: Any) -> None:
        self._check(index, "writes")
        place = f"{self._name}[{index}]"
        if not self._writable:
            raise Fault(f"writes {place}: only what me holds may change")
        if isinstance(self._items[index], list):
            raise Fault(f"writes {place}, which is a row: write its entries")
        self._items[index] = checked_value(place, self._field, value)

    def _check(self, index: Any, does: str) -> None:
        if isinstance(index, tuple):
            inner = "][".join(str(part) for part in cast("tuple[Any, ...]", index))
            raise Fault(f"{does} {self._name} with a pair of indices: write {self._name}[{inner}]")
        if isinstance(index, slice):
            raise Fault(f"takes a slice of {self._name}: write a loop over its entries")
        if not _is_whole(index):
            raise Fault(f"{does} {self._name}[{index!r}]: an index is a whole number, write int(...)")
        if not 0 <= index < len(self._items):
            raise Fault(f"{does} {self._name}[{index}], beyond its row: indices go from 0 to {len(self._items) - 1}")


def checked_value(place: str, field: Field, value: Any) -> Any:
    """A value that a field can hold."""
    if field.kind != "number" and isinstance(value, bool):
        return int(value)
    if type(value) not in (int, float):
        raise Fault(f"writes {_shown(value)} to {place}, which is a {field.kind.capitalize()}")
    if value != value:
        raise Fault(f"writes NaN to {place}")
    if field.kind == "count" and not (_is_whole(value) and abs(value) < MAX_COUNT):
        raise Fault(f"writes {value!r} to {place}, which is a Count of whole numbers: declare it as Number, or round")
    if field.kind == "flag" and value not in (0, 1):
        raise Fault(f"writes {value!r} to {place}, which is a Flag: 0 or 1")
    return value


def _shown(value: Any) -> str:
    return f"a row ({value._name})" if isinstance(value, StrictRow) else repr(value)  # pyright: ignore[reportPrivateUsage]


class _Strict:
    """An argument with known attributes."""

    def __init__(
        self, argument: str, page: Page, terms: Any, fields: Mapping[str, Field], values: dict[str, Any]
    ) -> None:
        vars(self).update(
            _argument=argument, _page=page, _terms=terms, _fields=fields, _values=values, _may_write=argument == "me"
        )

    def __getattr__(self, name: str) -> Any:
        given = vars(self)
        values, argument = given["_values"], given["_argument"]
        if name not in values:
            raise Fault(unknown_name(given["_page"], given["_terms"], argument, name))
        value = values[name]
        if isinstance(value, list):
            return StrictRow(
                f"{argument}.{name}", given["_fields"][name], cast("list[Any]", value), given["_may_write"]
            )
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        given = vars(self)
        values, argument = given["_values"], given["_argument"]
        if argument != "me":
            raise Fault(f"writes {argument}.{name}: only what me holds may change")
        if name not in values:
            raise Fault(unknown_name(given["_page"], given["_terms"], argument, name).replace("reads", "writes", 1))
        if isinstance(values[name], list):
            raise Fault(f"writes me.{name}, which is a row: write its entries")
        values[name] = checked_value(f"me.{name}", given["_fields"][name], value)

    def __getitem__(self, index: Any) -> NoReturn:
        argument = vars(self)["_argument"]
        known = ", ".join(known_names(vars(self)["_page"], vars(self)["_terms"])[argument])
        raise Fault(
            f"reads {argument}[{index!r}]: a function sees one agent, never a neighbour; {argument} has {known}"
        )

    def __iter__(self) -> NoReturn:
        raise Fault(f"runs over {vars(self)['_argument']}: read its fields by name")


def strict_me(page: Page, terms: Any, values: dict[str, Any]) -> Any:
    """What one agent knows."""
    return _Strict("me", page, terms, page.knows, values)


def strict_seen(page: Page, terms: Any, values: dict[str, Any], writable: bool = False) -> Any:
    """What the network shows an agent; ``writable``: for ``meet``, which may change it."""
    seen = _Strict("seen", page, terms, dict.fromkeys(page.averaged, Number) | {"n_max": Count}, values)
    vars(seen)["_may_write"] = writable
    return seen


def strict_terms(page: Page, terms: Any) -> Any:
    """The fixed numbers."""
    return _Strict("terms", page, terms, {}, terms._asdict())


def strict_now(page: Page, terms: Any, now: Now) -> Any:
    """The time of a decision."""
    return _Strict("now", page, terms, {}, now._asdict())


class StrictDraws:
    """The randomness of a decision, for ``uniform`` and ``fill_with_normals``."""

    def __init__(self, u: float, normals: list[float]) -> None:
        """The draws."""
        self.u, self.normals = u, normals

    def __getattr__(self, name: str) -> NoReturn:
        raise Fault(f"reads draws.{name}: write uniform(draws) or fill_with_normals(row, draws)")


class Edges(list[tuple[int, int]]):
    """Pairs of agents, read as ``edges[e, 0]``."""

    def __getitem__(self, index: Any) -> Any:
        """The end of an edge."""
        if isinstance(index, tuple):
            e, side = cast("tuple[int, int]", index)
            return super().__getitem__(e)[side]
        return cast(Any, super().__getitem__(index))


_op: Any = _operator

_HIDDEN = "rewards that no noise hides yet"


class Noise(float):
    """A draw of noise, a multiple of it, or a sum with it."""

    def __mul__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, Raw) else Noise(float(self) * other)

    __rmul__ = __mul__

    def __neg__(self) -> "Noise":
        return Noise(-float(self))

    def __truediv__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, Raw) else Noise(float(self) / other)

    def __add__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, Raw) else Noise(float(self) + other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, Raw) else Noise(float(self) - other)

    def __rsub__(self, other: Any) -> Any:
        return Noise(other - float(self))


def _value(x: Any) -> Any:
    return x.value if isinstance(x, Raw) else x


def _arithmetic(operation: Callable[[Any, Any], Any], swapped: bool = False) -> Callable[["Raw", Any], Any]:
    hides = operation in (_op.add, _op.sub)

    def result(self: "Raw", other: Any) -> Any:
        left, right = (_value(other), self.value) if swapped else (self.value, _value(other))
        outcome = operation(left, float(right) if isinstance(right, Noise) else right)
        return float(outcome) if hides and isinstance(other, Noise) else Raw(outcome, self.stage)

    return result


def _comparison(operation: Callable[[Any, Any], bool]) -> Callable[["Raw", Any], bool]:
    def result(self: "Raw", other: Any) -> bool:
        if self.stage.playing != "observe":
            raise Fault(f"compares {_HIDDEN}")
        return operation(self.value, _value(other))

    return result


class Raw:
    """A reward, or what was computed from rewards without noise. ``stage.playing`` names the function that runs."""

    def __init__(self, value: Any, stage: Any) -> None:
        """The value, and the stage on which it is played."""
        self.value, self.stage = value, stage

    def _refuse(self, *_: Any) -> Any:
        raise Fault(f"hands {_HIDDEN} to a function of math or to int: compute with + - * / until noise is added")

    __add__, __radd__ = _arithmetic(_op.add), _arithmetic(_op.add, swapped=True)
    __sub__, __rsub__ = _arithmetic(_op.sub), _arithmetic(_op.sub, swapped=True)
    __mul__, __rmul__ = _arithmetic(_op.mul), _arithmetic(_op.mul, swapped=True)
    __truediv__, __rtruediv__ = _arithmetic(_op.truediv), _arithmetic(_op.truediv, swapped=True)
    __pow__ = _arithmetic(_op.pow)
    __lt__, __le__ = _comparison(_op.lt), _comparison(_op.le)
    __gt__, __ge__ = _comparison(_op.gt), _comparison(_op.ge)
    __eq__ = _comparison(_op.eq)  # pyright: ignore[reportAssignmentType]
    __ne__ = _comparison(_op.ne)  # pyright: ignore[reportAssignmentType]
    __float__ = __int__ = __index__ = __round__ = __bool__ = __hash__ = _refuse  # pyright: ignore[reportAssignmentType]

    def __neg__(self) -> "Raw":
        return Raw(-self.value, self.stage)

    def __abs__(self) -> "Raw":
        return Raw(abs(self.value), self.stage)

    def __repr__(self) -> str:
        return f"{self.value} (raw)"


@dataclass(frozen=True)
class Script:
    """All randomness of a run, as functions of round t, agent i and arm k.

    ``noise(end, i, k)`` is of scale 1 and belongs to the interval that ends at reward ``end``; it is rounded to
    multiples of ``quantum``, if that is not 0, and then moved by ``shift(end, i, k)``.
    """

    reward: Callable[[int, int, int], float]
    edge: Callable[[int], tuple[int, int]]
    pick: Callable[[int, int], float]
    normals: Callable[[int, int], list[float]]
    noise: Callable[[int, int, int], float]
    quantum: float = 0.0
    shift: Callable[[int, int, int], float] = lambda end, i, k: 0.0

    def noise_of(self, end: int, i: int, k: int, scale: float) -> float:
        """The noise of an interval as a page receives it."""
        noise = self.noise(end, i, k) * scale
        return (round(noise / self.quantum) * self.quantum if self.quantum else noise) + self.shift(end, i, k)


class Interval(NamedTuple):
    """Noise that a page has asked for at a pull of an arm of an agent: of rewards ``first`` to ``end``."""

    agent: int
    arm: int
    first: int
    end: int
    level: int
    pull: int


class Shown(NamedTuple):
    """What others can see at the end of a round: the arms, and what every agent publishes and announces of each."""

    arms: list[int]  # empty at t = 0
    published: list[list[tuple[float, ...]]]
    announced: list[list[int]]
    theta: list[list[float]]


class Stage:
    """All agents of a policy on a script. ``rule``: the policy's own links; ``strict``: on stand-ins that refuse.

    ``tainted``: rewards are ``Raw`` numbers, which refuse to be used before noise is added.
    """

    def __init__(
        self,
        kind: str,
        page: Page,
        terms: Sequence[Any],
        num_arms: int,
        edges: Sequence[tuple[int, int]],
        script: Script,
        rule: LinkRule | None = None,
        strict: bool = False,
        tainted: bool = False,
    ) -> None:
        """Agents that know nothing yet."""
        self.kind, self.page, self.script, self.rule, self.strict = kind, page, script, rule, strict
        self.tainted, self.playing = tainted, ""
        self.agents, self.arms = range(len(terms)), range(num_arms)
        self.edges, self.intervals = Edges(edges), list[Interval]()
        self.neighbours = [[j for pair in edges for j in pair if i in pair and j != i] for i in self.agents]
        known = [{name: _zeros(field.shape, num_arms) for name, field in page.knows.items()} for _ in terms]
        self.averages = [{name: [0.0] * num_arms for name in page.averaged} for _ in terms]
        self.n_max, self.tried = [[1] * num_arms for _ in terms], [fields["tried"] for fields in known]
        rows: list[dict[str, Any]] = [{**self.averages[i], "n_max": self.n_max[i]} for i in self.agents]
        self.terms = [strict_terms(page, mine) if strict else mine for mine in terms]
        self.fixed = terms
        self.me = [strict_me(page, terms[i], known[i]) if strict else Me(**known[i]) for i in self.agents]
        self.seen = [strict_seen(page, terms[i], rows[i]) if strict else Seen(**rows[i]) for i in self.agents]
        self.met = [strict_seen(page, terms[i], rows[i], True) if strict else self.seen[i] for i in self.agents]
        self.levels: dict[tuple[int, int, int], int] = {}
        for i in self.agents:
            if page.start is not None:
                self._call("start", self.me[i], self.terms[i])

    def _call(self, name: str, *arguments: Any) -> Any:
        """Call a function of the page; what goes wrong is said in words."""
        self.playing = name
        try:
            return getattr(self.page, name)(*arguments)
        except Fault as fault:
            raise WrongPage(self.kind, f"{name} {fault}{_line(fault)}") from None
        except ZeroDivisionError as error:
            raise WrongPage(self.kind, f"{name} divides by zero{_line(error)}") from None
        except Exception as error:
            raise WrongPage(self.kind, f"{name} fails with {type(error).__name__}: {error}{_line(error)}") from None

    def _wrong(self, name: str, returned: Any, wanted: str, arm: int | None = None) -> WrongPage:
        of = "" if arm is None else f" for arm {arm}"
        return WrongPage(self.kind, f"{name} returns {returned!r}{of}, not {wanted}")

    # ---------------------------------------------------------------- rounds

    def first_round(self) -> Shown:
        """The first pull of every arm (Algorithm 1, line 1)."""
        for i in self.agents:
            for k in self.arms:
                self._add(i, k, *self._pull(0, i, k))
        if self.page.network == "pooled":
            for k in self.arms:
                self._pool(k)
        elif self.page.believe is not None:
            for i in self.agents:
                self._believe(i, self.arms)
        return self._shown([])

    def next_round(self, t: int) -> Shown:
        """Round t, from 1."""
        page, announces = self.page, self.page.announced is not None
        n_max = [self._heard(i) for i in self.agents] if announces else []
        arms = [self._decide(t, i) for i in self.agents]
        asked = len(self.intervals)
        news = [self._pull(t, i, arm) for i, arm in enumerate(arms)]
        for i, heard_of in enumerate(n_max):
            self.n_max[i][:] = heard_of
        mixed: set[int] = set()
        if page.network == "gossip":
            mixed = self._mix(t)
        if page.network in ("gossip", "consensus", "alone"):
            for i, arm in enumerate(arms):
                self._add(i, arm, *news[i])
        if page.network == "consensus":
            mixed = self._mix(t)
        if page.network == "pooled":
            for arm in dict.fromkeys(arms):
                self._pool(arm)
        released = {interval.agent for interval in self.intervals[asked:]}
        if page.reweigh is not None:
            for i in released:
                self._reweigh(i, t)
            mixed |= released
        if page.believe is not None and page.network != "pooled":
            for i in self.agents:
                if i in mixed:
                    self._believe(i, self.arms)
                elif i in released or page.noise_due is None:
                    self._believe(i, [arms[i]])
        if page.meet is not None:
            present = [1] * len(self.edges)
            self._call("meet", self.me, self.terms, self.met, self.edges, present)
        return self._shown(arms)

    # ---------------------------------------------------------------- one agent

    def _decide(self, t: int, i: int) -> int:
        u, normals, now = self.script.pick(t, i), self.script.normals(t, i), time_of(t)
        draws: Any = StrictDraws(u, normals) if self.strict else SimpleNamespace(u=u, normals=normals)
        shown = strict_now(self.page, self.fixed[i], now) if self.strict else now
        arm = self._call("decide", self.me[i], self.terms[i], self.seen[i], shown, draws)
        if type(arm) is not int or arm not in self.arms:
            hint = ". Is a return missing?" if arm is None else ""
            raise self._wrong("decide", arm, f"an arm: a whole number from 0 to {len(self.arms) - 1}{hint}")
        return arm

    def _pull(self, t: int, i: int, arm: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Count the decision, then take its reward; what the agent published before and publishes now."""
        self.tried[i][arm] += 1
        before = self._published(i, arm)
        due = 0 if self.page.noise_due is None else self._call("noise_due", self.me[i], self.terms[i], arm)
        ends = cast("tuple[Any, ...]", due if isinstance(due, tuple) else (due,))
        if any(type(end) is not int or end < 0 for end in ends) or len(ends) != (2 if isinstance(due, tuple) else 1):
            raise self._wrong("noise_due", due, "the end of an interval, or 0 for none, or a pair of them", arm)
        noise = tuple(self._noise(i, arm, end) for end in ends)
        reward: Any = self.script.reward(t, i, arm)
        if self.tainted:
            reward, noise = (
                Raw(reward, self),
                tuple(Noise(x) if end else 0.0 for x, end in zip(noise, ends, strict=True)),
            )
        self._call("observe", self.me[i], self.terms[i], arm, reward, noise if isinstance(due, tuple) else noise[0])
        return before, self._published(i, arm)

    def _reweigh(self, i: int, t: int) -> None:
        """After a release: the agent's weight, and what that changes of any arm."""
        before = [self._published(i, k) for k in self.arms]
        self._call("reweigh", self.me[i], self.terms[i], float(t))
        for k in self.arms:
            self._add(i, k, before[k], self._published(i, k))

    def _noise(self, i: int, arm: int, end: int) -> float:
        if end == 0:
            return 0.0
        first, level = end, 0
        if self.page.interval is not None:
            named = self._call("interval", self.me[i], self.terms[i], arm, end)
            if not isinstance(named, tuple) or [type(x) for x in cast("tuple[Any, ...]", named)] != [int, int]:
                raise self._wrong("interval", cast(Any, named), "a pair: the first reward, and the level", arm)
            first, level = cast("tuple[int, int]", named)
            mark = self.levels.get((i, arm, level), 0)
            if not mark < first <= end:
                raise WrongPage(
                    self.kind,
                    f"interval returns rewards {first} to {end} of arm {arm} at level {level}, which overlap a release "
                    f"of that level (up to {mark}): they would be paid for twice",
                )
            self.levels[i, arm, level] = end
        self.intervals.append(Interval(i, arm, first, end, level, self.tried[i][arm]))
        return self.script.noise_of(end, i, arm, self.fixed[i].noise_scale)

    def _published(self, i: int, arm: int) -> tuple[float, ...]:
        given = self._call("published", self.me[i], self.terms[i], arm)
        wanted = f"a tuple of {len(self.page.averaged)}, one number for each of {', '.join(self.page.averaged)}"
        values = cast("tuple[float, ...]", given)
        if self.tainted and isinstance(given, tuple):
            if any(isinstance(x, Raw) for x in values):
                raise WrongPage(self.kind, f"published returns rewards of arm {arm} that no noise hides yet")
            values = given = tuple(float(x) if isinstance(x, Noise) else x for x in values)
        if not isinstance(given, tuple) or len(values) != len(self.page.averaged):
            raise self._wrong("published", cast(Any, given), wanted, arm)
        if any(type(x) not in (int, float) or x != x for x in values):
            raise self._wrong("published", values, wanted, arm)
        return values

    def _number(self, name: str, arm: int, *arguments: Any, kinds: tuple[type, ...] = (int, float)) -> Any:
        value = self._call(name, *arguments, arm)
        if type(value) not in kinds or value != value:
            wanted = "a whole number" if kinds == (int,) else "0 or 1" if bool in kinds else "a number"
            raise self._wrong(name, value, wanted, arm)
        return value

    def _believe(self, i: int, arms: Iterable[int]) -> None:
        for k in arms:
            self._call("believe", self.me[i], self.terms[i], self.seen[i], k)

    # ---------------------------------------------------------------- the network

    def _add(self, i: int, arm: int, before: tuple[float, ...], after: tuple[float, ...]) -> None:
        for c, row in enumerate(self.averages[i].values()):
            row[arm] = with_news(row[arm], after[c], before[c])

    def _heard(self, i: int) -> list[int]:
        """n~(t+1): the largest of the agent's own count before this round and its neighbours' n~(t)."""
        counts: list[int] = []
        for k in self.arms:
            count = self._number("announced", k, self.me[i], self.terms[i], kinds=(int,))
            for j in self.neighbours[i]:
                count = heard(count, self.n_max[j][k])
            counts.append(count)
        return counts

    def _mix(self, t: int) -> set[int]:
        """Over one edge, or over all if the policy has links of its own; who has mixed."""
        edges = [self.script.edge(t)] if self.rule is None else list(self.edges)
        degree = [sum(i in edge for edge in edges) for i in self.agents]
        for name in self.page.averaged:
            rows = [averages[name] for averages in self.averages]
            old = [row.copy() for row in rows]
            for i, j in edges:
                for k in self.arms:
                    if self.rule is None:
                        rows[i][k] = rows[j][k] = average(old[i][k], old[j][k])
                        continue
                    weight = self.rule.weight if self.rule.weight > 0.0 else metropolis_weight(degree[i], degree[j])
                    step = weight * (old[j][k] - old[i][k])
                    rows[i][k] += step
                    rows[j][k] -= step
        return {i for edge in edges for i in edge} if self.rule is None else set(self.agents)

    def _pool(self, arm: int) -> None:
        parts = [self._published(i, arm) for i in self.agents]
        for c, name in enumerate(self.page.averaged):
            total = 0.0
            for part in parts:
                total += part[c]
            for averages in self.averages:
                averages[name][arm] = total
        if self.page.believe is not None:
            for i in self.agents:
                self._believe(i, [arm])

    # ---------------------------------------------------------------- what can be seen

    def _shown(self, arms: list[int]) -> Shown:
        announces = self.page.announced is not None
        return Shown(
            arms,
            [[self._published(i, k) for k in self.arms] for i in self.agents],
            [
                [self._number("announced", k, self.me[i], self.terms[i], kinds=(int,)) for k in self.arms]
                for i in self.agents
            ]
            if announces
            else [],
            [
                [self._number("estimate", k, self.me[i], self.terms[i], self.seen[i]) for k in self.arms]
                for i in self.agents
            ],
        )

    def try_the_rest(self, t: int) -> None:
        """Call the functions that no round calls: radius, margin and unknown."""
        now = time_of(t)
        for i in self.agents:
            shown = strict_now(self.page, self.fixed[i], now) if self.strict else now
            for k in self.arms:
                for name in ("radius", "margin"):
                    if getattr(self.page, name) is not None:
                        self._number(name, k, self.me[i], self.terms[i], self.seen[i], shown)
                if self.page.unknown is not None:
                    self._number("unknown", k, self.me[i], kinds=(bool, int))


def _zeros(shape: Sequence[str | int], num_arms: int) -> Any:
    length = [num_arms if size == ARMS else int(size) for size in shape]
    return [_zeros(shape[1:], num_arms) for _ in range(length[0])] if shape else 0


_HERE = Path(__file__).parents[1]


def _line(error: BaseException) -> str:
    """Where the page's own code was when it failed."""
    own = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not Path(frame.filename).is_relative_to(_HERE)
    ]
    return f" (line {own[-1].lineno})" if own else ""
