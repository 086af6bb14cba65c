"""How long callers wait for a decision on a slow disk, and how many of them share a commit.

    python benchmarks/slow_disk.py                          # this checkout
    python benchmarks/slow_disk.py --against main           # beside another one, in the same run

A real agent runs, and each of its commits takes so many milliseconds longer. So many callers at once ask for a
decision, each over its own connection, again and again. A call that takes longer than 0.3 s counts as fallen back: what
a web page does that cannot wait. Where commits are shared, the wait is at most two commits plus the time to compute the
answers.

The second table has ``fedbandit.Client`` in as many threads, three calls each: one client for all of them, or one each.
"""

import argparse
import asyncio
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from agent_cost import Version, checkout_of  # noqa: E402
from fedbandit.local.processes import LocalFederation  # noqa: E402
from live_load import cpu_seconds  # noqa: E402
from process_faults import federation_terms  # noqa: E402

PATIENCE = 0.3
SECONDS = 3.0

SLOW = """
import sys, time
from fedbandit.agent.disk.journal import SqliteJournal

def slow(self, records, write=SqliteJournal._write, delay=float(sys.argv.pop(1))):
    time.sleep(delay)  # as a disk that is busy: other threads run meanwhile
    write(self, records)

SqliteJournal._write = slow
from fedbandit.cli import main
main()
"""

THREADS = """
import inspect, sys, threading, time
from fedbandit import AgentError, Client

url, callers, shares, fell_back = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "shared", []
has_deadline = "deadline" in inspect.signature(Client.__init__).parameters  # of the version that is measured
limits = {"timeout": 0.3, **({"deadline": 0.3} if has_deadline else {})}
shared, gate = Client(url, **limits), threading.Barrier(callers + 1)

def call():
    gate.wait()
    client = shared if shares else Client(url, **limits)
    for _ in range(3):
        try:
            client.decide()
        except AgentError:
            fell_back.append(1)

threads = [threading.Thread(target=call) for _ in range(callers)]
for thread in threads:
    thread.start()
began = time.process_time()
gate.wait()
for thread in threads:
    thread.join()
print(len(fell_back), 1e3 * (time.process_time() - began) / (3 * callers))
"""


@dataclass(frozen=True)
class Load:
    """What some callers have seen."""

    times: list[float]
    commits: int
    cpu: float

    def row(self) -> str:
        """Rate, times and shares, in columns."""
        late = sum(took > PATIENCE for took in self.times) / len(self.times)
        tail = statistics.quantiles(self.times, n=100)[98]
        return (
            f"{len(self.times) / SECONDS:>8,.0f}{1e3 * statistics.median(self.times):>9.0f}{1e3 * tail:>9.0f}"
            f"{late:>8.0%}"
            f"{len(self.times) / max(1, self.commits):>9.1f}{1e3 * self.cpu / len(self.times):>9.2f}"
        )


HEAD = f"{'calls/s':>8}{'median':>9}{'99 %':>9}{'> 0.3 s':>8}{'/commit':>9}{'CPU ms':>9}"


@contextmanager
def slow_agent(version: Version, folder: Path, delay: float) -> Iterator[tuple[LocalFederation, int]]:
    """A running agent whose commits take longer by ``delay``, and its process."""
    federation = LocalFederation(folder, federation_terms(2), [("north", "east")], secure=False)
    command = [sys.executable, "-c", SLOW, str(delay), "agent", "--insecure", "-c", str(federation.config("north"))]
    with version.running(), federation.log("north").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)  # noqa: S603  # our own program
    try:
        while not federation.is_ready("north"):
            if process.poll() is not None:
                raise SystemExit(federation.last_words("north"))
            time.sleep(0.05)
        yield federation, process.pid
    finally:
        process.terminate()
        process.wait()


async def calls(port: int, callers: int) -> list[float]:
    """How long each call took."""
    request = b"POST /v1/decisions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n"
    times: list[float] = []
    until = time.perf_counter() + SECONDS

    async def caller() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < until:
            began = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 201"):
                raise RuntimeError(head.decode())
            (length,) = (int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if b"content-length" in line)
            await reader.readexactly(length)
            times.append(time.perf_counter() - began)
        writer.close()

    await asyncio.gather(*(caller() for _ in range(callers)))
    return times


def commits(federation: LocalFederation) -> int:
    """How many transactions are in the file."""
    with sqlite3.connect(federation.state_file("north")) as file:
        return file.execute("SELECT commits FROM agent").fetchone()[0]


def measured(version: Version, folder: Path, delay: float, callers: int) -> Load:
    """A fresh agent under load."""
    with slow_agent(version, folder, delay) as (federation, process):
        cpu = cpu_seconds(process)
        times = asyncio.run(calls(federation.http_ports["north"], callers))
        cpu = cpu_seconds(process) - cpu
    return Load(times, commits(federation), cpu)


def clients(version: Version, folder: Path, delay: float, callers: int, mode: str) -> tuple[int, float]:
    """How many of three calls per caller fell back, and milliseconds of CPU per call in the application."""
    with slow_agent(version, folder, delay) as (federation, _), version.running():
        command = [sys.executable, "-c", THREADS, federation.url("north"), str(callers), mode]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603  # our own program
    fell_back, cpu = ran.stdout.split()
    return int(fell_back), float(cpu)


def main() -> None:
    """Measure in turns and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--against", metavar="REVISION", help="a git revision, or a checkout's folder")
    parser.add_argument("--delays", default="0,5,20,50,100", help="milliseconds by which a commit takes longer")
    parser.add_argument("--callers", default="1,10,100")
    given = parser.parse_args()
    os.umask(0o077)
    with checkout_of(given.against or str(ROOT)) as other, tempfile.TemporaryDirectory() as folder:
        versions = [*([Version("there", other)] if given.against else []), Version("here", ROOT)]
        print(f"{'':<6}{'commit ms':>10}{'callers':>8}{HEAD}")
        for delay in (float(text) / 1e3 for text in given.delays.split(",")):
            for callers in (int(text) for text in given.callers.split(",")):
                for version in versions:
                    place = Path(folder) / f"{version.name}-{delay}-{callers}"
                    load = measured(version, place, delay, callers)
                    print(f"{version.name:<6}{1e3 * delay:>10.0f}{callers:>8}{load.row()}", flush=True)
        print(f"\n{'':<6}{'commit ms':>10}{'callers':>8}{'client':>8}{'fell back':>12}{'CPU ms':>9}")
        for delay in (0.0, 0.02, 0.05):
            for mode in ("shared", "own"):
                for version in versions:
                    fell_back, cpu = clients(version, Path(folder) / f"{version.name}-{delay}-{mode}", delay, 100, mode)
                    share = f"{fell_back}/300"
                    print(f"{version.name:<6}{1e3 * delay:>10.0f}{100:>8}{mode:>8}{share:>12}{cpu:>9.1f}", flush=True)


if __name__ == "__main__":
    main()
