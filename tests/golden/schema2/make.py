"""Makes state files of live sites in schema 2, and writes down what their sites show and do next.

    python tests/golden/schema2/make.py

writes ``fed_batch.db``, ``fed_batch_wide.db``, ``fed_ucb.db``, ``gossip_ucb.db`` and ``expected.json`` beside this
file. It needs an agent that writes schema 2. Later ones only read these files, and must go on as ``expected.json``
says.

Each file is that of site "a" after some decisions. Some of them wait for their reward, some have expired. It has links
to "b" and "c", over which something has flowed, and to "d", which has left. In the files for which ``RELIVED`` is true
the epoch has moved: "b" had heard of a later life of "a". So there are decisions of two lives in them.
"""

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

from fedbandit.agent.federation import Federation
from fedbandit.agent.journal import SqliteJournal
from fedbandit.agent.records import Life, Stored
from fedbandit.agent.site import Draws, Site

from fedbandit import FedBatch, FedUCB, GossipUCB
from fedbandit.privacy.noise import GRID, NoiseSource

FOLDER = Path(__file__).parent
EXPECTED = FOLDER / "expected.json"

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

NUM_NEXT = 30


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


# ---------------------------------------------------------------- what such a site shows, and what it does next


def shown(site: Site, stored: Stored) -> dict[str, Any]:
    """All that can be seen of a site; ``stored`` is what it was made of."""
    return {
        "name": site.name,
        "epoch": site.epoch,
        "born": stored.born,
        "theta": site.theta,
        "radius": site.radius,
        "rewards": site.rewards,
        "tried": site.tried,
        "n_max": site.n_max,
        "own": site.own,
        "gossiped": site.gossiped,
        "estimates": [
            {"x_mean": arm.x_mean, "released": arm.released, "releases": arm.releases} for arm in site.estimates
        ],
        "pending": site.pending,
        "pending_ids": [decision.id for decision in stored.decisions.values() if decision.reward is None],
        "remembered": site.remembered,
        "decided": site.decided,
        "releases": site.privacy().releases,
        "links": [
            {
                "neighbour": link.neighbour,
                "epoch": link.epoch,
                "flow": link.register[0],
                "version": link.register[1][0],
                "writer": link.register[1][1],
                "left": link.left,
            }
            for link in site.links
        ],
    }


def inputs(terms: Federation) -> dict[str, Any]:
    """What comes next: draws and a reward for each decision; noise in the order in which it is asked for."""
    source = Random(5)  # noqa: S311  # the same numbers every time
    return {
        "at": START + PAUSE * ROUNDS,
        "draws": [
            {"normals": [round(source.gauss(0.0, 1.0), 3) for _ in ARMS], "u": round(source.random(), 6)}
            for _ in range(NUM_NEXT)
        ],
        "rewards": [
            round(terms.low + (terms.high - terms.low) * round(source.random(), 2), 3) for _ in range(NUM_NEXT)
        ],
        "noise": [source.randint(-GRID, GRID) for _ in range(NUM_NEXT)],
    }


def fixed_noise(numbers: list[int]) -> NoiseSource:
    """A source that gives these numbers, one after the other, and begins anew after the last."""
    given: Iterator[int] = cycle(numbers)
    return lambda epsilon, count: [next(given) for _ in range(count)]


def carried_on(site: Site, given: dict[str, Any]) -> dict[str, Any]:
    """What a site does with the ``inputs``: each decision has its reward at once. Its noise must be ``fixed_noise``."""
    arms: list[int] = []
    for drawn, reward in zip(given["draws"], given["rewards"], strict=True):
        decision = site.decide(given["at"], Draws(tuple(drawn["normals"]), drawn["u"])).result
        site.report(decision.id, reward)
        arms.append(decision.arm)
    return {"arms": arms, "theta": site.theta, "gossiped": site.gossiped, "own": site.own, "rewards": site.rewards}


def expected(path: Path, terms: Federation) -> dict[str, Any]:
    """What is written down of a file. Opening it changes it: let it be a copy."""
    given = inputs(terms)
    journal = SqliteJournal(path, NAME, terms, epoch=1)
    stored = journal.load()
    journal.close()
    site = Site(NAME, terms, stored, fixed_noise(given["noise"]))
    now = shown(site, stored)
    return {"terms": terms.terms(), "now": now, "inputs": given, "next": carried_on(site, given)}


def main() -> None:
    """Make all files."""
    written: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, terms in TERMS.items():
            path = Path(folder) / f"{name}.db"
            make(name, path)
            shutil.copy(path, FOLDER / path.name)
            written[name] = expected(path, terms)
    EXPECTED.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
