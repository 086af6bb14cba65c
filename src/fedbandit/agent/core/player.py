"""Plays the page of a site's policy: what the site has released, what the board shows it, what both say of an arm.

A page counts in steps of the grid; what people see is in units of the reward: here it is converted.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from fedbandit.agent.core.board import Board
from fedbandit.agent.core.bulletin import ArmEntry
from fedbandit.agent.core.counting import Row
from fedbandit.agent.core.federation import DAY, Federation
from fedbandit.agent.core.records import Known, Record, Released, Stored
from fedbandit.checks import InvalidArgument
from fedbandit.policies.plain import NO_ARM, Me, Seen, carry, narrowed, new_seen
from fedbandit.policies.protocol import Context, Now, time_of
from fedbandit.privacy.noise import NoiseSource, from_grid
from fedbandit.rules.radius import deviation
from fedbandit.rules.releases import mean_of_heard
from fedbandit.rules.strata_influence import packed, unpacked

LEAST_ELAPSED = DAY
"""A rate is measured over a day at least: a busy first hour says little about the years to come."""

MOST_NARROWED = 64
"""Sets of arms, each of which some request may have, for which beliefs are remembered."""

MOST_TAKEN_BACK = 10_000
"""Releases of an arm; no site has more."""


class Player:
    """A site's page, its own numbers, and what the board shows it; rows have an entry for each arm."""

    def __init__(self, federation: Federation, stored: Stored, noise: NoiseSource, num_arms: int) -> None:
        """As the journal knows it: what has been released is never drawn again; ``num_arms``: how many there are now.

        The page's fixed numbers are those of the terms.
        """
        self._federation, self.page, self._noise, self.num_arms = federation, federation.page, noise, num_arms
        self._own, self.num_strata = federation.mechanism(noise, num_arms), federation.num_strata
        self._own.restore(stored.known, stored.released)
        self.me, self.num_agents = self._own.me, federation.most_agents
        self.me.tried[:] = self.me.n  # decisions so far: those that were played, and those that wait
        self.cells = [list[int](self.me.cells[k]) if self.num_strata else [] for k in range(num_arms)]
        """Of each arm its decisions by stratum; empty where the page is told of none."""
        if "tried_in" in self.page.knows:
            self.me.tried_in = self.cells
        for decision in stored.decisions.values():
            if decision.is_open:
                self.hand_out(decision.arm, decision.stratum)
        most = federation.max_pulls
        if most is not None and max(self.me.tried) > most:  # ``decide`` leaves room for each: a file was changed
            raise InvalidArgument("decisions of an arm", max(self.me.tried), f"at most {most}: policy.horizon's")
        self.seen: Seen = new_seen(self.page, num_arms)
        self._unknown = [True] * num_arms
        self._single = stored.known.get(NO_ARM)  # as the journal knows them; None: it does not
        self._history = stored.history
        self._heard: dict[int, object] = {}
        self._frequencies = (1.0 / max(self.num_strata, 1),) * self.num_strata
        self._narrowed: dict[tuple[int, ...], tuple[Me, Seen]] = {}  # until a reward or a bulletin comes

    @property
    def terms(self) -> Any:
        """The numbers of the page: fixed, but for those that follow from how many sites take part."""
        return self._own.terms

    def grown(self, stored: Stored, num_arms: int) -> "Player":
        """The same with more arms, of which nothing is known yet; ``stored`` holds all that this one knows."""
        return Player(self._federation, stored, self._noise, num_arms)

    # ---------------------------------------------------------------- what the site owns

    def hand_out(self, arm: int, stratum: int | None, decisions: int = 1) -> None:
        """The arm was given to a patient of this stratum; with -1 it was not."""
        self.me.tried[arm] += decisions
        if self.num_strata and stratum is not None:
            self.cells[arm][stratum] += decisions

    @property
    def rewards(self) -> tuple[int, ...]:
        """How many rewards of each arm were taken, released or not; defaults are among them."""
        return tuple(self.me.n)

    @property
    def released(self) -> tuple[int, ...]:
        """How many of them others may have seen something of."""
        return tuple(getattr(self.me, "released", self.me.n))

    @property
    def releases(self) -> tuple[int, ...]:
        """How often something of an arm was released."""
        return tuple(getattr(self.me, "releases", self.me.n))

    def entries(self, names: Sequence[str]) -> tuple[ArmEntry, ...]:
        """What the site's bulletin says of its arms."""
        past = [self._history.get(k, 0) for k in range(self.num_arms)]
        cells, alone = map(tuple, self.cells), map(self._alone, range(self.num_arms))
        each = zip(names, self.releases, self.released, self.me.tried, past, cells, alone, strict=True)
        return tuple(ArmEntry(name, self._row(k), *counts) for k, (name, *counts) in enumerate(each))

    def _alone(self, arm: int) -> tuple[tuple[float, float, float], ...]:
        """Of each stratum what was released of it alone."""
        me = self.me
        if not self.num_strata:
            return ()
        found = (me.cell_mean[arm], me.cell_precision[arm], me.cell_square[arm])
        return tuple(
            (float(mean), float(precision), float(square)) for mean, precision, square in zip(*found, strict=True)
        )

    def _row(self, arm: int) -> Row:
        row = self._own.published(arm)
        return packed(row, self.num_strata) if self.num_strata else row

    @property
    def rate(self) -> float:
        """Decisions per second, by which the site counts where patients do; with strata those of all of them."""
        return sum(self._own.published(0)[1 : 1 + self.num_strata]) if self.num_strata else self.me.share

    @property
    def announces(self) -> bool:
        """Whether counts of decisions spread by maximum (Algorithm 1, line 5)."""
        return self.page.announced is not None

    @property
    def decided(self) -> int:
        """Decisions after the first of each arm of the terms: the paper's t, which never goes back."""
        return sum(self.me.tried) - self._federation.num_arms

    def take(self, rewards: Iterable[tuple[int, int | None, float]], elapsed: float) -> tuple[Record, ...]:
        """Take rewards of arms, each with its patient's stratum: what must be on disk before anybody sees what follows.

        ``elapsed``: seconds since the first decision, by which the site's rate is measured.
        """
        arms: dict[int, None] = {}
        released: list[Record] = []
        for arm, stratum, reward in rewards:
            arms[arm] = None
            if self.num_strata and stratum is not None:
                found = self._own.take_in(arm, stratum, reward)
            else:
                found = [] if (one := self._own.take(arm, reward)) is None else [one]
            released += [Released(arm, it.level, it.last) for it in found]
        return self._taken(arms, released, elapsed)

    def take_history(self, sums: Mapping[int, tuple[int, int]], elapsed: float) -> tuple[Record, ...]:
        """The same for rewards of before: of each arm how many, and their sum in steps."""
        released: list[Record] = []
        for arm, (rewards, total) in sums.items():
            self.me.tried[arm] += rewards
            released += [Released(arm, it.level, it.last) for it in self._own.take_history(arm, rewards, total)]
        return self._taken(sums, released, elapsed)

    def _taken(self, arms: Iterable[int], released: Sequence[Record], elapsed: float) -> tuple[Record, ...]:
        self._narrowed.clear()
        if released and self.page.reweigh is not None:
            self.page.reweigh(
                self.me, self.terms, max(elapsed, LEAST_ELAPSED, self.decided / self._federation.largest_rate)
            )
            if self.num_strata:  # the site's weights stand in the record of every arm
                arms = range(self.num_arms)
        known: list[Record] = [Known(arm, self._own.kept(arm)) for arm in arms]
        if known and (single := self._own.kept(NO_ARM)) and single != self._single:
            self._single = single
            known.append(Known(NO_ARM, single))
        return *known, *released

    @property
    def known(self) -> dict[int, dict[str, Any]]:
        """What the journal holds: of each arm that had a reward, and of the single numbers."""
        has_weights = self.num_strata > 0 and any(self.releases)
        rows = {k: self._own.kept(k) for k in range(self.num_arms) if self.me.n[k] > 0 or has_weights}
        return rows if self._single is None else {**rows, NO_ARM: self._single}

    @property
    def marks(self) -> dict[tuple[int, int], int]:
        """The last pull released of each arm and level."""
        return {} if self._own.ledger is None else self._own.ledger.marks

    # ---------------------------------------------------------------- what the board shows

    def look(self, board: Board, names: Sequence[str], num_agents: int) -> None:
        """Take in what the board says of these arms, in the order of their numbers, and how many sites take part."""
        if num_agents != self.num_agents:
            self.num_agents = num_agents
            self._own.count(num_agents)
        self._narrowed.clear()
        if self.num_strata:
            self._frequencies = _frequencies_of([row for name in names for row in board.rows(name)[0]], self.num_strata)
        page, arms = self.page, range(self.num_arms)
        for k in arms:
            rows, versions = board.rows(names[k])
            if not self._is_heard(k, rows, versions):
                for name, value in zip(page.averaged, self._combined(k, rows, versions), strict=True):
                    getattr(self.seen, name)[k] = value
            self._unknown[k] = self.me.n[k] == 0 or not any(versions)  # Alg. 1, line 1: a site tries every arm itself
        if self.num_strata:
            page.estimate(self.me, self.terms, self.seen, 0, Context(0))  # beliefs of all arms follow at once
        if page.believe is not None:
            for k in arms:  # only now: a page may compare arms
                page.believe(self.me, self.terms, self.seen, k)

    def _is_heard(self, arm: int, rows: Sequence[Row], versions: Sequence[int]) -> bool:
        """Whether a page of strata has combined just these already: that takes long."""
        if not self.num_strata:
            return False
        now = self.num_agents, tuple(rows), tuple(versions)
        is_known, self._heard[arm] = self._heard.get(arm) == now, now
        return is_known

    def _combined(self, arm: int, rows: Sequence[Row], versions: Sequence[int]) -> Sequence[float]:
        if self.page.receive is not None and self.page.recount is not None:
            self.page.recount(self.me, self.terms, arm)  # whatever the page remembers of earlier rows
            self.page.receive(self.me, self.terms, arm, rows, versions)
            return ()
        if self.page.combine is not None:
            return self.page.combine(self.terms, rows, versions)
        seen = [0.0] * len(self.page.averaged)
        mean_of_heard(rows, versions, [1.0] * len(versions), seen)
        return seen

    def is_unknown(self, arm: int) -> bool:
        """Whether the site cannot judge the arm yet."""
        return self._unknown[arm] if self.page.unknown is None else self.page.unknown(self.me, arm)

    def among(self, arms: Sequence[int]) -> tuple[Me, Seen]:
        """What the site knows and sees in a world of these arms alone."""
        key = tuple(arms)
        found = self._narrowed.get(key)
        if found is not None:
            carry(self.page, self.me, self.seen, *found, arms)
            return found
        if len(self._narrowed) == MOST_NARROWED:
            self._narrowed.clear()
        found = self._narrowed[key] = narrowed(self.page, self.terms, self.me, self.seen, arms, self.num_strata)
        return found

    @property
    def now(self) -> Now:
        """The time of the next decision: t counts the site's own, after the first of each arm."""
        return time_of(self.decided + 1)

    def context(self, stratum: int | None) -> tuple[Context, ...]:
        """What the page's functions are told of a decision beside all else."""
        return (Context(stratum),) if self.num_strata and stratum is not None else ()

    def estimate(self, arm: int, stratum: int | None = None) -> float | None:
        """In steps of the grid; None while the arm is unknown. Of a stratum, or else over all patients."""
        if self.is_unknown(arm):
            return None
        if self.num_strata and stratum is None:
            return sum(p * (self.estimate(arm, s) or 0.0) for s, p in enumerate(self.frequencies))
        return self.page.estimate(self.me, self.terms, self.seen, arm, *self.context(stratum))

    def theta(self, arm: int, stratum: int | None = None) -> float | None:
        """The estimate of the arm in units of the reward; None while it is unknown."""
        estimate = self.estimate(arm, stratum)
        return None if estimate is None else from_grid(estimate, self._federation.low, self._federation.high)

    def radius(self, arm: int, now: Now) -> float | None:
        """The uncertainty that the index uses, in units of the reward; None while the arm is unknown."""
        margin = self.page.margin or self.page.radius
        if margin is None or self.is_unknown(arm):
            return None
        if self.num_strata:
            return self.error(arm)
        return self._wide(margin(self.me, self.terms, self.seen, now, arm))

    def error(self, arm: int, stratum: int | None = None) -> float | None:
        """The standard deviation of the estimate, in units of the reward; None while the arm is unknown.

        Never less than that of the index, which takes others to know as much as this site once it has released the arm.
        Over all patients it is the mean of those of strata: at least as much, however strata hang together.
        """
        if self.num_strata and not self.is_unknown(arm):
            if stratum is None:
                return sum(p * (self.error(arm, s) or 0.0) for s, p in enumerate(self.frequencies))
            return self._wide(self.me.error[stratum][arm])
        if self.is_unknown(arm) or "sampling" not in self.page.averaged:
            return None
        return self._wide(max(deviation(self.seen.sampling[arm] + self.seen.missing[arm]), self.me.spread[arm]))

    @property
    def matters(self) -> float:
        """The chance that strata change any arm by more than is negligible."""
        return self.me.matters

    @property
    def frequencies(self) -> tuple[float, ...]:
        """How often each stratum comes, by the weights of all sites; alike where nobody has measured them."""
        return self._frequencies

    def _wide(self, steps: float) -> float:
        return from_grid(steps, 0.0, self._federation.high - self._federation.low)


def _frequencies_of(rows: Iterable[Row], num_strata: int) -> tuple[float, ...]:
    weights = [0.0] * num_strata
    for row in rows:
        for s in range(num_strata):
            weights[s] += row[1 + s]
    total = sum(weights)
    return tuple(it / total if total > 0.0 else 1.0 / num_strata for it in weights)


# ---------------------------------------------------------------- a lost file


def taken_back(
    terms: Federation,
    names: Sequence[str],
    stored: Stored,
    entries: Mapping[str, ArmEntry],
    unreleased: Collection[str],
) -> list[Record]:
    """Records of what an earlier file had released of arms of which this one has released nothing itself.

    Rewards of the open batch stay in it. Nothing if the page cannot.
    """
    page = terms.page
    if page.take_back is None:
        return []
    known: list[Record] = []
    released: list[Record] = []
    mechanism = terms.mechanism(num_arms=len(names))
    for k, name in enumerate(names):
        it, fields = entries.get(name), stored.known.get(k)
        if it is None or name not in unreleased or not 0 < it.releases <= MOST_TAKEN_BACK:
            continue
        if num_strata := terms.num_strata:
            mechanism.take_back_cells(k, it.releases, unpacked(it.row, num_strata), it.cells)
            row = mechanism.kept(k)
            if fields is not None:
                row |= _with_open_cells(row, fields)
            known.append(Known(k, row))
            marks = ((s, mark) for s, mark in enumerate(row["marks"]) if mark > stored.released.get((k, s), 0))
            released += [Released(k, s, mark) for s, mark in marks]
            continue
        mechanism.take_back(k, it.releases, it.row)
        row = mechanism.kept(k)
        if fields is not None:
            row |= {"n": row["n"] + fields["n"] - fields["released"], "total": fields["total"]}
        known.append(Known(k, row))
        released.append(Released(k, 0, row["released"]))
    if known and NO_ARM not in stored.known:
        known.append(Known(NO_ARM, mechanism.kept(NO_ARM)))
    return [*known, *released]


def _with_open_cells(row: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Rewards of this file that are in no release stay where they are, behind those that were taken back."""
    still = [n - mark for n, mark in zip(fields["cells"], fields["marks"], strict=True)]
    cells = [mark + n for mark, n in zip(row["marks"], still, strict=True)]
    return {"cells": cells, "n": sum(cells), "totals": fields["totals"]}
