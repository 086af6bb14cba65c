"""Can the tests fail? Plants one bug after the other (``tests/mutants.py``) and runs the tests that should notice it.

First it checks that every bug still fits the code, that its tests exist, and that they pass without it. Results are
kept in ``out/mutants`` under a digest of source, tests and bug: an interrupted run goes on where it was. Exits with 1
if somebody did not notice, or a bug no longer fits.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from difflib import unified_diff
from pathlib import Path
from time import monotonic  # noqa: TID251  # it says how long tests took
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
OUT = ROOT / "out" / "mutants"
sys.path.insert(0, str(TESTS))

from mutants import BUGS  # noqa: E402
from planting import Broken, Bug, DoesNotFit, Package, watchers_of  # noqa: E402

OPTIONS = (
    *("-q", "-p", "no:cacheprovider", "--color=no", "--hypothesis-profile=unshrunk"),
    *("-W", "ignore::hypothesis.errors.HypothesisWarning"),  # examples are large if they are not shrunk
    "--fault-seeds=200",  # a rare fault needs many schedules
)
CANNOT_RUN = re.compile(
    r"^E +.*\b(NameError|UnboundLocalError|ImportError|ModuleNotFoundError|SyntaxError|IndentationError|TypingError"
    r"|LoweringError|numba\.core\.errors)\b",
    re.MULTILINE,
)
"""Code that cannot run proves nothing about the tests."""

CRASHES = {-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT, -signal.SIGILL, -signal.SIGFPE}
"""What an index beyond an array does: noticed."""

BEGIN, END = "<!-- written by make mutants WRITE=1 -->", "<!-- end of what it wrote -->"


class Outcome(NamedTuple):
    """What happened with one bug; ``by`` is the test that noticed, or empty."""

    key: str
    bug: str
    by: str
    why_not: str
    seconds: float


def main() -> int:
    """Run what was asked for, and say who did not notice what."""
    said = _arguments()
    chosen = {name: bug for name, (area, bug) in BUGS.items() if _is_chosen(said.only, area, name)}
    if not chosen:
        print(f"no area or bug is called {said.only!r}; areas: {', '.join(dict.fromkeys(a for a, _ in BUGS.values()))}")
        return 1
    planted, watchers = _fitted(chosen.values())
    if said.show:
        for name, broken in planted.items():
            print(f"\n{name}: {broken.module}, watched by {', '.join(watchers[name])}")
            lines = unified_diff(broken.before.splitlines(), broken.after.splitlines(), lineterm="", n=2)
            print("\n".join(list(lines)[2:]))
        return 0
    OUT.mkdir(parents=True, exist_ok=True)
    digest = _digest()
    if not _unbroken_passes(digest, sorted({it for name in chosen for it in watchers[name]}), said.jobs):
        return 1
    began = monotonic()
    outcomes = _all_outcomes(digest, chosen, planted, watchers, said)
    unnoticed = [it for it in outcomes if not it.by]
    print(f"\n{_table(outcomes)}\n")
    total = sum(it.seconds for it in outcomes)
    print(
        f"{len(outcomes)} bugs, {len(outcomes) - len(unnoticed)} noticed, {total:.0f} s of tests"
        f" in {monotonic() - began:.0f} s"
    )
    for it in unnoticed:
        print(f"NOT NOTICED: {it.bug}: {it.why_not}")
    if said.write and len(chosen) == len(BUGS):
        _write(outcomes)
    return 1 if unnoticed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="areas or bugs whose names begin with this or contain it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at once")
    parser.add_argument("--again", action="store_true", help="run also what is known from an earlier run")
    parser.add_argument("--write", action="store_true", help="write the table into tests/README.md")
    parser.add_argument("--show", action="store_true", help="show what would be changed, and run nothing")
    return parser.parse_args()


def _is_chosen(only: str, area: str, name: str) -> bool:
    return only.lower() in area.lower() or only.lower() in name.lower()


def _fitted(bugs: Iterable[Bug]) -> tuple[dict[str, Broken], dict[str, list[str]]]:
    package, wrong = Package(), list[str]()
    planted, watchers = dict[str, Broken](), dict[str, list[str]]()
    for bug in bugs:
        try:
            planted[bug.name], watchers[bug.name] = package.broken(bug), watchers_of(bug)
        except DoesNotFit as error:
            wrong.append(str(error))
    if wrong:
        raise SystemExit("these no longer fit:\n" + "\n".join(wrong))
    return planted, watchers


def _digest() -> str:
    """A hash of the source and of the tests, with all that they read."""
    digest = hashlib.sha256()
    for folder in (ROOT / "src", TESTS):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.name not in ("mutants.py", "README.md"):
                digest.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()


def _key(digest: str, bug: Bug) -> str:
    return hashlib.sha256(f"{digest} {bug!r}".encode()).hexdigest()


# ---------------------------------------------------------------- runs


def _unbroken_passes(digest: str, watchers: Sequence[str], jobs: int) -> bool:
    """Whether the tests pass without a bug: else all would seem to be noticed. Fills the cache of compiled code."""
    passed = OUT / "unbroken.json"
    known: dict[str, list[str]] = json.loads(passed.read_text()) if passed.exists() else {}
    missing = [it for it in watchers if it not in known.get(digest, ())]
    if missing:
        print(f"the code as it is: {len(missing)} tests", flush=True)
        command = [sys.executable, "-m", "pytest", *OPTIONS, "-n", str(jobs), "--dist", "loadgroup", *_paths(missing)]
        environment = _environment(OUT / "numba")
        ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            print(f"{ran.stdout[-4000:]}{ran.stderr[-2000:]}\nwithout any bug, tests fail")
            return False
        passed.write_text(json.dumps({digest: [*known.get(digest, ()), *missing]}))
    return True


def _all_outcomes(
    digest: str,
    chosen: dict[str, Bug],
    planted: dict[str, Broken],
    watchers: dict[str, list[str]],
    said: argparse.Namespace,
) -> list[Outcome]:
    kept, known = OUT / "results.jsonl", dict[str, Outcome]()
    if kept.exists() and not said.again:
        for line in kept.read_text().splitlines():
            outcome = Outcome(*json.loads(line))
            known[outcome.key] = outcome
    found = {name: known[key] for name, bug in chosen.items() if (key := _key(digest, bug)) in known}
    waiting = [name for name in chosen if name not in found]
    print(f"{len(waiting)} bugs to plant, {len(found)} known from before", flush=True)
    running: set[subprocess.Popen[str]] = set()

    def try_one(name: str) -> Outcome:
        return _try(_key(digest, chosen[name]), chosen[name], planted[name], watchers[name], running)

    with ThreadPoolExecutor(said.jobs) as pool:
        tasks = {pool.submit(try_one, name): name for name in waiting}
        try:
            for number, task in enumerate(as_completed(tasks), 1):
                outcome = found[tasks[task]] = task.result()
                with kept.open("a") as file:
                    file.write(json.dumps(outcome) + "\n")
                word = outcome.by or f"NOT NOTICED: {outcome.why_not.splitlines()[0]}"
                print(f"{number:4}/{len(waiting)} {outcome.seconds:6.1f} s  {outcome.bug}: {word}", flush=True)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in list(running):
                _stop(process)
            raise
    return [found[name] for name in chosen]


def _try(key: str, bug: Bug, broken: Broken, watchers: Sequence[str], running: set[subprocess.Popen[str]]) -> Outcome:
    folder = OUT / "planted" / hashlib.sha256(bug.name.encode()).hexdigest()[:12]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    text, loaded = folder / broken.path.name, folder / "loaded"
    text.write_text(broken.text)
    if not broken.may_be_compiled and (OUT / "numba").is_dir():  # what is compiled stays as it is: seen, never changed
        shutil.copytree(OUT / "numba", folder / "numba", copy_function=os.link)
    environment = _environment(folder / "numba") | {"FEDBANDIT_PLANTED": f"{broken.module}\n{text}\n{loaded}"}
    command = [sys.executable, "-m", "pytest", "-x", "-n", "0", *OPTIONS, *_paths(watchers)]
    began = monotonic()
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        running.add(process)
        try:
            said, _ = process.communicate(timeout=bug.limit)
            by, why_not = _judged(process.returncode, said, loaded.exists())
        except subprocess.TimeoutExpired:
            _stop(process)
            by, why_not = "", f"stopped after {bug.limit:.0f} s"
        finally:
            running.discard(process)
    seconds = monotonic() - began
    if by:
        shutil.rmtree(folder)
    return Outcome(key, bug.name, by, why_not, round(seconds, 1))


def _judged(code: int, said: str, is_loaded: bool) -> tuple[str, str]:
    """The test that noticed, or why nobody did."""
    noticed = re.search(r"^(?:FAILED|ERROR) tests/(\S+?::.*?)(?: - .*)?$", said, re.MULTILINE)
    broken = CANNOT_RUN.search(said)
    if not is_loaded:
        return "", f"the bug cannot run: {broken[0]}" if broken else "the module with the bug was not loaded"
    if code in CRASHES:
        return f"a crash ({signal.Signals(-code).name})", ""
    if code == 0:
        return "", "all tests passed"
    if code != 1 or noticed is None:
        return "", f"pytest ended with {code}\n{said[-1500:]}"
    if broken:
        return "", f"the bug cannot run: {broken[0]}"
    return noticed[1], ""


def _stop(process: subprocess.Popen[str]) -> None:
    """End a run with all processes that its tests have started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _paths(watchers: Sequence[str]) -> list[str]:
    return [f"tests/{watcher}" for watcher in watchers]


def _environment(cache: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "FEDBANDIT_PLANTED"))}
    path = os.pathsep.join(filter(None, [str(TESTS / "planted"), kept.get("PYTHONPATH")]))
    return {**kept, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(cache)}


# ---------------------------------------------------------------- the table


def _table(outcomes: Iterable[Outcome]) -> str:
    lines, last = ["| bug | noticed by | seconds |", "|---|---|---|"], ""
    for it in outcomes:
        if (area := BUGS[it.bug][0]) != last:
            lines.append(f"| **{area}** | | |")
            last = area
        lines.append(f"| {it.bug} | {f'`{it.by}`' if it.by else '**nobody**'} | {it.seconds:.0f} |")
    return "\n".join(lines)


def _write(outcomes: Sequence[Outcome]) -> None:
    page = TESTS / "README.md"
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{_table(outcomes)}\n{END}{after}")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped; the next run goes on from here")
