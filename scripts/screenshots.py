"""Makes docs/images/page.png, federation.png and report.png: of real agents after minutes of simulated patients.

    .venv/bin/python scripts/screenshots.py [page] [federation] [report]

It runs ``fedbandit up``. Agents' draws have no seed, so no two pictures are alike. Needs Chromium
(scripts/debian-packages) and ten minutes.
"""

import re
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, sync_playwright

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
COMMON = ["up", "--graph", "ring:5", "--speed", "12"]


class Picture(NamedTuple):
    """A run and what to show of it: of which address that it prints, once which element is there."""

    options: list[str]
    minutes: float
    address: int
    ready: str
    height: int


PICTURES = {
    "page": Picture(["--problem", "hospital"], 6.0, 1, "#arms tr.leader", 1480),
    "report": Picture(["--problem", "hospital", "--seed", "3"], 4.0, 1, "main table.forest", 1500),
    "federation": Picture(["--problem", "bernoulli", "--arms", "4", "--seed", "7"], 2.0, 0, "#sites article", 1020),
}
MOST_BYTES = 300_000
SILENT = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]


def addresses(log: Path) -> list[str]:
    """The addresses that ``fedbandit up`` prints: of the federation's page, then of the agents."""
    return re.findall(r"http://[0-9.:]+", log.read_text())


def shoot(browser: Browser, url: str, picture: Picture, path: Path) -> None:
    """Write one picture, in the light theme."""
    width = 900 if url.startswith("file:") else 1440
    page = browser.new_page(viewport={"width": width, "height": picture.height}, color_scheme="light")
    page.goto(url)
    page.locator(picture.ready).first.wait_for()
    page.wait_for_timeout(3000)  # pulses under way
    page.screenshot(path=path)
    page.close()
    print(f"wrote {path.name}: {path.stat().st_size:,} bytes")
    if path.stat().st_size > MOST_BYTES:
        sys.exit(f"{path.name} is larger than {MOST_BYTES:,} bytes")


def make(browser: Browser, name: str) -> None:
    """Run a federation, wait, and take its picture."""
    picture = PICTURES[name]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as out:
            command = [sys.executable, "-m", "fedbandit", *COMMON, *picture.options, "-o", folder]
            running = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            with suppress(subprocess.TimeoutExpired):
                running.wait(60.0 * picture.minutes)
                sys.exit(log.read_text())
            url = addresses(log)[picture.address]
            if name == "report":
                site = next(Path(folder).glob("sites-*/hospital-1/site.toml"))
                command = [sys.executable, "-m", "fedbandit", "report", "-c", str(site), "-o", folder]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                url = (Path(folder) / "report.html").as_uri()
            shoot(browser, url, picture, IMAGES / f"{name}.png")
        finally:
            running.send_signal(signal.SIGINT)
            running.wait(60)


def main() -> None:
    """Take the pictures that are named, or all."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("no chromium: scripts/debian-packages installs it")
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", *SILENT]
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        for name in sys.argv[1:] or PICTURES:
            make(browser, name)
        browser.close()


if __name__ == "__main__":
    main()
