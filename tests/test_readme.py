"""What the README prints works as printed."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fedbandit.experiments.experiment import read_sweep

pytestmark = pytest.mark.docs
ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_first_example(tmp_path, monkeypatch, capsys):
    """Eight lines at most; it prints what stands below it, but for the last digits, which a processor may change."""
    example = next(example for example in EXAMPLES if "simulate(" in example)
    assert len([line for line in example.splitlines() if line.strip()]) <= 8
    monkeypatch.chdir(tmp_path)
    exec(example, {})  # noqa: S102
    assert (tmp_path / "regret.png").stat().st_size > 10_000
    shown = re.search(r"```text\n(.*?)```", README, re.DOTALL)[1]
    assert numbers_in(capsys.readouterr().out) == pytest.approx(numbers_in(shown), rel=0.02)


def numbers_in(text):
    """The regret of each policy."""
    found = re.findall(r"^  (.+): ([\d,.]+) ±", text, re.MULTILINE)
    assert len(found) == 4
    return {policy: float(regret.replace(",", "")) for policy, regret in found}


def test_lines_are_short():
    assert [line for line in README.splitlines() if len(line) > 120] == []


def test_the_table_of_others_names_its_versions():
    """Those of the environments in which they were measured, where there are some; each note is in the table."""
    table, _, rest = README.partition("## Beside what people use today")[2].partition('\n\n"–"')
    for name, peer in (("SMPyBandits", "smpybandits"), ("MABWiser", "mabwiser"), ("river", "river")):
        pinned = (ROOT / f"benchmarks/peer_workers/requirements/{peer}.txt").read_text()
        version = re.search(rf"^{peer}==(\S+)$", pinned, re.MULTILINE | re.IGNORECASE)[1]
        assert f"{name} {version}" in rest
    notes = re.findall(r"^(\d+)\. ", rest.partition("## ")[0], re.MULTILINE)
    assert notes == [str(number) for number in range(1, 25)]
    assert set(re.findall(r"\[(\d+)\]", table)) == set(notes)
    assert len({row.count("|") for row in table.strip().splitlines()}) == 1


def test_a_site_of_your_own_takes_three_steps(tmp_path, capsys):
    """The commands as printed, on ports that are free, and the client's example with that agent."""
    block = next(b for b in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) if "fedbandit agent" in b and "cp " in b)
    lines = [line.partition("#")[0].strip() for line in block.splitlines()]
    assert len(lines) == 3
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    as_here = [line.replace("fedbandit ", f"{sys.executable} -m fedbandit ") for line in lines]
    for command in as_here[:2]:
        subprocess.run(["/bin/sh", "-c", command], cwd=tmp_path, check=True, capture_output=True)
    site = tmp_path / "site.toml"
    site.write_text(site.read_text().replace("127.0.0.1:8400", "127.0.0.1:0").replace("0.0.0.0:8500", "127.0.0.1:0"))
    with subprocess.Popen(shlex.split(as_here[2]), cwd=tmp_path, stderr=subprocess.PIPE, text=True) as agent:
        try:
            url = next(found[1] for line in agent.stderr if (found := re.search(r"ready: (http://\S+)", line)))
            client = next(example for example in EXAMPLES if "Client(" in example)
            exec(client.replace("http://127.0.0.1:8400", url), {})  # noqa: S102
            assert re.fullmatch(r"use (insulin|metformin|no drug)\n", capsys.readouterr().out)
        finally:
            agent.terminate()
            agent.stderr.read()
    assert agent.returncode == 0


def test_no_placeholder_is_left():
    for path in [ROOT / "README.md", ROOT / "tests" / "README.md", *(ROOT / "docs").glob("*.md")]:
        assert not re.search(r"^[A-Z]{4,}$", path.read_text(), re.MULTILINE), path


def anchors(page):
    """Names under which the headings of a page can be linked to."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name
)
def test_what_it_points_to_exists(page):
    """Files, and headings in them."""
    for link in re.findall(r"\]\(((?!http)[^)\s]+)\)", page.read_text()):
        target, _, anchor = link.partition("#")
        file = page.parent / target if target else page
        assert file.exists(), link
        assert not anchor or anchor in anchors(file), link


@pytest.mark.parametrize("path", sorted((ROOT / "experiments").glob("*.toml")), ids=lambda path: path.name)
@pytest.mark.filterwarnings("ignore::fedbandit.PrivacyWarning")
def test_every_experiment_file_can_be_read(path):
    assert read_sweep(path)


def test_the_paper_document_quotes_the_code():
    """docs/paper.md names the file and quotes the line of each step: one line of that file, so a search finds it."""
    rows = re.findall(r"^\| .* \| `(src/\S+)` \| `(.*)` \|$", (ROOT / "docs" / "paper.md").read_text(), re.MULTILINE)
    assert len(rows) > 15
    for file, code in rows:
        assert sum(code in line for line in (ROOT / file).read_text().splitlines()) == 1, f"{file}: {code}"


def test_the_paper_document_names_tests_that_exist():
    named = re.findall(r"`(test_\w+?)(?:_\.\.\.)?`", (ROOT / "docs" / "paper.md").read_text())
    written = "\n".join(path.read_text() for path in (ROOT / "tests").glob("test_*.py"))
    for name in named:
        assert f"def {name}" in written, name


def test_ci_runs_the_readmes_test_command():
    commands = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line.startswith("make")]
    assert {"make lint", "make test", "make test-docs"} <= {*commands}
    assert re.search(r"^make test\b", README, re.MULTILINE)


def test_the_table_of_tests_names_every_file():
    table = (ROOT / "tests" / "README.md").read_text().partition("## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `test_")]
    named = [name for row in rows for name in re.findall(r"`(test_\w+\.py)`", row)]
    assert sorted(named) == sorted(path.name for path in (ROOT / "tests").glob("test_*.py"))


def test_no_registry_address_is_committed():
    for name in ("constraints.txt", "requirements.lock", "pyproject.toml", "Makefile", ".ci/run", "scripts/lock.py"):
        assert not re.search(r"https?://|index-url", (ROOT / name).read_text())
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.]+", line), line
