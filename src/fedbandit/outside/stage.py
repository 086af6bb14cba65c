"""Plays a page in plain Python: the simulator's round on lists, with a script for its randomness.

It rehearses a page before anything compiles it, and ``fedbandit.testing`` compares compiled code with it. The order of
events is that of ``simulation.round``.
"""

import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from fedbandit.outside.policies import WrongPage
from fedbandit.outside.strict import Edges, Fault, StrictDraws, strict_me, strict_now, strict_seen, strict_terms
from fedbandit.outside.taint import Noise, Raw
from fedbandit.policies.plain import Me, Seen
from fedbandit.policies.protocol import ARMS, LinkRule, Page, time_of
from fedbandit.rules.gossip import average, heard, metropolis_weight, with_news

__all__ = ["Interval", "Script", "Shown", "Stage"]


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
