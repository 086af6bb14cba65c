"""The page of strata at live sites: cells and pooled sums with one draw each, records on boards, restarts, liars."""

from collections import Counter
from contextlib import closing
from dataclasses import replace
from math import inf
from random import Random

import numpy as np
import pytest

from fedbandit import Client, FedBatch, GossipUCB, InvalidArgument, replay
from fedbandit.agent.core.arms import BYTES_FOR_STOPS, MAX_ADDED
from fedbandit.agent.core.board import Board
from fedbandit.agent.core.bulletin import LARGE_BODY, ArmEntry, Bulletin, Signed, decode
from fedbandit.agent.core.context import Factors
from fedbandit.agent.core.counting import Counting
from fedbandit.agent.core.decisions import Request, SiteDraws
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.history import History, PastRewards, check_history
from fedbandit.agent.core.records import Numbering, Released, Stored
from fedbandit.agent.core.site import Site
from fedbandit.agent.disk.journal import JournalError, SqliteJournal
from fedbandit.cli import status_view
from fedbandit.cli.status_view import seen_at
from fedbandit.privacy.ledger import AlreadyReleased, Ledger
from fedbandit.privacy.noise import GRID
from fedbandit.rules.private import ALONE, POOLED
from fedbandit.rules.strata import length_of_record
from fedbandit.rules.strata_influence import bounded_record, packed, packed_length, unpacked
from fedbandit.rules.urn import MOST_APART
from fedbandit.testing.memory_network import MemoryNetwork
from fedbandit.world import graph
from live import serving
from sites_on_tape import SitesOnTape, tape_on_the_grid

ARMS = ("a", "b", "c")
FACTORS = Factors.of({"age": ("young", "middle", "old")})
TERMS = Federation("test", ARMS, 0.0, 1.0, FedBatch(1.0, context="strata"), context=FACTORS, max_agents=3)
STRATA = FACTORS.num_strata
CENTRE = SiteDraws((0.0,) * len(ARMS), 0.0)


def new_site(terms=TERMS, noise=lambda _, count: [0] * count, stored=None, name="here"):
    return Site(name, terms, stored or Stored(Numbering(1, 0), key=b"key"), noise)


def treat(site, arm, stratum, reward, at=1.0):
    """A patient of this stratum, who can have this arm alone."""
    request = Request((arm,), context=FACTORS.levels(stratum))
    decided = site.decide(at, [CENTRE], request)
    reported = site.report(decided.result[0].id, reward)
    return [*decided.records, *reported.records]


# ---------------------------------------------------------------- the ledger


def test_one_release_of_several_cells_has_one_draw():
    drawn = []
    ledger = Ledger(2, 1.0, noise=lambda _, count: drawn.append(count) or [7], cells=3)
    assert ledger.draw_sum(0, [(0, 1, 4), (2, 1, 1)]) == 7
    assert drawn == [1]
    assert ledger.marks == {(0, 0): 4, (0, 2): 1}
    assert ledger.epsilon() == 1.0, "whatever the number of cells: a reward lies in one"


@pytest.mark.parametrize("parts", [[(0, 3, 5), (1, 1, 2)], [(1, 1, 2), (0, 4, 5)]])
def test_a_release_with_one_released_reward_draws_nothing_and_marks_nothing(parts):
    ledger = Ledger(1, 1.0, noise=lambda _, count: [0] * count, cells=2)
    ledger.draw_sum(0, [(0, 1, 4)])
    with pytest.raises(AlreadyReleased):
        ledger.draw_sum(0, parts)
    assert ledger.marks == {(0, 0): 4}


def test_parts_are_of_different_cells():
    ledger = Ledger(1, 1.0, noise=lambda _, count: [0] * count, cells=2)
    for parts in ([], [(0, 1, 1), (0, 2, 2)]):
        with pytest.raises(InvalidArgument, match="parts must be pulls of one level, or of different cells"):
            ledger.draw_sum(0, parts)
    with pytest.raises(InvalidArgument, match="parts"):
        Ledger(1, 1.0, 2).draw_sum(0, [(0, 1, 1), (1, 1, 1)])


# ---------------------------------------------------------------- who gets an arm that nobody knows yet


def draws_from(source):
    return SiteDraws(tuple(source.gauss(0.0, 1.0) for _ in ARMS), source.random())


def chances_of(counts):
    """16 balls for an arm with the fewest decisions in the stratum, and half as many for each that it is ahead."""
    balls = [16 >> min(n - min(counts), 4) for n in counts]
    return [it / sum(balls) for it in balls]


@pytest.mark.parametrize("seed", range(3))
def test_arms_are_balanced_in_each_stratum_whatever_happens(seed, tmp_path):
    """Decisions, rewards, cancellations and restarts, while all arms are unknown: the answer states its exact chance.

    No two arms are further apart in any stratum than the urn's bound, by chance in less than one of 10^8 runs.
    """
    source, n = Random(seed), [[0] * len(ARMS) for _ in range(STRATA)]  # noqa: S311
    terms = replace(TERMS, policy=FedBatch(1.0, context="strata", first_batch=10**6))
    furthest, cancelled = 0, 0
    for _ in range(4):  # starts
        with closing(SqliteJournal(tmp_path / "state.sqlite", "here", terms, 1)) as journal:
            site = new_site(terms, stored=journal.load())
            for _ in range(100):
                s = source.choice([0, 0, 0, 0, 0, 1, 1, 2])
                step = site.decide(1.0, [draws_from(source)], Request(context=FACTORS.levels(s)))
                (decision,), records = step.result, [*step.records]
                assert decision.propensity == pytest.approx(chances_of(n[s])[decision.arm], rel=1e-12)
                n[s][decision.arm] += 1
                if source.random() < 0.2:
                    cancelled += 1
                    n[s][decision.arm] -= 1
                    records += site.cancel(decision.id, 1.0).records
                elif source.random() < 0.7:
                    records += site.report(decision.id, source.random()).records
                journal.commit(records)
                assert [list(column) for column in zip(*site._player.me.tried_in, strict=True)] == n
                furthest = max(furthest, *(max(row) - min(row) for row in n))
    assert cancelled > 20
    assert 2 <= furthest <= MOST_APART


def test_people_are_told_the_whole_deviation_of_an_estimate():
    """Draws cover what own pulls can remove; what arms are like at two sites that released nothing is uncertain."""
    terms = replace(TERMS, counts="sites")
    site = new_site(terms)
    for name in ("s1", "s2"):
        silent = Bulletin(terms.digest(), name, 1, 1, 0, decisions=0, arms=())
        site.board.merge(Signed(silent.encode(), b"", b""), 1.0)
    for i in range(600):
        treat(site, i % 3, i // 3 % 3, 0.5)
    player = site._looking
    for k in range(len(ARMS)):
        for s in range(STRATA):
            assert player.error(k, s) > 3.0 * player.me.spread[s][k] / GRID


def test_the_chance_of_each_arm_is_exact_while_some_are_unknown():
    """What 4,000 draws give, among all arms and among those that a request may have: within 6 standard errors."""
    terms = replace(TERMS, policy=FedBatch(8.0, context="strata", first_batch=4))
    for allowed in (None, (0, 2), (1, 2)):
        site, source = new_site(terms), Random(5)  # noqa: S311
        for arm, stratum in [(0, 0)] * 9 + [(1, 1)] * 8 + [(2, 2)] * 2:
            treat(site, arm, stratum, arm / 2)
        request = Request(allowed, context=FACTORS.levels(1))
        found, stated = Counter(), {}
        for _ in range(4_000):
            (decision,) = site.decide(1.0, [draws_from(source)], request).result
            site.cancel(decision.id, 1.0)
            found[decision.arm] += 1
            stated[decision.arm] = decision.propensity
        among = range(3) if allowed is None else allowed
        assert sum(stated.values()) == pytest.approx(1.0, abs=0.02), "chances of draws are exact within 0.01"
        for k in among:
            assert abs(found[k] / 4_000 - stated[k]) < 6 * (0.25 / 4_000) ** 0.5 + 0.01
        assert stated[2] == 16 / 20, "of one unknown arm beside what is known"


# ---------------------------------------------------------------- releases


class Noted:
    """Noise in the order of draws: what a release adds."""

    def __init__(self, seed):
        self._random, self.drawn = Random(seed), []  # noqa: S311

    def __call__(self, epsilon, count):
        self.drawn += [round(self._random.expovariate(1.0) * GRID)] * count
        return self.drawn[-count:]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("counts", ["sites", "patients"])
def test_each_reward_lies_in_one_release_and_each_release_has_one_draw(seed, counts):
    """Random patients: releases are disjoint, and what they add up to is what the record says."""
    pick, noise = Random(seed), Noted(seed)  # noqa: S311
    site = new_site(replace(TERMS, counts=counts), noise)
    steps = {(k, s): [] for k in range(len(ARMS)) for s in range(STRATA)}
    marks = dict.fromkeys(steps, 0)
    sums = 0
    for _ in range(400):
        arm, stratum = pick.choice([0, 0, 0, 1, 2]), pick.choice([0, 0, 0, 0, 1, 1, 2])
        reward = pick.randint(0, GRID) / GRID
        drawn = len(noise.drawn)
        records = treat(site, arm, stratum, reward)
        steps[arm, stratum].append(reward)
        released = [it for it in records if isinstance(it, Released)]
        me = site._player.me
        alone = sum(1 for it in released if me.part[it.level] == ALONE)
        pooled = [it for it in released if me.part[it.level] == POOLED]
        assert len(noise.drawn) - drawn == alone + bool(pooled), "one draw for each sum"
        sums += alone + bool(pooled)
        for it in released:
            assert it.last > marks[it.arm, it.level], "disjoint"
            assert it.last <= len(steps[it.arm, it.level])
            marks[it.arm, it.level] = it.last
    assert site.stored.released == {cell: mark for cell, mark in marks.items() if mark}
    assert sum(site.releases) == sums
    assert sum(marks.values()) == sum(site.released)
    assert sums > 12, "cells alone and pooled sums"
    for entry in site._entries():
        assert entry.row[0] == entry.releases
        assert len(entry.row) == packed_length(STRATA)
        assert sum(entry.cells) == entry.decisions


def test_nobody_who_looks_changes_what_is_released():
    """Batches depend on what strata mean, which follows from the board: not from who has asked for it."""

    def played(looks):
        network = MemoryNetwork(TERMS, [("n", "s")], seed=5)
        pick = Random(3)  # noqa: S311
        for t in range(300):
            for name in ("n", "s"):
                stratum = pick.randrange(STRATA)
                decided = network.decide(name, context=FACTORS.levels(stratum))
                network.exchange("n", "s")
                network.run()
                if looks and t % 3 == 0:
                    assert network.site(name).answer is not None
                network.report(name, decided.id, float(pick.random() < (0.2, 0.5, 0.8)[(decided.arm + stratum) % 3]))
        return [network.site(name)._entries() for name in ("n", "s")]

    assert played(looks=False) == played(looks=True)


def test_sites_learn_the_arm_of_each_stratum():
    """The best arm of a stratum is the worst of another: it is given to 9 of 10 patients after 400 at each site."""
    network, pick = MemoryNetwork(TERMS, [("n", "s"), ("s", "e")], seed=3), Random(1)  # noqa: S311
    given = right = 0
    for t in range(600):
        for name in ("n", "s", "e"):
            stratum = pick.randrange(STRATA)
            decided = network.decide(name, context=FACTORS.levels(stratum))
            if t >= 400:
                given, right = given + 1, right + (decided.arm == stratum)
            network.report(name, decided.id, float(pick.random() < (0.8 if decided.arm == stratum else 0.3)))
        for link in network.links:
            network.exchange(*link)
        network.run()
    assert right > 0.9 * given
    site = network.site("n")
    assert not site.oddities(network.now), "nothing odd of honest sites"
    assert all(chance is None or 0.0 <= chance <= 1.0 for chance in site.answer.chances)


@pytest.mark.slow
@pytest.mark.parametrize(("num_strata", "epsilon", "first_batch"), [(2, 8.0, 4), (3, 2.0, None)])
def test_live_sites_give_the_arms_of_the_simulator(num_strata, epsilon, first_batch):
    """On one tape of rewards, noise, draws, strata and exchanges."""
    horizon, policy = 250, FedBatch(epsilon, context="strata", first_batch=first_batch)
    tape, noise = tape_on_the_grid(graph.path(4), 3, horizon, 7, 0.0, 1.0, epsilon, num_strata=num_strata)
    tape = replace(tape, bounded=True)
    simulated, live = replay(tape, policy), SitesOnTape(tape, noise, policy)
    for t in range(1, horizon + 1):
        assert list(live.play(t).values()) == simulated.arms[t - 1].tolist(), t
    theta = [[site._looking.theta(k, s) for s in range(num_strata) for k in range(3)] for site in live.sites]
    np.testing.assert_allclose(simulated.theta[-1], theta, rtol=1e-9)
    assert min(min(site.releases) for site in live.sites) > 0


@pytest.mark.parametrize("counts", ["sites", "patients"])
def test_estimates_are_over_the_sites_that_take_part(counts):
    """However many were expected: two sites that have seen much know the mean, also where a hundred may come."""
    terms = replace(TERMS, counts=counts, max_agents=100)
    network, pick = MemoryNetwork(terms, [("n", "s")], seed=2), Random(3)  # noqa: S311
    for _ in range(400):
        for name in ("n", "s"):
            stratum = pick.randrange(STRATA)
            decided = network.decide(name, context=FACTORS.levels(stratum))
            network.report(name, decided.id, float(pick.random() < (0.8 if decided.arm == 0 else 0.3)))
        network.exchange("n", "s")
        network.run()
    site = network.site("n")
    assert abs(site.theta[0] - 0.8) < 6 * 0.4 / 500**0.5
    assert site.errors[0] < 0.05


# ---------------------------------------------------------------- disk


@pytest.mark.parametrize("window", [0.0, 5.0])
def test_a_restart_at_any_time_changes_nothing(tmp_path, window):
    """A site that is loaded from its file before each event, beside one that runs on: the same arms and bulletins."""
    terms = replace(TERMS, reward_window=window)
    pick, noises = Random(7), [Noted(1), Noted(1)]  # noqa: S311
    steady = new_site(terms, noises[0])
    with closing(SqliteJournal(tmp_path / "state.sqlite", "here", terms, 1)) as journal:
        steady._stored.key = journal.load().key
        for number in range(250):
            draws = SiteDraws(tuple(pick.gauss(0, 1) for _ in ARMS), pick.random())
            request = Request(context=FACTORS.levels(pick.randrange(STRATA)))
            reward, at, cancels = pick.random(), float(number), pick.random() < 0.05
            reports = pick.random() < 0.9 or not window
            found = []
            for site in (steady, new_site(terms, noises[1], journal.load())):
                steps = [site.settle(at), site.decide(at, [draws], request)]
                name = steps[-1].result[0].id
                if cancels:
                    steps.append(site.cancel(name, at))
                elif reports:
                    steps.append(site.report(name, reward))
                found.append((steps[1].result[0].arm, site._entries(), site.theta))
            for step in steps:
                journal.commit(step.records)
            assert found[0] == found[1], number
        assert sum(steady.releases) > 5
        assert steady.stored.known == journal.load().known


def test_a_file_from_before_a_release_is_refused(tmp_path):
    with closing(SqliteJournal(tmp_path / "state.sqlite", "here", TERMS, 1)) as journal:
        site = new_site(stored=journal.load())
        while not any(site.releases):
            records = treat(site, 0, 1, 0.5)
            released = [it for it in records if isinstance(it, Released)]
            journal.commit(released or records)  # of the last step only the mark
    with (
        pytest.raises(JournalError, match=r"row of arm 0, stratum 1 must be one that fits the release up to pull"),
        closing(SqliteJournal(tmp_path / "state.sqlite", "here", TERMS, 1)) as journal,
    ):
        journal.load()


def test_a_site_that_lost_its_file_goes_on_with_what_it_had_released():
    """The same records, bit for bit, and patients; nothing is drawn for what may have been released."""
    network, pick = MemoryNetwork(TERMS, [("n", "s")], seed=5, spreads=True), Random(3)  # noqa: S311

    def treat_all(count):
        for _ in range(count):
            for name in ("n", "s"):
                decided = network.decide(name, context=FACTORS.levels(pick.randrange(STRATA)))
                network.report(name, decided.id, float(pick.random() < 0.5))
            network.exchange("n", "s")
            network.run()

    treat_all(200)
    before = network.site("n").board.held("n").bulletin
    assert sum(it.releases for it in before.arms) > 5
    network.lose_disk("n")
    network.restart("n")
    for _ in range(3):
        network.exchange("n", "s")
        network.run()
    site = network.site("n")
    after = {it.name: it for it in site._entries()}
    for it in before.arms:
        if it.releases:
            assert (after[it.name].row, after[it.name].releases) == (it.row, it.releases)
            assert after[it.name].cells == it.cells
            k = ARMS.index(it.name)
            assert all(site.stored.released.get((k, s), 0) == n for s, n in enumerate(it.cells))
    assert site.theta == network.site("s").theta
    treat_all(200)
    assert sum(network.site("n").releases) > sum(it.releases for it in before.arms), "it goes on"
    assert not network.site("s").drawn_twice


def test_a_cell_is_never_released_twice_on_disk(tmp_path):
    with closing(SqliteJournal(tmp_path / "state.sqlite", "here", TERMS, 1)) as journal:
        journal.commit([Released(0, 1, 5), Released(0, 2, 5)])
        with pytest.raises(JournalError, match="pull 5 of arm 0 has been released already at level 1"):
            journal.commit([Released(0, 1, 5)])


# ---------------------------------------------------------------- bulletins, and who lies in them


def honest_entries(terms, seed, patients=300):
    """What an honest site says after some patients, with real noise."""
    pick = Random(seed)  # noqa: S311
    width = GRID / terms.policy.epsilon
    site = new_site(terms, lambda _, count: [round(pick.choice((1, -1)) * pick.expovariate(1.0) * width)] * count)
    for _ in range(patients):
        treat(site, pick.randrange(3), pick.choice([0, 0, 0, 1, 1, 2]), pick.random())
    return site._entries()


@pytest.mark.parametrize("counts", ["sites", "patients"])
def test_what_honest_sites_say_counts_bit_for_bit(counts):
    terms = replace(TERMS, counts=counts)
    counting = Counting(terms)
    for seed in range(8):
        for entry in honest_entries(terms, seed):
            assert counting.row(entry) == unpacked(entry.row, STRATA)
            assert packed(counting.row(entry), STRATA) == entry.row


NUMBERS = (0.0, 1.0, -1.0, 1e-300, 1e6, -1e6, 1e300, -1e300, 0.3)


@pytest.mark.parametrize("counts", ["sites", "patients"])
def test_whatever_a_site_says_moves_no_estimate_beyond_its_bound(counts):
    """Three honest sites, who agree on 0.5, and a liar: estimates stay finite and near the range; nothing fails.

    Where no noise is left to explain it, 0.75 ranges is far more than the liar's quarter of the average.
    """
    terms = replace(TERMS, counts=counts)
    pick = Random(11)  # noqa: S311
    honest = [Bulletin(terms.digest(), f"s{i}", 1, 1, 0, decisions=900, arms=_entries_of(terms, i)) for i in range(3)]
    for case in range(150):
        board = Board("s0", terms)
        for it in honest:
            board.merge(Signed(it.encode(), b"", b""), 1.0)
        row = tuple(pick.choice(NUMBERS) for _ in range(packed_length(STRATA)))
        if case % 3 == 0:  # as precise as can be, at the end of the range
            diagonal = (1e9 if k in (0, 2, 5) else 0.0 for k in range(6))
            row = (1.0, 1.0, 1.0, 1.0, *[pick.choice((5e8, -5e8, 1e12))] * 3, *diagonal)
        rewards = pick.choice([0, 30, 10**6, 10**12])
        liar = ArmEntry("a", row, pick.choice([0, 1, 5, 10**6]), rewards, rewards, 0, (rewards, 0, 0), (row[:3],) * 3)
        lie = Bulletin(terms.digest(), "liar", 1, 1, 0, decisions=rewards, arms=(liar,))
        assert board.merge(Signed(lie.encode(), b"", b""), 1.0).kind == "new"
        site = new_site(terms, name="s0")
        site.board = board
        theta, errors = site.theta, site.errors
        for value, error in zip(theta, errors, strict=True):
            assert value is None or (-inf < value < inf and error > 0.0)
        if theta[0] is not None and rewards >= 10**6 and counts == "sites":
            assert abs(theta[0] - 0.5) < 0.75, (row, theta)
        _ = board.oddities(2.0), site.answer, site.weights, site.own_means


def _entries_of(terms, seed):
    pick = Random(seed)  # noqa: S311
    site = new_site(terms, name=f"s{seed}")
    for _ in range(900):
        treat(site, pick.randrange(3), pick.randrange(3), float(pick.random() < 0.5))
    return site._entries()


def test_precisions_that_no_releases_have_count_as_none():
    weights = [1.0, 1.0]
    negative = (1.0, 1.0, 1.0, 3.0, 3.0, 4.0, 5.0, 5.0, 4.0)  # of the pair 5: its square is more than 4 x 4
    assert bounded_record(negative, weights, 1, 100, 100.0) == (0.0, 1.0, 1.0, *[0.0] * 6)
    fine = (1.0, 1.0, 1.0, 3.0, 3.0, 4.0, 2.0, 2.0, 4.0)
    assert bounded_record(fine, weights, 1, 100, 100.0) == fine
    assert bounded_record(fine, weights, 1, 3, 1.0) == (1.0, 1.0, 1.0, 0.75, 0.75, 1.0, 0.5, 0.5, 1.0), "three"
    wild = bounded_record((1.0, 1.0, 1.0, 1e9, -1e9, 1e6, 0.0, 0.0, 1e6), weights, 1, 10**9, 1.0)
    assert 0.5e6 < wild[3] == -wild[4] < 0.55e6, "a mean at the end of the range, and noise"


@pytest.mark.parametrize("seed", range(3))
def test_a_record_is_what_its_lower_triangle_says(seed):
    pick, size = Random(seed), 2 + seed  # noqa: S311
    half = [[pick.random() for _ in range(size)] for _ in range(size)]
    matrix = [half[max(s, r)][min(s, r)] for s in range(size) for r in range(size)]
    record = (*[pick.random() for _ in range(1 + 2 * size)], *matrix)
    assert len(record) == length_of_record(size)
    assert len(packed(record, size)) == packed_length(size)
    assert unpacked(packed(record, size), size) == record


@pytest.mark.parametrize("levels", [2, 24])
def test_bulletins_carry_all_cells(levels):
    """Also of as many strata as there can be."""
    sizes = {2: {"x": 2}, 24: {"x": 4, "y": 6}}[levels]
    factors = Factors.of({name: [f"{name}{i}" for i in range(n)] for name, n in sizes.items()})
    terms = replace(TERMS, context=factors)
    pick = Random(2)  # noqa: S311
    row = tuple(pick.uniform(-1e3, 1e3) for _ in range(packed_length(levels)))
    alone = ((0.5, 1e3, 1e-9),) * levels
    entries = tuple(ArmEntry(name, row, 3, 40, 41, cells=(41,) + (0,) * (levels - 1), alone=alone) for name in ARMS)
    body = Bulletin(terms.digest(), "north", 1, 1, 0, decisions=123, arms=entries).encode()
    assert decode(body, terms.num_columns, levels).arms == entries
    with pytest.raises(InvalidArgument, match=rf"arms\[0\].row must be a list of {terms.num_columns + 1}"):
        decode(body, terms.num_columns + 1, levels)
    with pytest.raises(InvalidArgument, match=rf"arms\[0\].cells must be a list of {levels + 1}"):
        decode(body, terms.num_columns, levels + 1)
    with pytest.raises(InvalidArgument, match=r"arms\[0\] must be a list of 6"):
        decode(body, terms.num_columns)
    bad = replace(entries[0], cells=(-1,) + (0,) * (levels - 1))
    body = Bulletin(terms.digest(), "north", 1, 1, 0, decisions=123, arms=(bad,)).encode()
    with pytest.raises(InvalidArgument, match=r"arms\[0\].cells must be a whole number from 0"):
        decode(body, terms.num_columns, levels)


def test_the_fullest_bulletin_of_the_most_strata_has_room():
    """Twenty arms in 24 strata, and as many as can be added: whatever their numbers, a stop still goes out."""
    factors = Factors.of({"x": [f"x{i}" for i in range(4)], "y": [f"y{i}" for i in range(6)]})
    arms = tuple(f"arm {i}" for i in range(20))
    terms = replace(TERMS, context=factors, arms=arms)
    row = (-1.2345678901234567e-300,) * terms.num_columns
    cells = (10**12,) * factors.num_strata
    entries = tuple(
        ArmEntry(name, row, 10**12, 10**12, 10**12, 10**6, cells, (row[:3],) * factors.num_strata)
        for name in (*arms, *("\N{SNOWMAN}" * 64 + str(k) for k in range(MAX_ADDED)))
    )
    body = Bulletin(terms.digest(), "north", 1, 1, 0, decisions=10**12, arms=entries).encode()
    assert len(body) + terms.room_for_changes <= LARGE_BODY
    assert terms.room_for_changes >= 2 * BYTES_FOR_STOPS


@pytest.mark.parametrize("bad", [(1.0, 2.0), (1.0, 2.0, 3), (1.0, 2.0, True)])
def test_what_was_released_alone_is_three_numbers(bad):
    entry = replace(_entries_of(TERMS, 0)[0], alone=(bad,) * STRATA)
    body = Bulletin(TERMS.digest(), "north", 1, 1, 0, decisions=900, arms=(entry,)).encode()
    with pytest.raises(InvalidArgument, match=r"arms\[0\].alone\[0\] must be a"):
        decode(body, TERMS.num_columns, STRATA)


def test_a_site_whose_cells_do_not_add_up_is_named():
    liar = replace(_entries_of(TERMS, 0)[0], cells=(1, 2, 3))
    board = Board("s0", TERMS)
    board.merge(Signed(Bulletin(TERMS.digest(), "liar", 1, 1, 0, decisions=900, arms=(liar,)).encode(), b"", b""), 1.0)
    assert board.oddities(2.0)["liar"] == (f"a: its decisions by stratum add up to 6, not {liar.decisions}",)


# ---------------------------------------------------------------- terms


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"context": None}, r"policy.context must be ignore unless \[federation.context\] names factors"),
        ({"policy": FedBatch(1.0, context="separate")}, "policy.context must be strata, or ignore, not 'separate'"),
    ],
)
def test_terms_that_do_not_fit_are_refused(change, says):
    with pytest.raises(InvalidArgument, match=says):
        replace(TERMS, **change)


def test_contexts_may_be_recorded_without_being_told():
    for policy in (FedBatch(1.0), GossipUCB()):
        terms = replace(TERMS, policy=policy)
        assert terms.num_strata == 0
        site = new_site(terms)
        treat(site, 0, 2, 1.0)
        assert [it.stratum for it in site.stored.decisions.values()] == [2]


def test_the_promise_says_what_members_see_of_strata():
    said = new_site().privacy()
    assert "an outcome is in one of them" in said.mechanism
    assert said.epsilon_per_reward == 1.0
    assert said.promise.endswith("of each stratum (age) members may see how many of its patients had which arm.")
    assert "stratum" not in new_site(replace(TERMS, policy=FedBatch(1.0))).privacy().promise


# ---------------------------------------------------------------- the answer


RENAL = Factors.of({"age": ("under 40", "40 to 65", "over 65"), "renal": ("normal", "impaired")})


def said_of(leaders, matters=0.95, sure=0.9):
    """The words where these arms lead in the strata, one letter for each."""
    from fedbandit.agent.core.answer import Belief, answer_of
    from fedbandit.agent.core.strata_answer import answers_of_strata, words_of_strata

    theta = [[0.7 if arm == leader else 0.6 for arm in "abc"] for leader in leaders]
    errors = [[0.05 if sure < 1 else 0.001] * 3] * len(leaders)
    belief = Belief(("a", "b", "c"), ["active"] * 3, theta[0], errors[0], [1.0] * 3, "over all patients of 3 sites")
    strata = answers_of_strata(belief, theta, errors, [1 / 6] * 6, [["active"] * 3] * 6)
    return words_of_strata(belief, RENAL, strata, answer_of(belief), matters)


@pytest.mark.parametrize(
    ("leaders", "says"),
    [
        ("aaaabb", "Over 65: b, 86 % sure; all others: a, 86 % sure."),
        ("bababa", "Normal: b, 86 % sure; all others: a, 86 % sure."),
        ("baaaaa", "(under 40, normal): b, 86 % sure; all others: a, 86 % sure."),
        ("aabbcc", "Under 40: a, 86 % sure; 40 to 65: b, 86 % sure; all others: c, 86 % sure."),
        (
            "aaaaaa",
            "a is best so far for everybody on average over all patients of 3 sites (at least 86 % sure",
        ),
    ],
)
def test_the_answer_says_for_whom(leaders, says):
    assert says in said_of(leaders)


@pytest.mark.parametrize(
    ("matters", "says"),
    [
        (0.97, "What is known of patients beforehand matters (97 % sure)."),
        (0.03, "What is known of patients beforehand does not matter (97 % sure)."),
        (0.6, "Whether what is known of patients beforehand matters is open (60 % for it)."),
    ],
)
def test_the_answer_says_whether_strata_matter(matters, says):
    assert says in said_of("aaaaaa", matters)


def test_nothing_of_strata_is_settled_without_proof():
    said = said_of("aaaabb", sure=1.0)
    assert "Over 65: b, more than 99 % sure" in said
    assert said.endswith("This is not settled, and is not about one patient.")


def test_the_state_has_the_answer_of_each_stratum(tmp_path):
    """Over HTTP, in words and in the terminal."""
    with serving(tmp_path, terms=replace(TERMS, arms=("x", "y", "z"))) as agent, Client(agent.url) as client:
        for number in range(45):
            stratum, arm = number % 3, number // 3 % 3
            told = client.decide_many(25, eligible=[arm], context=FACTORS.levels(stratum))
            client.rewards((it, float(arm == stratum)) for it in told)
        answer = client.state().answer
        assert [it.context for it in answer.strata] == [{"age": level} for level in ("young", "middle", "old")]
        assert [it.leader for it in answer.strata] == ["x", "y", "z"]
        assert all(it.chance > 0.9 for it in answer.strata)
        assert abs(sum(it.frequency for it in answer.strata) - 1.0) < 1e-9
        assert answer.strata_matter > 0.9
        assert "old: z, more than 99 % sure" in answer.words
        assert answer.settled == all(it.settled for it in answer.strata)
        seen = seen_at(agent.url, None)
        shown = "".join(_shown(seen))
    assert "best so far" in shown
    assert all(word in shown for word in ("young", "middle", "old"))


def _shown(seen):
    from io import StringIO

    from rich.console import Console

    console = Console(file=StringIO(), width=130)
    for part in status_view._agent(seen, 130):
        console.print(part)
    return console.file.getvalue()


def test_a_history_without_contexts_is_refused():
    with pytest.raises(InvalidArgument, match=r'arms must be left out where policy.context is "strata"'):
        check_history(History(10.0, {"a": PastRewards(10, 5.0)}), TERMS)


def test_propensities_are_those_of_the_stratum():
    """A choice that is nearly certain in its stratum says so, though each stratum has another best arm."""
    site, pick = new_site(), Random(4)  # noqa: S311
    for _ in range(150):
        for stratum in range(STRATA):
            for arm in range(3):
                treat(site, arm, stratum, float(pick.random() < (0.9 if arm == stratum else 0.1)))
    for stratum in range(STRATA):
        request = Request(context=FACTORS.levels(stratum), count=1)
        (made,) = site.decide(1.0, [CENTRE], request).result
        assert (made.arm, made.stratum) == (stratum, stratum)
        assert made.propensity > 1.0 - 1e-6
