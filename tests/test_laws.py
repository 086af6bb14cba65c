"""The laws of the house that a machine can check."""

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import fedbandit
from fedbandit import extras

SOURCE = Path(fedbandit.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))

# The layers, lowest first: a room imports itself and the rooms above its line, never one below it.
ROOMS = {
    "rules": ["rules"],  # formulas; first, since a problem asks the rules for the variance of its rewards
    "checks": ["checks", "extras", "toml_files", "strict_json", "progress", "shares", "notebook"],
    "world": ["world"],
    "policies": ["policies"],
    "testing": ["testing"],  # what simulator and site check of a policy from outside
    "theory": ["theory"],  # after the policies, which say how long a horizon may be
    "evaluation": ["evaluation"],  # of logs, and of sums of sites; without the simulator's packages
    # A live site stands below the simulator: so it cannot import it, and starts without NumPy and Numba.
    "privacy": ["privacy"],
    "agent.core": ["agent.core"],
    "testing.memory_network": ["testing.memory_network"],  # runs whole federations of sites
    "agent.disk": ["agent.disk"],
    "agent.config": [f"agent.process.{name}" for name in ("addresses", "config", "rights", "terms_file", "tokens")],
    "agent.gossip": ["agent.gossip"],
    "agent.http": ["agent.http"],
    "agent.client": ["agent.client"],  # it reads the models of the state
    "agent": ["agent"],  # the process of all that
    "report": ["report"],  # of a live site, for people
    # Figures know a result by its type alone; so ``Result.plot`` may draw itself.
    "figures": ["figures"],
    "engine": ["engine"],  # a round, compiled
    "simulation": ["simulation"],
    "planning": ["planning"],
    "testing.own_policy": ["testing.own_policy"],  # plays it compiled
    "experiments": ["experiments"],
    "audit": ["audit"],  # attacks the simulator and the site
    "local": ["local"],
    "cli": ["cli", "__main__"],
    "public names": ["__init__"],
}
ORDER = list(ROOMS)


def room_of(module):
    """The room of a dotted name such as ``fedbandit.agent.core.site``: that with the longest matching prefix."""
    name = module.removeprefix("fedbandit").removeprefix(".") or "__init__"
    found = [(len(part), room) for room, parts in ROOMS.items() for part in parts if f"{name}.".startswith(f"{part}.")]
    assert found, f"{module} stands in no room"
    return max(found)[1]


def module_of(path):
    return ".".join(["fedbandit", *path.relative_to(SOURCE).with_suffix("").parts]).removesuffix(".__init__")


def assert_none(offenders):
    assert not offenders, "\n".join(map(str, offenders))  # all of them


@cache
def parsed(path):
    return ast.parse(path.read_text())


@cache
def loaded_by(path):
    """Modules of this package that a file imports, also inside functions; not those for annotations alone."""
    return [*_loaded_by(ast.parse(path.read_text()))]


def _loaded_by(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []  # never executed: types may name what a room must not load
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "fedbandit")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "fedbandit":
            for alias in node.names:
                inner = SOURCE.joinpath(*node.module.split(".")[1:], alias.name)
                is_module = inner.with_suffix(".py").exists() or inner.is_dir()
                yield f"{node.module}.{alias.name}" if is_module else node.module


def test_a_room_imports_only_rooms_before_it():
    imports = [(module_of(path), name) for path in MODULES for name in loaded_by(path)]
    rank = {module: ORDER.index(room_of(module)) for module in {it for pair in imports for it in pair}}
    assert_none([f"{module} must not import {name}" for module, name in imports if rank[name] > rank[module]])


@pytest.mark.parametrize("room", ["figures", "simulation", "planning", "evaluation", "experiments"])
def test_the_simulator_does_not_import_the_agent(room):
    """Nor what protects real data: the two branches share rules, world and policies, and nothing else."""
    for path in (SOURCE / room).rglob("*.py"):
        assert not [name for name in loaded_by(path) if room_of(name).startswith(("privacy", "agent"))]


# ---------------------------------------------------------------- what is installed

# What stands in the base, and what a live site adds: everything else may use the simulator's packages.
BASE = ("rules", "checks", "policies", "testing", "theory", "privacy")
BASE += ("agent.core", "testing.memory_network", "agent.disk", "agent.config", "agent.client")
SITE = ("agent.gossip", "agent.http", "agent")


def file_of(module):
    path = SOURCE.joinpath(*module.split(".")[1:])
    return path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"


def packages_of(room):
    """Packages of others that a room can load, directly or by what it imports, each with the file that does."""
    waiting, seen, packages = [module_of(path) for path in MODULES if room_of(module_of(path)) == room], set(), {}
    while waiting:
        module = waiting.pop()
        if module in seen or module == "fedbandit":  # whose names are loaded on first use
            continue
        seen.add(module)
        waiting += [*loaded_by(file_of(module)), module.rpartition(".")[0]]
        for name in map(str, imports_of(file_of(module))):
            if name.split(".")[0] not in {*sys.stdlib_module_names, "fedbandit"}:
                packages[name.split(".")[0]] = module
    return packages


@pytest.mark.parametrize("room", [*BASE, *SITE])
def test_a_site_loads_nothing_of_the_simulator_and_the_base_nothing_of_a_site(room):
    """``privacy`` loads OpenDP at the first draw, and says what to install; it is the only one."""
    roots = {extra: {name.split(".")[0] for name in names} for extra, names in extras.EXTRAS.items()}
    # Packages that these bring, and that we import ourselves.
    roots["agent"].add("starlette")
    allowed = {"aiohttp", "yarl", "pydantic", "rich", "typer"} | (roots["agent"] if room in SITE else {"opendp"})
    assert {name: by for name, by in packages_of(room).items() if name not in allowed} == {}


def test_the_static_graph_sees_what_a_room_loads():
    """Can it fail? The simulator and the commands that draw figures load what a site must not."""
    assert {"numpy", "numba", "xarray"} <= set(packages_of("simulation"))
    assert {"numpy", "networkx"} <= set(packages_of("world"))
    assert {"websockets", "cryptography", "fastapi"} <= set(packages_of("agent"))
    assert packages_of("privacy") == {"opendp": "fedbandit.privacy.noise"}


def test_extras_are_those_of_the_project():
    """``extras.EXTRAS`` has the packages that ``pyproject.toml`` names, by the names that they are imported by."""
    project = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text())["project"]
    imported_as = {"prometheus_client": "prometheus-client"}
    imported_as["numba_cuda"] = "numba-cuda[cu13]"  # with its compiler
    for extra, names in extras.EXTRAS.items():
        required = {re.split("[>=]", requirement)[0] for requirement in project["optional-dependencies"][extra]}
        required.discard("fedbandit[sim]")
        assert {imported_as.get(name, name) for name in names} == required
    assert project["optional-dependencies"]["all"] == ["fedbandit[agent,sim]"]


def imports_of(path):
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


def test_rules_import_only_math():
    allowed = {"math", "collections.abc", "typing"}  # the latter for annotations
    imports = [(path.name, name) for path in (SOURCE / "rules").glob("*.py") for name in imports_of(path)]
    assert_none([it for it in imports if not it[1].startswith("fedbandit.rules") and it[1] not in allowed])


def test_a_file_says_what_it_does():
    assert_none([module_of(path) for path in MODULES if not ast.get_docstring(parsed(path))])


def test_all_is_honest():
    loaded = [import_module(module_of(path)) for path in MODULES]
    missing = [f"{it.__name__}.{name}" for it in loaded for name in getattr(it, "__all__", []) if not hasattr(it, name)]
    assert_none(missing)


def test_names_are_listed_only_where_users_import_from():
    """Inside the simulator nothing reads such a list, and each name would stand twice."""
    public = {"engine.streams", "policies", "policies.protocol", "testing", "testing.own_policy", "theory"}
    public |= {f"world.{name}" for name in ("datasets", "delays", "features", "graph", "hospital")}
    public |= {"policies.fed_batch", "testing.memory_network"}
    rooms = ("engine", "simulation", "planning", "experiments", "figures", "world", "policies", "testing", "theory")
    names = [module_of(path).removeprefix("fedbandit.") for path in MODULES if "\n__all__" in path.read_text()]
    assert_none([name for name in names if name.split(".")[0] in rooms and name not in public])


def test_rules_run_without_numba():
    """A live agent calls the rules as plain functions; loading them must not load an engine."""
    code = (
        "import sys\n"
        "from fedbandit.rules import batch, choose, gossip, kl, mean, radius\n"
        "assert choose.highest([0.1, 0.3]) == 1\n"
        "assert mean.pull_tree_add([0.0] * 4, 1, 2.5) == 2.5\n"
        "print(*sorted({'numba', 'numpy'} & set(sys.modules)))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""


def test_a_live_agent_is_light():
    """It starts, decides, takes a reward and releases without NumPy, Numba, the simulator, or OpenDP until it draws."""
    code = (
        "import sys\n"
        "import fedbandit.agent.disk.journal, fedbandit.testing.memory_network\n"
        "from fedbandit.agent.core.federation import Federation\n"
        "from fedbandit.policies import FedBatch\n"
        "terms = Federation('f', ('a', 'b'), 0, 1, FedBatch(1.0, first_batch=1), max_agents=2)\n"
        "network = fedbandit.testing.memory_network.MemoryNetwork(terms, [('x', 'y')])\n"
        "network.report('x', network.decide('x').id, 1.0)\n"
        "network.exchange('x', 'y')\n"
        "network.run()\n"
        "assert network.site('y').theta[0] is not None\n"
        "heavy = {'numba', 'numpy', 'opendp', 'networkx', 'fedbandit.simulation'}\n"
        "print(*sorted(heavy & set(sys.modules)))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""


@pytest.mark.parametrize(
    "name",
    [
        *(f"engine/{part}.py" for part in ("cpu", "links", "network", "phases")),
        *(f"agent/core/{part}.py" for part in ("board", "decisions", "notices", "player", "site")),
        "agent/core/release_guard.py",
    ],
)
def test_no_formula_stands_twice(name):
    """Radii and averages are computed in ``rules`` alone: rounds and sites have no root, no halving, no exponent."""
    assert not re.search(r"sqrt|exp\(|[^/]/ 2|0\.5|[\w)] ?\*\* ?\d", (SOURCE / name).read_text())


# ---------------------------------------------------------------- documents

ROOT = SOURCE.parents[1]
DOCUMENTS = sorted(
    path
    for folder in (".", "benchmarks", "docs", "examples", "monitoring", "tests")
    for path in (ROOT / folder).glob("*.md")
) + sorted(SOURCE.rglob("*.md"))


def wide_lines(text):
    """Numbers of lines of prose beyond 120 characters: not in tables, code, or a word or link that cannot be broken."""
    fence, may_indent = "", False  # in lists and admonitions, text is indented as code is elsewhere
    for number, line in enumerate(text.splitlines(), 1):
        if mark := re.match(r"\s*(```+|~~~+)", line):
            fence = "" if mark[1] == fence else fence or mark[1]
        elif line[:1].strip():
            may_indent = bool(re.match(r"([*+-]|\d+\.) |!!!|\?\?\?", line))
        code = fence or (line.startswith("    ") and not may_indent)
        words = re.sub(r"`[^`]*`", "code", line.strip()).split()
        if len(line) > 120 and not code and not line.lstrip().startswith("|") and len(words) > 1:
            yield number


def test_documents_are_no_wider_than_120():
    wide = [f"{path.relative_to(ROOT)}:{number}" for path in DOCUMENTS for number in wide_lines(path.read_text())]
    assert wide == []
    assert len(DOCUMENTS) > 40, "can it fail? It must find them,"
    long = "a word and " * 12
    planted = [long, f"* {long}", f"* item\n\n    {long}", f"!!! note\n    {long}", f"> {long}", f"```\n```\n{long}"]
    assert all(list(wide_lines(text)) for text in planted), "and wide lines in them"
    allowed = [
        f"| {long} |",
        f"```\n{long}\n```",
        f"~~~~\n```\n{long}",
        f"Text:\n\n    {long}",
        f"[x](http://{'x' * 120})",
    ]
    assert not any(list(wide_lines(text)) for text in allowed)
