"""What must start fast loads little. There is no clock here, but the modules that would make it slow.

``benchmarks/startup.py`` measures the times.
"""

import subprocess
import sys

import pytest

from fedbandit.cli import app

HEAVY = {
    "aiohttp",
    "cryptography",
    "fastapi",
    "websockets",
    "h5netcdf",
    "h5py",
    "matplotlib",
    "networkx",
    "numba",
    "numpy",
    "opendp",
    "pandas",
    "prometheus_client",
    "pydantic",
    "ray",
    "rich",
    "scipy",
    "sqlite3",
    "ssl",
    "uvicorn",
    "xarray",
}
"""Packages that only the command that needs them may load. Rich alone doubled the time of a help text."""

AFTER = f"print(*sorted({HEAVY!r} & {{name.partition('.')[0] for name in sys.modules}}), file=sys.stderr)"
COMMAND = f"""
import sys
from fedbandit.cli import main
try:
    main()
finally:
    {AFTER}
"""


def helps():
    """The command lines that print a help text: one for every command and group."""
    yield []
    for command in app.registered_commands:
        yield [command.name or command.callback.__name__]
    for group in app.registered_groups:
        own = [group.name] if isinstance(group.name, str) else []
        if own:
            yield own
        for command in group.typer_instance.registered_commands:
            yield [*own, command.name or command.callback.__name__]


def loaded(code, *arguments):
    """What a fresh process prints and which heavy packages it ends with."""
    ran = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    return ran.stdout, ran.stderr.splitlines()[-1].split()


def test_the_public_names_of_the_base_load_nothing_heavy():
    assert loaded(f"import sys, fedbandit\nfedbandit.FedBatch(1.0), dir(fedbandit)\n{AFTER}")[1] == []


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["agent", "--help"], ["rum"]], ids=" ".join)
def test_a_command_line_that_does_no_work_loads_nothing_heavy(arguments):
    assert loaded(COMMAND, *arguments)[1] == []


def test_no_help_text_loads_anything_heavy():
    """All of them in one process: what one loads stays loaded."""
    code = f"""
import sys
from fedbandit.cli import main
for line in {list(helps())!r}:
    sys.argv = ["fedbandit", *line, "--help"]
    try:
        main()
    except SystemExit as error:
        assert error.code == 0, line
{AFTER}
"""
    printed, heavy = loaded(code)
    assert heavy == []
    assert printed.count("Usage:") == len(list(helps())) > 20


def test_the_list_of_commands_shows_whole_sentences():
    """A first sentence that does not fit ends in dots: such a command has a short help."""
    for group in ([], ["arm"], ["certs"]):
        printed, _ = loaded(COMMAND, *group, "--help")
        assert "..." not in printed.partition("Commands:")[2], printed
