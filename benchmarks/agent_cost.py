"""Compares what a live agent costs in this checkout and in another one, in the same run.

    python benchmarks/agent_cost.py --against main          # a git revision or a folder; four minutes
    python benchmarks/agent_cost.py --against main --quick  # a minute: enough to see that it runs

Both versions run as real processes under the same interpreter and are measured in turns (there, here, here, there,
...), so that both see the machine in the same mood. A ratio is here / there, the median over turns, beside its smallest
and largest value. Trust CPU times first: other programs make a wall clock jump. Compare a revision with itself to learn
the spread of a machine.
"""

import argparse
import io
import math
import os
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from fedbandit.local.processes import LocalFederation  # noqa: E402
from live_load import Connection, cpu_seconds, pin, resident  # noqa: E402
from process_faults import WINDOW, federation_terms  # noqa: E402
from processes import state, wait_until  # noqa: E402

LONGEST = 5.0
"""Seconds after which a version ends its turn, on a machine that is slow or busy: the other one gets as many pairs."""

NEIGHBOURS = 8
"""Of the agent that is watched while nothing happens."""


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    blocks: int  # of pairs, for each version
    pairs: int  # in a block
    starts: int  # of an agent with its neighbours, for each version
    seconds: float  # that it is watched after each start, while nothing happens


FULL = Effort(blocks=10, pairs=2000, starts=4, seconds=60.0)
QUICK = Effort(blocks=5, pairs=200, starts=2, seconds=5.0)


@dataclass
class Version:
    """A checkout, and what was measured of it: a list per measure, with an entry per turn."""

    name: str
    checkout: Path
    measured: dict[str, list[float]] = field(default_factory=dict)

    def note(self, **values: float) -> None:
        """Add measurements."""
        for measure, value in values.items():
            self.measured.setdefault(measure, []).append(value)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Processes that are started here run this version."""
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = str(self.checkout / "src")
        try:
            yield
        finally:
            os.environ.pop("PYTHONPATH")
            if before is not None:
                os.environ["PYTHONPATH"] = before

    def check(self) -> None:
        """Refuse a checkout whose package is not the one that would run."""
        with self.running():
            command = [sys.executable, "-c", "import fedbandit; print(fedbandit.__file__)"]
            ran = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603  # our own program
        if self.checkout not in Path(ran.stdout.strip()).resolve().parents:
            raise SystemExit(f"{self.checkout} has no fedbandit in src: {ran.stdout.strip()} would run")


def turns(versions: list[Version], count: int) -> Iterator[list[Version]]:
    """There, here, here, there, ...: a drift of the machine falls on both."""
    for turn in range(count):
        yield versions if turn % 2 == 0 else versions[::-1]


def start(version: Version, federation: LocalFederation, name: str) -> None:
    """Start an agent and note what that takes."""
    with version.running():
        began = time.perf_counter()
        federation.start(name)
        federation.wait_ready(name)
    process = federation.process(name)
    version.note(start=time.perf_counter() - began, start_cpu=cpu_seconds(process), memory=resident(process))


def pairs(versions: list[Version], folder: Path, effort: Effort) -> int:
    """Decisions and rewards over one connection, for an agent without neighbours; how many each version had."""
    core, *others = sorted(os.sched_getaffinity(0), reverse=True)
    terms, links = federation_terms(2), [("east", "north")]
    federations = {version.name: LocalFederation(folder / version.name, terms, links) for version in versions}
    try:
        for version in versions:
            federation = federations[version.name]
            start(version, federation, "north")
            pin(federation.process("north"), core)
        os.sched_setaffinity(0, others or [core])  # the application has another core than the agents
        decisions = 0
        for order in turns(versions, effort.blocks):
            first, second = ((version, federations[version.name]) for version in order)
            count = block(*first, effort.pairs, LONGEST)
            block(*second, count)
            decisions += count
        for version in versions:
            version.note(memory_later=resident(federations[version.name].process("north")))
        return decisions
    finally:
        os.sched_setaffinity(0, {core, *others})
        for federation in federations.values():
            federation.stop_all()


def block(version: Version, federation: LocalFederation, pairs: int, within: float = math.inf) -> int:
    """Note what some pairs cost, or those that come within some seconds; how many."""
    process, connection = federation.process("north"), Connection(federation.http_ports["north"])
    cpu, began, times = cpu_seconds(process), time.perf_counter(), list[float]()
    while len(times) < pairs and (len(times) < 100 or time.perf_counter() < began + within):
        times.append(connection.pair())
    elapsed = time.perf_counter() - began
    connection.close()  # the agent would, while the other one has its turn
    time.sleep(1.2 * WINDOW)  # when a window ends, its reward counts: that work belongs to this turn, too
    version.note(
        pair_cpu=(cpu_seconds(process) - cpu) / len(times),
        pairs=len(times) / elapsed,
        median=statistics.median(times),
        tail=statistics.quantiles(times, n=100)[98],
    )
    return len(times)


def idle(version: Version, folder: Path, effort: Effort) -> None:
    """An agent with linked neighbours and nothing to do: CPU, and bytes of its links."""
    names = [f"site{k}" for k in range(NEIGHBOURS)]
    federation = LocalFederation(folder, federation_terms(NEIGHBOURS + 1), [(name, "hub") for name in names])
    try:
        for name in names:
            with version.running():
                federation.start(name)
        for name in names:
            federation.wait_ready(name)
        start(version, federation, "hub")
        wait_until(lambda: all(it["reachable"] for it in state(federation, "hub")["neighbours"]), within=30.0)
        connection = Connection(federation.http_ports["hub"])
        for _ in range(20):
            connection.pair()
        connection.close()
        time.sleep(5.0)
        process, port = federation.process("hub"), federation.gossip_ports["hub"]
        cpu, began, before = cpu_seconds(process), time.perf_counter(), wire_bytes(port)
        time.sleep(effort.seconds)
        elapsed = time.perf_counter() - began
        version.note(
            idle_cpu=(cpu_seconds(process) - cpu) / elapsed,
            idle_bytes=max(wire_bytes(port) - before, 1) * 3600.0 / elapsed,
        )
    finally:
        federation.stop_all()


def wire_bytes(port: int) -> int:
    """Bytes that have gone both ways over the connections that this port has accepted, as the system counts them."""
    command = ["ss", "-tinH", "state", "established", f"( sport = :{port} )"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603  # a fixed command
    return sum(map(int, re.findall(r"bytes_(?:sent|received):(\d+)", said)))


# ---------------------------------------------------------------- the table

MEASURES = {
    "pair_cpu": ("CPU of the agent per decide + reward, ms", 1e3, 3),
    "pairs": ("decide + reward, pairs/s over one connection", 1.0, 0),
    "median": ("decide, median, ms", 1e3, 3),
    "tail": ("decide, 99 % below, ms", 1e3, 3),
    "idle_cpu": ("CPU of an idle agent with 8 neighbours, ms per s", 1e3, 2),
    "idle_bytes": ("its links, kB per hour", 1e-3, 0),
    "memory": ("memory (RSS) after the start, MB", 1.0, 1),
    "memory_later": ("memory (RSS) after {decisions:,} decisions, MB", 1.0, 1),
    "start": ("from start to serving, s", 1.0, 2),
    "start_cpu": ("CPU from start to serving, s", 1.0, 2),
}


def table(there: Version, here: Version, decisions: int) -> str:
    """Medians, and the ratio with its spread."""
    lines = [f"{'':<48}{'there':>10}{'here':>10}{'ratio':>9}{'from':>8}{'to':>8}{'turns':>7}"]
    for measure, (words, scale, digits) in MEASURES.items():
        one, other = there.measured[measure], here.measured[measure]
        ratios = [b / a for a, b in zip(one, other, strict=True)]
        medians = "".join(f"{scale * statistics.median(it):>10,.{digits}f}" for it in (one, other))
        spread = f"{statistics.median(ratios):>9.3f}{min(ratios):>8.3f}{max(ratios):>8.3f}{len(ratios):>7}"
        lines.append(f"{words.format(decisions=decisions):<48}{medians}{spread}")
    return "\n".join(lines)


@contextmanager
def checkout_of(against: str) -> Iterator[Path]:
    """A folder with the other version: the one named, or a copy of a git revision, removed at the end."""
    if Path(against).is_dir():
        yield Path(against).resolve()
        return
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", against]
    archive = subprocess.run(command, capture_output=True, check=False)  # noqa: S603  # a revision of this repository
    if archive.returncode:
        raise SystemExit(f"{against} is neither a folder nor a revision: {archive.stderr.decode().strip()}")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(folder, filter="data")
        yield Path(folder).resolve()


def main() -> None:
    """Measure in turns and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--against", required=True, metavar="REVISION", help="a git revision, or a checkout's folder")
    parser.add_argument("--quick", action="store_true", help="a minute; the numbers scatter more")
    given = parser.parse_args()
    effort = QUICK if given.quick else FULL
    os.umask(0o077)  # an agent may refuse data that others can read
    os.environ["PYTHONHASHSEED"] = "0"  # or chance would order the sets of one version better
    with checkout_of(given.against) as other, tempfile.TemporaryDirectory() as folder:
        there, here = Version("there", other), Version("here", ROOT)
        for version in (there, here):
            version.check()
            idle(version, Path(folder) / f"warm-{version.name}", QUICK)  # compiles the modules of a fresh copy
            version.measured.clear()
        decisions = pairs([there, here], Path(folder), effort)
        for turn, order in enumerate(turns([there, here], effort.starts)):
            for version in order:
                idle(version, Path(folder) / f"idle-{turn}-{version.name}", effort)
        print(f"there: {given.against}, here: {ROOT.name}, Python {sys.version.split()[0]}, ratio = here / there\n")
        print(table(there, here, decisions))


if __name__ == "__main__":
    main()
