"""A minute of a federation of real processes: load on every site, kills and pauses, then a look at the files.

Used by the tests and by the report (benchmarks/reliability.py). What is checked comes from the sites' files alone, and
from what their applications were told.
"""

import json
import shutil
import signal
import sqlite3
import threading
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random

from fedbandit.agent.client import AgentError, Client
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import Stored
from fedbandit.agent.core.site import Site
from fedbandit.agent.disk.journal import SqliteJournal
from fedbandit.local.processes import LocalFederation

MEANS = (0.3, 0.5, 0.7)
WINDOW = 1.0  # of the rewards, in seconds: a pause makes some late. Without one, a lost answer would hold up its arm


@dataclass
class Told:
    """What one application was told and has said."""

    acknowledged: dict[str, float] = field(default_factory=dict)
    unsure: dict[str, float] = field(default_factory=dict)  # reported, never acknowledged
    late: set[str] = field(default_factory=set)  # acknowledged as too late
    decisions: int = 0
    errors: int = 0

    def said(self, decision_id: str) -> float | None:
        return self.acknowledged.get(decision_id, self.unsure.get(decision_id))


@dataclass
class Outcome:
    """What happened, and what the files hold after it."""

    told: dict[str, Told]
    stored: dict[str, Stored]
    sites: dict[str, Site]
    snapshots: list[tuple[str, Path]]
    kills: int
    pauses: int
    held: float = 0.0
    """Seconds after the last fault until all sites released again."""

    def lost(self) -> list[str]:
        """Acknowledged rewards that a file does not know. Their values have left it: sums are in noisy releases."""
        return [
            f"{name}: the reward of {decision_id} was acknowledged, the file has none"
            for name, told in self.told.items()
            for decision_id in told.acknowledged
            if not _is_rewarded(self.stored[name], decision_id)
        ]

    def too_late(self) -> list[str]:
        """Rewards that count although their application was told that they came too late, and those not called so."""
        return [
            f"{name}: {decision.id} was late: {told}, the file has {decision}"
            for name, stored in self.stored.items()
            for decision in stored.decisions.values()
            if (told := decision.id in self.told[name].late) and (decision.rewarded or not decision.late)
        ]

    def uncalled(self) -> list[str]:
        """Rewards in a file that nobody has reported."""
        return [
            f"{name}: {decision.id}"
            for name, stored in self.stored.items()
            for decision in stored.decisions.values()
            if decision.rewarded and self.told[name].said(decision.id) is None
        ]

    def miscounted(self) -> list[str]:
        """Arms whose decisions do not count exactly once, with a reward or the default: all windows are over."""
        wrong = []
        for name, stored in self.stored.items():
            for arm in range(len(MEANS)):
                decided = sum(decision.arm == arm for decision in stored.decisions.values())
                counted = stored.known[arm]["n"] if arm in stored.known else 0
                if decided != counted:
                    wrong.append(f"{name}, arm {arm}: {decided} decisions, {counted} counted")
        return wrong

    def redrawn(self) -> list[str]:
        """Arms of which a later file has fewer releases than an earlier one, or as many and another mean.

        The earlier ones are those that a process left when it was killed.
        """
        wrong = []
        for name in self.stored:
            files = [_known_in(snapshot) for owner, snapshot in self.snapshots if owner == name]
            files.append(self.stored[name].known)
            for before, after in pairwise(files):
                for arm, fields in before.items():
                    if arm < 0:  # the weight: it follows decisions
                        continue
                    was, now = ((f["releases"], f["x_mean"]) for f in (fields, after.get(arm, _NOTHING)))
                    if now[0] < was[0] or (now[0] == was[0] and now[1] != was[1]):
                        wrong.append(f"{name}, arm {arm}: {was} releases and mean, then {now}")
        return wrong

    def unequal(self) -> list[str]:
        """Sites whose board, or an estimate in any bit, differs from the first one's; and conflicts: there is none."""
        first, *others = self.sites.values()
        wrong = [f"{it.name}: its board differs" for it in others if dict(it.board.have()) != dict(first.board.have())]
        wrong += [f"{it.name}: {it.theta} instead of {first.theta}" for it in others if it.theta != first.theta]
        return wrong + [
            f"{it.name}: conflicts of {list(it.board.conflicts)}" for it in self.sites.values() if it.board.conflicts
        ]

    def unpublished(self) -> list[str]:
        """Sites whose newest bulletin does not say what their file has released."""
        found = []
        for it in self.sites.values():
            own = it.board.held(it.name)
            said = () if own is None else tuple(entry.releases for entry in own.bulletin.arms)
            if said != it.releases:
                found.append(f"{it.name}: {said} releases in its bulletin, {it.releases} in its file")
        return found


_NOTHING = {"releases": 0, "x_mean": 0}


def _known_in(snapshot: Path) -> dict[int, dict]:
    file = sqlite3.connect(snapshot)
    rows = file.execute("SELECT arm, fields FROM known").fetchall()
    file.close()
    return {arm: json.loads(fields) for arm, fields in rows if fields.strip()}


def _is_rewarded(stored: Stored, decision_id: str) -> bool:
    decision = stored.decisions.get(decision_id)
    return decision is not None and decision.rewarded


def an_application(url: str, told: Told, seed: int, stop: threading.Event, pause: float) -> None:
    """Asks, rewards, and remembers what it was told. It does not give up."""
    random = Random(seed)  # noqa: S311  # faults and load from an explicit seed
    with Client(url, timeout=2.0, deadline=12.0, retries=4) as client:
        while not stop.is_set():
            try:
                decision = client.decide()
                told.decisions += 1
                value = float(random.random() < MEANS[decision.arm])
                told.unsure[decision.id] = value
                counts = client.reward(decision.id, value)
                del told.unsure[decision.id]
                if counts:
                    told.acknowledged[decision.id] = value
                else:
                    told.late.add(decision.id)
            except AgentError:
                told.errors += 1
                stop.wait(0.1)
            stop.wait(pause)


def inflict(federation: LocalFederation, seconds: float, random: Random, snapshots: Path) -> tuple[int, int, list]:
    """Kill and pause processes at random; in the end all run again."""
    kills = pauses = 0
    kept: list[tuple[str, Path]] = []
    down: dict[str, float] = {}
    paused: dict[str, float] = {}
    until = time.monotonic() + seconds
    while (now := time.monotonic()) < until or down or paused:
        for name in [name for name, back in down.items() if back <= now or now >= until]:
            federation.start(name)
            del down[name]
        for name in [name for name, back in paused.items() if back <= now or now >= until]:
            federation.signal(name, signal.SIGCONT)
            del paused[name]
        up = [name for name in federation.names if name not in down and name not in paused]
        if now < until and len(up) > len(federation.names) // 2:
            name = random.choice(up)
            if random.random() < 0.6:
                federation.kill(name)
                kept.append((name, _snapshot(federation.state_file(name), snapshots / f"{len(kept)}")))
                down[name] = now + random.uniform(0.0, 2.0)
                kills += 1
            else:
                federation.signal(name, signal.SIGSTOP)
                paused[name] = now + random.uniform(1.0, 5.0)
                pauses += 1
        time.sleep(random.uniform(0.1, 0.8))
    for name in federation.names:
        federation.wait_ready(name)
    return kills, pauses, kept


def _snapshot(state_file: Path, folder: Path) -> Path:
    folder.mkdir(parents=True)
    for path in state_file.parent.glob(state_file.name + "*"):
        shutil.copy(path, folder)
    return folder / state_file.name


def run_with_faults(
    folder: Path, num_agents: int, seconds: float, seed: int, quiet: float, pause: float = 0.005
) -> Outcome:
    """Load and faults for so many seconds, then nothing but bulletins until all release and ``quiet`` seconds longer.

    Then stop, and read the files. The last windows end in the quiet seconds.
    """
    random = Random(seed)  # noqa: S311  # faults and load from an explicit seed
    names = [f"site{i}" for i in range(num_agents)]
    links = [(names[i], names[(i + 1) % num_agents]) for i in range(num_agents)] + [(names[0], names[num_agents // 2])]
    terms = federation_terms(num_agents)
    told = {name: Told() for name in names}
    stop = threading.Event()
    with LocalFederation(folder / "federation", terms, links) as federation:
        applications = [
            threading.Thread(target=an_application, args=(federation.url(name), told[name], seed + i, stop, pause))
            for i, name in enumerate(names)
        ]
        for application in applications:
            application.start()
        try:
            kills, pauses, snapshots = inflict(federation, seconds, random, folder / "snapshots")
        finally:
            stop.set()
            for application in applications:
                application.join()
        held = wait_for_releases(federation)
        time.sleep(quiet)
    return Outcome(told, *read_files(federation), snapshots, kills, pauses, held)


def wait_for_releases(federation: LocalFederation, within: float = 60.0) -> float:
    """Wait until no site holds its releases; how many seconds that took.

    One that was killed while it waited for its neighbours, after a pause, asks all of them again at its start.
    """
    begun = time.monotonic()
    for name in federation.names:
        with Client(federation.url(name), timeout=2.0) as client:
            while (held := client.state().held) is not None:
                if time.monotonic() > begun + within:
                    raise AssertionError(f"{name} releases nothing after {within:g} s: {held}")
                time.sleep(0.1)
    return time.monotonic() - begun


def federation_terms(num_agents: int) -> Federation:
    from fedbandit import FedBatch

    policy = FedBatch(epsilon=1.0)
    return Federation("faults", ("A", "B", "C"), 0.0, 1.0, policy, reward_window=WINDOW, max_agents=num_agents)


def read_files(federation: LocalFederation) -> tuple[dict[str, Stored], dict[str, Site]]:
    """What the files of stopped sites hold, and the sites that they add up to."""
    stored, sites = {}, {}
    for name in federation.names:
        journal = SqliteJournal(federation.state_file(name), name, federation.terms, 1)
        stored[name] = journal.load()
        sites[name] = Site(name, federation.terms, journal.load())
        journal.close()
    return stored, sites
