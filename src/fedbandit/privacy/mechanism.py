"""Plays the page of a policy with real rewards: in whole steps of a grid, with noise from the ledger alone.

The page says when noise is due and for which interval; it never sees the source. Sums of steps and noise are whole
numbers, so that nothing is left for rounding to give away. No raw reward leaves a mechanism except in ``kept()``, which
is for the agent's own disk.

A mechanism that is brought back from a state *before* a release would draw its noise again, and two noisy versions of
one sum cost twice. So an agent writes ``kept()`` and the interval to its disk, in one transaction, before anybody sees
the release (docs/privacy.md, "A restart").
"""

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple, cast

from fedbandit.checks import LARGEST, Counts, InvalidArgument, finite_number, whole_number
from fedbandit.policies import plain
from fedbandit.policies.protocol import Context, Policy, Setting, page_on
from fedbandit.policies.registry import label_of
from fedbandit.privacy.ledger import Ledger
from fedbandit.privacy.noise import GRID, NoiseSource, laplace, to_grid, to_steps
from fedbandit.rules import private
from fedbandit.rules.batch import largest_reward_variance

__all__ = ["Mechanism", "ReleasedInterval", "levels_of", "setting_in_steps", "terms_in_steps"]

MAX_GROUP = 10**12

COUNTED = ("num_agents", "averaging", "offset", "total", "squares", "own_share")
"""The only terms that change when sites come and go. Noise, epsilon and the sizes of batches never do."""


class ReleasedInterval(NamedTuple):
    """Pulls ``first`` to ``last`` of an arm, which have been released together at this level.

    Where decisions have strata: pulls of a cell, whose stratum stands in the place of the level.
    """

    level: int
    first: int
    last: int


def setting_in_steps(
    num_agents: int, num_arms: int, low: float, high: float, counts: Counts = "sites", num_strata: int = 0
) -> Setting:
    """The world of a live site, where rewards in [low, high] are counted in steps above ``low``."""
    return Setting(
        num_agents=num_agents,
        num_arms=num_arms,
        share=1.0,
        sum_of_squares=1.0 / num_agents,
        mean_square_share=1.0,
        degree=0,
        complete=False,
        in_step=False,
        horizon=1,  # a policy that needs one has its own
        low=0.0,
        high=float(GRID),
        bounded=True,
        scale=float(GRID),
        reward_variance=largest_reward_variance(0.0, float(GRID)),
        unit=GRID / (high - low),
        rewards="bounded",
        counts=counts,
        gossip="releases",
        num_strata=num_strata,
    )


def terms_in_steps(
    policy: Policy,
    num_agents: int,
    num_arms: int,
    low: float,
    high: float,
    counts: Counts = "sites",
    num_strata: int = 0,
) -> Any:
    """The fixed numbers of a policy's page where rewards in [low, high] are counted in steps above ``low``.

    Every formula is scale-equivariant: a page in steps decides as it would in units of the reward.
    """
    return policy.terms(setting_in_steps(num_agents, num_arms, low, high, counts, num_strata))


def levels_of(terms: Any) -> int:
    """The most releases that may hold one reward: one, or those of a tree over ``max_pulls`` rewards."""
    max_pulls: int | None = getattr(terms, "max_pulls", None)
    return 1 if max_pulls is None else max_pulls.bit_length()


class Mechanism:
    """One agent's own numbers, all arms, played by the page of its policy.

    * ``low``, ``high``: the declared range; rewards are clamped to it.
    * ``me``: what the agent knows, in steps of the grid; the only copy in memory.
    * ``ledger``: accounts for every draw of noise; None for a policy that promises nothing.
    """

    def __init__(
        self,
        policy: Policy,
        num_agents: int,
        num_arms: int,
        low: float,
        high: float,
        noise: NoiseSource = laplace,
        counts: Counts = "sites",
        rows: int | None = None,
        num_strata: int = 0,
    ) -> None:
        """Nothing observed, nothing released. ``rows``: how many arms there are now, if not ``num_arms``.

        ``num_strata``: how many strata decisions have; 0: none.
        """
        self._low, self._high = _range(low, high)
        num_arms = whole_number("num_arms", num_arms, 1, 10**6)
        self.num_arms = num_arms if rows is None else whole_number("rows", rows, num_arms, 10**6)
        num_agents = whole_number("num_agents", num_agents, 1, 10**6)
        self.num_strata = num_strata
        self.page = page_on(policy.page(), "releases", num_strata)
        if self.page.published is None and not self.has_cells:
            hint = "Records of decisions with features are released in simulations only."
            raise InvalidArgument("policy", label_of(policy), "one whose page publishes numbers of each arm", hint)
        self._policy: Policy = policy
        self._counts: Counts = counts
        self._num_founding_arms = num_arms
        self.terms = terms_in_steps(policy, num_agents, num_arms, self._low, self._high, counts, num_strata)
        self._fixed = self.terms
        self._kept = {arm != plain.NO_ARM: plain.kept_names(self.page, arm) for arm in (plain.NO_ARM, 0)}
        self.me: Any = plain.new_me(self.page, self.terms, self.num_arms, num_strata)
        self.max_pulls: int | None = getattr(self.terms, "max_pulls", None)
        self.ledger: Ledger | None = None
        if self.page.noise_due is not None:
            if self.page.interval is None and not self.has_cells:
                raise InvalidArgument("policy", label_of(policy), "one whose page names the interval of each release")
            cells = num_strata if self.has_cells else 1
            self.ledger = Ledger(self.num_arms, self.terms.epsilon_per_release, levels_of(self.terms), noise, cells)

    def count(self, num_agents: int) -> None:
        """So many sites take part now. What is released, when, and with which noise does not depend on it."""
        world = self._num_founding_arms, self._low, self._high, self._counts, self.num_strata
        terms = terms_in_steps(self._policy, num_agents, *world)
        self.terms = self.terms._replace(**{name: getattr(terms, name) for name in COUNTED if hasattr(terms, name)})
        if self.page.recount is not None:
            for arm in range(self.num_arms):
                if self._is_released(arm):
                    self.page.recount(self.me, self.terms, arm)

    def take(self, arm: int, reward: float) -> ReleasedInterval | None:
        """Play a reward of this arm; the interval that it completes, whose noise has been drawn.

        If drawing noise fails, the interval still counts as released: reload the mechanism from disk.
        """
        arm = whole_number("arm", arm, 0, self.num_arms - 1)
        if self.ledger is None:
            steps = to_steps(finite_number("reward", reward), self._low, self._high)
            self.page.observe(self.me, self.terms, arm, steps, 0.0)
            return None
        return self._take_steps(self.ledger, arm, to_grid(reward, self._low, self._high))

    @property
    def has_cells(self) -> bool:
        """Whether the page collects rewards in cells, and names in ``me.part`` what becomes of each."""
        return self.num_strata > 0 and self.page.context == "strata"

    def take_in(self, arm: int, stratum: int, reward: float) -> list[ReleasedInterval]:
        """Play a reward of this cell; the intervals of all cells that it releases, whose noise has been drawn."""
        page, me, terms = self.page, self.me, self.terms
        arm, stratum = (
            whole_number("arm", arm, 0, self.num_arms - 1),
            whole_number("stratum", stratum, 0, self.num_strata - 1),
        )
        steps, context = to_grid(reward, self._low, self._high), Context(stratum)
        assert self.ledger is not None and page.noise_due is not None  # noqa: S101, PT018  # only such pages have cells
        noise, released = [0] * self.num_strata, list[ReleasedInterval]()
        if page.noise_due(me, terms, arm, context) > 0:
            alone = [[it] for it in self._due(arm, stratum, private.ALONE)]
            for cells in [*alone, [*self._due(arm, stratum, private.POOLED)]]:
                if cells:
                    noise[cells[0].level] = self.ledger.draw_sum(arm, cells)
                    released += cells
        page.observe(me, terms, arm, steps, noise, context)
        return released

    def _due(self, arm: int, stratum: int, part: int) -> Iterator[ReleasedInterval]:
        """What of each cell goes out alone, or pooled, with the next reward of this stratum."""
        me = self.me
        for r in range(self.num_strata):
            if me.part[r] == part:
                yield ReleasedInterval(r, me.marks[arm][r] + 1, me.cells[arm][r] + (r == stratum))

    def take_history(self, arm: int, rewards: int, total: int) -> list[ReleasedInterval]:
        """Play rewards of which only the sum is known, in steps: each as their mean, in whole steps.

        The first ``total % rewards`` of them have a step more. So each of them grows with the sum, and never falls:
        whatever intervals they lie in, one real reward moves all sums together by no more than it moves their sum.
        """
        arm = whole_number("arm", arm, 0, self.num_arms - 1)
        each, more = divmod(whole_number("total", total, 0, rewards * GRID), rewards)
        found: list[ReleasedInterval] = []
        for k in range(rewards):
            if self.ledger is None:
                self.page.observe(self.me, self.terms, arm, float(total) / rewards, 0.0)
            elif (interval := self._take_steps(self.ledger, arm, each + (k < more))) is not None:
                found.append(interval)
        return found

    def _take_steps(self, ledger: Ledger, arm: int, steps: int) -> ReleasedInterval | None:
        page, me, terms = self.page, self.me, self.terms
        self._check_room(arm)
        assert page.noise_due is not None and page.interval is not None  # noqa: S101, PT018  # there is a ledger
        noise, completed = 0, None
        end = page.noise_due(me, terms, arm)
        if end:
            first, level = page.interval(me, terms, arm, end)
            noise, completed = ledger.draw(arm, first, end, level), ReleasedInterval(level, first, end)
        page.observe(me, terms, arm, steps, noise)
        return completed

    def _check_room(self, arm: int) -> None:
        n = self.me.n[arm] + 1
        if self.max_pulls is not None and n > self.max_pulls:
            raise InvalidArgument(
                "max_pulls", self.max_pulls, f"at least {n} for pull {n} of arm {arm}", "The tree's epsilon is spent."
            )

    def published(self, arm: int) -> tuple[float, ...]:
        """What others see of an arm where releases spread; it does not depend on how many sites there are."""
        publish: Any = self.page.published
        recount = self.page.recount
        if publish is None:
            return tuple(_numbers_of([getattr(self.me, name)[arm] for name in self.page.records]))
        if self.terms is self._fixed or recount is None or not self._is_released(arm):
            return tuple(float(x) for x in publish(self.me, self._fixed, arm))
        recount(self.me, self._fixed, arm)
        row = tuple(float(x) for x in publish(self.me, self._fixed, arm))
        recount(self.me, self.terms, arm)
        return row

    def epsilon(self, group: int = 1) -> float:
        """What somebody with ``group`` rewards pays at most, in however many releases they lie."""
        group = whole_number("group", group, 1, MAX_GROUP)
        return inf if self.ledger is None else group * self.ledger.epsilon()

    # ---------------------------------------------------------------- a lost file

    def take_back(self, arm: int, releases: int, row: tuple[float, ...]) -> None:
        """Enter what a lost file had released of an arm, of which nothing is known here: ``row`` is what it published.

        Sizes of batches follow from their number, so the ledger never draws for these rewards again.
        """
        page, me = self.page, self.me
        assert page.take_back is not None  # noqa: S101  # the caller has looked
        for _ in range(releases):
            page.take_back(me, self.terms, arm, private.skip_batch(me, arm), row)
        if self.ledger is not None and releases:
            self.ledger.restore({(arm, 0): me.released[arm]})

    def take_back_cells(self, arm: int, releases: int, row: tuple[float, ...], sizes: Sequence[int]) -> None:
        """The same of a page of strata; ``sizes``: the decisions of each stratum, all of which may be in releases."""
        assert self.page.take_back is not None and self.ledger is not None  # noqa: S101, PT018  # the caller has looked
        counted = private.skip_cells(self.me, arm, list(sizes))
        self.page.take_back(self.me, self.terms, arm, counted, (float(releases), *row[1:]))
        self.ledger.restore({(arm, s): mark for s, mark in enumerate(sizes) if mark})

    # ---------------------------------------------------------------- a restart

    def kept(self, arm: int) -> dict[str, Any]:
        """All that must survive of an arm, by name (raw!); with ``plain.NO_ARM``, the single numbers.

        For as many sites as at first: a file does not change when sites come and go.
        """
        names, recount = self._kept[arm != plain.NO_ARM], self.page.recount
        if arm == plain.NO_ARM or self.terms is self._fixed or recount is None or not self._is_released(arm):
            return plain.kept(names, self.me, arm)
        recount(self.me, self._fixed, arm)
        row = plain.kept(names, self.me, arm)
        recount(self.me, self.terms, arm)
        return row

    def _is_released(self, arm: int) -> bool:
        return getattr(self.me, "released", self.me.n)[arm] > 0

    def restore(self, known: Mapping[int, Mapping[str, Any]], released: Mapping[tuple[int, int], int]) -> None:
        """Bring back what ``kept`` gave of each arm, and the ledger's marks, into a new mechanism.

        Refuses rows that are older than the marks: their noise would be drawn again.
        """
        for arm, fields in known.items():
            plain.restore(self.page, self.me, whole_number("arm", arm, plain.NO_ARM, self.num_arms - 1), fields)
        if self.ledger is None:
            if released:
                raise InvalidArgument("released", dict(released), "empty for a policy without noise")
            return
        self.ledger.restore(released)
        if self.has_cells:
            self._check_cells(self.ledger)
            return
        assert self.page.interval is not None  # noqa: S101  # there is a ledger
        for arm in range(self.num_arms):
            n = self.me.n[arm]
            if self.max_pulls is not None and n > self.max_pulls:
                raise InvalidArgument(f"n of arm {arm}", n, f"at most {self.max_pulls}")
            first, level = self.page.interval(self.me, self.terms, arm, n + 1)
            mark = max(self.ledger.released_up_to(arm, level) for level in range(self.ledger.levels))
            if mark > n or self.ledger.released_up_to(arm, level) >= first:
                raise InvalidArgument(f"n of arm {arm}", n, f"that of a row as new as the release up to pull {mark}")
            told = getattr(self.me, "released", self.me.n)[arm]
            next_end = getattr(self.me, "batch_end", [n + 1] * self.num_arms)[arm]
            if mark != told or next_end <= n:
                accepted = f"one that fits the release up to pull {mark}"
                raise InvalidArgument(f"row of arm {arm}", f"{n} rewards", accepted)

    def _check_cells(self, ledger: Ledger) -> None:
        """Refuse cells that do not fit the ledger's marks, or the arm that they add up to."""
        me = self.me
        for arm in range(self.num_arms):
            marks = [ledger.released_up_to(arm, r) for r in range(self.num_strata)]
            for r, mark in enumerate(marks):
                if me.marks[arm][r] != mark or me.cells[arm][r] < mark:
                    accepted = f"one that fits the release up to pull {mark}"
                    raise InvalidArgument(f"row of arm {arm}, stratum {r}", f"{me.cells[arm][r]} rewards", accepted)
            if (me.n[arm], me.released[arm]) != (sum(me.cells[arm]), sum(marks)):
                raise InvalidArgument(f"n of arm {arm}", me.n[arm], f"{sum(me.cells[arm])}, those of its strata")


def _numbers_of(part: Any) -> Iterator[float]:
    if isinstance(part, list):
        for it in cast("list[Any]", part):
            yield from _numbers_of(it)
    else:
        yield float(part)


def _range(low: float, high: float) -> tuple[float, float]:
    low, high = finite_number("low", low), finite_number("high", high)
    for name, value in (("low", low), ("high", high)):
        if abs(value) > LARGEST:
            raise InvalidArgument(name, value, f"at most {LARGEST:g} in size")
    if not low < high:
        raise InvalidArgument("high", high, f"above low ({low:g})")
    return low, high


def __dir__() -> list[str]:
    return __all__
