"""Plays a page in plain Python, on stand-ins for its arguments that refuse mistakes and say in words what they were.

A row has a fixed length and whole indices within it; a field takes numbers of its kind; only ``me`` can be written to.
Compiled code would do otherwise what these refuse, or not at all. The order of events is that of every engine
(``policies.order``).
"""

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import sqrt
from pathlib import Path
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any, NamedTuple, NoReturn, cast

from fedbandit.policies.order import Arrangement, Phases, rounds_of
from fedbandit.policies.plain import Me, Seen
from fedbandit.policies.protocol import ARMS, FEATURES, STRATA, Count, Field, Number, Page, Setting, time_of
from fedbandit.policies.registry import WrongPage
from fedbandit.testing.page_code import known_names, unknown_name

AGENTS, ROUNDS = 3, 40
EDGES = [(0, 1), (0, 2), (1, 2)]
GOLDEN = 0.6180339887498949  # multiples of it, modulo 1, spread evenly
MAX_COUNT = 2**31


# ---------------------------------------------------------------- stand-ins


class Fault(Exception):
    """What a function of a page did wrong: a phrase that begins with a verb."""


class _NoNumber:
    """What is no number itself: arithmetic, comparisons and ``math`` say what it is, and what to write instead."""

    def _no_number(self) -> str: ...

    def _refuse(self, *_: Any) -> Any:
        raise Fault(self._no_number())

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __pow__ = _refuse
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __rpow__ = __neg__ = __abs__ = __float__ = __int__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __round__ = _refuse


class StrictRow(_NoNumber):
    """A view of a list."""

    __slots__ = ("_field", "_items", "_name", "_writable")

    def __init__(self, name: str, field: Field, items: list[Any], writable: bool) -> None:
        """Look at ``items``, the row of a field."""
        self._name, self._field, self._items, self._writable = name, field, items, writable

    def _no_number(self) -> str:
        return f"computes with the whole row {self._name}: name an entry, such as {self._name}[arm]"

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return (self[k] for k in range(len(self._items)))

    def __bool__(self) -> NoReturn:
        raise Fault(f"asks whether {self._name} is true: it is a row, ask of its entries")

    def __repr__(self) -> str:
        return f"a row ({self._name})"

    def __getitem__(self, index: Any) -> Any:
        self._check(index, "reads")
        value = self._items[index]
        if isinstance(value, list):
            return StrictRow(f"{self._name}[{index}]", self._field, cast("list[Any]", value), self._writable)
        return value

    def __setitem__(self, index: Any, value: Any) -> None:
        self._check(index, "writes")
        place = f"{self._name}[{index}]"
        if not self._writable:
            raise Fault(f"writes {place}: only what me holds may change")
        if isinstance(self._items[index], list):
            raise Fault(f"writes {place}, which is a row: write its entries")
        self._items[index] = _checked(place, self._field, value)

    def _check(self, index: Any, does: str) -> None:
        if isinstance(index, tuple):
            inner = "][".join(str(part) for part in cast("tuple[Any, ...]", index))
            raise Fault(f"{does} {self._name} with a pair of indices: write {self._name}[{inner}]")
        if type(index) is not int:
            raise Fault(f"{does} {self._name}[{index!r}]: an index is a whole number, write int(...)")
        if not 0 <= index < len(self._items):
            raise Fault(f"{does} {self._name}[{index}], beyond its row: indices go from 0 to {len(self._items) - 1}")


def _checked(place: str, field: Field, value: Any) -> Any:
    """A value that a field can hold."""
    if field.kind != "number" and isinstance(value, bool):
        return int(value)
    if type(value) not in (int, float):
        raise Fault(f"writes {value!r} to {place}, which is a {field.kind.capitalize()}")
    if value != value:
        raise Fault(f"writes NaN to {place}")
    if field.kind == "count" and not (type(value) is int and abs(value) < MAX_COUNT):
        raise Fault(f"writes {value!r} to {place}, which is a Count of whole numbers: declare it as Number, or round")
    if field.kind == "flag" and value not in (0, 1):
        raise Fault(f"writes {value!r} to {place}, which is a Flag: 0 or 1")
    return value


class _Strict(_NoNumber):
    """An argument with known attributes; ``fields``: of those that are rows, or that may be written."""

    def __init__(
        self,
        argument: str,
        page: Page,
        terms: Any,
        values: dict[str, Any],
        fields: Mapping[str, Field] | None = None,
        may_write: bool = False,
    ) -> None:
        vars(self).update(
            _argument=argument, _page=page, _terms=terms, _fields=fields or {}, _values=values, _may_write=may_write
        )

    def _no_number(self) -> str:
        known = ", ".join(f"{self._argument}.{name}" for name in self._values)
        return f"computes with {self._argument}, which is no number: it has {known}"

    def __getattr__(self, name: str) -> Any:
        given = vars(self)
        if name not in given["_values"]:
            raise Fault(unknown_name(given["_page"], given["_terms"], given["_argument"], name))
        value = given["_values"][name]
        if isinstance(value, list):
            place = f"{given['_argument']}.{name}"
            return StrictRow(place, given["_fields"][name], cast("list[Any]", value), given["_may_write"])
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if self._argument != "me":
            raise Fault(f"writes {self._argument}.{name}: only what me holds may change")
        if name not in self._values:
            raise Fault(unknown_name(self._page, self._terms, "me", name).replace("reads", "writes", 1))
        if isinstance(self._values[name], list):
            raise Fault(f"writes me.{name}, which is a row: write its entries")
        self._values[name] = _checked(f"me.{name}", self._fields[name], value)

    def __getitem__(self, index: Any) -> NoReturn:
        known = ", ".join(known_names(self._page, self._terms)[self._argument])
        raise Fault(
            f"reads {self._argument}[{index!r}]: a function sees one agent, never a neighbour; "
            f"{self._argument} has {known}"
        )

    def __iter__(self) -> NoReturn:
        raise Fault(f"runs over {self._argument}: read its fields by name")


class _Edges(list[tuple[int, int]]):
    """Pairs of agents, read as ``edges[e, 0]``."""

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, tuple):
            e, side = cast("tuple[int, int]", index)
            return super().__getitem__(e)[side]
        return cast(Any, super().__getitem__(index))


# ---------------------------------------------------------------- a run


@dataclass(frozen=True)
class Script:
    """All randomness of a run, as functions of round t, agent i and arm k.

    ``noise(end, i, k)`` is of scale 1 and belongs to the interval that ends at reward ``end``.
    """

    reward: Callable[[int, int, int], float]
    pick: Callable[[int, int], float]
    normals: Callable[[int, int], list[float]]
    noise: Callable[[int, int, int], float]
    stratum: Callable[[int, int], int] = lambda d, i: 0  # of the agent's decision d; the first are those at t = 0
    features: Callable[[int, int], tuple[float, ...]] = lambda d, i: ()  # in the same order
    average: tuple[float, ...] = ()  # of features: estimates are asked for there


class Shown(NamedTuple):
    """What others can see at the end of a round: the arms, and what every agent publishes and estimates of each."""

    arms: list[int]  # empty at t = 0
    published: list[list[tuple[float, ...]]]
    theta: list[list[float]]


class DryRun:
    """All agents of a policy on a script. ``hear(run, t)`` lets the network show them what it does in round t."""

    def __init__(
        self,
        kind: str,
        page: Page,
        terms: Sequence[Any],
        num_arms: int,
        edges: Sequence[tuple[int, int]],
        script: Script,
        hear: Callable[["DryRun", int], None],
        num_strata: int = 0,
        num_features: int = 0,
    ) -> None:
        """Agents that know nothing yet."""
        strata, lengths = max(num_strata, 1), {ARMS: num_arms, STRATA: num_strata or 1, FEATURES: num_features or 1}
        self.kind, self.page, self.script, self.hear, self.fixed = kind, page, script, hear, terms
        self.agents, self.arms, self.edges = range(len(terms)), range(num_arms), _Edges(edges)
        known = page.knows.items()
        self.known = [{name: _zeros(field.shape, lengths) for name, field in known} for _ in terms]
        self.stratum = [0] * len(terms)  # of each agent's decision in hand
        self.features: list[tuple[float, ...]] = [()] * len(terms)
        self.strata = range(strata) if page.context == "strata" else range(1)
        self.rows: list[dict[str, Any]] = [{name: [0.0] * num_arms for name in page.averaged} for _ in terms]
        for row in self.rows:
            row["n_max"] = [1] * num_arms
        self.boards: list[dict[int, tuple[int, Any]]] = [{} for _ in terms]  # of records: by agent, version and rows
        self.arm = [0] * len(terms)  # of this round
        self.released, self.mixed = set[int](), set[int]()  # agents that have released, or heard others, in this round
        shown = dict.fromkeys(page.averaged, Number) | {"n_max": Count}
        self.terms = [_Strict("terms", page, mine, mine._asdict()) for mine in terms]
        self.me = [_Strict("me", page, terms[i], self.known[i], page.knows, True) for i in self.agents]
        self.seen = [_Strict("seen", page, terms[i], self.rows[i], shown) for i in self.agents]
        self.met = [_Strict("seen", page, terms[i], self.rows[i], shown, True) for i in self.agents]
        gather = None if page.meet is None else self._gather
        phases = Phases(self._begin, self._act, self._learn, self._exchange, gather=gather)
        self._rounds = rounds_of(phases, Arrangement(now_at=_no_time))

    def play(self, rounds: int) -> list[Shown]:
        """Play the first pulls of every arm, and so many rounds; what is seen after each."""
        everyone: Any = SimpleNamespace(team=SimpleNamespace(first=0, last=len(self.agents), part=0))
        shown: list[Shown] = []
        for t in range(rounds + 1):
            self._rounds(t, t, None, self, None, everyone, None, None, None)
            shown.append(self._shown(t))
        return shown

    def known_by(self, i: int) -> tuple[Me, Seen]:
        """What an agent knows and sees, as a live site keeps it."""
        return Me(**self.known[i]), Seen(**self.rows[i])

    def _call(self, name: str, *arguments: Any) -> Any:
        """Call a function of the page; what goes wrong is said in words."""
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

    def _number(
        self, name: str, arm: int, *arguments: Any, kinds: tuple[type, ...] = (int, float), last: tuple[Any, ...] = ()
    ) -> Any:
        value = self._call(name, *arguments, arm, *last)
        if type(value) not in kinds or value != value:
            wanted = "a whole number" if kinds == (int,) else "0 or 1" if bool in kinds else "a number"
            raise self._wrong(name, value, wanted, arm)
        return value

    def _numbers(self, name: str, names: tuple[str, ...], arm: int, *arguments: Any) -> tuple[float, ...]:
        values = self._call(name, *arguments)
        of_numbers = type(values) is tuple and all(type(x) in (int, float) and x == x for x in cast("Any", values))
        if not of_numbers or len(cast("Any", values)) != len(names):
            raise self._wrong(name, values, f"a tuple of {len(names)}, one number for each of {', '.join(names)}", arm)
        return cast("tuple[float, ...]", values)

    # ---------------------------------------------------------------- phases of a round

    def _begin(self, _: Any, i: int) -> None:
        if self.page.start is not None:
            self._call("start", self.me[i], self.terms[i])

    def _act(self, _: Any, world: Any, links: Any, tape: Any, t: int, now: Any, i: int) -> None:
        if t > 0:
            self._see_context(i, len(self.arms) + t - 1)
        for k in self.arms if t == 0 else [self._decide(t, i)]:  # Algorithm 1, line 1: at t = 0 every arm
            if t == 0:
                self._see_context(i, k)
            self._pull(t, i, k)

    def _see_context(self, i: int, d: int) -> None:
        self.stratum[i], self.features[i] = self.script.stratum(d, i), self.script.features(d, i)

    def _exchange(self, _: Any, links: Any, tape: Any, t: int, edges: Any) -> None:
        self.hear(self, t)

    def _learn(self, _: Any, t: int, i: int) -> None:
        page = self.page
        if t > 0 and page.reweigh is not None and i in self.released:
            self._call("reweigh", self.me[i], self.terms[i], float(t))
            self.mixed.add(i)
        if page.believe is not None:
            is_new = t == 0 or i in self.mixed
            for k in self.arms if is_new else [self.arm[i]] * (i in self.released or page.noise_due is None):
                self._call("believe", self.me[i], self.terms[i], self.seen[i], k)
        self.released.discard(i)
        self.mixed.discard(i)

    def _gather(self, _: Any, links: Any) -> None:
        self._call("meet", self.me, self.terms, self.met, self.edges, [1] * len(self.edges))

    # ---------------------------------------------------------------- one agent

    def _context(self, i: int, stratum: int, features: tuple[float, ...] | None = None) -> tuple[Any, ...]:
        """The last argument of functions that take it."""
        if self.page.context is None:
            return ()
        known = {"stratum": stratum, "features": [*(self.features[i] if features is None else features)]}
        return (_Strict("context", self.page, self.fixed[i], known, {"features": Number}),)

    def _now(self, t: int, i: int) -> Any:
        return _Strict("now", self.page, self.fixed[i], time_of(t)._asdict())

    def _decide(self, t: int, i: int) -> int:
        draws = SimpleNamespace(u=self.script.pick(t, i), normals=self.script.normals(t, i))
        given = self.me[i], self.terms[i], self.seen[i], self._now(t, i), draws
        arm = self._call("decide", *given, *self._context(i, self.stratum[i]))
        if type(arm) is not int or arm not in self.arms:
            hint = ". Is a return missing?" if arm is None else ""
            raise self._wrong("decide", arm, f"an arm: a whole number from 0 to {len(self.arms) - 1}{hint}")
        return arm

    def _pull(self, t: int, i: int, arm: int) -> None:
        """Count the decision, then take its reward."""
        self.known[i]["tried"][arm] += 1
        if "tried_in" in self.known[i]:
            self.known[i]["tried_in"][arm][self.stratum[i]] += 1
        self.arm[i] = arm
        if self.page.context == "features":
            self._pull_with_features(t, i, arm)
            return
        if self.page.context == "strata":
            self._pull_in_stratum(t, i, arm)
            return
        due = 0 if self.page.noise_due is None else self._call("noise_due", self.me[i], self.terms[i], arm)
        ends = cast("tuple[Any, ...]", due if isinstance(due, tuple) else (due,))
        if any(type(end) is not int or end < 0 for end in ends) or len(ends) != (2 if isinstance(due, tuple) else 1):
            raise self._wrong("noise_due", due, "the end of an interval, or 0 for none, or a pair of them", arm)
        noise = tuple(self._noise(i, arm, end) for end in ends)
        given = noise if isinstance(due, tuple) else noise[0]
        self._call("observe", self.me[i], self.terms[i], arm, self.script.reward(t, i, arm), given)

    def _pull_in_stratum(self, t: int, i: int, arm: int) -> None:
        """Several sums may be due, each with a noise of its own."""
        context = self._context(i, self.stratum[i])
        given, noise = (self.me[i], self.terms[i], arm), cast(Any, 0.0)
        if self.page.noise_due is not None:
            sums, noise = self._call("noise_due", *given, *context), self.me[i].noise
            if type(sums) is not int or sums < 0:
                raise self._wrong("noise_due", sums, "how many sums are due", arm)
            for s in self.strata if sums > 0 else ():
                self.known[i]["noise"][s] = self._noise(i, s * len(self.arms) + arm, self.known[i]["due"][s])
        self._call("observe", *given, self.script.reward(t, i, arm), noise, *context)

    def _pull_with_features(self, t: int, i: int, arm: int) -> None:
        context = self._context(i, self.stratum[i])
        given, noise = (self.me[i], self.terms[i], arm), cast(Any, 0.0)
        if self.page.noise_due is not None:
            end, noise = self._call("noise_due", *given, *context), self.me[i].noise
            if type(end) is not int or end < 0:
                raise self._wrong("noise_due", end, "the end of an interval, or 0 for none", arm)
            if end > 0:
                self.released.add(i)
                self._fill_noise(i, arm, end)
        self._call("observe", *given, self.script.reward(t, i, arm), noise, *context)

    def _fill_noise(self, i: int, arm: int, end: int) -> None:
        """Write the noise of all that the page releases at once: of one arm, or of all."""
        rows = [row for name in ("noise", "gram_noise") if (row := self.known[i].get(name)) is not None]
        first = 0 if "gram_noise" in self.known[i] else arm * sum(map(len, map(_flat, rows)))
        numbers = (self.script.noise(end, i, first + c) * self.fixed[i].noise_scale for c in count())
        for row in rows:
            _fill(row, numbers)

    def _noise(self, i: int, arm: int, end: int) -> float:
        if end == 0:
            return 0.0
        if self.page.interval is not None:
            named = self._call("interval", self.me[i], self.terms[i], arm, end)
            if not isinstance(named, tuple) or [type(x) for x in cast("tuple[Any, ...]", named)] != [int, int]:
                raise self._wrong("interval", cast(Any, named), "a pair: the first reward, and the level", arm)
        self.released.add(i)
        return self.script.noise(end, i, arm) * self.fixed[i].noise_scale

    def _shown(self, t: int) -> Shown:
        """What can be seen after round t; calls the functions that no round calls, too."""
        cells = [(k, s) for s in self.strata for k in self.arms]
        theta = [[self._estimate(i, k, s, self._now(t + 1, i)) for k, s in cells] for i in self.agents]
        return Shown(list(self.arm) if t > 0 else [], self.published(), theta)

    def _estimate(self, i: int, k: int, s: int, now: Any) -> float:
        given = self.me[i], self.terms[i], self.seen[i]
        for name in ("radius", "margin"):
            if getattr(self.page, name) is not None:
                context = self._context(i, s) if name == "margin" else ()
                self._number(name, k, *given, now, last=context)
        if self.page.unknown is not None:
            self._number("unknown", k, self.me[i], kinds=(bool, int))
        estimate = self._call("estimate", *given, k, *self._context(i, s, self.script.average))
        if type(estimate) not in (int, float) or estimate != estimate:
            raise self._wrong("estimate", estimate, "a number", k)
        return estimate

    # ---------------------------------------------------------------- the network

    def published(self) -> list[list[tuple[float, ...]]]:
        """What every agent publishes of every arm."""
        names = self.page.published_names
        if self.page.records:
            return [[self.record(i, k) for k in self.arms] for i in self.agents]
        return [
            [self._numbers("published", names, k, self.me[i], self.terms[i], k) for k in self.arms] for i in self.agents
        ]

    def record(self, i: int, arm: int) -> tuple[float, ...]:
        """An agent's record of an arm, in one row."""
        return tuple(x for name in self.page.records for x in _flat(self.known[i][name][arm]))

    def pass_on(self, pairs: Iterable[Sequence[int]]) -> None:
        """Agents hand each other the records that they have heard of, then everybody receives what it knows."""
        before = [dict(board) for board in self.boards]
        for i, j in pairs if self.page.network == "gossip" else ():
            for here, there in ((i, j), (j, i)):
                for origin, (version, rows) in before[there].items():
                    if version > self.boards[here].get(origin, (0, []))[0]:
                        self.boards[here][origin] = version, rows
        own = self.published()
        for i in self.agents:
            version, last = self.boards[i].get(i, (0, []))
            if own[i] != last:
                self.boards[i][i] = version + 1, own[i]
        for i in self.agents:
            for k in self.arms:
                self._receive(i, k, own)

    def _receive(self, i: int, k: int, own: list[list[tuple[float, ...]]]) -> None:
        nothing = (0, [[0.0] * len(own[i][k]) for k in self.arms])
        if self.page.network == "gossip":
            found = [self.boards[i].get(j, nothing) for j in self.agents]
            versions, rows = [version for version, _ in found], [[*of[k]] for _, of in found]
        else:
            everyone = self.agents if self.page.network == "pooled" else [i]
            versions, rows = [1], [[sum(column) for column in zip(*(own[j][k] for j in everyone), strict=True)]]
        given = StrictRow("rows", Number, cast(Any, rows), False), StrictRow("versions", Count, versions, False)
        self._call("receive", self.me[i], self.terms[i], k, *given)

    def announced(self) -> list[list[int]]:
        """What every agent announces of every arm."""
        return [
            [self._number("announced", k, self.me[i], self.terms[i], kinds=(int,)) for k in self.arms]
            for i in self.agents
        ]

    def combined(self, i: int, arm: int, rows: Sequence[Any]) -> tuple[float, ...]:
        """What the page makes of the releases of all agents."""
        versions = StrictRow("versions", Count, [1] * len(rows), False)
        given = self.terms[i], StrictRow("rows", Number, [[*row] for row in rows], False), versions
        return self._numbers("combine", self.page.averaged, arm, *given)


def _hear_all(run: DryRun, t: int) -> None:
    """Everyone hears everyone in every round."""
    if run.page.records:
        run.pass_on([(i, j) for i in run.agents for j in range(i)])
        return
    page, published = run.page, run.published()
    if page.announced is not None:
        announced = run.announced()
        for row in run.rows:
            row["n_max"][:] = map(max, *announced)
    for i in run.agents:
        for k in run.arms:
            rows = [row[k] for row in published]
            seen = [sum(column) / (1 if page.network == "pooled" else len(rows)) for column in zip(*rows, strict=True)]
            if page.network in ("alone", "server"):
                seen = rows[i]
            elif page.combine is not None:
                seen = run.combined(i, k, rows)
            for name, value in zip(page.averaged, seen, strict=False):
                if t == 0 or page.network != "server":  # where only meet changes them
                    run.rows[i][name][k] = float(value)
    run.mixed |= set(run.agents)


def dry_run(kind: str, page: Page, terms: Any, setting: Setting, rounds: int = ROUNDS) -> tuple[DryRun, list[Shown]]:
    """Play a page some rounds, so that every function runs; what it shows in each."""
    script = even_script(setting)
    run = DryRun(
        kind,
        page,
        [terms] * AGENTS,
        setting.num_arms,
        EDGES,
        script,
        _hear_all,
        setting.num_strata,
        setting.num_features,
    )
    return run, run.play(rounds)


def even_script(setting: Setting) -> Script:
    """Randomness that is always the same."""
    normal = NormalDist()

    def spread(*place: int) -> float:
        """A number in (0, 1) for a place in the script."""
        number = 1.0 + place[0]
        for step in place[1:]:
            number = 31.0 * number + step
        return min(max(GOLDEN * number % 1.0, 1e-6), 1.0 - 1e-6)

    def reward(t: int, i: int, k: int) -> float:
        u = spread(t, i, k)
        return setting.low + (setting.high - setting.low) * u if setting.has_range else k + normal.inv_cdf(u)

    def features(d: int, i: int) -> tuple[float, ...]:
        """With a norm of at most the declared one, of each row if arms have rows of their own."""
        longest, size = sqrt(max(setting.norm**2 - setting.has_constant, 0.0)), max(setting.num_features - 1, 1)
        length = setting.num_features * setting.rows_of_features
        row = [(2.0 * spread(d, i, c, 11) - 1.0) * longest / sqrt(size) for c in range(length)]
        is_constant = [setting.has_constant and c % max(setting.num_features, 1) == 0 for c in range(length)]
        return tuple(1.0 if fixed else x for fixed, x in zip(is_constant, row, strict=True))

    return Script(
        reward=reward,
        pick=spread,
        normals=lambda t, i: [normal.inv_cdf(spread(t, i, k, 7)) for k in range(setting.num_arms)],
        noise=lambda end, i, k: normal.inv_cdf(spread(end, i, k, 5)),
        stratum=lambda d, i: int(spread(d, i, 3) * max(setting.num_strata, 1)),
        features=features,
        average=setting.rows_of_features
        * tuple(float(setting.has_constant and c == 0) for c in range(setting.num_features)),
    )


def _no_time(*_: Any) -> None:
    """Each agent has a stand-in of its own."""


def _zeros(shape: Sequence[str | int], lengths: Mapping[Any, int]) -> Any:
    length = int(lengths.get(shape[0], shape[0])) if shape else 0
    return [_zeros(shape[1:], lengths) for _ in range(length)] if shape else 0


def _flat(value: Any) -> list[float]:
    """All numbers of rows in rows."""
    return [x for row in cast("list[Any]", value) for x in _flat(row)] if isinstance(value, list) else [value]


def _fill(row: list[Any], numbers: Iterator[float]) -> None:
    for c, entry in enumerate(row):
        if isinstance(entry, list):
            _fill(cast("list[Any]", entry), numbers)
        else:
            row[c] = next(numbers)


_HERE = Path(__file__).parents[1]


def _line(error: BaseException) -> str:
    """Where the page's own code was when it failed."""
    own = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not Path(frame.filename).is_relative_to(_HERE)
    ]
    return f" (line {own[-1].lineno})" if own else ""
