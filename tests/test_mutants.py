"""Can the tests fail? Each mutant breaks one rule in a copy of the package; some test must notice.

The table is in ``mutants.py``, a summary in ``README.md``. ``pytest tests/test_mutants.py -s`` prints who noticed.
"""

import compileall
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from mutants import MUTANTS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "fedbandit"
ALL_WATCHERS = [
    "test_flow.py",
    "test_site.py",
    "test_durable_site.py",
    "test_damaged_files.py",
    "test_privacy.py",
    "test_schema2.py",
    "test_schema3.py",
    "test_late_rewards.py",
    "test_late_http.py",
    "test_agent_policies.py",
    "test_api.py",
    "test_streams.py",
    "test_golden.py",
    "test_baselines.py",
    "test_paper.py",
    "test_simulate.py",
    "test_fedbatch.py",
]
"""What runs if the tests that a mutant names do not notice it."""

RUN = """
import sys, pytest
code = pytest.main(sys.argv[2:])
import fedbandit
sys.exit(code if fedbandit.__file__.startswith(sys.argv[1]) else f"tested {fedbandit.__file__}, not the copy")
"""

BROKEN_CODE = re.compile(r"NameError|ImportError|SyntaxError|TypingError|LoweringError|numba\.core\.errors")
"""A mutant that cannot run proves nothing about the tests."""


# ---------------------------------------------------------------- each is noticed


@pytest.fixture(scope="session")
def copy(tmp_path_factory):
    """One copy for all mutants of a process: what they leave alone keeps its path and time, so it stays compiled."""
    folder = tmp_path_factory.mktemp("copy")
    for name in ("src", "tests", "docs", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "test_mutants.py"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    compileall.compile_dir(folder / "src", quiet=1)
    return folder


@contextmanager
def broken(folder, mutant):
    path = folder / "src" / "fedbandit" / mutant.file
    text, before = path.read_text(), path.stat()
    path.write_text(text.replace(mutant.before, mutant.after))
    try:
        yield
    finally:
        path.write_text(text)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def run(folder, watchers):
    """Run tests on the copy, up to the first that fails."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    python = {
        "PYTHONPATH": str(folder / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "NUMBA_CACHE_DIR": str(folder / "numba"),
    }
    options = ["-x", "-q", "-p", "no:cacheprovider", "--color=no", "--hypothesis-profile=unshrunk"]
    options += ["--fault-seeds=200"]  # a rare fault needs many schedules
    options += ["-W", "ignore::hypothesis.errors.HypothesisWarning"]  # examples are large if they are not shrunk
    return subprocess.run(
        [sys.executable, "-c", RUN, str(folder), *options, *(f"tests/{watcher}" for watcher in watchers)],
        env={**kept, **python},
        cwd=folder,
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_rule_is_noticed(name, copy):
    mutant = MUTANTS[name]
    with broken(copy, mutant):
        ran = run(copy, mutant.watchers)
        if ran.returncode == 0:
            ran = run(copy, ALL_WATCHERS)
    noticed = re.findall(r"^FAILED tests/(.*)", ran.stdout, re.MULTILINE)
    print(f"\n{name}: {', '.join(noticed)}")  # noqa: T201
    crashed = ran.returncode in (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT)  # by an index beyond an array
    assert ran.returncode == 1 or crashed, f"{ran.stdout[-2000:]}{ran.stderr[-2000:]}"
    assert noticed or crashed
    assert not BROKEN_CODE.search(ran.stdout), ran.stdout[-2000:]


@pytest.mark.slow
def test_the_copy_passes_unless_it_is_broken(copy):
    """Otherwise every mutant would seem to be noticed."""
    watchers = sorted({watcher for mutant in MUTANTS.values() for watcher in mutant.watchers})
    ran = run(copy, watchers)
    assert ran.returncode == 0, f"{ran.stdout[-2000:]}{ran.stderr[-2000:]}"
