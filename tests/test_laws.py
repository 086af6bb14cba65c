"""The laws of the house that a machine can check."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedbandit

SOURCE = Path(fedbandit.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))


def imports_of(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


@pytest.mark.parametrize("path", sorted((SOURCE / "rules").glob("*.py")), ids=lambda path: path.name)
def test_rules_import_only_math(path):
    allowed = {"math", "collections.abc"}  # the latter for annotations
    assert {name for name in imports_of(path) if not name.startswith("fedbandit.rules")} <= allowed


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_file_states_its_law(path):
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), "no docstring"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_all_is_honest(path):
    module = ".".join(["fedbandit", *path.relative_to(SOURCE).with_suffix("").parts]).removesuffix(".__init__")
    loaded = __import__(module, fromlist=["_"])
    for name in getattr(loaded, "__all__", []):
        assert hasattr(loaded, name)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_modules_are_short(path):
    assert len(path.read_text().splitlines()) <= 400


def test_rules_run_without_numba():
    """A live agent calls the rules as plain functions; loading them must not load an engine."""
    code = (
        "import sys\n"
        "from fedbandit.rules import batch, choose, gossip, kl, mean, radius\n"
        "assert choose.choose([0.1, 0.3], [0.0, 0.0], [1, 1], [1, 1], 3, 0, 0.0) == 1\n"
        "assert mean.pull_tree_add([0.0] * 4, 1, 2.5) == 2.5\n"
        "print(*sorted({'numba', 'numpy'} & set(sys.modules)))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""


def test_a_live_agent_is_light():
    """It starts, decides, takes a reward and releases without NumPy, Numba, the simulator, or OpenDP until it draws."""
    code = (
        "import sys\n"
        "import fedbandit.agent.journal, fedbandit.agent.memory\n"
        "from fedbandit.agent.federation import Federation\n"
        "from fedbandit.policies import FedBatch\n"
        "terms = Federation('f', 2, ('a', 'b'), 0, 1, FedBatch(1.0, first_batch=1))\n"
        "network = fedbandit.agent.memory.MemoryNetwork(terms, [('x', 'y')])\n"
        "network.report('x', network.decide('x').id, 1.0)\n"
        "network.exchange('x', 'y')\n"
        "network.run()\n"
        "assert network.site('y').gossiped[0] != 0.0\n"
        "heavy = {'numba', 'numpy', 'opendp', 'networkx', 'fedbandit.simulation'}\n"
        "print(*sorted(heavy & set(sys.modules)))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""


@pytest.mark.parametrize("path", sorted((SOURCE / "agent").glob("*.py")), ids=lambda path: path.name)
def test_the_agent_does_not_import_the_simulator(path):
    assert not [name for name in imports_of(path) if name.startswith(("fedbandit.simulation", "numpy", "numba"))]


@pytest.mark.parametrize(
    "name",
    [
        *(f"simulation/{part}.py" for part in ("decide", "exchange", "pull", "round")),
        *(f"agent/{part}.py" for part in ("choice", "estimate", "own", "site")),
    ],
)
def test_no_formula_stands_twice(name):
    """Radii and averages are computed in ``rules`` alone: rounds and sites have no root, no halving, no exponent."""
    assert not re.search(r"sqrt|exp\(|[^/]/ 2|0\.5|[\w)] ?\*\* ?\d", (SOURCE / name).read_text())
