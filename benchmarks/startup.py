"""How long a start takes: imports, command lines, and the first call of every policy.

    python benchmarks/startup.py            # fills two tables of benchmarks/README.md
    python benchmarks/startup.py --quick    # each once, three policies, printed only

Each is a fresh process; the least of five, since other programs can only slow a start down. The first call of a policy
compiles it and keeps the code on disk; later processes load it from there. tests/test_startup.py guards what makes the
command line fast: the modules that it does not load.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from readme_tables import markdown, where_and_when, write

HERE = Path(__file__).resolve().parent

COMMANDS = {
    "Python alone": "pass",
    "Typer alone": "import typer",
    "`import fedbandit`": "import fedbandit",
    "`fedbandit --version`": "--version",
    "`fedbandit --help`": "--help",
    "`fedbandit run --help`": "run --help",
    "`fedbandit agent --help`": "agent --help",
    "`from fedbandit import Client`": "from fedbandit import Client",
    "`from fedbandit import simulate`": "from fedbandit import simulate",
}
QUICK_POLICIES = ("Gossip_UCB", "Fed_UCB", "FedBatch Thompson")


def policies() -> list[str]:
    """The names that speed_worker.py knows."""
    from speed_worker import POLICIES

    return list(POLICIES)


def environment(cache: str | None = None) -> dict[str, str]:
    """That of a process of this checkout; with ``cache``, where compiled code is kept."""
    own = {"PYTHONPATH": str(HERE.parent / "src")}
    return os.environ | own | ({"NUMBA_CACHE_DIR": cache} if cache else {})


def start(what: str) -> tuple[float, float]:
    """CPU and wall-clock seconds of one process: Python code, or a command line if it begins like one."""
    is_command = what.startswith("--") or what.endswith("--help")
    arguments = ["-m", "fedbandit", *what.split()] if is_command else ["-c", what]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
    command = [sys.executable, *arguments]
    subprocess.run(command, env=environment(), stdout=subprocess.DEVNULL, check=True)  # noqa: S603  # our own program
    wall, after = perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def first_call(policy: str, cache: str) -> float:
    """CPU seconds of a policy's first call in a fresh process."""
    command = [sys.executable, str(HERE / "speed_worker.py")]
    ran = subprocess.run(  # noqa: S603  # our own script
        command, env=environment(cache), input=f"first\t{policy}\n", capture_output=True, text=True, check=True
    )
    return float(ran.stdout)


def commands_table(runs: int) -> str:
    """The least CPU and wall-clock seconds of each start."""
    least: dict[str, tuple[float, float]] = {}
    for _ in range(runs):
        for label, what in COMMANDS.items():
            cpu, wall = start(what)
            before = least.get(label, (cpu, wall))
            least[label] = min(before[0], cpu), min(before[1], wall)
    rows = [[label, f"{cpu:.3f}", f"{wall:.3f}"] for label, (cpu, wall) in least.items()]
    return markdown(["start of a process", "CPU seconds", "wall-clock seconds"], rows)


def policies_table(names: list[str], cold_runs: int, runs: int) -> str:
    """The least CPU seconds of a first call, with nothing compiled yet and from the cache."""
    rows: list[list[str]] = []
    for name in names:
        cold, cached = list[float](), list[float]()
        for _ in range(cold_runs):
            with tempfile.TemporaryDirectory() as cache:
                cold.append(first_call(name, cache))
                cached += [first_call(name, cache) for _ in range(runs // cold_runs)]
        rows.append([name, f"{min(cold):.2f}", f"{min(cached):.2f}"])
        print(" | ".join(rows[-1]), flush=True)
    return markdown(["first call of", "compiling, CPU seconds", "from the cache, CPU seconds"], rows)


def main() -> None:
    """Measure; print, and fill the README."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="each once; prints, and leaves the README alone")
    given = parser.parse_args()
    runs = 1 if given.quick else 5
    cold_runs, cached_runs = (1, 1) if given.quick else (2, 6)
    text = f"{commands_table(runs)}\n\nThe least of {runs}. {where_and_when()}."
    print(text, flush=True)
    if not given.quick:
        write("starts", text)
    found = policies_table(list(QUICK_POLICIES) if given.quick else policies(), cold_runs, cached_runs)
    how = f"The least of {cold_runs} and of {cached_runs}; N = M = 10; imports are not counted"
    if not given.quick:
        write("first calls", f"{found}\n\n{how}. {where_and_when()}.")


if __name__ == "__main__":
    main()
