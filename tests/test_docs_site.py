"""The documentation site: it builds without a warning, loads nothing from elsewhere, and works in a real browser."""

import os
import re
import shutil
import subprocess
import sys
import threading
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

pytestmark = pytest.mark.docs
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site, by the command of ``make docs``."""
    (command,) = re.findall(r"^docs: .*\n\t.*/(mkdocs build.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    folder = tmp_path_factory.mktemp("docs") / "site"
    ran = subprocess.run(
        [sys.executable, "-m", *command.split(), "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "http_proxy": "http://127.0.0.1:9", "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert "WARNING" not in ran.stderr
    return folder


class Loaded(HTMLParser):
    """What a browser loads with a page; links that somebody must follow are no part of it."""

    def __init__(self):
        super().__init__()
        self.addresses = []

    def handle_starttag(self, tag, attrs):
        if tag != "a":
            self.addresses += [value for name, value in attrs if name in ("src", "href", "data", "srcset") and value]


def foreign(html):
    parser = Loaded()
    parser.feed(html)
    return [address for address in parser.addresses if re.match(r"(\w+:)?//", address)]


def test_pages_load_nothing_from_other_servers(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        assert foreign(page.read_text()) == [], page.name
        assert 'class="mermaid"' not in page.read_text()  # the theme would fetch its renderer
    planted = '<script src="//cdn.example/x.js"></script><a href="https://paper.example">'
    assert foreign(pages[0].read_text() + planted) == ["//cdn.example/x.js"]
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", sheet.read_text()), sheet.name


def test_every_page_is_built_and_its_markdown_rendered(site):
    for page in (ROOT / "docs").glob("*.md"):
        built = (site / f"{page.stem}.html").read_text()
        assert "<h1" in built, page.name
        assert "``" not in re.sub(r"<script.*?</script>", "", built, flags=re.DOTALL), f"{page.name}: raw Markdown"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address(site):
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser():
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium: scripts/debian-packages installs it")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture
def watched(browser, address):
    """Opens a page of the site in a window of some width and theme; the test fails with errors or foreign requests."""
    contexts, wrong = [], []

    def open_page(name, width, scheme):
        contexts.append(browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme))
        page = contexts[-1].new_page()
        page.on("console", lambda message: message.type in ("error", "warning") and wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: request.url.startswith((address, "data:")) or wrong.append(request.url))
        page.goto(f"{address}/{name}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_pages_fit_into_the_window(watched, width, scheme):
    for name in ("index.html", "concepts.html", "http.html", "python-client.html"):
        page = watched(name, width, scheme)
        over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert over <= 0, name
        shown = page.evaluate("document.body.getAttribute('data-md-color-scheme')")
        assert shown == {"light": "default", "dark": "slate"}[scheme]
        broken = page.evaluate("[...document.images].filter(it => it.complete && !it.naturalWidth).map(it => it.src)")
        assert broken == []


def test_search_works_without_a_network(watched):
    page = watched("index.html", 1440, "light")
    page.get_by_placeholder("Search").click()
    page.keyboard.type("reward window")
    found = page.locator(".md-search-result__link").first
    found.wait_for(timeout=20_000)
    titles = page.locator(".md-search-result__link").all_inner_texts()
    assert any("window" in title.lower() for title in titles)
    found.click()
    page.wait_for_url("**/*.html*h=*")
