"""How the state files of schema 2 beside this file were made, by the agent that wrote schema 2.

It cannot run any more, since no agent writes that schema: it says what is in ``fed_batch.db``, ``fed_batch_wide.db``,
``fed_ucb.db`` and ``gossip_ucb.db``. ``expected.json`` holds what their sites showed, and what they did next;
``test_schema2.py`` migrates the files, and their sites must go on as it says.

Each file is that of site "a" after some decisions. Some of them wait for their reward, some have expired. It has links
to "b" and "c", over which something has flowed, and to "d", which has left. In the files for which ``RELIVED`` is true
the epoch has moved: "b" had heard of a later life of "a". So there are decisions of two lives in them.
"""

import sqlite3
from pathlib import Path
from random import Random
from typing import Any

from fedbandit.agent.federation import Federation
from fedbandit.agent.journal import SqliteJournal
from fedbandit.agent.records import Life, Stored
from fedbandit.agent.site import Draws, Site

from fedbandit import FedBatch, FedUCB, GossipUCB
from fedbandit.privacy.noise import GRID, NoiseSource

ARMS = ("red", "green", "blue")
NAME, BORN, LATER = "a", 1_700_000_000_000, 1_700_000_500_000
ROUNDS, START, PAUSE = 62, 1_700_000_000.0, 10.0
KEEP = 10**9

TERMS = {
    "fed_batch": Federation("batch", 3, ARMS, 0.0, 1.0, FedBatch(1.0, first_batch=3)),
    "fed_batch_wide": Federation("wide", 3, ARMS, -2.0, 6.0, FedBatch(0.5, index="ucb", radius="safe", first_batch=2)),
    "fed_ucb": Federation("tree", 3, ARMS, 0.0, 1.0, FedUCB(2.0, horizon=100)),
    "gossip_ucb": Federation("exact", 3, ARMS, 0.0, 5.0, GossipUCB()),
}
RELIVED = {"fed_batch": True, "fed_batch_wide": False, "fed_ucb": True, "gossip_ucb": False}


def make(name: str, path: Path) -> None:
    """Drive a site whose journal is the file at ``path``."""
    terms, source = TERMS[name], Random(name)  # noqa: S311  # the same files from the same seed

    def noise(epsilon: float, count: int) -> list[int]:
        return [round(source.uniform(-1.0, 1.0) * GRID / epsilon) for _ in range(count)]

    def draws() -> Draws:
        return Draws(tuple(round(source.gauss(0.0, 1.0), 3) for _ in ARMS), source.random())

    def reward(arm: int, bias: float) -> float:
        share = min(max(0.2 + 0.2 * arm + bias + source.uniform(-0.2, 0.2), 0.0), 1.0)
        return round(terms.low + (terms.high - terms.low) * share, 3)

    others = {other: in_memory(other, terms, BORN + k, noise) for k, other in enumerate("bcd")}
    for site in others.values():
        site.join(NAME)
    journal = SqliteJournal(path, NAME, terms, BORN)
    here = Site(NAME, terms, journal.load(), noise)

    def do(step: Any) -> Any:
        journal.commit(step.records)
        return step.result

    def offer_to(other: str) -> None:
        do(here.receive_answer(others[other].receive_offer(do(here.offer(other))).result))

    def offer_from(other: str) -> None:
        others[other].receive_answer(do(here.receive_offer(others[other].offer(NAME).result)))

    for other in others:
        do(here.join(other))
    waiting: list[tuple[str, int]] = []
    for i in range(ROUNDS):
        at = START + PAUSE * i
        decision = do(here.decide(at, draws()))
        if i % 6 == 4:
            waiting.append((decision.id, decision.arm))
        else:
            do(here.report(decision.id, reward(decision.arm, 0.0)))
        for k, site in enumerate(others.values()):
            for _ in range(1 + (k == 0 and i % 2)):  # "b" is faster
                theirs = site.decide(at, draws()).result
                site.report(theirs.id, reward(theirs.arm, 0.1 * (k - 1)))
        if i % 5 == 1:
            offer_to("b")
        if i % 5 == 3:
            offer_from("c")
        if i % 11 == 7:
            offer_to("c")
        if i < 40 and i % 7 == 2:
            offer_from("d")
        if i == 35 and RELIVED[name]:
            later = in_memory(NAME, terms, LATER, noise)
            later.join("b")
            others["b"].receive_offer(later.offer("b").result)
        if i == 40:
            do(here.leave("d"))
        if i == 45:  # among them some that wait
            assert do(here.expire(START + PAUSE * 30, KEEP)) == 30
            waiting = waiting[5:]
        if i == 55:  # a late one
            late, arm = waiting.pop(1)
            do(here.report(late, reward(arm, 0.0)))
    journal.close()
    with_no_log(path)


def in_memory(name: str, terms: Federation, epoch: int, noise: NoiseSource) -> Site:
    """A new site without a disk."""
    return Site(name, terms, Stored(Life(epoch, 0), epoch), noise)


def with_no_log(path: Path) -> None:
    """Leave one file alone, which needs no log beside it."""
    file = sqlite3.connect(path)
    file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    file.execute("PRAGMA journal_mode=DELETE")
    file.close()
    assert [other.name for other in path.parent.iterdir() if other.name.startswith(path.name)] == [path.name]
