"""How the state files of schema 5 beside this file were made, by the agent that wrote schema 5.

No agent writes that schema any more. In each file some decisions wait for their reward, and some rewards wait for that
of an earlier decision or for their window. ``expected.json`` holds what the sites showed; ``test_schema5.py`` migrates
the files.
"""

import json
import sys
from pathlib import Path
from random import Random

from fedbandit import FedBatch, FedUCB
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.site import DecisionDraws, Site
from fedbandit.agent.disk.journal import SqliteJournal

ARMS, BORN, START = ("red", "green"), 1_700_000_000_000, 1_700_000_000.0
TERMS = {
    "plain": Federation("batch", 3, ARMS, 0.0, 1.0, FedBatch(1.0, first_batch=3)),
    "window": Federation("window", 3, ARMS, 0.0, 1.0, FedBatch(1.0, first_batch=3), reward_window=12.0),
    "tree": Federation("tree", 3, ARMS, -1.0, 1.0, FedUCB(2.0, horizon=100)),
}


def make(name, path):
    """Drive a site whose journal is the file at ``path``; what it shows at the end."""
    terms, source = TERMS[name], Random(name)  # noqa: S311  # the same files from the same seed
    journal = SqliteJournal(path, "a", terms, BORN)
    site = Site("a", terms, journal.load(), lambda epsilon, count: [source.randint(-99_999, 99_999)] * count)

    def do(step):
        journal.commit(step.records)
        return step.result

    do(site.join("b"))
    waiting = []
    for number in range(40):
        draws = DecisionDraws((source.gauss(0.0, 1.0), source.gauss(0.0, 1.0)), source.random())
        do(site.settle(START + number))
        waiting.append(do(site.decide(START + number, draws)).id)
        if source.random() < 0.8:
            do(site.report(waiting.pop(source.randrange(len(waiting))), terms.high * round(source.random(), 3)))
    do(site.expire(START + 10, 10**9))
    journal.erase()
    journal.close()
    return {
        "digest": terms.digest(),
        "tried": site.tried,
        "rewards": site.rewards,
        "releases": site.releases,
        "own": site.own,
        "pending": site.pending,
        "waiting": site.waiting,
        "late": site.late,
        "remembered": [
            [it.id, it.number, it.arm, it.at, it.reward, it.played, it.late, it.rewarded]
            for it in site.stored.decisions.values()
        ],
    }


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    found = {name: make(name, folder / f"{name}.db") for name in TERMS}
    (folder / "expected.json").write_text(json.dumps(found, indent=1) + "\n")
