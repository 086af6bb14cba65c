"""Agents in memory: the simulator's trajectory without faults, and what holds in spite of them.

Each seed is a schedule of its own: requests with keys that are repeated after crashes, subjects, exclusions and counts,
rewards, cancelled decisions, bulletins, lost, repeated, late and overtaking messages, partitions, crashes at every
point of a write, lost disks (with the clock behind), members excluded and included, sites that leave and come back. A
failure prints its seed.

Can it fail? Bugs that were planted, and what noticed (``test_a_planted_bug_is_caught``):

| bug | noticed by |
|---|---|
| a bulletin that came before is not replaced | boards differ after the last fault |
| a reward is acknowledged before it is on disk | an acknowledged reward is lost |
| noise is drawn anew after a restart | one interval is seen with two values |
| keys are forgotten at a restart | a key has two decisions |
"""

import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import networkx as nx
import numpy as np
import pytest

from fedbandit import FedBatch, FedUCB, GossipUCB, replay
from fedbandit.agent.core.arms import ArmChanged
from fedbandit.agent.core.board import Outcome
from fedbandit.agent.core.bulletin import Signed, decode
from fedbandit.agent.core.context import Factors
from fedbandit.agent.core.decisions import Request, RequestIndex, arms_in
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import (
    DecisionCancelled,
    DecisionNotFound,
    DecisionRecord,
    HorizonReached,
    KeyTaken,
    Known,
    NoArmLeft,
    Step,
    StoppedMeanwhile,
    WindowOver,
)
from fedbandit.agent.core.site import Merged, Site
from fedbandit.checks import InvalidArgument
from fedbandit.testing.memory_network import Down, Faults, MemoryJournal, MemoryNetwork
from fedbandit.world import graph
from sites_on_tape import SitesOnTape, in_memory, tape_on_the_grid

FAULTY_EVENTS = 1500
WRITTEN_EVERY = 3.0  # seconds: what has come of others
PASSES = 12  # exchanges over each link by which nothing is left to say: five sites, and an answer to what was held back

TERMS = Federation(
    "test", ("a", "b", "c"), 0.0, 1.0, FedBatch(1.0, first_batch=3, growth=1.5), counts="sites", max_agents=5
)
WINDOW = replace(TERMS, reward_window=20.0, default_reward=0.5, counts="patients")
EXACT = replace(TERMS, policy=GossipUCB())
FACTORS = Factors.of({"age": ("young", "old"), "renal": ("normal", "impaired")})
STRATA = replace(TERMS, policy=FedBatch(1.0, context="strata", first_batch=3), context=FACTORS)
TREE = replace(TERMS, policy=FedUCB(10.0, horizon=15))  # so short that arms become full


# ---------------------------------------------------------------- without faults: the simulator, arm for arm


WORLDS = {  # graph, range, sigma, epsilon, first batch
    "path": (graph.path(4), (0.0, 1.0), 1.0, 2.0, None),
    "complete": (graph.complete(3), (0.0, 1.0), 1.0, 30.0, 1),
    "ring": (graph.ring(5), (-0.5, 1.5), None, 4.0, 3),  # (high - low)^2 / 4 = 1, the tape's: the variance is learnt
}

MORE = {  # slow
    *((index, "complete") for index in ("thompson", "ucb", "kl")),
    ("ucb", "ring"),
    ("kl", "path"),
}


@pytest.mark.parametrize(
    ("index", "world"),
    [
        pytest.param(index, world, marks=pytest.mark.slow) if (index, world) in MORE else (index, world)
        for index in ("thompson", "ucb", "kl")
        for world in WORLDS
        if world != "ring" or index in ("thompson", "ucb")  # kl is for [0, 1]
    ],
)
def test_without_faults_agents_are_the_simulator(index, world):
    """P9: the same schedule, the same arms; estimates to 1e-12."""
    follow_the_tape(index, WORLDS[world], 600, in_memory)


def follow_the_tape(index, world, horizon, make_network):
    world, (low, high), sigma, epsilon, first = world
    num_arms = 3
    tape, noise = tape_on_the_grid(world, num_arms, horizon, 7, low, high, epsilon)
    policy = FedBatch(epsilon, index=index, sigma=sigma, first_batch=first)
    trace = replay(tape, policy)

    live = SitesOnTape(tape, noise, policy, make_network)
    for t in range(1, horizon + 1):
        np.testing.assert_array_equal([*live.play(t).values()], trace.arms[t - 1])
        theta = np.array([site.theta for site in live.sites], float)
        known = ~np.isnan(theta)
        np.testing.assert_allclose(theta[known], trace.theta[t][known], rtol=0, atol=1e-12)
    assert known.all()
    assert (trace.releases[-1] > 2).all(), "too few releases: little was compared"
    assert len(np.unique(trace.arms)) == num_arms


# ---------------------------------------------------------------- with faults


class Watched(MemoryNetwork):
    """Looks at what leaves an agent: what anybody could have seen of each interval."""

    def __init__(self, *args, **options):
        self.seen, self.given = {}, 0
        self.taken_back = {}  # of each site and arm, how many rewards an earlier file had released
        super().__init__(*args, **options)

    def _commit(self, name, step):
        is_written = self._disks[name].crash_at_next_write in (None, "after")
        try:
            result = super()._commit(name, step)
        finally:  # a site may die after its records are on disk: they count
            if is_written and (
                isinstance(step.result, Merged) or any(isinstance(it, ArmChanged) for it in step.records)
            ):
                of_arms = self.taken_back.setdefault(name, {})
                of_arms |= {
                    it.arm: it.fields["released"] for it in step.records if isinstance(it, Known) and it.arm >= 0
                }
        if isinstance(result, Signed) and self.terms.policy != GossipUCB():
            bulletin = decode(result.body, self.terms.num_columns, strata := self.terms.num_strata)
            for entry in bulletin.arms:
                key = (name, id(self._disks[name]), bulletin.incarnation, entry.name, entry.releases)
                told = (entry.row[1 + strata :], entry.alone) if strata else entry.row[0]
                self.seen.setdefault(key, told)  # the mean after so many releases tells the noise of each
                assert self.seen[key] == told, f"{key} was released as {self.seen[key]} and as {told}"
                assert sum(entry.cells) == (entry.decisions if strata else 0)
        return result

    def request(self, name, request):
        known = set(self.site(name).stored.decisions)
        made = super().request(name, request)
        for it in made:
            fresh = it.id not in known
            assert not fresh or it.arm not in self.site(name).stopped, f"{name} gave a stopped arm"
            assert it.stratum == self.terms.stratum(request.context), f"{name}: another patient"
            self.given += fresh
        return made


class Story:
    """A schedule of faults from a seed, and what the application was told."""

    def __init__(self, seed, kind=Watched, terms=TERMS):
        self.random = Random(seed)  # noqa: S311
        links = self.random.choice(
            [
                [("0", "1"), ("1", "2"), ("2", "3"), ("3", "4")],
                [("0", "1"), ("1", "2"), ("2", "3"), ("3", "4"), ("4", "0")],
                [("0", "1"), ("0", "2"), ("0", "3"), ("0", "4")],
                [("0", "1"), ("1", "2"), ("2", "0"), ("2", "3"), ("3", "4")],
            ]
        )
        faults = Faults(self.random.choice([0.0, 0.1, 0.4]), self.random.choice([0.0, 0.3]), (0.0, 5.0))
        self.network = kind(terms, links, seed, faults, spreads=seed % 3 > 0)
        self.full = self.late = self.repeated = self.cancels = self.requests = 0
        self.disks = []  # all that there ever were, so that no two have one id
        self.waiting, self.told, self.in_doubt, self.expired = {}, {}, {}, {}
        self.keys, self.lost_keys, self.cancelled, self.lost_cancels, self.written = {}, {}, {}, {}, {}
        self.lost = set()
        for name in self.network.names:
            self.on_a_fresh_disk(name)
        self.away, self.lost = None, set()  # the last: who has ever lost a disk

    def on_a_fresh_disk(self, name):
        """What was acknowledged by an earlier incarnation is gone with its disk."""
        self.disks.append(self.network._disks[name])
        self.network.taken_back.pop(name, None)
        self.lost.add(name)
        self.waiting[name], self.told[name], self.in_doubt[name] = [], {}, {}
        self.expired[name] = [0] * self.network.terms.num_arms
        self.keys[name], self.lost_keys[name], self.cancelled[name], self.lost_cancels[name] = {}, [], set(), []

    # ---- the application

    def decide_or_report(self):
        name = self.random.choice(self.network.names)
        waiting, doubt = self.waiting[name], self.in_doubt[name]
        with suppress(Down):
            if doubt and self.random.random() < 0.3:
                self.report(name, *doubt[self.random.choice(list(doubt))])  # it asks again: was this counted?
            elif waiting and self.random.random() < 0.6:
                one = waiting.pop(self.random.randrange(len(waiting)))
                if self.random.random() < 0.9:
                    self.report(name, *one)
                else:
                    self.cancel(name, one[0])
            else:
                try:
                    waiting += [(it, self.random.random()) for it in self.decide(name)]
                except (HorizonReached, NoArmLeft):
                    self.full += 1

    def decide(self, name):
        """Without a request, or with one; an application whose call broke off repeats it with the same key."""
        random, lost, keys = self.random, self.lost_keys[name], self.keys[name]
        if self.lost_cancels[name] and random.random() < 0.3:
            self.cancel(name, self.lost_cancels[name].pop())
        if lost and random.random() < 0.5:
            self.repeated += 1
            return self.ask(name, lost.pop(random.randrange(len(lost))))
        if keys and random.random() < 0.1:
            self.ask(name, random.choice(list(keys.values()))[0])
            return []
        if random.random() < 0.7:
            return [self.network.decide(name, context=self.patient())]
        self.requests += 1
        arms = range(self.network.terms.num_arms)
        subject = f"s{random.randrange(4)}" if random.random() < 0.5 else None
        exclude = (random.choice(arms),) if random.random() < 0.5 else ()
        key = f"k{self.requests}" if random.random() < 0.8 else None
        count = random.choice([1, 1, 2, 3])
        return self.ask(name, Request(None, key, subject, count, exclude, context=self.patient()))

    def patient(self):
        """What is known of one, where the terms ask."""
        factors = self.network.terms.context
        return None if factors is None else factors.levels(self.random.choice([0, 0, 0, 1, 1, 2, 3]))

    def ask(self, name, request):
        """The decisions of a request, if they are new to the application."""
        before = self.keys[name].get(request.key)
        try:
            made = self.network.request(name, request)
        except Down:
            if request.key is not None:
                self.lost_keys[name].append(request)
            raise
        except DecisionCancelled:
            known = self.cancelled[name] | {it.id for it in self.lost_cancels[name]}
            assert before is not None
            assert known & {it.id for it in before[1]}, f"{name}: cancelled by nobody"
            return []
        except StoppedMeanwhile:
            return []
        except KeyTaken:  # some of its decisions are forgotten
            self.is_forgotten(before[1])
            return []
        assert len(made) == request.count
        for it in made:
            assert it.arm not in request.exclude, f"{name} gave an arm that was excluded"
        if before is not None:
            if [it.id for it in made] == [it.id for it in before[1]]:
                return []
            self.is_forgotten(before[1])
        if request.key is not None:
            self.keys[name][request.key] = request, made
        return made

    def is_forgotten(self, decisions):
        window = self.network.terms.reward_window
        assert decisions[0].at + window < self.network.now - 100, "a key got other decisions before its time"

    def cancel(self, name, decision):
        try:
            self.network.cancel(name, decision.id)
        except Down:
            self.lost_cancels[name].append(decision)
            raise
        except WindowOver:
            window = self.network.terms.reward_window
            assert 0 < window <= self.network.now - decision.at, "a decision could not be cancelled in its window"
        except DecisionNotFound:
            assert decision.at + self.network.terms.reward_window < self.network.now - 100, "lost before its time"
        else:
            self.cancelled[name].add(decision.id)
            self.cancels += 1

    def report(self, name, decision, reward):
        self.in_doubt[name][decision.id] = (decision, reward)
        window = self.network.terms.reward_window
        try:
            counts = self.network.report(name, decision.id, reward)
        except DecisionNotFound:
            del self.in_doubt[name][decision.id]
            assert decision.at + window < self.network.now - 100, "a decision was lost before its time"
            return
        if not counts:
            del self.in_doubt[name][decision.id]
            assert 0 < window <= self.network.now - decision.at, "a reward was called late before its window ended"
            self.late += 1
            return
        self.told[name][decision.id] = self.in_doubt[name].pop(decision.id)
        if self.random.random() < 0.2:
            self.network.report(name, decision.id, reward)  # again: nothing happens

    def expire(self):
        name, before = self.random.choice(self.network.names), self.network.now - 100
        if name in self.network.running and self.network._disks[name].crash_at_next_write is None:
            check_rewards(self, name)
            known = dict(self.network.site(name).stored.decisions)
            self.network.expire(name, before)
            for key in known.keys() - self.network.site(name).stored.decisions.keys():
                self.expired[name][known[key].arm] += not known[key].cancelled  # with its reward, or the default
                self.told[name].pop(key, None)

    # ---- the network

    def exchange(self):
        a, b = self.random.choice(self.network.links)
        with suppress(Down):
            self.network.exchange(a, b)

    def change_members(self):
        """An operator excludes somebody, or includes them again."""
        name = self.random.choice(self.network.running or ("",))
        with suppress(Down, InvalidArgument):  # nobody runs; or the member is unknown here
            if self.network.site(name).stored.excluded:
                self.include_all(name)
            else:
                self.network.exclude(name, self.random.choice([it for it in self.network.names if it != name]))

    def include_all(self, name):
        for other in [*self.network.site(name).stored.excluded]:
            self.network.include(name, other)

    def fault(self):
        network, random = self.network, self.random
        name = random.choice(network.names)
        what = random.choices(["crash", "crash at a write", "lose disk", "part", "heal", "move"], [3, 6, 1, 2, 2, 1])[0]
        if what == "crash":
            network.crash(name)
        elif what == "crash at a write":
            network.crash(name, random.choice(["before", "torn", "after"]))
        elif what == "lose disk":
            network.lose_disk(name, clock_behind=random.random() < 0.5)
            self.on_a_fresh_disk(name)
        elif what == "part":
            network.partition(*random.sample(network.names, 2))
        elif what == "heal":
            network.heal()
        elif self.away is not None:
            network.join(*self.away)
            self.on_a_fresh_disk(self.away[0])
            self.away = None
        elif name not in nx.articulation_points(nx.Graph(network.links)):  # the others stay connected without it
            self.away = name, [*nx.Graph(network.links).neighbors(name)]
            network.leave(name)

    def wake(self, share):
        for name in self.network.names:
            if name not in self.network.running and self.random.random() < share:
                self.network.restart(name)
                check_rewards(self, name)

    def faulty(self, events=FAULTY_EVENTS):
        for _ in range(events):
            what = self.random.random()
            if what < 0.5:
                self.decide_or_report()
            elif what < 0.85:
                self.exchange()
            elif what < 0.9:
                self.fault()
            elif what < 0.92:
                self.expire()
            elif what < 0.93:
                self.change_members()
            else:
                self.wake(0.5)
            self.network.run(self.network.now + self.random.uniform(0.0, 1.5))
            self.write_boards()

    def write_boards(self):
        """As a real site does: every few seconds."""
        for name in self.network.running:
            if self.network.now - self.written.get(name, 0.0) >= WRITTEN_EVERY:
                self.written[name] = self.network.now
                with suppress(Down):
                    self.network.save_board(name)

    def calm(self):
        """The last fault is over: everybody starts anew, and what was under way arrives."""
        self.network.faults = Faults()
        self.network.heal()
        for name in self.network.names:
            self.network.crash(name)
        self.wake(1.0)
        self.network.run()

    def sweep(self):
        """One exchange over each link, in any order."""
        for a, b in self.random.sample(self.network.links, len(self.network.links)):
            self.network.exchange(a, b)
            self.network.run()

    def restore_old(self):
        """Whose file is old begins a new incarnation; who finds another process of its name is the one that lives.

        A process whose file nobody knows, since all neighbours have lost theirs, begins a new incarnation, too.
        """
        for name in self.network.running:
            site = self.network.site(name)
            why = None if site.doubt is None else site.doubt.why
            with suppress(Down):
                if why == "split-brain":
                    self.network.confirm(name)
                elif why == "old" or site.waits == "for one":
                    self.network.restore(name)
                    self.forget(name)

    restored = 0

    def forget(self, name):
        """What a new incarnation has dropped is no longer expected."""
        self.restored += 1
        site = self.network.site(name)
        known = site.stored.decisions
        self.waiting[name] = [it for it in self.waiting[name] if it[0].id in known]
        self.told[name] = {key: it for key, it in self.told[name].items() if key in known}
        self.in_doubt[name] = {key: it for key, it in self.in_doubt[name].items() if key in known}
        self.lost_cancels[name] = [it for it in self.lost_cancels[name] if it.id in known]
        self.network.taken_back.pop(name, None)
        for k in range(len(site.arms.names)):
            self.expired[name][k] = site.rewards[k] - sum(it.played for it in known.values() if it.arm == k)
        self.keys[name] = {
            key: (request, made)
            for key, (request, made) in self.keys[name].items()
            if all(it.id in known for it in made)
        }


def check_rewards(story, name):
    """P1: acknowledged rewards are counted exactly once, in the order of decisions; those in doubt at most once."""
    site = story.network.site(name)
    told, doubt = story.told[name], story.in_doubt[name]
    kept = {key: decision for key, decision in site.stored.decisions.items() if decision.rewarded}
    for key, (decision, reward) in told.items():
        assert key in kept, f"{name}: the acknowledged reward of {key} is lost"
        assert (kept[key].arm, kept[key].reward) == (decision.arm, None if kept[key].played else reward)
    assert set(kept) <= set(told) | set(doubt), f"{name} counts rewards that nobody reported"
    for k in range(len(site.arms.names)):
        slots = [it for it in site.stored.decisions.values() if it.arm == k and not it.cancelled]
        played = [decision.played for decision in slots]
        assert played == sorted(played, reverse=True), f"{name}: a slot of arm {k} was left out"
        assert site.tried[k] == site.rewards[k] + len(slots) - sum(played), (
            f"{name}: arm {k} was tried more or less often"
        )
        counted = story.expired[name][k] + story.network.taken_back.get(name, {}).get(k, 0) + sum(played)
        assert site.rewards[k] == counted, f"{name}: rewards of arm {k} lost or counted twice"
    assert max(site.tried) <= (site.terms.max_pulls or 10**9)
    check_requests(story, site)


def check_requests(story, site):
    """P7: one decision per key, a subject keeps its arm, what was cancelled stays so and has no reward."""
    name, keys, subjects = site.name, {}, {}
    for it in site.stored.decisions.values():
        assert 0.0 < it.propensity <= 1.0
        assert not it.eligible or it.arm in arms_in(it.eligible)
        assert it.cancelled or it.id not in story.cancelled[name], f"{name}: {it.id} is no longer cancelled"
        assert not (it.cancelled and (it.rewarded or it.played)), f"{name}: {it.id} was cancelled, and counts"
        if it.key:
            same = keys.setdefault(it.key[:12], [])
            same.append(it)
            is_one = (same[0].key, same[0].at) == (
                it.key,
                it.at,
            )  # of one request; a new incarnation may have dropped some
            assert is_one, f"{name}: a key has two decisions"
        if it.subject:
            before = subjects.get(it.subject)
            may_keep = before is not None and site.terms.max_pulls is None
            if may_keep and (not it.eligible or before.arm in arms_in(it.eligible)):
                assert it.arm == before.arm, f"{name}: a subject did not keep its arm"
            subjects[it.subject] = it


def check_releases(site):
    """P6: the file's marks are those of what was released."""
    stored = site.stored
    for k in range(site.terms.num_arms):
        marks = [last for (arm, _), last in stored.released.items() if arm == k]
        exact = isinstance(site.terms.policy, GossipUCB)
        mark = sum(marks) if site.terms.num_strata else max(marks, default=0)  # of all strata, or the last of a level
        assert mark == (0 if exact else site.released[k])


def sweep_until_quiet(story):
    """One pass over each link, in any order, until nothing is left to say; how many."""
    network = story.network
    for passes in range(PASSES):
        before = said(network)
        story.sweep()
        story.restore_old()
        if said(network) == before:
            return passes
    raise AssertionError(f"after {PASSES} passes there is still something to say: {network.differences()}")


def said(network):
    return [dict(network.site(name).board.have()) for name in network.names]


def check_boards(network):
    """P2: boards are equal, hence what is computed from them, bit for bit; receipts are complete."""
    assert network.differences() == []
    sites = [network.site(name) for name in network.names]
    for name in set.intersection(*(set(site.arms.names) for site in sites)):
        rows = [site.board.rows(name) for site in sites if not site.stored.excluded]
        assert all(it == rows[0] for it in rows), "equal boards with different rows"
        thetas = {site.theta[site.arms.names.index(name)] for site in sites if not site.stored.excluded}
        assert len(thetas - {None}) <= 1, f"estimates of {name} differ: {thetas}"
    for site in sites:
        assert site.doubt is None, f"{site.name} waits for ever: {site.doubt}"
        own = site.board.held(site.name).bulletin
        assert own.decisions <= site.decided
        assert [own.by_arm[name].releases for name in site.arms.names] == [*site.releases]
        everybody = tuple(sorted({*network.names} - {site.name}))
        changes = own.changes if everybody == tuple(it for it in site.board.sites if it != site.name) else ()
        assert all(site.board.receipts(it) == (everybody, ()) for it in changes), "a stop that somebody lacks"
    assert not any(site.board.conflicts for site in sites)
    assert not any(site.board.drawn_twice for site in sites), "a second draw"


def play(seed, kind=Watched, terms=TERMS):
    """One schedule and all checks; the story."""
    story = Story(seed, kind, terms)
    story.faulty()
    story.calm()
    network = story.network
    for name in network.names:
        story.include_all(name)
    story.passes = sweep_until_quiet(story)
    check_boards(network)
    for name in network.names:
        network.save_board(name)
        site, again = network.site(name), network.open_site(name, network._disks[name])
        assert (again.theta, again.tried) == (site.theta, site.tried), "the disk tells another story than memory"
        assert again.stored == site.stored
        check_rewards(story, name)
        check_releases(site)
    assert not [reason for reason in network.refused if "must be" in reason], "an honest message was refused"
    if terms.catches_up:
        assert len({network.site(name).n_max for name in network.names}) == 1, "n_max did not spread"
    return story


@pytest.mark.parametrize("block", range(4))
def test_in_spite_of_faults(block, fault_seeds):
    """After the last fault boards are equal; no acknowledged reward is lost or doubled, no interval has two noises.

    In every other schedule rewards have a window: they wait for its end, or come too late.
    """
    for seed in range(block * fault_seeds // 20, (block + 1) * fault_seeds // 20):
        try:
            late = play(seed, terms=WINDOW if seed % 2 else TERMS).late
            assert (late > 0) == seed % 2
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("window", [False, True])
def test_strata_in_spite_of_faults(window, fault_seeds):
    """The same promises: of each cell no reward lies in two releases, and no release has two noises."""
    terms, sums = replace(STRATA, reward_window=20.0, default_reward=0.5) if window else STRATA, 0
    for seed in range(2000 + window, 2000 + max(fault_seeds // 20, 2), 2):
        try:
            story = play(seed, terms=replace(terms, counts=("sites", "patients")[seed // 2 % 2]))
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        sums += sum(sum(story.network.site(name).releases) for name in story.network.names)
        for name in story.network.names:
            site = story.network.site(name)
            again = Site(name, site.terms, site.stored, lambda _, count: [0] * count)
            assert again.tried_in == site.tried_in, f"seed {seed}: {name} forgets whom it has treated"
    assert sums > 20, "too few releases: little was tried"


@pytest.mark.parametrize("terms", [EXACT, TREE], ids=["gossip_ucb", "fed_ucb"])
def test_the_papers_policies_in_spite_of_faults(terms, fault_seeds):
    """The same promises; n_max spreads to all, and an arm whose tree is full is not handed out.

    In every other schedule rewards have a window.
    """
    full, windowed = 0, replace(terms, reward_window=20.0, default_reward=0.5)
    for seed in range(1000, 1000 + fault_seeds // 10):
        try:
            full += play(seed, terms=windowed if seed % 2 else terms).full
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert (full > 0) == (terms is TREE), "no tree was full in any schedule"


def test_a_run_is_its_seed():
    def trace(seed):
        story = Story(seed)
        story.faulty()
        return [(name, story.network._disks[name].load()) for name in story.network.names]

    assert trace(5) == trace(5)
    assert trace(5) != trace(6)


def test_the_schedules_have_all_faults():
    """Otherwise the test above would say little."""
    refused, lives, releases, gone, repeated, cancels = [], 0, 0, 0, 0, 0
    for seed in range(10):
        story = Story(seed)
        story.faulty()
        network = story.network
        refused += network.refused
        repeated += story.repeated
        cancels += story.cancels
        lives += network._incarnations
        stored = [network._disks[name].load() for name in network.names]
        releases += sum(fields["releases"] for one in stored for k, fields in one.known.items() if k >= 0)
        gone += story.away is not None
    assert lives > 10 * (1000 + 5) + 10
    assert releases > 20 * 10
    assert gone > 0
    assert repeated > 10
    assert cancels > 5 * 10


# ---------------------------------------------------------------- planted bugs


class KeepsTheFirst(Site):
    """A bulletin of a site of which there is one does not replace it."""

    def merge(self, signed, by, now):
        site = decode(signed.body, len(self.terms.page.published_names)).site
        if site in self.board.sites and site != self.name:
            return Step(Merged(Outcome("older", site, None)))
        return super().merge(signed, by, now)


class WritesLater(MemoryJournal):
    """Says that it has written a reward, and does so with the next event."""

    late = ()

    def commit(self, records):
        late, self.late = self.late, ()
        super().commit(late)
        if any(isinstance(record, DecisionRecord) and record.rewarded for record in records):
            self.late = tuple(records)
        else:
            super().commit(records)

    def load(self):
        self.late = ()
        return super().load()


def opening(kind):
    class Opens(Watched):
        def open_site(self, name, disk):
            site = super().open_site(name, disk)
            return kind(name, self.terms, disk.load(), self._noise, site.presence)

    return Opens


class TellsTooEarly(Watched):
    def new_disk(self, incarnation):
        return WritesLater(incarnation)


class DrawsAgain(Watched):
    """Keeps the sums and adds noise whenever it starts."""

    def open_site(self, name, disk):
        presence, stored = super().open_site(name, disk).presence, disk.load()
        for k, fields in stored.known.items():
            if k < 0:
                continue
            stored.known[k] = {**fields, "x_mean": fields["x_mean"] + self._noise(1.0, 1)[0]}
        return Site(name, self.terms, stored, self._noise, presence)


class ForgetsKeys(Watched):
    """Finds no decision by its key that was made before it started."""

    def open_site(self, name, disk):
        site = super().open_site(name, disk)
        site._decisions._requests = RequestIndex(())
        return site


@pytest.mark.parametrize(
    ("kind", "terms", "noticed"),
    [
        (ForgetsKeys, TERMS, "a key (has two|got other) decisions|did not keep its arm"),
        (opening(KeepsTheFirst), TERMS, "there is still something to say|differ"),
        (TellsTooEarly, TERMS, "the acknowledged reward of .* is lost"),
        (TellsTooEarly, TREE, "the acknowledged reward of .* is lost"),
        (DrawsAgain, TERMS, "was released as"),
        (DrawsAgain, TREE, "was released as"),
    ],
)
def test_a_planted_bug_is_caught(kind, terms, noticed):
    """By nearly every schedule; each bug by the check that is meant for it."""
    caught = 0
    for seed in range(10):
        try:
            play(seed, kind, terms)
        except AssertionError as error:
            caught += re.search(noticed, str(error)) is not None
    assert caught >= 8


@pytest.mark.docs
def test_the_example_in_the_docs_runs():
    page = (Path(__file__).parents[1] / "docs" / "agent.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(code, "docs/agent.md", "exec"), {})  # noqa: S102
