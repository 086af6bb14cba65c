"""Measures what docs/reliability.md promises of the live agent, on real processes, and writes that page.

    make reliability        # about three minutes

Speeds stand beside what the disk alone can do in the same run, for machines differ and are busy.
"""

import os
import platform
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from fedbandit import Client  # noqa: E402
from fedbandit.local.processes import LocalFederation  # noqa: E402
from live_load import pairs_of, pin, resident  # noqa: E402
from process_faults import federation_terms, run_with_faults  # noqa: E402
from processes import are_level, ask, board, come_through, state, wait_until  # noqa: E402

WINDOWS = 4
MINUTE = 60.0
SEED = 20261115

Row = tuple[str, str, str]


def main() -> None:
    """Measure, print as we go, write the page."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for measure in (one_agent, reconnection, spreading, faults, planted_bugs):
            for row in measure(Path(folder) / measure.__name__):
                print(f"{row[0]}: {row[1]} ({row[2]})", flush=True)
                rows.append(row)
    page = ROOT / "docs" / "reliability.md"
    head, _, _ = page.read_text(encoding="utf-8").partition(MARK)
    page.write_text(head + MARK + "\n\n" + numbers(rows), encoding="utf-8")
    print(f"wrote {page.relative_to(ROOT)}")


MARK = "<!-- from here on written by make reliability -->"


# ---------------------------------------------------------------- one agent


def one_agent(folder: Path) -> list[Row]:
    """One agent on one core, all its neighbours dead."""
    core, *others = sorted(os.sched_getaffinity(0), reverse=True)
    with LocalFederation(folder, federation_terms(3), [("north", "east"), ("north", "south")]) as federation:
        federation.stop("north")
        began = time.perf_counter()
        federation.start("north")
        federation.wait_ready("north")
        started = time.perf_counter() - began
        for name in ("east", "south"):
            federation.kill(name)
        pin(federation.process("north"), core)
        os.sched_setaffinity(0, others or [core])  # the application has another core than the agent
        port = federation.http_ports["north"]
        before = stolen()
        windows = [pairs_of(port, 1) for _ in range(WINDOWS)]
        alone, times = max(speed for speed, _ in windows), [took for _, times in windows for took in times]
        together = max(pairs_of(port, 4)[0] for _ in range(WINDOWS))
        taken, elapsed = (after - earlier for after, earlier in zip(stolen(), before, strict=True))
        memory = resident(federation.process("north"))
        with Client(federation.url("north")) as client:
            remembered = client.state().decisions.remembered
    os.sched_setaffinity(0, {core, *others})
    commits = bare_commits(folder)
    commits = max(bare_commits(folder), commits)
    quantiles = statistics.quantiles(times, n=1000)
    return [
        (
            "decide + reward, durable, agent on one core",
            f"{together:,.0f} pairs/s over four connections, {alone:,.0f} over one",
            "at least 500",
        ),
        ("meanwhile, processor time that other machines took from this one", f"{taken / elapsed:.0%}", ""),
        (
            "beside it: bare SQLite transactions on the same disk (WAL, FULL); a pair needs two",
            f"{commits:,.0f}/s; the agent does {2 * alone / commits:.0%} of that over one connection",
            "",
        ),
        (
            "`decide` with all neighbours dead, over one connection that asks all the time, all windows",
            f"median {1e3 * quantiles[499]:.2f} ms, 99 % below {1e3 * quantiles[989]:.2f} ms, {len(times):,} calls",
            "99 % below 10 ms",
        ),
        ("from start to serving", f"{started:.2f} s", ""),
        (f"memory (RSS), {remembered:,} decisions remembered", f"{memory:.0f} MB", "below 120 MB"),
    ]


def stolen() -> tuple[int, int]:
    """Processor time that the host gave to others while this machine wanted it, and all time, in ticks."""
    ticks = [int(word) for word in Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0].split()[1:9]]
    return ticks[7], sum(ticks)


def bare_commits(folder: Path) -> float:
    """Transactions per second of the disk alone: one small row each."""
    file = sqlite3.connect(folder / "bare.sqlite", isolation_level=None)
    file.execute("DROP TABLE IF EXISTS row")
    for pragma in ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL"):
        file.execute(f"PRAGMA {pragma}")
    file.execute("CREATE TABLE row (number INTEGER PRIMARY KEY, text TEXT)")
    count, began = 0, time.perf_counter()
    while time.perf_counter() - began < 3.0:
        file.execute("BEGIN IMMEDIATE")
        file.execute("INSERT INTO row (text) VALUES ('a decision and its reward')")
        file.execute("COMMIT")
        count += 1
    file.close()
    return count / (time.perf_counter() - began)


# ---------------------------------------------------------------- several agents


def reconnection(folder: Path) -> list[Row]:
    """How long after a restart two neighbours are linked again and know the same bulletins."""
    waits: list[float] = []
    federation = LocalFederation(folder, federation_terms(2), [("north", "east")])
    with federation:
        for _ in range(10):
            federation.kill("east")
            time.sleep(1.5)
            federation.start("east")
            federation.wait_ready("east")
            waits.append(come_through(federation, "north", "east", 30.0))
    return [
        (
            "linked, and the same bulletins, after a killed neighbour serves again (10 restarts)",
            f"median {statistics.median(waits):.2f} s, longest {max(waits):.2f} s",
            "within 2 s",
        )
    ]


def spreading(folder: Path) -> list[Row]:
    """How long a release and a stop take around a ring of eight agents."""
    names = [f"s{k}" for k in range(8)]
    ring = list(zip(names, names[1:] + names[:1], strict=True))
    with LocalFederation(folder, federation_terms(8), ring) as federation:
        wait_until(lambda: are_level(federation, *names), 30.0)
        releases: list[float] = []
        url, number = federation.url("s0"), board(federation, "s0")["s0"][1]
        for _ in range(10):
            ask(f"{url}/v1/decisions", "POST")
            wait_until(lambda: board(federation, "s0")["s0"][1] > number, every=0.005)  # noqa: B023
            number = board(federation, "s0")["s0"][1]
            releases.append(wait_until(lambda: board(federation, "s4")["s0"][1] >= number, every=0.005))  # noqa: B023
        stops: list[float] = []
        for arm in federation.terms.arms:
            ask(f"{url}/v1/arms", "POST", {"change": "suspend", "arm": arm, "reason": "recalled"})
            stops.append(wait_until(lambda: arm in _stopped(federation, "s4"), every=0.005))  # noqa: B023
    return [
        (f"a bulletin over a ring of eight, to the far side, {what}", f"median {statistics.median(it):.3f} s", bound)
        for what, it, bound in (("of decisions", releases, "within 0.5 s"), ("with a stop", stops, "within 0.2 s"))
    ]


def _stopped(federation: LocalFederation, name: str) -> list[str]:
    return state(federation, name)["federation"]["stopped"]


def faults(folder: Path) -> list[Row]:
    """A minute of kills and pauses under load."""
    outcome = run_with_faults(folder, 8, MINUTE, SEED, quiet=10.0)
    acknowledged, late = (
        sum(map(len, counted))
        for counted in zip(*((told.acknowledged, told.late) for told in outcome.told.values()), strict=True)
    )
    return [
        (
            "a minute of faults: 8 agents under load",
            f"{outcome.kills} SIGKILL, {outcome.pauses} SIGSTOP of 1 to 5 s, {acknowledged:,} acknowledged rewards, "
            f"{late} too late",
            "",
        ),
        ("acknowledged rewards lost; rewards counted twice, made up, or after their window", _counts(outcome), "0; 0"),
        ("releases drawn again after a kill", f"{len(outcome.redrawn())}", "0"),
        (
            "ten quiet seconds later, from the files: sites whose board or estimates differ in any bit",
            f"{len(outcome.unequal())}",
            "0",
        ),
    ]


def _counts(outcome) -> str:
    return f"{len(outcome.lost())}; {len(outcome.miscounted()) + len(outcome.uncalled()) + len(outcome.too_late())}"


# ---------------------------------------------------------------- the page


def planted_bugs(_: Path) -> list[Row]:
    """Run the tests that plant bugs, and their controls: each passes if its bug is noticed."""
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-k", "planted or Planted", "tests"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603  # our tests
    said = ran.stdout.strip().splitlines()[-1].split(" in ")[0]
    return [("tests around planted bugs, which pass if the bug is noticed; two are controls", said, "all passed")]


def numbers(rows: list[Row]) -> str:
    """The table of what was measured."""
    cores = len(os.sched_getaffinity(0))
    lines = [
        "## Measured",
        "",
        f"By `make reliability` on {cores} cores ({platform.machine()}, Python {platform.python_version()}), real "
        "processes on loopback with mutual TLS. Speeds are the best of four windows, since others on the machine can "
        "only slow one down.",
        "",
        "| | measured | promised |",
        "|---|---|---|",
    ]
    return "\n".join([*lines, *(f"| {what} | {value} | {target} |" for what, value, target in rows)]) + "\n"


if __name__ == "__main__":
    main()
