"""The page of an agent and the page of a local federation, in a real browser against real agents.

Whatever a page does here, it must say nothing on the console, break no Content-Security-Policy, and ask no other host
for anything (``opened``). Screenshots are kept in ``out/screenshots``. Each test says what breaks it. In the quick run
both pages follow a federation, a token is asked for, and hostile names are text; the others are slow.
"""

import json
import re
import shutil
import signal
from base64 import b64decode
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from fedbandit import FedBatch
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.trail import Filter
from fedbandit.agent.http import events
from fedbandit.agent.process.config import Neighbour
from fedbandit.agent.process.rights import ROLES, Caller
from fedbandit.local.processes import LocalFederation
from firefox import firefox
from live import bulletin_of, serving
from processes import ask, spawn, told, wait_until

SCREENSHOTS = Path(__file__).parents[1] / "out" / "screenshots"
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
WITHIN = 20_000  # milliseconds: far more than anything takes, but the machine may be busy
TERMS = Federation("trial", ("none", "metformin", "glipizide"), 0.0, 1.0, FedBatch(8.0, first_batch=2), max_agents=3)
MEANS = {"none": 0.2, "metformin": 0.8, "glipizide": 0.5}
TOKENS = {"application-token": ROLES["application"], "operator-token": ROLES["operator"]}


@pytest.fixture(scope="module")
def browser():
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium: scripts/debian-packages installs it")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        yield running
        running.close()


@contextmanager
def opened(browser, url, width=1440, scheme="light", motion="reduce", errors=(), zone="UTC"):
    """A page that must be silent but for ``errors``: beginnings of what the console may say."""
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        reduced_motion=motion,
        locale="en-GB",
        timezone_id=zone,
    )
    context.add_init_script(
        "addEventListener('securitypolicyviolation', "
        "it => console.error(`CSP: ${it.violatedDirective} ${it.blockedURI}`))"
    )
    page = context.new_page()
    page.set_default_timeout(WITHIN)
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(f"error: {error.stack}"))
    page.on("response", lambda answer: answer.status >= 400 and said.append(f"{answer.status}: {answer.url}"))
    page.on("request", lambda request: asked.append(request.url))
    try:
        page.goto(url)
        yield page
        assert [text for text in said if not text.startswith(tuple(errors))] == []
        assert {request for request in asked if not request.startswith(url)} == set()
    finally:
        context.close()


def give(url, count):
    """Patients of a site: each arm has its own mean, without chance."""
    for _ in range(count):
        _, decision = ask(f"{url}/v1/decisions", "POST")
        ask(f"{url}/v1/decisions/{decision['id']}/reward", "PUT", {"value": MEANS[decision["name"]]})


def shows(page, selector, text):
    """Wait until an element contains a text."""
    page.locator(selector, has_text=text).first.wait_for()


def number_in(page, label):
    """A number beside the answer."""
    exactly = re.compile(rf"^{label}$")
    found = page.locator("#facts div", has=page.locator("dt", has_text=exactly)).locator("dd").inner_text()
    return int(found.replace(",", ""))


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    """Three agents: north dials east and south. All know all arms."""
    links = [("north", "east"), ("north", "south")]
    with LocalFederation(tmp_path_factory.mktemp("page"), TERMS, links, 4.0) as running:
        for name in running.names:
            give(running.url(name), 30)
        yield running


# ---------------------------------------------------------------- what it shows


@pytest.mark.slow
def test_it_shows_the_answer_and_follows_the_agent(browser, federation):
    """Fails if the stream is not read, if a state is not drawn, or if bulletins do not pulse."""
    url = federation.url("north")
    with opened(browser, url, motion="no-preference") as page:
        page.evaluate(
            "window.pulses = 0;"
            "new MutationObserver(all => all.forEach(it => { window.pulses += it.addedNodes.length }))"
            ".observe(document.querySelector('#graph .pulses'), {childList: true})"
        )
        shows(page, "#connection", "Live")
        shows(page, "#leader", "metformin")
        shows(page, "#arms tr.leader .badge", "best")
        assert "metformin" in page.title()
        assert page.locator("#arms > tbody > tr").count() == 3
        assert page.locator("#links > tbody > tr").count() == 2
        privacy = page.locator("#privacy-line").inner_text().replace("\xa0", " ")
        assert (
            privacy == "With epsilon 8, whoever was 50 % sure of an outcome is at most 99.97 % sure of it afterwards."
        )
        assert "provided that the time of a report" in page.locator("#promise").inner_text()
        assert page.locator("#attention-title").inner_text().strip() == "No action needed"
        before = number_in(page, "patients here")
        give(url, 5)
        wait_until(lambda: number_in(page, "patients here") == before + 5)
        cell = page.locator("#links > tbody > tr", has_text="east").locator("td").nth(2)
        bulletins = int(cell.inner_text().split()[0])
        give(federation.url("east"), 1)
        wait_until(lambda: int(cell.inner_text().split()[0]) > bulletins)
        wait_until(lambda: page.evaluate("window.pulses") > 2)
        assert page.locator("#members > tbody > tr").count() == 3
        assert page.locator("#members .state.counts").count() == 3
        page.locator("[data-lines=own_means]").click()
        assert page.locator("#history canvas").bounding_box()["width"] > 800


@pytest.mark.slow
def test_a_dead_neighbour_turns_red_and_recovers(browser, federation):
    """Fails if ``reachable`` is not drawn: in the graph, in the table and among what needs a person."""
    with opened(browser, federation.url("north")) as page:
        shows(page, "#graph .neighbour.live", "south")
        assert page.locator("#graph .unreachable").count() == 0
        federation.kill("south")
        try:
            shows(page, "#graph .neighbour.unreachable", "south")
            shows(page, "#links tr.unreachable", "unreachable")
            shows(page, "#warnings .urgent", "south is unreachable: ")
            red = page.locator("#graph .neighbour.unreachable circle")
            assert red.evaluate("it => getComputedStyle(it).fill") == "rgb(179, 38, 30)"
            assert page.locator("#graph .unreachable .cross").is_visible(), "colour is not all that tells"
            assert "cannot be reached: south" in page.locator("#graph").get_attribute("aria-label")
        finally:
            federation.start("south")
            federation.wait_ready("south")
        shows(page, "#graph .neighbour.live", "south")


@pytest.mark.slow
def test_it_connects_again(browser, federation):
    """Fails if the page does not come back by itself, or does not say meanwhile that it is old."""
    refused = ("Failed to load resource: net::ERR_", "error: TypeError: network error")
    with opened(browser, federation.url("east"), errors=refused) as page:
        shows(page, "#connection", "Live")
        federation.kill("east")
        shows(page, "#connection", "Reconnecting")
        shows(page, "#stale", "What you see is as of")
        page.locator("body.is-stale").wait_for()
        federation.start("east")
        federation.wait_ready("east")
        shows(page, "#connection", "Live")
        assert not page.locator("#stale").is_visible()


@pytest.mark.slow
def test_without_a_place_for_a_stream_it_asks_now_and_then(browser, tmp_path, monkeypatch):
    """Fails if a page that gets no stream shows nothing, does not say so, or stays so when there is a place."""
    errors = ("503: ", "Failed to load resource: the server responded with a status of 503")
    monkeypatch.setattr(events, "MAX_STREAMS", 0)
    with serving(tmp_path) as agent, opened(browser, agent.url, errors=errors) as page:
        shows(page, "#stale", "asked every 5\xa0s: 0 streams are open")
        shows(page, "#site", "north")
        page.get_by_role("button", name="Suspend… metformin").wait_for()
        before = number_in(page, "patients here")
        give(agent.url, 2)
        wait_until(lambda: number_in(page, "patients here") == before + 2)
        monkeypatch.undo()
        shows(page, "#connection", "Live")
        assert not page.locator("#stale").is_visible()


@contextmanager
def elsewhere(folder):
    """Another web server on this machine."""
    handler = partial(SimpleHTTPRequestHandler, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.slow
def test_a_page_of_another_site_cannot_take_streams(browser, tmp_path):
    """Fails if a frame or a link of another page reaches a path of the agent, or its link to the page does not."""
    with serving(tmp_path) as agent, elsewhere(tmp_path) as other, browser.new_context() as context:
        (tmp_path / "other.html").write_text(
            f"<iframe src='{agent.url}/v1/events'></iframe><iframe src='{agent.url}/'></iframe>"
            f"<img src='{agent.url}/page/icon.svg'><a href='{agent.url}/v1/events'>e</a> <a href='{agent.url}/'>p</a>"
        )
        page = context.new_page()
        page.set_default_timeout(WITHIN)
        page.goto(f"{other}/other.html")  # it has loaded when the frames have
        seen = [frame.evaluate("document.body.innerText") for frame in page.frames[1:]]
        assert len(seen) == 2
        assert all("refused" in text for text in seen), "the browser's words"
        with page.expect_navigation() as led:
            page.get_by_text("e", exact=True).click()
        assert led.value.status == 403
        assert agent.driver.feed.num_streams == 0
        page.goto(f"{other}/other.html")
        page.get_by_text("p", exact=True).click()
        shows(page, "#site", "north")
        shows(page, "#connection", "Live")


@pytest.mark.slow
def test_a_fresh_agent_has_nothing_to_draw_and_one_arm_is_not_the_best(browser, tmp_path):
    """Fails if one point makes an axis of years, or if an arm without a rival is called the best of all."""
    with serving(tmp_path) as agent, opened(browser, agent.url) as page:
        shows(page, "#history-none", "Nothing to draw yet.")
        assert not page.locator("#history").is_visible()
        give(agent.url, 30)
        page.locator("#history canvas").wait_for()
        ends = lambda: re.search(r" to (\S+): ", page.locator("#history").get_attribute("aria-label"))[1]  # noqa: E731
        before = ends()
        wait_until(lambda: ends() > before)  # nothing changes any more, and that is drawn, too
        for name in ("metformin", "glipizide"):
            ask(f"{agent.url}/v1/arms", "POST", {"change": "suspend", "arm": name, "reason": "recalled"})
        shows(page, "#answer-title", "Only arm given")
        assert page.locator("#leader").inner_text() == "none"
        assert page.locator("#arms .leader, #arms .status-active .badge:not([hidden])").count() == 0
        assert not page.locator("#ring").is_visible()
        assert "%" not in page.title()
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SCREENSHOTS / "one-arm.png", full_page=True)
        ask(f"{agent.url}/v1/arms", "POST", {"change": "suspend", "arm": "none", "reason": "recalled"})
        shows(page, "#answer-title", "No arm is given")
        assert "known" not in page.locator("#answer-title").inner_text(), "all estimates are"
        assert not page.locator("#ring").is_visible()


@pytest.mark.slow
def test_a_stopped_arm_that_is_ahead_is_not_left_out_in_silence(browser, tmp_path):
    """Fails if the page calls the best of the arms that are given the best of all."""
    with serving(tmp_path, neighbours=()) as agent, opened(browser, agent.url) as page:
        give(agent.url, 60)
        shows(page, "#leader", "metformin")
        assert "given now" not in page.locator("#answer-title").inner_text()
        ask(f"{agent.url}/v1/arms", "POST", {"change": "suspend", "arm": "metformin", "reason": "recalled"})
        shows(page, "#leader", "glipizide")
        assert "of the arms given now" in page.locator("#answer-title .kicker").inner_text()
        assert "of those given" in page.locator("#arms tr.leader .badge").inner_text()
        words = page.locator("#answer-words").inner_text()
        assert words.startswith("Of the arms that are given now, glipizide is best ")
        assert "metformin, with a higher average, is suspended." in words
        page.screenshot(path=SCREENSHOTS / "stopped-ahead.png", full_page=True)


@pytest.mark.slow
def test_what_holds_until_it_changes_is_a_step(browser, federation):
    """Fails if a change after minutes is drawn as a slope over them: of a line, or of a band."""
    with opened(browser, federation.url("north")) as page:
        page.locator("#history canvas").wait_for()
        lines, bands, held = page.evaluate(
            """async () => {
              const { drawHistory } = await import("/page/history.js");
              const around = (value) => ({ lows: [value - 0.1], highs: [value + 0.1] });
              const point = (at, value) => ({ at, estimates: [value], ...around(value), own_means: [value] });
              const at = 1.7e9;
              drawHistory({
                state: { arms: [{ name: "a", status: "active", estimate: 0.7 }], federation: { low: 0, high: 1 } },
                history: { points: [point(at, 0.3), point(at + 300, 0.7)] },
                connection: { kind: "live" },
                now: at + 310,
              });
              await new Promise((done) => queueMicrotask(() => queueMicrotask(done))); // it draws in a microtask
              const canvas = document.querySelector("#history canvas");
              const { data, width, height } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
              const first = (x, isIt) => {
                const colour = (y) => data.subarray(4 * (y * width + x), 4 * (y * width + x) + 4);
                return [...Array(height).keys()].find((y) => isIt(colour(y))) ?? null;
              };
              const isLine = ([r, g, b, a]) => a > 200 && Math.abs(r - 47) + Math.abs(g - 86) + Math.abs(b - 181) < 30;
              const isBand = ([, , , a]) => a > 20 && a < 60;
              const tops = (isIt) => {
                const times = {};
                for (let x = 60; x < width; x += 1) {
                  const top = first(x, isIt);
                  if (top !== null) times[top] = (times[top] ?? 0) + 1;
                }
                return Object.values(times).filter((it) => it > 9).reduce((a, b) => a + b, 0) / width;
              };
              const shares = [isLine, isBand].map(tops);
              const over = document.querySelector("#history .u-over").getBoundingClientRect();
              const to = { clientX: over.left + 0.9 * over.width, clientY: over.top + 9, bubbles: true };
              document.querySelector("#history .u-over").dispatchEvent(new MouseEvent("mousemove", to));
              await new Promise((done) => requestAnimationFrame(done));
              return [...shares, document.querySelector("#legend .value").textContent];
            }"""
        )
        assert lines > 0.8, "nearly everywhere at one of two heights"
        assert bands > 0.8
        assert held == "0.300", "at the pointer: what held then, not the nearest change"


@pytest.mark.slow
def test_what_needs_a_person_is_said_by_the_agent(browser, federation):
    """Fails if the page decides again what needs a person, or what is urgent."""
    with opened(browser, federation.url("north")) as page:
        shows(page, "#attention", "No action needed")
        seen = page.evaluate(
            """async () => {
              const { drawAttention } = await import("/page/attention.js");
              const [arms, neighbours] = [[], [{ name: "east", reachable: false, last_error: "x" }]];
              const state = {
                name: "north", arms, neighbours, warnings: ["calm", "of the terms", "act"],
                notes: ["calm"], warnings_of_terms: ["of the terms"], needs_person: ["act", "east is unreachable: x"],
              };
              drawAttention({ state, problem: "full" });
              const all = (it) => [...document.querySelectorAll(it)].map((item) => item.textContent);
              return [all("#warnings li.urgent"), all("#warnings li:not(.urgent)"), all("#notes li")];
            }"""
        )
        assert seen == [
            ["No patient can be treated with this site's help now: full.", "east is unreachable: x"],
            ["act"],
            ["calm", "of the terms"],
        ]


@pytest.mark.slow
def test_words_about_windows_where_there_is_one(browser, federation):
    """Fails if a site without a window tells of one, or a mark hides the dot of an estimate."""
    with opened(browser, federation.url("north")) as page:
        shows(page, "#book", "time limit for a report")
        assert "window" not in page.locator("#book").inner_text()
        assert page.locator("#arms .whiskers > :last-child").evaluate_all("all => all.every(it => it.matches('.dot'))")
        seen = page.evaluate(
            """async () => {
              const { drawDecisions } = await import("/page/decisions.js");
              const state = await (await fetch("/v1/state")).json();
              const federation = { ...state.federation, reward_window: 3600, default_reward: 0.25 };
              document.querySelector("#book").replaceChildren();
              document.querySelector("#book").keyedElements = undefined;
              drawDecisions({ state: { ...state, federation } });
              return document.querySelector("#book").textContent;
            }"""
        )
        assert "Their time was over: 0.25 counted instead." in seen


# ---------------------------------------------------------------- keyboard, operator


def press_until(page, key, selector, most=60):
    for _ in range(most):
        page.keyboard.press(key)
        if page.evaluate("it => document.activeElement.matches(it)", selector):
            return
    raise AssertionError(f"{selector} has not been reached by {key}")


@pytest.mark.slow
def test_an_operator_suspends_and_resumes_an_arm_with_the_keyboard_alone(browser, federation):
    """Fails if a button is not a button, a dialog cannot be left or confirmed, or the arm is not marked."""
    url = federation.url("north")
    with opened(browser, url) as page:
        shows(page, "#arms", "glipizide")
        press_until(page, "Tab", "[aria-label='Suspend… glipizide']")
        page.keyboard.press("Enter")
        shows(page, "dialog[open] .says", "glipizide will be given to nobody")
        page.keyboard.press("Escape")
        assert page.locator("dialog[open]").count() == 0
        assert page.evaluate("document.activeElement.textContent") == "Suspend…", "focus is back where it was"
        page.keyboard.press("Enter")
        page.keyboard.press("Enter")
        shows(page, "dialog [role=alert]", "Say why first.")
        assert page.evaluate("document.activeElement.tagName") == "INPUT"
        page.keyboard.type("recalled")
        press_until(page, "Tab", "dialog .go")
        page.keyboard.press("Enter")
        shows(page, "#arms tr.status-suspended", "glipizide")
        shows(page, "#arms tr.status-suspended .badge", "suspended")
        shows(page, "#stops", "glipizide is suspended by north: recalled")
        shows(page, "#done", "glipizide is suspended.")
        page.locator("#arms tr.status-suspended [aria-label='Resume… glipizide']").press("Enter")
        page.keyboard.type("tested again")
        press_until(page, "Tab", "dialog .go")
        page.keyboard.press("Enter")
        page.locator("#arms tr.status-active", has_text="glipizide").wait_for()


@pytest.mark.slow
def test_a_stop_says_why_and_who_has_not_acknowledged_it(browser, tmp_path):
    """Fails if the reason is not sent, or a site that may still give the arm is not named."""
    with serving(tmp_path) as agent, opened(browser, agent.url) as page:
        agent.hear(bulletin_of("clinic"))
        page.get_by_role("button", name="Suspend… metformin").click()
        page.locator("dialog input").fill("recalled")
        page.locator("dialog .go").click()
        shows(page, "#stops .urgent", "metformin is suspended by north: recalled. 0 of 3 other sites have it; ")
        shows(page, "#stops .urgent", "clinic, east, south have not said so, and may still give it.")
        page.get_by_role("button", name="Resume… metformin").click()
        shows(page, "dialog[open] .says", "will be given again")
        page.locator("dialog input").fill("tested again")
        page.locator("dialog .go").click()
        page.locator("#stops").wait_for(state="hidden")


@pytest.mark.slow
def test_an_arm_of_another_site_is_accepted_and_one_is_added(browser, federation):
    """Fails if what waits is not shown or cannot be accepted, or if a name that is refused closes the dialog."""
    refused = ("409: ", "422: ", "Failed to load resource: the server responded with a status of 4")
    ask(f"{federation.url('east')}/v1/arms", "POST", {"change": "add", "arm": "<i>new drug</i>"})
    with opened(browser, federation.url("north"), errors=refused) as page:
        shows(page, "#waiting", "east asks to add <i>new drug</i>")
        page.get_by_role("button", name="Accept… to add").click()
        shows(page, "dialog[open] .says", "east asks to add <i>new drug</i>.")
        page.locator("dialog .go").click()
        shows(page, "#arms", "<i>new drug</i>")
        page.locator("#waiting").wait_for(state="hidden")
        page.locator("#add-arm").click()
        assert page.evaluate("document.activeElement.tagName") == "INPUT"
        page.keyboard.type("metformin")
        page.keyboard.press("Enter")
        shows(page, "dialog [role=alert]", "That was refused: ")
        page.locator("dialog input").fill("semaglutide")
        page.keyboard.press("Enter")
        shows(page, "#arms", "semaglutide")
    for name in ("<i>new drug</i>", "semaglutide"):  # nobody gives them in other tests
        ask(f"{federation.url('north')}/v1/arms", "POST", {"change": "retire", "arm": name, "reason": "recalled"})


@pytest.mark.slow
def test_a_full_disk_is_said_until_there_is_room(browser, tmp_path, monkeypatch):
    """Fails if the event ``problem`` is not drawn, or stays when it is over."""
    errors = ("503: ", "Failed to load resource: the server responded with a status of 503")
    with serving(tmp_path) as agent, opened(browser, agent.url, errors=errors) as page:
        shows(page, "#connection", "Live")
        monkeypatch.setattr(
            "fedbandit.agent.process.runtime.check_free_space", lambda _: (_ for _ in ()).throw(OSError("full"))
        )
        agent.call(lambda driver: driver.fill_disk())
        wait_until(lambda: ask(f"{agent.url}/v1/decisions", "POST")[0] == 503)
        shows(page, "#warnings .urgent", "No patient can be treated with this site's help now: ")
        monkeypatch.undo()
        agent.call(lambda driver: driver.fill_disk(full=False))
        page.locator("#warnings li", has_text="cannot serve").wait_for(state="detached")


LIST_WHAT_TAB_MISSES = """() => {
    const kinds = "a[href], button, input, summary"
    window.reached = new Set()
    window.missedByTab = () => {
        reached.add(document.activeElement)
        return [...document.querySelectorAll(kinds)]
            .filter(it => it.checkVisibility({visibilityProperty: true}) && !reached.has(it))
            .map(it => it.outerHTML)
    }
}"""


@pytest.mark.slow
def test_tab_reaches_everything(browser, federation):
    """Fails if something that can be clicked cannot be reached with Tab."""
    with opened(browser, federation.url("north")) as page:
        page.locator("#members .buttons button").first.wait_for()
        page.evaluate(LIST_WHAT_TAB_MISSES)
        for _ in range(200):  # the page is live: rows are drawn anew, and buttons come, while we go
            page.keyboard.press("Tab")
            if not (missed := page.evaluate("missedByTab()")):
                break
        assert not missed
        assert page.evaluate("reached.size") >= 15


@pytest.mark.slow
def test_a_member_is_excluded_and_included(browser, tmp_path):
    """Fails if an action calls the wrong path, or an excluded member is not marked. What the agent refuses is said."""
    with serving(tmp_path) as agent, opened(browser, agent.url, errors=["404: ", "Failed to load"]) as page:
        agent.hear(bulletin_of("clinic"))
        page.get_by_role("button", name="Exclude… clinic").click()
        shows(page, "dialog[open] .says", "no longer counts at this site")
        page.locator("dialog input").fill("its data are wrong")
        page.locator("dialog .go").click()
        shows(page, "#members tr.excluded", "excluded")
        page.get_by_role("button", name="Include… clinic").click()
        page.locator("dialog .go").click()
        page.locator("#members tr.counts", has_text="clinic").wait_for()
        page.evaluate("import('/page/actions.js').then(it => it.exclude('nobody/../x'))")
        page.locator("dialog input").fill("wrong")
        page.locator("dialog .go").click()
        shows(page, "dialog [role=alert]", "That was refused: ")


@pytest.mark.slow
def test_a_conflict_is_shown_with_both_signatures(browser, tmp_path):
    """Fails if two bulletins with one number are not in sight, or cannot be told from others."""
    with serving(tmp_path) as agent, opened(browser, agent.url) as page:
        agent.hear(bulletin_of("clinic"))
        agent.hear(*(bulletin_of("clinic", reward=it, number=2) for it in (0.0, 1.0)))
        shows(page, "#members tr.conflict", "clinic")
        page.locator("#members summary", has_text="two different messages with the number 2").click()
        assert page.locator("#members tr.conflict code").count() == 2
        shows(page, "#warnings", "two processes speak as clinic")


# ---------------------------------------------------------------- themes, widths, accessibility

OTHER_WINDOWS = ("dark", 1440), ("light", 390)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "width"),
    [("light", 1440), ("dark", 390), *OTHER_WINDOWS],
)
def test_both_themes_and_widths(browser, federation, scheme, width):
    """Fails with too little contrast, a control without a name, a skipped heading, or a page wider than its window."""
    from axe_playwright_python.sync_playwright import Axe

    ask(f"{federation.url('east')}/v1/arms", "POST", {"change": "suspend", "arm": "none", "reason": "recalled"})
    with opened(browser, federation.url("north"), width, scheme) as page:
        shows(page, "#arms tr.status-suspended", "none")
        page.locator("#members").scroll_into_view_if_needed()
        page.wait_for_timeout(600)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        back = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert back == {"light": "rgb(243, 245, 247)", "dark": "rgb(14, 20, 23)"}[scheme]
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SCREENSHOTS / f"agent-{scheme}-{width}.png", full_page=True)
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        if width <= 800:
            page.get_by_role("button", name="Actions").click()
        page.get_by_role("button", name="Suspend… metformin").click()
        found = Axe().run(page, "dialog")
        assert found.violations_count == 0, found.generate_report()


@pytest.mark.slow
def test_every_width(browser, federation):
    """Fails if the page scrolls sideways, the drawing of the arms has no room, labels overlap or a button hangs out."""
    with opened(browser, federation.url("north")) as page:
        page.get_by_role("button", name="Exclude… south").wait_for()
        page.locator("#arms .axis text").first.wait_for(state="attached")
        for width in (1440, 1400, 1366, 1280, 1200, 1150, 1101, 1024, 768, 390):
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_timeout(60)
            scroll, chart, out, gap = page.evaluate(
                """() => {
                  const box = it => it.getBoundingClientRect();
                  const out = [...document.querySelectorAll(".card button, .card dd, .card td")].filter(it =>
                    it.checkVisibility() && box(it).right > box(it.closest(".card")).right).map(it => it.textContent);
                  const labels = [...document.querySelectorAll("#arms .axis text")].map(box);
                  const gaps = labels.slice(1).map((it, i) => it.left - labels[i].right);
                  return [document.documentElement.scrollWidth, box(document.querySelector("#arms .whiskers")).width,
                    out, Math.min(...gaps)];
                }"""
            )
            covering = page.evaluate(
                """() => {
                  const cells = [...document.querySelectorAll("#arms tbody td[data-label]")];
                  for (const it of cells.flatMap(cell => [...cell.querySelectorAll("span:not(.bar, .fill)")])) {
                    it.hidden = false;
                    it.textContent = "−12345.678";
                  }
                  return cells.filter(it => it.scrollWidth > it.clientWidth).map(it => it.dataset.label);
                }"""
            )
            assert scroll <= width, width
            assert covering == [], width
            assert chart >= 120, width
            assert out == [], width
            assert gap >= 4, width
            if width == 1280:
                page.screenshot(path=SCREENSHOTS / "agent-1280.png", full_page=True)


@pytest.mark.slow
def test_every_neighbour_lies_in_the_drawing_and_the_chance_in_its_ring(browser, federation):
    """Fails if a neighbour, or its name, lies outside the drawing."""
    with opened(browser, federation.url("north")) as page:
        shows(page, "#connection", "Live")
        found = page.evaluate(
            """async () => {
              const { drawNeighbours } = await import("/page/neighbours.js");
              const graph = document.querySelector("#graph");
              return [0, 1, 2, 3, 12, 30].map(count => {
                const neighbours = Array.from({length: count}, (_, i) =>
                  ({name: `hospital-number-${i}`, reachable: i % 3 !== 2}));
                drawNeighbours({state: {name: "north", neighbours}});
                const {x, y, width, height} = graph.viewBox.baseVal;
                const all = [...graph.querySelectorAll(".neighbour, .self")];
                const nodes = all.length - 1;
                const inside = all.every(it => {
                  const box = it.getBBox(), at = it.transform.baseVal.consolidate().matrix;
                  return box.x + at.e >= x && box.y + at.f >= y &&
                    box.x + box.width + at.e <= x + width && box.y + box.height + at.f <= y + height;
                });
                return [nodes === count, inside];
              });
            }"""
        )
        assert found == [[True, True]] * 6
        gap = page.evaluate(
            """async () => {
              const text = document.querySelector("#chance"), { shortPercent } = await import("/page/format.js");
              text.textContent = shortPercent(1);
              text.classList.add("long");
              const { x, y, width, height } = text.getBBox();
              return 46.5 - Math.hypot(Math.max(60 - x, x + width - 60), Math.max(0, 60 - y - height / 4));
            }"""
        )
        assert gap >= 4, "between the number and the ring"


@pytest.mark.slow
def test_the_theme_can_be_chosen_and_stays(browser, federation):
    """Fails if the choice is forgotten, or the chart keeps the colours of the other theme."""
    with opened(browser, federation.url("north")) as page:
        page.get_by_role("button", name="Switch to the dark theme").click()
        page.reload()
        page.get_by_role("button", name="Switch to the light theme").wait_for()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(14, 20, 23)"


# ---------------------------------------------------------------- tokens


def test_a_token_is_asked_for_and_gives_its_rights(browser, tmp_path):
    """Fails if the page shows something to a stranger, offers actions without the right, or does not let go."""
    refused = ("401: ", "Failed to load resource: the server responded with a status of 401")
    with serving(tmp_path, tokens=TOKENS) as agent, opened(browser, agent.url, errors=refused) as page:
        shows(page, "#sign-in", "With your token of this site")
        shows(page, "#connection", "Not signed in")
        assert page.evaluate("document.activeElement.id") == "token"
        assert page.locator("#sign-in [role=alert]").inner_text() == "", "nobody has done anything wrong yet"
        assert not page.locator("#content").is_visible()
        page.keyboard.type("wrong-token")
        page.keyboard.press("Enter")
        shows(page, "#sign-in [role=alert]", "this agent does not know this token")
        page.keyboard.type("not a token")
        page.keyboard.press("Enter")
        shows(page, "#sign-in [role=alert]", "without spaces")
        page.locator("#token").fill("application-token")
        page.keyboard.press("Enter")
        shows(page, "#site", "north")
        assert not page.locator("#sign-in").is_visible()
        shows(page, "#person", "Signed in as who has application-token")
        shows(page, "#history-none", "Nothing to draw yet")
        assert page.locator("main .buttons button").count() == 0
        assert not page.locator("#add-arm").is_visible()
        page.reload()
        shows(page, "#site", "north")
        page.locator("#sign-out").click()
        shows(page, "#sign-in", "With your token of this site")
        assert not page.locator("#content").is_visible()
        page.locator("#token").fill("operator-token")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Suspend… metformin").wait_for()
        agent.hear(bulletin_of("clinic"))
        page.get_by_role("button", name="Exclude… clinic").wait_for()
        kept = page.evaluate("document.cookie + localStorage.length + sessionStorage.length")
        assert kept == "00", "no script can read what says who is there"


@pytest.mark.slow
def test_a_person_acts_under_his_name_in_all_tabs_until_he_signs_out_in_one(browser, tmp_path):
    """Fails if a change goes without what shows whose page it is, or if a tab goes on for somebody who has left."""
    refused = ("401: ", "Failed to load resource: the server responded with a status of 401")
    tokens = {"operator-token": Caller("Dr. A. Meier", ROLES["operator"])}
    with serving(tmp_path, tokens=tokens) as agent, opened(browser, agent.url, errors=refused) as page:
        page.locator("#token").fill("operator-token")
        page.keyboard.press("Enter")
        shows(page, "#person", "Signed in as Dr. A. Meier")
        other = page.context.new_page()
        other.goto(agent.url)
        other.get_by_role("button", name="Suspend… metformin").click()
        other.keyboard.type("recalled")
        other.keyboard.press("Enter")
        shows(other, "#done", "metformin is suspended.")
        shows(page, "#arms tr.status-suspended", "metformin")
        told = agent.call(lambda driver: driver.trail(Filter(kind="arm")))[0]
        assert [(it.what, it.subject, it.who, it.how) for it in told] == [
            ("suspend", "metformin", "Dr. A. Meier", "session")
        ]
        press_until(other, "Shift+Tab", "#sign-out")
        other.keyboard.press("Enter")
        shows(other, "#sign-in", "With your token of this site")
        agent.call(lambda driver: driver.decide())
        shows(page, "#sign-in [role=alert]", "You are no longer signed in.")
        for gone in ("#content", "#person"):  # with the next frame, which a tab in the background draws late
            page.locator(gone).wait_for(state="hidden")


@pytest.mark.slow
def test_who_may_not_look_is_told_so(browser, tmp_path):
    """Fails if somebody without the right to view waits for ever, or cannot sign in as another."""
    refused = ("401: ", "403: ", "Failed to load resource: the server responded with a status of 40")
    tokens = {"report-token": Caller("reporter", frozenset({"report"})), "viewer-token": ROLES["viewer"]}
    with serving(tmp_path, tokens=tokens) as agent, opened(browser, agent.url, errors=refused) as page:
        page.locator("#token").fill("report-token")
        page.keyboard.press("Enter")
        shows(page, "#sign-in [role=alert]", "reporter lacks the right 'view'")
        shows(page, "#person", "Signed in as reporter")
        page.locator("#token").fill("viewer-token")
        page.keyboard.press("Enter")
        shows(page, "#site", "north")
        shows(page, "#person", "Signed in as who has viewer-token")


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 390)])
def test_signing_in_in_both_themes_and_widths(browser, tmp_path, scheme, width):
    """Fails with too little contrast, a field without a name, or a page wider than its window."""
    refused = ("401: ", "Failed to load resource: the server responded with a status of 401")
    tokens = {"operator-token": Caller("Dr. Annegret Meier-Schulze", ROLES["operator"])}
    with serving(tmp_path, tokens=tokens) as agent, opened(browser, agent.url, width, scheme, errors=refused) as page:
        page.locator("#token").fill("wrong-token")
        page.keyboard.press("Enter")
        shows(page, "#sign-in [role=alert]", "this agent does not know this token")
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        _look(page, f"signed-out-{scheme}-{width}", width)
        page.locator("#token").fill("operator-token")
        page.keyboard.press("Enter")
        shows(page, "#person", "Dr. Annegret")
        shows(page, "#arms", "glipizide")
        _look(page, f"signed-in-{scheme}-{width}", width)


def _look(page, name, width):
    from axe_playwright_python.sync_playwright import Axe

    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.screenshot(path=SCREENSHOTS / f"{name}.png")
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


# ---------------------------------------------------------------- names of strangers, many of everything

HOSTILE = (
    "<img src=x onerror=window.hacked=1>",
    '"><script>window.hacked=1</script>',
    "javascript:window.hacked=1",
    "x" * 64,
    "{{constructor}} ${window.hacked=1}",
    "__proto__",
    "constructor",
    "אבג 123",
)


@pytest.mark.parametrize("width", [1440, pytest.param(390, marks=pytest.mark.slow)])
def test_hostile_names_are_text(browser, tmp_path, width):
    """Fails if a name becomes markup anywhere, or makes the page wider than its window."""
    terms = Federation("<b>trial</b>", HOSTILE, 0.0, 1.0, FedBatch(8.0, first_batch=1), max_agents=3)
    neighbours = tuple(Neighbour(name, None) for name in ("n" * 63, "<b>east</b>"))
    with serving(tmp_path, terms=terms, neighbours=neighbours) as agent, opened(browser, agent.url, width) as page:
        for _ in range(3 * len(HOSTILE)):
            _, decision = ask(f"{agent.url}/v1/decisions", "POST")
            ask(f"{agent.url}/v1/decisions/{decision['id']}/reward", "PUT", {"value": 0.5})
        page.locator("#arms > tbody > tr").nth(len(HOSTILE) - 1).wait_for()
        rows = page.locator("#arms tbody .name").all_inner_texts()
        assert sorted(rows) == sorted(HOSTILE)
        wait_until(lambda: page.locator("#arms .dot:not([visibility])").count() == len(HOSTILE))  # all are drawn
        page.locator("#history canvas").wait_for()
        wait_until(lambda: page.locator("#legend .value", has_text=".").count() == len(HOSTILE))
        assert sorted(page.locator("#legend .name").all_inner_texts()) == sorted(HOSTILE)
        assert page.locator("#warnings bdi", has_text="<b>east</b>").count() >= 1, "isolated within sentences, too"
        for name in HOSTILE:
            assert page.locator("#arms th bdi").get_by_text(name, exact=True).count() == 1
        page.locator("#members").scroll_into_view_if_needed()
        if width <= 800:
            page.get_by_role("button", name="Actions").click()
        page.locator("#arms .buttons button").first.click()
        page.wait_for_timeout(300)
        assert page.evaluate("window.hacked") is None
        assert page.evaluate("document.images.length") == 1, "the icon"
        assert page.evaluate("document.querySelectorAll('b, script:not([src])').length") == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.screenshot(path=SCREENSHOTS / f"hostile-{width}.png", full_page=True)


@pytest.mark.slow
def test_a_hundred_arms_and_thirty_neighbours(browser, tmp_path):
    """Fails if rows are lost, all are shown at once, or the page becomes too wide."""
    arms = tuple(f"treatment {k}" for k in range(100))
    terms = Federation("trial", arms, 0.0, 1.0, FedBatch(8.0, first_batch=1), max_agents=40)
    neighbours = tuple(Neighbour(f"site-{i}", None) for i in range(30))
    with serving(tmp_path, terms=terms, neighbours=neighbours) as agent, opened(browser, agent.url, 390) as page:
        page.get_by_role("button", name="Show all 100 arms").click()
        wait_until(lambda: page.locator("#arms > tbody > tr").count() == 100)
        page.get_by_role("button", name="Show all 30 neighbours").click()
        wait_until(lambda: page.locator("#links > tbody > tr").count() == 30)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.get_by_role("button", name="Show the first 12 only").first.click()
        wait_until(lambda: page.locator("#arms > tbody > tr").count() == 12)


# ---------------------------------------------------------------- the whole federation


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    """``fedbandit up`` with three sites: the address of its page, and the lines that it has printed."""
    running = spawn("up", "--problem", "bernoulli", "--arms", 3, "--speed", 20, "-o", tmp_path_factory.mktemp("up"))
    said = []
    while not said or "running until" not in said[-1]:
        said.append(running.stdout.readline())
        assert said[-1], said
    yield re.search(r"the whole federation: (\S+)/", "".join(said))[1], "".join(said)
    running.send_signal(signal.SIGINT)
    assert told(running)[0] == 0


def test_both_pages_follow_what_happens(browser, up):
    """Fails if a page does not load, does not read its stream, does not draw what comes, or says something wrong."""
    with opened(browser, up[0]) as page:
        before = number_in(page, "patients")
        wait_until(lambda: number_in(page, "patients") > before)
        site = page.locator("#sites h3 a").first.get_attribute("href")
    with opened(browser, site, motion="no-preference") as page:
        shows(page, "#connection", "Live")
        before = number_in(page, "patients here")
        wait_until(lambda: number_in(page, "patients here") > before)
        page.locator("#graph .pulses > *").first.wait_for(state="attached")
        assert page.locator("#arms > tbody > tr").count() == 3
        page.locator("#history canvas").wait_for()


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 390)])
def test_the_page_of_a_whole_federation(browser, up, scheme, width):
    """Fails if a site or an arm has no mark, the headline does not count, or a link leads nowhere."""
    from axe_playwright_python.sync_playwright import Axe

    url, said = up
    with opened(browser, url, width, scheme) as page:
        page.locator("#sites article .dot:not([visibility])").nth(2).wait_for()
        assert page.locator("#sites article").count() == 3
        assert page.locator("#sites article:first-child li").count() == 3
        right, headline = page.evaluate(
            "[document.querySelectorAll('#sites .best').length, document.querySelector('#headline').textContent]"
        )
        who = {0: "No site leads yet", 1: "1 of 3 sites leads", 2: "2 of 3 sites lead", 3: "All 3 sites lead"}[right]
        assert headline.startswith(f"{who} with the best arm, arm ")
        marks = "#sites article:first-child .mark:not([visibility])"
        assert page.locator(marks).count() == 6, "of each arm the truth over all, and the truth here"
        assert page.locator("#network .lines line").count() == 3
        before = number_in(page, "patients")
        wait_until(lambda: number_in(page, "patients") > before)
        page.locator("#network .pulse").first.wait_for(state="attached")
        links = [link.get_attribute("href") for link in page.locator("#sites h3 a").all()]
        assert all(f": {link}/\n" in said for link in links)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SCREENSHOTS / f"federation-{scheme}-{width}.png", full_page=True)
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()


@pytest.mark.slow
def test_an_agent_that_hangs_is_not_healthy(browser, up):
    """Fails if an agent that runs and does not answer counts as one that leads, or its links look as if they worked."""
    with opened(browser, up[0]) as page:
        page.locator("#facts div", has_text="agents that answer").get_by_text("3 of 3").wait_for()
        kinds, headline, words, verdict, lines = page.evaluate(
            """async () => {
              const { headlineOf, kindOf, verdictOf } = await import("/local/verdict.js");
              const { drawNetwork } = await import("/local/network.js");
              const site = (name, age, reachable) => ({
                name, age, running: true, means: [0.2, 0.8],
                state: { answer: { leader: "b" }, neighbours: ["x", "y", "z"].filter(it => it !== name).map(
                  it => ({ name: it, reachable: it !== reachable, received: 1, sent: 1 })) },
              });
              const run = {
                sites: [site("x", 0.5, "y"), site("y", 0.7), site("z", 40)], arms: ["a", "b"], best_arm: 1,
                true_means: [0.2, 0.8], epsilon: 1, seconds: 60, graph: { edges: [[0, 1], [1, 2], [0, 2]] },
              };
              drawNetwork(run);
              const lines = [...document.querySelectorAll("#network .lines line")].map(it => it.getAttribute("class"));
              const { headline, words } = headlineOf(run);
              const kinds = run.sites.map(it => kindOf(it, run.arms, 1));
              return [kinds, headline, words, verdictOf(run.sites[2], run), lines];
            }"""
        )
        assert kinds == ["best", "best", "silent"]
        assert headline.startswith("2 of 3 sites lead with the best arm")
        assert "1 agent does not answer." in words
        assert "No answer for 40\xa0s" in verdict
        assert lines == ["unreachable"] * 3, "x cannot reach y; z does not answer"


# ---------------------------------------------------------------- another browser


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_firefox_shows_the_same(federation, up, tmp_path, scheme):
    """Fails if a page uses what only Chromium has: it stays empty, without colours, or is wider than its window."""
    program = shutil.which("firefox-esr") or shutil.which("firefox")
    if program is None:
        pytest.skip("no firefox: apt-get install firefox-esr")
    import axe_playwright_python

    axe = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
    back = {"light": "rgb(243, 245, 247)", "dark": "rgb(14, 20, 23)"}[scheme]
    with firefox(program, tmp_path / "profile", scheme) as page:
        for url, dots in ((federation.url("north"), "#arms"), (up[0], "#sites")):
            for width in (1440, 500):
                page.open(url, width)
                page.run("addEventListener('error', it => { window.wrong = it.message })")
                page.wait("document.querySelector('#connection').textContent.includes('Live')")
                page.wait(f"document.querySelectorAll('{dots} .dot:not([visibility])').length >= 2")
                assert page.run("return getComputedStyle(document.body).backgroundColor") == back
                assert page.run("return innerWidth - document.documentElement.scrollWidth") >= 0
                before = page.run("return document.querySelector('#facts').textContent")
                give(federation.url("north"), 2)
                page.wait(f"document.querySelector('#facts').textContent !== {json.dumps(before)}")
                found = page.run(f"{axe}; return axe.run().then(it => it.violations.map(each => each.id))")
                assert found == []
                assert page.run("return window.wrong ?? null") is None
                picture = page.ask("WebDriver:TakeScreenshot", full=True)["value"]
                SCREENSHOTS.mkdir(parents=True, exist_ok=True)
                (SCREENSHOTS / f"firefox-{dots[1:]}-{scheme}-{width}.png").write_bytes(b64decode(picture))


# ---------------------------------------------------------------- modules


@pytest.mark.slow
def test_times_are_local_and_have_minutes(browser, federation):
    """Fails if the date is that of London, or the axis of the history cuts off minutes."""
    with opened(browser, federation.url("north"), zone="Asia/Tokyo") as page:
        at = 1_794_774_600  # 2026-11-15 20:30 UTC, in Tokyo the next day, 05:30
        said = page.evaluate(
            """async at => {
              const { time } = await import("/page/format.js");
              return [time(at, at), time(at, at, false), time(at, at + 90000), time(at, at + 90000, false)];
            }""",
            at,
        )
        assert said == ["05:30:00", "05:30", "2026-11-16 05:30", "2026-11-16 05:30"]


@pytest.mark.slow
def test_modules_by_themselves(browser, federation):
    """Fails if events are lost where a chunk ends, a scale does not hold its values, or 100 % is ever said."""
    with opened(browser, federation.url("north")) as page:
        events = page.evaluate(
            """async () => {
              const { EventParser } = await import("/page/stream.js");
              const text = ": hello\\n\\nevent: state\\ndata: {\\"a\\": 1}\\n\\n" +
                "event: point\\r\\ndata: 2\\r\\n\\r\\ndata: 3\\n\\n";
              return Array.from(text, (_, i) => {
                const parser = new EventParser();
                return JSON.stringify([...parser.feed(text.slice(0, i)), ...parser.feed(text.slice(i))]);
              });
            }"""
        )
        assert set(events) == {'[["state","{\\"a\\": 1}"],["point","2"],["message","3"]]'}
        scales = page.evaluate(
            """async () => {
              const { Scale } = await import("/page/axis.js");
              return [[0.31, 0.38], [0.5], [], [-3, 5], [0, 1], [0.999, 1]].map(values => {
                const it = new Scale(values, 0, 1);
                return [it.from, it.to, it.ticks.length, values.every(v => it.holds(Math.min(1.1, Math.max(-0.1, v))))];
              });
            }"""
        )
        assert all(to > low and 3 <= ticks <= 9 and holds for low, to, ticks, holds in scales), scales
        assert scales[4][:2] == [0, 1], "no room beyond the rewards where nothing lies"
        words = page.evaluate(
            """async () => {
              const { percent, shortPercent, ago, number, share, whole, counted } = await import("/page/format.js");
              return [
                ...[1, 0, 0.929, null].map(it => percent(it)), ...[1, 0].map(shortPercent), ...[0, 90, 7300].map(ago),
                number(-0.0001, 3), number(-0.5, 2), share(0.00012), ...[1264.8, 9.96, 2.34, 0].map(whole),
                counted(1, "site"), counted(2, "site"),
              ];
            }"""
        )
        said = [text.replace("\xa0", " ") for text in words]
        assert said == [
            *("more than 99 %", "less than 1 %", "92 %", "–", "> 99 %", "< 1 %"),
            *("just now", "1 min ago", "2 h 1 min ago", "0.000", "−0.50", "0.01 %"),
            *("1,265", "10", "2.3", "0", "1 site", "2 sites"),
        ]
