"""Clocks that jump and agents that restart: when a reward comes changes nothing that others see, not even times.

The agent is the real one, on a real file; its clock is the test's.
"""

import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random

import pytest

from fedbandit import FedBatch, GossipUCB
from fedbandit.agent.core.records import DecisionNotFound
from fedbandit.agent.process import runtime
from fedbandit.agent.process.clock import SteadyClock
from live import TERMS, Driver, unsigned

WINDOW = replace(TERMS, policy=FedBatch(1.0, first_batch=2, index="ucb"), reward_window=10.0, default_reward=0.5)
EVENTS, KINDS = 120, ("decide", "publish", "keep house", "restart", "jump", "jump and restart")
NEVER = 1e9


def schedule(seed):
    """Pauses, events, and by how much a clock jumps: nothing of it depends on rewards."""
    random = Random(seed)  # noqa: S311  # a simulation
    kinds = random.choices(KINDS, [40, 20, 10, 10, 2, 6], k=EVENTS)
    return [(random.uniform(0.0, 2.0), kind, random.choice([-1e4, -30.0, -3.0, -0.5, 4.0, 50.0])) for kind in kinds]


class Machine:
    """A computer: its clock can be set, its agent dies and starts again."""

    def __init__(self, folder, terms, monkeypatch):
        self.folder, self.terms, self.true, self.ahead, self.agent = folder, terms, 1000.0, 0.0, None
        clock = partial(SteadyClock, lambda: self.true + self.ahead, lambda: self.true)
        monkeypatch.setattr(runtime, "SteadyClock", clock)

    async def boot(self):
        if self.agent is not None:
            await self.agent.stop()
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.agent = Driver(self.folder, self.terms)
        self.agent._random = Random(5)  # noqa: S311  # so that two worlds differ in times alone
        await self.agent.links.use(self.agent.config.neighbours)

    async def keep_house(self):
        agent = self.agent
        while (await agent.site.do(lambda site: site.expire(agent._clock.now() - 100.0, 30))).total:
            pass

    async def publish(self):
        at = self.true + self.ahead
        return await self.agent.site.do(lambda site: site.publish(unsigned, at))


def played(machine, events, delays, rewards, look=lambda *_: None):
    """All that leaves the agent, with its times; a decision's reward comes after its delay, between two events."""
    coming, seen, counts = [], [], {}

    async def report(until):
        for when, name, reward in sorted(it for it in coming if it[0] <= until):
            machine.true = max(machine.true, when)
            coming.remove((when, name, reward))
            with suppress(DecisionNotFound):
                counts[name] = reward if await machine.agent.report(name, reward) else None

    async def play():
        await machine.boot()
        decided = []
        for pause, kind, jump in events:
            now = machine.true + pause
            await report(now)
            machine.true = now
            if "jump" in kind:
                machine.ahead += jump
            if "restart" in kind:
                await machine.boot()
            elif kind == "keep house":
                await machine.keep_house()
            elif kind == "decide":
                decision = await machine.agent.decide()
                coming.append((now + delays[len(decided)], decision.id, rewards[len(decided)]))
                decided.append(decision)
                seen.append((decision.number, decision.arm, decision.at))  # ids depend on the key of the file
            site = machine.agent.site.in_memory
            if kind == "publish":
                signed = await machine.publish()
                seen.append(signed and signed.body)
                look(site, decided, counts)
            seen.append((kind, site.releases))
        await machine.agent.stop()

    asyncio.run(play())
    return seen


@pytest.mark.parametrize("event", ["decide", "publish", "keep house"])
def test_what_is_due_counts_before_anything_leaves(event, tmp_path, monkeypatch):
    machine = Machine(tmp_path, replace(WINDOW, policy=FedBatch(1.0, first_batch=1, index="ucb")), monkeypatch)

    async def play():
        await machine.boot()
        await machine.agent.decide()
        machine.true += 10.0
        events = {"decide": machine.agent.decide, "publish": machine.publish, "keep house": machine.keep_house}
        told = await events[event]()
        releases = machine.agent.site.in_memory.releases
        assert sum(releases) == 1
        if event == "publish":
            arms = json.loads(told.body)["arms"]
            assert tuple(number for _, _, number, *_ in arms) == releases, "it is in the very bulletin"
        await machine.agent.stop()

    asyncio.run(play())


class Asking(Driver):
    """A driver that asks neighbours after a pause, as the agent does."""

    _make_site = runtime.Agent._make_site


def test_a_report_during_a_glitch_of_the_clock_is_not_seen(tmp_path, monkeypatch):
    """For a moment the system's clock is wrong, and only a report comes in that moment: others see the same.

    If a report noticed it, the process would think that it had stood still, and hold releases back: the next bulletins
    would tell that a reward had come.
    """
    machine = Machine(tmp_path / "one", replace(WINDOW, policy=FedBatch(1.0, first_batch=1, index="ucb")), monkeypatch)
    monkeypatch.setattr(runtime, "both_clocks", lambda: (machine.true, machine.true + machine.ahead))
    monkeypatch.setattr("test_late_clocks.Driver", Asking)

    async def world(name, rewards, ahead):
        machine.folder, machine.agent, machine.true, machine.ahead = tmp_path / name, None, 1000.0, 0.0
        await machine.boot()
        await machine.agent.site.do(lambda site: site.receive_have("east", {}))  # else it waits for what they have
        first, second = await machine.agent.decide(), await machine.agent.decide()
        machine.true, machine.ahead = 1001.0, ahead
        if rewards == 1:
            await machine.agent.report(first.id, 0.5)
        elif rewards:
            await machine.agent.report_all([(first.id, 0.5), (second.id, 0.5)])
        machine.ahead, seen = 0.0, []
        for machine.true in (1002.0, 1006.0, 1010.0):
            signed = await machine.publish()
            machine.agent._awake = runtime.both_clocks()  # as the agent does once a second
            releases = [it[2] for it in json.loads(signed.body)["arms"]] if signed else []
            seen.append((signed is not None, sum(releases)))
        site = machine.agent.site.in_memory
        seen += [site.doubt, site.late]
        await machine.agent.stop()
        return seen

    for i, ahead in enumerate((-1e6, 0.9, 6.0, 3600.0)):
        quiet = asyncio.run(world(f"quiet {i}", 0, ahead))
        assert quiet[-3:] == [(True, 2), None, 0]
        for rewards in (1, 2):
            assert asyncio.run(world(f"told {i} {rewards}", rewards, ahead)) == quiet


def delays_of(random):
    return [random.choice([0.0, random.uniform(0.0, 10.0), random.uniform(0.0, 40.0), NEVER]) for _ in range(EVENTS)]


@pytest.mark.parametrize("seed", range(4))
def test_when_rewards_come_changes_nothing_that_others_see(seed, tmp_path, monkeypatch):
    """Each reward is the default, so that contents cannot differ: only times could, and the clock that a file keeps."""
    random, events, same = Random(seed), schedule(seed), [0.5] * EVENTS  # noqa: S311

    def world(name, delays):
        return played(Machine(tmp_path / name, WINDOW, monkeypatch), events, delays, same)

    at_once = world("at once", [0.0] * EVENTS)
    assert sum(at_once[-1][1]) >= 4, "too few releases: little was compared"
    assert world("never", [NEVER] * EVENTS) == at_once
    for i in range(2):
        assert world(f"delays {i}", delays_of(random)) == at_once


@pytest.mark.parametrize("seed", range(3))
def test_a_reward_lies_in_the_slot_of_its_decision_whatever_the_clock_does(seed, tmp_path, monkeypatch):
    """The own mean is that of the first n slots, in order: acknowledged rewards, and the default for all others."""
    terms, random = replace(WINDOW, policy=GossipUCB()), Random(seed)  # noqa: S311
    rewards, compared = [random.random() for _ in range(EVENTS)], []

    def look(site, decided, counts):
        for k, n in enumerate(site.rewards):
            slots = [it for it in decided if it.arm == k][:n]
            counted = [counts.get(it.id) for it in slots]
            if n:
                mean = sum(0.5 if x is None else x for x in counted) / n
                assert site.own_means[k] == pytest.approx(mean, abs=1e-12)
                compared.extend(counted)

    played(Machine(tmp_path / "site", terms, monkeypatch), schedule(seed), delays_of(random), rewards, look)
    assert None in compared
    assert any(x is not None for x in compared)
