"""Asks a database of vulnerabilities about every version in constraints.txt: make audit-dependencies.

Exit code 1 and the advisories, if there are any that pyproject.toml does not accept in [tool.audit-dependencies].
Exit code 0 and the reason, if no database answers for all packages: CI runs also where none can be reached.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

DATABASES = {"OSV": ["--vulnerability-service=osv"], "the package index": []}
"""The databases that pip-audit knows and their options, the first to ask first."""

SILENCE = 5
"""Seconds that a database may take to answer about one package."""

PATIENCE = float(os.environ.get("AUDIT_PATIENCE", "60"))
"""Seconds that a database may take to answer about all of them."""

UNREACHABLE = re.compile(r"(requests|urllib3)\.exceptions\.\w+: |JSONDecodeError: |Could not connect to")
"""How pip-audit says that a database cannot be reached, or is none."""


class NoAnswer(Exception):
    """A database did not answer for every package; the message says why."""


@dataclass(frozen=True)
class Advisory:
    """A known vulnerability of a pinned version."""

    package: str
    version: str
    names: tuple[str, ...]  # ids in all databases that know it
    fixed_in: tuple[str, ...]
    summary: str

    def __str__(self) -> str:
        """One line: what to upgrade, and why."""
        fixed = f"fixed in {', '.join(self.fixed_in)}" if self.fixed_in else "no fixed version"
        return f"{self.package} {self.version}: {', '.join(self.names)} ({fixed}): {self.summary[:200]}"


def main() -> int:
    """Ask the databases in turn; the first that answers for all packages decides."""
    pinned = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "constraints.txt"
    accepted = accepted_advisories()
    for database, options in DATABASES.items():
        try:
            report = ask(pinned, options)
            return verdict(advisories_in(report), accepted, database, len(report["dependencies"]))
        except NoAnswer as reason:
            print(f"audit of dependencies: {database} gives no answer: {reason}")
    print("audit of dependencies: SKIPPED, no database of vulnerabilities answers for all packages")
    return 0


def accepted_advisories() -> dict[str, str]:
    """Advisories that do not concern us, with the reason."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return project["tool"]["audit-dependencies"]["accepted"]


def ask(pinned: Path, options: list[str]) -> dict[str, Any]:
    """The report of pip-audit."""
    with tempfile.TemporaryDirectory() as cache:  # an answer of last week is no answer
        command = [sys.executable, "-m", "pip_audit", "--requirement", str(pinned), "--no-deps", "--disable-pip"]
        quiet = ["--format=json", "--progress-spinner=off", f"--timeout={SILENCE}", f"--cache-dir={cache}"]
        try:
            ran = subprocess.run(
                [*command, *quiet, *options], capture_output=True, text=True, timeout=PATIENCE, check=False
            )
        except subprocess.TimeoutExpired:
            raise NoAnswer(f"not within {PATIENCE:g} s") from None
    if ran.stdout.startswith("{"):
        return json.loads(ran.stdout)
    failures = [line for line in ran.stderr.splitlines() if UNREACHABLE.search(line)]
    if failures:
        raise NoAnswer(failures[-1].strip())
    raise SystemExit(f"audit of dependencies: pip-audit failed:\n{ran.stderr}")


def advisories_in(report: dict[str, Any]) -> list[Advisory]:
    """What a report knows; raises ``NoAnswer`` if there is nothing, and some package was not looked up."""
    asked = [package for package in report["dependencies"] if "skip_reason" not in package]
    skipped = [package for package in report["dependencies"] if "skip_reason" in package]
    found = [
        Advisory(
            package["name"],
            package["version"],
            (known["id"], *known["aliases"]),
            tuple(known["fix_versions"]),
            known.get("description", ""),
        )
        for package in asked
        for known in package["vulns"]
    ]
    if skipped and not found:
        raise NoAnswer(f"{len(skipped)} of {len(report['dependencies'])} packages: {skipped[0]['skip_reason']}")
    return found


def verdict(found: list[Advisory], accepted: dict[str, str], database: str, count: int) -> int:
    """Say what was found; the exit code."""
    open_ones = [advisory for advisory in found if not set(advisory.names) & set(accepted)]
    for advisory in found:
        reasons = [reason for name, reason in accepted.items() if name in advisory.names]
        print(f"accepted, {reasons[0]}: {advisory}" if reasons else f"VULNERABLE: {advisory}")
    for name in accepted:
        if not any(name in advisory.names for advisory in found):
            print(f"accepted, but no longer found: {name}; remove it from pyproject.toml")
    print(f"audit of dependencies: {len(open_ones)} vulnerabilities in {count} packages, says {database}")
    return 1 if open_ones else 0


if __name__ == "__main__":
    sys.exit(main())
