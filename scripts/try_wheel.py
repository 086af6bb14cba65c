"""Installs the wheel alone, with the newest versions that pyproject.toml allows, and tries each extra for real.

    .venv/bin/python scripts/try_wheel.py [base] [agent] [sim] [all]

Every extra gets a fresh environment in a temporary folder, without constraints.txt, from the index that pip is
configured with. ``scripts/extras`` has what is tried. Prints the size of each environment; above ``LARGEST`` it fails.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

EXTRAS = ("base", "agent", "sim", "all")

LARGEST = {"base": 100, "agent": 400}
"""Megabytes (10^6 bytes on the disk) that an environment may take, pip and the like apart."""

TOOLS = ("pip", "setuptools", "wheel", "pkg_resources", "_distutils_hack")
"""Parts of an environment that are not ours."""


def main() -> None:
    """Build, install, try."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("extras", nargs="*", help=f"any of {', '.join(EXTRAS)}; default: all of them")
    chosen = parser.parse_args().extras or EXTRAS
    if unknown := set(chosen) - set(EXTRAS):
        parser.error(f"{', '.join(sorted(unknown))}: not one of {', '.join(EXTRAS)}")
    with tempfile.TemporaryDirectory(prefix="try-wheel-") as folder:
        run([sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder], ROOT)
        (wheel,) = Path(folder).glob("*.whl")
        failed = [extra for extra in chosen if not passes(wheel, extra)]
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def passes(wheel: Path, extra: str) -> bool:
    """Whether the wheel with this extra, in a fresh environment, passes its test and is small enough."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"try-{extra}-") as folder:
        python = Path(folder, "venv", "bin", "python")
        run([sys.executable, "-m", "venv", str(python.parent.parent)], ROOT)
        what = f"{wheel}[{extra}]" if extra != "base" else str(wheel)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--no-cache-dir", "install", "--quiet"]
        run([*pip, "--only-binary=:all:", what], ROOT)
        size = sum(map(bytes_of, site_packages(python))) / 1e6
        run([str(python.parent / "fedbandit"), "--version"], folder)
        empty = Path(folder, "empty")
        empty.mkdir()
        # -I: nothing but the environment can be imported, neither the checkout nor the folder of the script
        ran = run([str(python), "-I", str(ROOT / "scripts" / "extras" / f"{extra}.py")], empty, check=False)
    small = size <= LARGEST.get(extra, float("inf"))
    said = "passed" if ran and small else "FAILED" if small else f"FAILED: more than {LARGEST[extra]} MB"
    print(f"{extra}: {said}; {size:.0f} MB, {time.monotonic() - begun:.0f} s", flush=True)
    return ran and small


def run(command: list[str], folder: str | Path, check: bool = True) -> bool:
    """Run a command in a folder, without this process's PYTHONPATH; whether it succeeded."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PIP_CONSTRAINT")}
    return subprocess.run(command, cwd=folder, env=environment, check=check).returncode == 0


def site_packages(python: Path) -> list[Path]:
    """What an environment has installed, without ``TOOLS``."""
    (packages,) = python.parent.parent.glob("lib/python*/site-packages")
    return [path for path in packages.iterdir() if path.name.partition("-")[0] not in TOOLS]


def bytes_of(path: Path) -> int:
    """What a file or folder takes on the disk."""
    return sum(file.lstat().st_blocks * 512 for file in (path, *path.rglob("*")))


if __name__ == "__main__":
    main()
