"""What this package changes in Numba: the key of compiled code on disk, and the square root of its own code alone."""

import math
import os
import re
import runpy
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import numba

from fedbandit.engine import compiled, cpu
from fedbandit.engine.links import LINKS
from fedbandit.engine.phases import specialise
from fedbandit.policies import GossipUCB, LocalUCB
from fedbandit.rules import gossip
from fedbandit.world import rewards


def key_of(policy, **changes):
    """What finds the compiled loop of a policy on disk; the loop is made anew, and nothing is compiled."""
    page = policy.page()._replace(**changes)
    spec = specialise(page, rewards.Gaussian(1.0), LINKS["one"], watches=False)
    return cpu.compiled_rounds.__wrapped__(spec)._cache._key


def test_a_loop_is_found_again_by_its_code():
    assert key_of(GossipUCB()) == key_of(GossipUCB())
    assert key_of(GossipUCB()) != key_of(LocalUCB())
    assert (
        key_of(GossipUCB())
        != cpu.compiled_rounds.__wrapped__(
            specialise(GossipUCB().page(), rewards.Gaussian(1.0), LINKS["matching"], watches=False)
        )._cache._key
    )


def test_checkouts_share_a_folder_of_compiled_code(tmp_path, monkeypatch):
    """Neither where a file lies nor when it was written is part of the key."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    for place in ("one", "other"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "twice.py").write_text("def twice(x):\n    return 2.0 * x\n")
        space = runpy.run_path(str(tmp_path / place / "twice.py"))
        assert compiled.compile_driver(space["twice"])(1.5) == 3.0
        assert len(list(tmp_path.glob("*.nbi"))) == 1


def test_a_changed_rule_is_compiled_anew(monkeypatch):
    """Directly called, called by a rule, or a constant: each is part of the key."""
    before = key_of(GossipUCB()), key_of(LocalUCB())

    monkeypatch.setattr(gossip.average, "__code__", (lambda x, y: (x + y) / 3.0).__code__)  # the engine calls it
    assert key_of(GossipUCB()) != before[0]
    monkeypatch.undo()
    assert (key_of(GossipUCB()), key_of(LocalUCB())) == before
    assert key_of(LocalUCB(), estimate=lambda me, terms, seen, arm: 0.0) != before[1]


def test_what_no_loop_reaches_compiles_nothing_anew():
    """Only these files of the engine count as a whole: edits of results, accounting, or another page do not matter."""
    assert set(compiled._EXTENSIONS).isdisjoint({"cpu", "accounting", "layout"})
    before = key_of(LocalUCB())
    decide, code = GossipUCB().page().decide, GossipUCB().page().decide.__code__
    try:
        decide.__code__ = (lambda me, terms, seen, now, draws: 0).__code__
        assert key_of(LocalUCB()) == before
    finally:
        decide.__code__ = code


def test_names_of_fields_are_part_of_the_key():
    """Numba's own key has the class and the types of a named tuple: with two names exchanged they are the same."""

    def fields_of(*names):
        inner = namedtuple("Inner", names)
        return compiled._fields_in([numba.typeof(1), numba.typeof(namedtuple("Outer", ["inner"])(inner(1.0, 2.0)))])

    assert fields_of("means", "rates") != fields_of("rates", "means")


def test_every_file_that_extends_numba_is_part_of_the_key():
    """Compiled code does not name an overload or an intrinsic: their files count as a whole."""
    engine = Path(compiled.__file__).parent
    mark = re.compile(r"^@\w*(overload|intrinsic)|^@_extending", re.MULTILINE)
    extends = {path.stem for path in engine.glob("*.py") if mark.search(path.read_text())}
    assert {"compiled", "streams", "threads"} <= extends <= set(compiled._EXTENSIONS)


def test_the_square_root_of_others_is_numbas_own():
    """Ours is the processor's instruction, which LLVM vectorises; code of others in the process is as it was."""

    def root(x):
        return math.sqrt(x)

    ours, theirs = compiled.compile_small(root), numba.njit(lambda x: math.sqrt(x))
    for x in (2.0, 0.0, 1e-300, 12345.678):
        assert ours(x) == theirs(x) == math.sqrt(x)
    assert "llvm.sqrt" in next(iter(ours.inspect_llvm().values()))
    assert "llvm.sqrt" not in next(iter(theirs.inspect_llvm().values()))


def test_code_from_several_processes_runs_in_one(tmp_path):
    """Each driver calls its own functions: Numba names those of other numbers of arms alike in different processes."""
    code = (
        "import sys, numpy as np; from fedbandit import LocalUCB, Problem, simulate\n"
        "for arms in map(int, sys.argv[1:]):\n"
        "    problem = Problem.bernoulli(np.linspace(0.2, 0.8, 3 * arms).reshape(3, arms), 'path:3')\n"
        "    print(simulate(problem, LocalUCB(), 500, 2, threads=1).regret.values.sum())\n"
    )

    def played(*arms):
        environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
        command = [sys.executable, "-c", code, *map(str, arms)]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split()

    alone = played(5) + played(10)
    assert played(5, 10) == alone


OWN_DRAW = """
from fedbandit import LocalUCB, Problem, simulate
space = {"__name__": "example"}
COIN = "def coin(bits, mean): return 1.0 if uniform(bits) < mean else 0.0"
exec("from fedbandit.engine.streams import uniform\\n" + COIN, space)
problem = Problem.own(space["coin"], [[0.2, 0.7]], "complete:1", reward_range=(0, 1), variance=0.25, bounded=True)
print(float(simulate(problem, LocalUCB(), 50, 1, seed=1).regret.sum()))
"""


def test_code_of_no_module_is_compiled_anew(tmp_path):
    """As in a notebook: what stored code would import is not there in the next process."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    runs = [
        subprocess.run([sys.executable, "-c", OWN_DRAW], env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert runs[0].stdout == runs[1].stdout != ""
