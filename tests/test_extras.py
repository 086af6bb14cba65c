"""Without an extra, commands and imports say which to install; a live site runs without the simulator's packages.

``scripts/extras`` has what is tried, here with packages hidden, by ``make test-wheel`` in fresh environments.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fedbandit
from fedbandit import extras
from fedbandit.cli import app

ROOT = Path(__file__).parent.parent

HIDING = """
import sys


class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Hidden())
"""


@pytest.fixture
def without(tmp_path):
    """Runs Python where packages cannot be found, nor by the processes that it starts."""

    def run(hidden, *arguments):
        (tmp_path / "hiding").mkdir(exist_ok=True)
        (tmp_path / "hiding" / "sitecustomize.py").write_text(HIDING.format(hidden=set(hidden)))
        (tmp_path / "empty").mkdir(exist_ok=True)
        path = os.pathsep.join([str(tmp_path / "hiding"), str(Path(fedbandit.__file__).parents[1])])
        return subprocess.run(
            [sys.executable, *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": path},
            cwd=tmp_path / "empty",
            capture_output=True,
            text=True,
        )

    return run


def roots(*names):
    return {module.partition(".")[0] for name in names for module in extras.EXTRAS[name]}


SIMULATOR = roots("sim") | {"llvmlite", "scipy"}


def test_the_base_says_what_to_install(without):
    ran = without(SIMULATOR | roots("agent") | {"starlette"}, ROOT / "scripts" / "extras" / "base.py")
    assert ran.returncode == 0, ran.stderr


def test_a_live_site_runs_without_the_simulators_packages(without):
    ran = without(SIMULATOR, ROOT / "scripts" / "extras" / "agent.py")
    assert ran.returncode == 0, ran.stderr


@pytest.mark.slow
def test_the_simulator_runs_without_the_packages_of_a_site(without):
    ran = without(roots("agent") | {"starlette"}, ROOT / "scripts" / "extras" / "sim.py")
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("name", [*extras.EXTRAS["agent"]])
def test_a_package_that_is_missing_is_named(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(extras, "missing", extras.missing.__wrapped__)  # it remembers
    ran = CliRunner().invoke(app, ["agent"])
    words = f"needs the packages of a live site: pip install 'fedbandit[agent]' (missing: {name})"
    assert (ran.exit_code, ran.output) == (2, f"error: fedbandit agent {words}\n")


def test_an_import_that_no_command_announces_names_its_extra(without):
    code = (
        "from fedbandit.cli.errors import errors_exit_with_2\n"
        "from fedbandit.cli.up import upper\n"
        "@upper.command()\n"
        "@errors_exit_with_2\n"
        "def later():\n"
        "    import xarray.core\n"
        "upper(['later'])\n"
    )
    ran = without(["xarray"], "-c", code)
    assert (ran.returncode, ran.stderr.count("Traceback")) == (2, 0), ran.stderr
    assert re.search(r"error: this needs xarray.*: pip install 'fedbandit\[sim\]'", ran.stderr)


def test_import_fedbandit_loads_nothing_else():
    code = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "import fedbandit\n"
        "print(*sorted(set(sys.modules) - before - {'fedbandit'}))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""


def test_public_names_are_those_that_type_checkers_see():
    """The names that are imported for type checkers alone, ``__all__`` and ``dir`` are the same."""
    text = Path(fedbandit.__file__).read_text()
    seen = text[text.index("if TYPE_CHECKING:") : text.index("__all__")]
    names = set(re.findall(r"\b\w+\b", re.sub(r"from [\w.]+ import|if TYPE_CHECKING:", "", seen)))
    assert names == set(fedbandit.__all__) == set(dir(fedbandit))
    assert len(fedbandit.__all__) == len(names)
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        fedbandit.simulat  # noqa: B018


def test_a_cluster_needs_ray(without, tmp_path):
    """Said before anything runs, by the command and by ``simulate``."""
    ran = without(["ray"], "-m", "fedbandit", "run", str(tmp_path / "any.toml"), "--engine", "ray")
    assert ran.returncode == 2
    assert "error: fedbandit run --engine ray needs Ray: pip install 'fedbandit[ray,sim]'" in ran.stderr
    code = (
        "from fedbandit import GossipUCB, Problem, graph, simulate\n"
        "simulate(Problem.random(2, 2, graph.path(2), 0), GossipUCB(), 10, 1, engine='ray')\n"
    )
    assert "engine 'ray' needs Ray: pip install 'fedbandit[ray,sim]'" in without(["ray"], "-c", code).stderr
