"""A virtual environment for each peer, made from a list of names and versions, and kept between runs."""

import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
WORKERS = HERE / "peer_workers"
ENVIRONMENTS = HERE.parent / ".venv-peers"


class NotInstalled(Exception):
    """A peer that pip cannot install here; the message says why."""


def python_of(peer: str) -> Path:
    """The Python of a peer's environment, made if it is not there or its list has changed.

    A list that begins with ``# --no-deps`` is complete: what its packages say that they need besides is left out.
    """
    wanted = (WORKERS / "requirements" / f"{peer}.txt").read_text(encoding="utf-8")
    folder = ENVIRONMENTS / peer
    python, done = folder / "bin" / "python", folder / "installed.txt"
    if done.exists() and done.read_text(encoding="utf-8") == wanted:
        return python
    print(f"making an environment for {peer}", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "-r", "/dev/stdin"]
    command += ["--no-deps"] * wanted.startswith("# --no-deps")
    ran = subprocess.run(command, input=wanted, capture_output=True, text=True, check=False)  # noqa: S603  # our lists
    if ran.returncode:
        raise NotInstalled(reason(ran.stderr))
    done.write_text(wanted, encoding="utf-8")
    return python


def reason(errors: str) -> str:
    """Why pip failed, in its own last word, without addresses."""
    lines = [line.partition("ERROR:")[2].strip() for line in errors.splitlines() if "ERROR:" in line]
    lines = lines or [line.strip() for line in errors.splitlines() if line.strip()] or ["pip failed"]
    return re.sub(r"\b\w+://\S+", "an index", lines[-1])[:120]
