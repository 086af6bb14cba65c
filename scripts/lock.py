"""Writes requirements.lock: every package of fedbandit[agent] and of its build backend, with sha256 of its wheels.

    .venv/bin/python scripts/lock.py

Versions come from constraints.txt, names from pyproject.toml and what it needs. pip chooses the wheels, once for each
Python and processor in TARGETS, from the index that it is configured with; the lock names no index, so anybody can
check it against the one they use. Source archives are left out: to build one, pip would fetch backends without a hash.
Run it with the oldest Python in TARGETS, for pip reads markers ("python_version < ...") with the Python that runs it.
"""

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"

TARGETS = [(python, machine) for python in ("3.11", "3.12", "3.13", "3.14") for machine in ("x86_64", "aarch64")]
"""CPython on Linux with glibc 2.28 or later."""

GLIBC = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_26", "manylinux_2_24", "manylinux_2_17", "manylinux2014")

HEADER = """\
# Every package of fedbandit[agent] and of its build backend: CPython 3.11 to 3.14 on Linux, x86_64 and aarch64.
# Written by scripts/lock.py from constraints.txt. How to install from it: docs/operations.md.
"""


def main() -> None:
    """Resolve, ask for the hashes, write."""
    if sys.version_info[:2] != (3, 11):
        raise SystemExit(f"run this with Python {TARGETS[0][0]}, not {sys.version.split()[0]}")
    versions = {name: version for name, version, _ in chosen(roots())}
    hashes: dict[str, set[str]] = {name: set() for name in versions}
    pinned = [f"{name}=={version}" for name, version in versions.items()]
    for python, machine in TARGETS:
        platforms = [f"--platform={glibc}_{machine}" for glibc in GLIBC]
        for name, _, sha256 in chosen(["--no-deps", f"--python-version={python}", *platforms, *pinned]):
            hashes[name].add(sha256)
        print(f"Python {python} on {machine}: {len(versions)} packages", flush=True)
    LOCK.write_text(HEADER + "".join(entry(name, versions[name], hashes[name]) for name in sorted(versions)))
    print(f"wrote {LOCK.name}: {len(versions)} packages, {sum(map(len, hashes.values()))} wheels")


def roots() -> list[str]:
    """The requirements in pyproject.toml that the lock answers: the package, its agent extra, its build backend."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    return [*project["project"]["dependencies"], *extras["agent"], *project["build-system"]["requires"]]


def chosen(arguments: list[str]) -> list[tuple[str, str, str]]:
    """Name, version and sha256 of the wheels that pip would install."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--dry-run"]
        options = ["--ignore-installed", "--only-binary=:all:", "--target", folder, "--report", f"{folder}/report"]
        constraints = ["--constraint", str(ROOT / "constraints.txt")]
        subprocess.run([*command, *options, *constraints, *arguments], check=True)
        report = json.loads(Path(folder, "report").read_text(encoding="utf-8"))
    return [
        (
            canonical(wheel["metadata"]["name"]),
            wheel["metadata"]["version"],
            wheel["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for wheel in report["install"]
    ]


def canonical(name: str) -> str:
    """A package's name as indexes write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def entry(name: str, version: str, hashes: set[str]) -> str:
    """A package in the lock."""
    return " \\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{sha256}" for sha256 in sorted(hashes))]) + "\n"


if __name__ == "__main__":
    main()
