"""Every code block of README.md and docs/ runs, or is read by what it is written for; what pages say is so."""

import ast
import configparser
import json
import re
import shlex
import socket
import subprocess
import sys
import tomllib
from contextlib import contextmanager
from math import exp
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest
import typer
from typer.testing import CliRunner

import fedbandit
import fedbandit.testing
from fedbandit.agent.process.config import read_config
from fedbandit.cli import app
from fedbandit.experiments.experiment import read_sweep
from fedbandit.world import graph
from test_laws import MODULES, ROOMS, loaded_by, module_of, room_of

pytestmark = pytest.mark.docs
ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT / "scripts"))

import figures  # noqa: E402
import http_reference  # noqa: E402

KINDS = {"python", "sh", "toml", "json", "text", "ini", "console"}


class Block(NamedTuple):
    page: str
    kind: str
    line: int
    text: str


def blocks_of(path):
    text = path.read_text()
    for found in re.finditer(r"^( *)```(\w*)\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE):
        yield Block(path.name, found[2], text.count("\n", 0, found.start()) + 1, found[3])


BLOCKS = [block for path in [ROOT / "README.md", *sorted(DOCS.glob("*.md"))] for block in blocks_of(path)]


def of(kind, *but):
    return [block for block in BLOCKS if block.kind == kind and block.page not in but]


def place(block):
    return f"{block.page}:{block.line}"


# ---------------------------------------------------------------- which test runs what

# Blocks that tests beside the code run as printed.
RUN_ELSEWHERE = {
    ("README.md", "python"): (
        "test_readme.py::test_the_first_example",
        "test_readme.py::test_a_site_of_your_own_takes_three_steps",
        "test_concat.py::test_the_readmes_example",
    ),
    ("agent.md", "python"): ("test_agent_simulation.py::test_the_example_in_the_docs_runs",),
    ("changing-worlds.md", "python"): ("test_changing.py::test_the_page_on_changing_worlds_runs_as_printed",),
    ("evaluate.md", "python"): ("test_evaluate.py::test_the_page_runs_as_printed",),
    ("evaluate.md", "toml"): ("test_evaluate.py::test_the_page_runs_as_printed",),
    ("from-personalizer.md", "python"): ("test_examples_live.py::test_the_page_on_personalizer_names_what_there_is",),
    ("http.md", "console"): ("test_examples_live.py::test_the_commands_of_the_page",),
    ("http.md", "python"): ("test_examples_live.py::test_the_python_of_the_page",),
    ("late-rewards.md", "python"): ("test_delays.py::test_the_examples_in_the_docs_run",),
    ("own-policy.md", "python"): ("test_testing.py::test_the_tutorial_runs_as_printed",),
    ("own-rewards.md", "python"): ("test_rewards.py::test_the_examples_of_the_page",),
    ("own-rewards.md", "toml"): ("test_rewards.py::test_the_examples_of_the_page",),
    ("privacy.md", "python"): ("test_privacy.py::test_the_document_says_what_is_there",),
    ("replay.md", "python"): ("test_replay.py::test_the_document_runs_and_prints_what_it_says",),
}
LIVE = ("start-site.md", "start-application.md")  # below, against real agents
QUOTED = {"policies.md": "policies/gossip_ucb.py"}  # code of the package
SMALLER = {"scale.md": {"1_000_000": "1_000"}}  # test_million.py plays large ones
SLOW = ("planning.md", "scale.md", "shares.md")  # long runs; pages compiled that no other test needs


def test_every_block_is_of_a_kind_that_a_test_reads():
    assert not [place(block) for block in BLOCKS if block.kind not in KINDS]
    assert {block.page for block in of("console")} == {"http.md"}
    assert len(BLOCKS) > 60


@pytest.mark.parametrize("page", [*RUN_ELSEWHERE, *((name, "python") for name in (*LIVE, *QUOTED, *SMALLER))])
def test_what_runs_elsewhere_does(page):
    assert [block for block in BLOCKS if (block.page, block.kind) == page], "the page has no such block"
    for name in RUN_ELSEWHERE.get(page, ()):
        file, _, test = name.partition("::")
        marked = rf"^(pytestmark = pytest.mark.docs$.*^|@pytest.mark.docs\n(@[^\n]*\n)*)def {test}\("
        assert re.search(marked, (ROOT / "tests" / file).read_text(), re.MULTILINE | re.DOTALL), name


# ---------------------------------------------------------------- Python

AFTER_A_RUN = 'load("out/'  # of what the commands of the page leave: below, after them
PYTHON = [
    block
    for block in of("python", *LIVE, *QUOTED, *(page for page, kind in RUN_ELSEWHERE if kind == "python"))
    if AFTER_A_RUN not in block.text
]


def plain(text):
    return [line.rstrip() for line in text.strip().splitlines()]


def follows(block):
    """The output that is printed below a block, if any."""
    after = [other for other in BLOCKS if other.page == block.page and other.line > block.line]
    last = block.line + block.text.count("\n") + 1
    return [it.text for it in after[:1] if it.kind == "text" and it.line - last < 6]


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow if page in SLOW else ())
        for page in sorted({block.page for block in PYTHON})
    ],
)
def test_the_python_of_a_page_runs_in_order_and_prints_what_it_says(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "example"}
    for block in PYTHON:
        if block.page == page:
            text = block.text
            for large, small in SMALLER.get(page, {}).items():
                text = text.replace(large, small)
            exec(compile("\n" * block.line + text, page, "exec"), names)  # noqa: S102
            printed = capsys.readouterr().out
            for output in follows(block):
                assert plain(printed) == plain(output), place(block)


class Bare(ast.NodeTransformer):
    """Code without annotations and docstrings."""

    def visit_FunctionDef(self, node):
        node.returns = None
        for argument in node.args.args:
            argument.annotation = None
        node.body = [it for it in node.body if not (isinstance(it, ast.Expr) and isinstance(it.value, ast.Constant))]
        return node


@pytest.mark.parametrize("block", of("python", *{block.page for block in BLOCKS} - set(QUOTED)), ids=place)
def test_what_is_quoted_from_the_package_is_there(block):
    source = ast.parse((ROOT / "src" / "fedbandit" / QUOTED[block.page]).read_text())
    there = {ast.unparse(Bare().visit(node)) for node in source.body}
    assert {ast.unparse(Bare().visit(node)) for node in ast.parse(block.text).body} <= there


# ---------------------------------------------------------------- commands


def commands_of(block):
    """The commands of a block, each as words."""
    for line in re.sub(r"\\\n\s*", "", block.text).splitlines():
        for command in re.split(r" && |; ", re.sub(r"(^| +)#.*", "", line)):
            if words := shlex.split(command.strip("() ")):
                yield words


def parsed(words):
    """Let the command line read a command, without running it."""
    command, name, context = typer.main.get_command(app), "fedbandit", None
    while hasattr(command, "commands"):
        context = command.make_context(name, words, parent=context)
        words = [*context._protected_args, *context.args]
        name, command, words = command.resolve_command(context, words)
    return command.make_context(name, words, parent=context)


MAKEFILE = (ROOT / "Makefile").read_text()
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
OTHERS = {".", "cp", "chmod", "curl", "install", "openssl", "python3", "ray", "sh", "touch", "umask", "useradd"}


def check_command(words):
    match words:
        case ["fedbandit", *arguments]:
            parsed(arguments)
        case ["sudo", "-u", _, *command]:
            check_command(command)
        case ["sudo", *command]:
            check_command(command)
        case ["make", target, *_]:
            assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target
        case ["pip", "install", *arguments]:
            for given in arguments:
                assert set(re.findall(r"(?:fedbandit|\.)\[(.*)\]", given)) <= set(EXTRAS), given
                assert not given.endswith((".lock", ".txt")) or (ROOT / given).exists(), given
        case [program, *_]:
            assert program in OTHERS, program


@pytest.mark.parametrize("block", of("sh"), ids=place)
def test_commands_are_those_that_there_are(block, tmp_path, monkeypatch):
    """Options and arguments exist. Commands that take no time run, in a folder with the files that pages name."""
    for name in ("examples", "experiments"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    for words in commands_of(block):
        check_command(words)
        if words[:2] in (["fedbandit", "graph"], ["fedbandit", "theory"], ["fedbandit", "openapi"]):
            ran = CliRunner().invoke(app, words[1:])
            assert ran.exit_code == 0, ran.output


@pytest.mark.parametrize(
    "command",
    ["fedbandit rum x", "fedbandit run --horizn 3 x", "fedbandit graph", "make tset", "pip install '.[simm]'", "rn x"],
)
def test_commands_that_there_are_not_are_noticed(command):
    with pytest.raises(Exception):  # noqa: B017, PT011
        check_command(shlex.split(command))


def test_commands_within_a_line_exist():
    known = set(typer.main.get_command(app).commands)
    for path in [ROOT / "README.md", *DOCS.glob("*.md")]:
        for name in re.findall(r"`fedbandit ([a-z]+)", path.read_text()):
            assert name in known, f"{path.name}: fedbandit {name}"


def test_the_unit_of_systemd_starts_an_agent():
    (block,) = of("ini")
    unit = configparser.ConfigParser()
    unit.read_string(block.text)
    program, *arguments = shlex.split(unit["Service"]["ExecStart"])
    assert Path(program).name == "fedbandit"
    assert parsed(arguments).info_name == "agent"


# ---------------------------------------------------------------- files


def merged(base, more):
    both = dict(base)
    for name, value in more.items():
        both[name] = merged(base[name], value) if isinstance(value, dict) and name in base else value
    return both


def toml(content, prefix=""):
    """TOML of dicts, lists and plain values, as far as these files use it."""
    tables = {name: value for name, value in content.items() if isinstance(value, dict)}
    lists = {n: v for n, v in content.items() if isinstance(v, list) and v and isinstance(v[0], dict)}
    lines = [f"{n} = {json.dumps(v)}" for n, v in content.items() if n not in tables and n not in lists]
    for name, value in tables.items():
        lines += [f"[{prefix}{name}]", toml(value, f"{prefix}{name}.")]
    for name, values in lists.items():
        for value in values:
            lines += [f"[[{prefix}{name}]]", toml(value, f"{prefix}{name}.")]
    return "\n".join(lines)


EXPERIMENT = {
    "graph": "path:3",
    "horizon": 100,
    "trials": 1,
    "problem": {"rewards": "bernoulli", "num_arms": 2},
    "policies": [{"kind": "fed_batch", "epsilon": 1.0}],
}
SITE = {"federation", "tls", "listen", "http", "tokens", "neighbours", "trust_policy", "history"}


@pytest.mark.parametrize("block", of("toml", "own-rewards.md", "evaluate.md"), ids=place)
def test_files_are_read_by_their_reader(block, tmp_path, monkeypatch):
    """Parts of a file are read as parts of a whole one: ``examples/site.toml``, or a small experiment."""
    content = tomllib.loads(block.text)
    for other in BLOCKS:  # the modules that files of this page name
        if other.page == block.page and other.kind == "python":
            module = re.match(r"# (\w+)\.py\n", other.text)
            text = other.text if module else functions_of(other)
            (tmp_path / f"{module[1] if module else 'my_module'}.py").write_text(text)
    target = tmp_path / "file.toml"
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", {**sys.modules})
    if SITE & set(content):
        base = tomllib.loads((ROOT / "examples" / "site.toml").read_text())
        if "control" in content.get("federation", {}).get("shares", {}):
            base["federation"]["arms"] = ["placebo", "drug A", "drug B"]
        target.write_text(block.text if "name" in content else toml(merged(base, content)))
        assert read_config(target).terms.arms
    else:
        target.write_text(block.text if "horizon" in content else toml(EXPERIMENT | content))
        assert read_sweep(target)


def functions_of(block):
    """The functions of a block, which a file may name."""
    tree = ast.parse(block.text)
    return "\n\n".join(ast.unparse(node) for node in tree.body if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("block", of("json"), ids=place)
def test_json_is_json(block):
    assert json.loads(block.text)


# ---------------------------------------------------------------- five minutes each


def files_of(page, folder, **instead):
    """Write the files that a page shows, with other ports."""
    for block in BLOCKS:
        if block.page == page and block.kind == "toml":
            text = block.text
            for old, new in instead.items():
                text = text.replace(old.removeprefix("p"), str(new))
            (folder / re.match(r"# (\S+\.toml)\n", text)[1]).write_text(text)


def free_ports(number):
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


@contextmanager
def agents(page, folder):
    """The agents that a page starts, until they serve; stopped cleanly in the end."""
    running = []
    try:
        for block in BLOCKS:
            for words in commands_of(block) if block.page == page and block.kind == "sh" else ():
                if words[:2] == ["fedbandit", "certs"]:
                    subprocess.run([sys.executable, "-m", *words], cwd=folder, check=True, capture_output=True)
                if words[:2] == ["fedbandit", "agent"]:
                    command = [sys.executable, "-m", *words]
                    running.append(subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True))
                    assert any("ready: " in line for line in running[-1].stderr)
        yield running
    finally:
        for agent in running:
            agent.terminate()
            agent.stderr.read()
            agent.stderr.close()
            agent.wait()
    assert {agent.returncode for agent in running} == {0}


def play(page, **instead):
    names = {"__name__": "example"}
    for block in BLOCKS:
        if block.page == page and block.kind == "python":
            text = block.text
            for old, new in instead.items():
                text = text.replace(old.removeprefix("p"), str(new))
            exec(compile(text, page, "exec"), names)  # noqa: S102


STATUS = ["fedbandit", "status", "http://127.0.0.1:8400"]


def test_five_minutes_of_a_site(tmp_path, capsys):
    ports = dict(zip(("p8400", "p8401", "p8500"), free_ports(3), strict=True))
    files_of("start-site.md", tmp_path, **ports)
    with agents("start-site.md", tmp_path) as running:
        assert len(running) == 2
        play("start-site.md", **ports)
        (status,) = [words for block in of("sh") for words in commands_of(block) if words[:3] == STATUS]
        urls = [url.replace("8400", str(ports["p8400"])).replace("8401", str(ports["p8401"])) for url in status[2:]]
        shown = CliRunner().invoke(app, ["status", *urls])
        assert shown.exit_code == 0, shown.output
        assert "metformin" in shown.output
    printed = capsys.readouterr().out.splitlines()
    given = {line.split("given")[0].strip(): int(re.search(r"given +(\d+)", line)[1]) for line in printed}
    assert sum(given.values()) == 150
    assert given["metformin"] == max(given.values())


def curl(page, p8400):
    """The two calls of a page, and that the first answer looks as printed, whichever arm the urn gives."""
    blocks = [block for block in of("sh") if block.page == page]
    asked, reported = [words for block in blocks for words in commands_of(block) if words[0] == "curl"][:2]
    (shown,) = [block.text for block in of("json") if block.page == page]
    answer = subprocess.run(
        [it.replace("8400", str(p8400)) for it in asked], check=True, capture_output=True, text=True
    ).stdout
    name = json.loads(answer)["id"]
    drawn = {key: json.loads(answer)[key] for key in ("id", "arm", "name")}
    assert answer.strip() == json.dumps(json.loads(shown) | drawn, separators=(",", ":"))
    reported = [it.replace("8400", str(p8400)).replace("YOUR-ID", name) for it in reported]
    said = subprocess.run([*reported, "-w", "%{http_code}"], check=True, capture_output=True, text=True)
    assert said.stdout == "204"


def test_five_minutes_of_an_application_developer(tmp_path, capsys):
    ports = dict(zip(("p8400",), free_ports(1), strict=True))
    files_of("start-application.md", tmp_path)
    site = tmp_path / "site.toml"
    site.write_text(f'{site.read_text()}\n[listen]\nhttp = "127.0.0.1:{ports["p8400"]}"\n')
    with agents("start-application.md", tmp_path) as running:
        assert len(running) == 1
        curl("start-application.md", **ports)
        play("start-application.md", **ports)
    first, rewarded, chosen = capsys.readouterr().out.splitlines()
    assert first.removeprefix("show ") in {"large picture", "long description", "reviews first"}
    assert rewarded == "True"
    assert not chosen.startswith("reviews first")


def test_five_minutes_of_a_researcher(tmp_path, monkeypatch, capsys):
    """The commands, and the Python that reads what they leave; the other Python of the page runs above."""
    monkeypatch.chdir(tmp_path)
    files_of("start-researcher.md", tmp_path)
    commands = [words for block in of("sh") if block.page == "start-researcher.md" for words in commands_of(block)]
    for words in commands:
        if words[0] == "fedbandit":
            ran = CliRunner().invoke(app, words[1:])
            assert ran.exit_code == 0, ran.output
    assert (tmp_path / "out" / "epsilon" / "sweep.png").exists()
    (block,) = [it for it in of("python") if AFTER_A_RUN in it.text]
    assert block.page == "start-researcher.md"
    capsys.readouterr()
    exec(compile(block.text, block.page, "exec"), {"__name__": "example"})  # noqa: S102
    assert plain(capsys.readouterr().out) == plain(*follows(block))
    assert (tmp_path / "graphs.png").exists()


# ---------------------------------------------------------------- figures and what pages say of them


def test_the_script_makes_every_figure_of_the_concepts(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["figures.py", "--quick", "--into", str(tmp_path)])
    figures.main()
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {path.name for path in (DOCS / "images").glob("concept-*.svg")}
    page = (DOCS / "concepts.md").read_text()
    for name in made:
        assert f"(images/{name})" in page
        assert ElementTree.parse(tmp_path / name).getroot().tag.endswith("svg")  # noqa: S314
        assert "<dc:date>" not in (DOCS / "images" / name).read_text()
    monkeypatch.setattr(sys, "argv", ["figures.py", "--quick", "--into", str(tmp_path / "again")])
    (tmp_path / "again").mkdir()
    figures.main()
    for name in made:
        assert (tmp_path / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name


def test_the_concepts_say_what_the_figures_show():
    page = (DOCS / "concepts.md").read_text()
    problem = figures.problem()
    best, second, third = sorted(problem.arm_means, reverse=True)
    assert f"{best:.2f} against {second:.2f} and {third:.2f}" in page
    assert [figures.ARMS[k] for k in figures.MEANS.argmax(axis=1)] == ["A", "B", "A", "B"]
    assert figures.ARMS[problem.best_arm] == "C"
    rows = re.findall(r"^\| ([\d.]+) \| ([\d.]+) \| \D*(\d+) %.*? \| (\d+) % \| (\d+) % \|$", page, re.MULTILINE)
    assert [float(row[0]) for row in rows] == [*figures.EPSILONS]
    for epsilon, odds, *beliefs in rows:
        assert float(odds) == float(f"{exp(float(epsilon)):.3g}")
        for before, after in zip((0.1, 0.5, 0.9), beliefs, strict=True):
            assert int(after) == round(100 * figures.belief_after(before, float(epsilon)))


@pytest.mark.parametrize("page", ["choose.md", "hospital.md"])
def test_what_an_observer_learns_is_the_same_on_every_page(page):
    text = (DOCS / page).read_text()
    rows = re.findall(r"^\| ([\d.]+) \| (\d+) %", text, re.MULTILINE)
    rows = rows or [("1", re.search(r"50 % sure.*?at most (\d+) % sure", text.replace("\n> ", " "))[1])]
    for epsilon, after in rows:
        assert int(after) == round(100 * figures.belief_after(0.5, float(epsilon)))


def test_the_graphs_mix_as_fast_as_the_page_says():
    text = (DOCS / "choose.md").read_text()
    made = {"path": graph.path(12), "ring": graph.ring(12), "star": graph.star(12), "complete": graph.complete(12)}
    made["random regular"] = graph.random_regular(12, 3)
    for name, built in made.items():
        (said,) = re.findall(rf"^\| {name}[^|]*\|[^|]*\| (0\.\d+) \|", text, re.MULTILINE)
        assert float(said) == round(built.lambda2, 4), name


def test_the_picture_of_the_architecture_is_true():
    """Each arrow is an import; each room is there, but for what everybody uses."""
    picture = ElementTree.parse(DOCS / "images" / "architecture.svg").getroot()  # noqa: S314
    drawn = {it.get("data-room") for it in picture.iter() if it.get("data-room")}
    assert drawn <= set(ROOMS)
    left_out = {"checks", "theory", "agent.config", "planning", "evaluation", "report", "public names"}
    left_out |= {"testing.own_policy", "testing.memory_network"}
    assert set(ROOMS) - drawn <= left_out
    imports = {(room_of(module_of(path)), room_of(name)) for path in MODULES for name in loaded_by(path)}
    arrows = [tuple(it.get("data-uses").split()) for it in picture.iter() if it.get("data-uses")]
    assert len(arrows) > 15
    for arrow in arrows:
        assert arrow in imports, arrow


# ---------------------------------------------------------------- the reference


def test_every_public_name_has_its_place_in_the_reference():
    pages = "\n".join(path.read_text() for path in DOCS.glob("python-*.md"))
    shown = set(re.findall(r"^::: fedbandit\.(?:world\.(?=[a-z]))?(\S+)$", pages, re.MULTILINE))
    public = {name for name in fedbandit.__all__ if not name.startswith("_")} - {"Graph"}  # which is in graph
    assert public <= shown
    assert {f"testing.{name}" for name in fedbandit.testing.__all__} <= shown
    calls = {name for name in vars(fedbandit.Client) if not name.startswith("_")} - {"log", "close"}
    assert {f"agent.client.calls.{name}" for name in calls} <= shown


def test_the_http_reference_is_of_the_current_document():
    written = http_reference.text(json.loads(http_reference.SOURCE.read_text()))
    assert written == http_reference.TARGET.read_text(), "make figures writes it"
