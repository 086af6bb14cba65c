"""Counts the instructions of one agent-pull with callgrind, which a busy machine does not disturb.

``python benchmarks/instructions.py [--checkout CHECKOUT] [POLICY ...]``, by default for the three policies of the
README's table. A count is the difference of two runs of different lengths, so what happens once per run drops out. The
code is compiled for x86-64-v3 (AVX2), whatever the processor: counts from different machines can be compared.
``--branches`` adds mispredicted branches, as callgrind's model of a predictor sees them.

The process runs twice: first as usual, which fills a cache of compiled code, then under callgrind, which counts only
between the requests of ``_Callgrind``.
"""

import argparse
import ctypes
import mmap
import os
import shutil
import subprocess
import sys
import tempfile
from itertools import zip_longest
from pathlib import Path
from typing import NoReturn

HERE = Path(__file__).resolve().parent
DEFAULT = ("Gossip_UCB", "Fed_UCB", "FedBatch Thompson")
AGENTS = 10  # of speed_worker.py, which is imported late: it takes seconds
SHORT, LONG = 5_000, 25_000  # rounds
AS_ANYWHERE = {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": ""}


class _Callgrind:
    """Requests of a running program to callgrind. Without callgrind they do nothing.

    A request is an instruction sequence without effect, in which valgrind finds the address of its arguments
    (``valgrind.h``, amd64): four rotations of rdi that cancel each other, then ``xchg rbx, rbx``.
    """

    _START, _STOP, _ZERO, _DUMP = 4, 5, 1, 0
    _CODE = bytes.fromhex("4889f8 31d2 48c1c703 48c1c70d 48c1c73d 48c1c733 4887db 4889d0 c3")

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self._page.write(self._CODE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._page))
        self._request = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(address)

    def _ask(self, request: int) -> None:
        tool = ord("C") << 24 | ord("T") << 16
        self._request((ctypes.c_uint64 * 6)(tool + request))

    def start(self) -> None:
        """Count from here, from zero."""
        self._ask(self._START)
        self._ask(self._ZERO)

    def stop(self) -> None:
        """Write the counts to the next file."""
        self._ask(self._DUMP)
        self._ask(self._STOP)


def count(names: list[str]) -> None:
    """Run each policy twice: the process that is counted."""
    import warnings

    from speed_worker import run

    warnings.simplefilter("ignore")
    callgrind = _Callgrind()
    for name in names:
        run(name, 10)
        for horizon in (SHORT, LONG):
            callgrind.start()
            run(name, horizon)
            callgrind.stop()


def _totals(path: Path) -> dict[str, int]:
    """The events that a file of callgrind sums up; it leaves out zeros at the end of a line."""
    lines = [line.partition(": ") for line in path.read_text().splitlines()]
    found = {name: rest.split() for name, _, rest in lines if name in ("events", "totals")}
    return dict(zip_longest(found["events"], map(int, found["totals"]), fillvalue=0))


def per_pull(names: list[str], files: list[Path]) -> dict[str, dict[str, float]]:
    """Events per agent-pull, by policy, from a file for each one's short run and one for its long run."""
    totals, pulls = [_totals(path) for path in files], AGENTS * (LONG - SHORT)
    return {
        name: {event: (long[event] - short[event]) / pulls for event in long}
        for name, short, long in zip(names, totals[::2], totals[1::2], strict=True)
    }


def measure(checkout: Path, names: list[str], branches: bool, cache: str | None) -> dict[str, dict[str, float]]:
    """Events per agent-pull, by policy."""
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | AS_ANYWHERE | {"PYTHONPATH": str(checkout / "src"), "NUMBA_CACHE_DIR": cache or folder}
        command = [sys.executable, str(HERE / "instructions.py"), "--counted", *names]
        subprocess.run(command, env=env, check=True)  # noqa: S603  # our own script
        options = ["--instr-atstart=no", f"--callgrind-out-file={folder}/counts"]
        if branches:
            options.append("--branch-sim=yes")
        valgrind = ["valgrind", "--tool=callgrind", "-q", *options]
        subprocess.run([*valgrind, *command], env=env, check=True, stderr=subprocess.PIPE)  # noqa: S603
        return per_pull(names, [Path(f"{folder}/counts.{number}") for number in range(1, 2 * len(names) + 1)])


def _refuse(message: str) -> NoReturn:
    raise SystemExit(message)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("policies", nargs="*", default=list(DEFAULT), metavar="POLICY")
    parser.add_argument("--checkout", type=Path, default=HERE.parent, help="another version of the project")
    parser.add_argument("--branches", action="store_true", help="count mispredicted branches too")
    parser.add_argument("--cache", help="a folder for compiled code, to be used again")
    parser.add_argument("--counted", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.counted:
        count(given.policies)
        return
    from speed_worker import POLICIES

    if unknown := set(given.policies) - set(POLICIES):
        _refuse(f"no such policy: {', '.join(sorted(unknown))}; known: {', '.join(POLICIES)}")
    if shutil.which("valgrind") is None:
        _refuse("valgrind is missing: instructions are counted by its tool callgrind (Debian: apt install valgrind)")
    print(f"{'per agent-pull':<20}{'instructions':>14}" + f"{'mispredicted':>14}" * given.branches)
    for name, events in measure(given.checkout.resolve(), given.policies, given.branches, given.cache).items():
        missed = f"{events['Bcm'] + events['Bim']:>14.2f}" if given.branches else ""
        print(f"{name:<20}{events['Ir']:>14.1f}{missed}")


if __name__ == "__main__":
    main()
