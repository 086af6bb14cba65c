"""The page as a physician reads it: a forest plot, what was planned, one meaning for each colour, no commands."""

import re
from dataclasses import replace

import pytest

from fedbandit.agent.core.decisions import Request
from fedbandit.agent.core.words import Plan, Words
from live import TERMS as TWO_ARMS
from live import bulletin_of, serving
from processes import ask, wait_until
from test_page import MEANS, SCREENSHOTS, TERMS, TOKENS, browser, opened, shows  # noqa: F401  # a fixture

WORDS = Words("treatment", "success", "failure")
PLAN = Plan("Which treatment keeps most patients at home?", "2026-03-02", 400, "after 400 patients")


def played(agent, count=40):
    """Patients of a site whose neighbour has released, too."""
    agent.hear(bulletin_of("east", agent.driver.terms, reward=1.0))
    for _ in range(count):
        decision = agent.call(lambda driver: driver.decide())
        value = MEANS.get(agent.driver.terms.arms[decision.arm], 0.5)
        agent.call(lambda driver, it=decision, value=value: driver.report(it.id, value))


def read(page):
    """What is read on a page, with all that can be opened."""
    page.evaluate("document.querySelectorAll('details').forEach(it => { it.open = true })")
    return page.locator("body").inner_text()


def test_each_site_stands_beside_the_average(browser, tmp_path):  # noqa: F811
    """Fails if the forest plot is not that of ``GET /v1/evidence``, or a comparison is not with the reference."""
    with serving(tmp_path, terms=replace(TERMS, words=WORDS), neighbours=()) as agent:
        played(agent)
        with opened(browser, agent.url) as page:
            shows(page, "#forest tr.all", "all sites")
            _, found = ask(f"{agent.url}/v1/evidence")
            chosen = page.locator("#forest-of").input_value().removeprefix("arm ")
            shown = next(it for it in found["arms"] if it["arm"] == chosen)
            assert page.locator("#forest > tbody > tr").count() == len(shown["sites"]) + 1
            for it in shown["sites"]:
                row = page.locator("#forest > tbody > tr", has_text=it["site"])
                assert f"{it['mean']:.3f}" in row.inner_text().replace("\N{MINUS SIGN}", "-")
                assert row.locator(".mark.one path").is_visible()
            assert f"{shown['estimate']:.3f}" in page.locator("#forest tr.all").inner_text()
            assert page.locator("#forest-spread").inner_text() == shown["spread_in_words"]
            less = found["differences"][0]
            page.locator("#forest-of").select_option(f"less {less['arm']}")
            said = page.locator("#forest-words").inner_text()
            assert f"{less['arm']} is than that of {found['reference']}: {less['words']}." in said
            assert f"{abs(less['estimate']):.3f}" in page.locator("#forest tr.all").inner_text()
            SCREENSHOTS.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=SCREENSHOTS / "agent-words.png", full_page=True)


def test_what_was_planned_stands_beside_what_is(browser, tmp_path):  # noqa: F811
    with serving(tmp_path / "a", terms=replace(TERMS, words=WORDS, plan=PLAN), neighbours=()) as agent:
        played(agent, 10)
        with opened(browser, agent.url) as page:
            shows(page, "#plan", PLAN.question)
            total = ask(f"{agent.url}/v1/state")[1]["federation"]["patients"]
            said = page.locator("#plan").inner_text().replace("\xa0", " ")
            assert f"{total} of 400 ({100 * total / 400:.0f} %)" in said
            assert "2026-03-02" in said
            assert "after 400 patients" in said
    with serving(tmp_path / "b", neighbours=()) as agent, opened(browser, agent.url) as page:
        shows(page, "#site", "north")
        assert not page.locator("#plan").is_visible()


def test_a_physician_reads_no_commands_and_the_words_of_the_terms(browser, tmp_path):  # noqa: F811
    """Also while a neighbour is out of reach, a member is excluded and an arm is stopped."""
    terms = replace(TERMS, words=WORDS, max_agents=5)
    with serving(tmp_path, terms=terms) as agent:
        played(agent, 5)
        for k in range(15):  # each arm has releases of its own, so none ties with the leader
            (it,) = agent.call(lambda driver, k=k: driver.request(Request(eligible=(k % 3,))))
            agent.call(lambda driver, it=it, k=k: driver.report(it.id, (0.2, 0.9, 0.5)[k % 3]))
        agent.hear(bulletin_of("west", terms))
        leader = ask(f"{agent.url}/v1/state")[1]["answer"]["leader"]
        ask(f"{agent.url}/v1/arms", "POST", {"change": "suspend", "arm": leader, "reason": "recalled"})
        ask(f"{agent.url}/v1/excluded/west", "PUT", {"reason": "it lies"})
        with opened(browser, agent.url) as page:
            shows(page, "#attention", "Action needed")
            shows(page, ".kicker", "of the treatments given now")
            shows(page, "#attention", "can include it again")
            shows(page, "#stops", "recalled")
            shows(page, "#trail", "recalled")
            said = read(page)
            raw = " ".join(ask(f"{agent.url}/v1/state")[1]["warnings"])
            assert "'fedbandit include west'" in raw, "it can fail"
            assert not re.search(r"'fedbandit|fedbandit [a-z]", said)
            words = re.findall(r"\b(?:arms?|rewards?|gossip\w*|agents?|releases? \w+ arm)\b", said, re.IGNORECASE)
            assert words == [], [said[max(0, it.start() - 80) : it.end() + 80] for it in re.finditer(r"\barms\b", said)]
            parts = page.locator("section:not(#trail-section, #changes-section)").all_inner_texts()
            assert sum(it.count("recalled") for it in parts) == 1, "a stop is told once, besides what was done"


def test_a_colour_is_that_of_an_arm(browser, tmp_path):  # noqa: F811
    """Dot, ring, whisker, swatch and line of an arm share a colour; no two arms do, nor the page's own colours."""
    terms = replace(TERMS, arms=tuple("abcdefgh"))
    for scheme in ("light", "dark"):
        with serving(tmp_path / scheme, terms=terms, neighbours=()) as agent:
            played(agent, 60)
            with opened(browser, agent.url, scheme=scheme) as page:
                page.locator("#history canvas").wait_for()
                wait_until(lambda page=page: page.locator("#legend li").count() == 8)
                rows = page.evaluate(
                    """() => [...document.querySelectorAll("#arms > tbody > tr")].map(row => {
                      const of = (selector, what) => getComputedStyle(row.querySelector(selector))[what];
                      return [of(".swatch", "backgroundColor"), of(".dot", "fill"), of(".whisker", "stroke"),
                              of(".mark.own path", "stroke")];
                    })"""
                )
                assert all(len(set(row)) == 1 for row in rows)
                others = page.evaluate(
                    """() => ["--accent", "--bad", "--good", "--amber"].map(name => {
                      const probe = document.createElement("i");
                      probe.style.color = `var(${name})`;
                      document.body.append(probe);
                      return getComputedStyle(probe).color;
                    })"""
                )
                assert len({row[0] for row in rows} | set(others)) == 8 + len(others)


def test_on_a_phone_what_changes_something_is_behind_one_button(browser, tmp_path):  # noqa: F811
    from axe_playwright_python.sync_playwright import Axe

    with serving(tmp_path, neighbours=()) as agent:
        played(agent, 3)
        with opened(browser, agent.url, 390) as page:
            button = page.get_by_role("button", name="Actions")
            button.wait_for()
            changing = page.locator(".buttons button, .action")
            assert changing.count() > 3
            assert not any(it.is_visible() for it in changing.all())
            assert page.evaluate("document.documentElement.scrollWidth") <= 390
            SCREENSHOTS.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=SCREENSHOTS / "agent-phone.png", full_page=True)
            button.click()
            assert button.get_attribute("aria-pressed") == "true"
            assert page.get_by_role("button", name="Suspend… metformin").is_visible()
            assert Axe().run(page).violations_count == 0
        with opened(browser, agent.url) as page:
            page.get_by_role("button", name="Suspend… metformin").wait_for()
            assert not page.get_by_role("button", name="Actions").is_visible(), "there is room for all"
    asks = ("401: ", "Failed to load resource: the server responded with a status of 401")
    with (
        serving(tmp_path / "viewer", tokens=TOKENS, neighbours=()) as agent,
        opened(browser, agent.url, 390, errors=asks) as page,
    ):
        page.locator("#token").fill("application-token")
        page.get_by_role("button", name="Sign in").click()
        shows(page, "#site", "north")
        assert not page.get_by_role("button", name="Actions").is_visible(), "nothing can be changed"


def test_nothing_pops_up_over_a_neighbour(browser, tmp_path):  # noqa: F811
    """A tooltip of one neighbour would cover the next: their names stand beside them, and in the table."""
    with serving(tmp_path) as agent, opened(browser, agent.url) as page:
        shows(page, "#graph .neighbour", "east")
        assert page.locator("#graph title, [title]").count() == 0


def test_a_line_that_moves_without_patients_is_explained(browser, tmp_path):  # noqa: F811
    """Where sites count by their patients, an arm's estimate moves with the weights of the sites."""
    with serving(tmp_path, neighbours=(), terms=replace(TWO_ARMS, counts="patients", max_agents=3)) as agent:
        agent.hear(bulletin_of("east", agent.driver.terms, reward=1.0))
        for _ in range(30):
            decision = agent.call(lambda driver: driver.decide())
            agent.call(lambda driver, it=decision: driver.report(it.id, 0.5))
        with opened(browser, agent.url) as page:
            shows(page, "#history-words", "A line can move while nobody gets that arm")
            page.get_by_role("button", name="However often one looks").click()
            shows(page, "#history-words", "that hold however often one looks")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x: that does not count here until 'fedbandit arm accept 'new drug' --retire'.", "until the operator of this"),
        ("last ran here: 'fedbandit confirm'.", "last ran here: the operator of this site has to confirm that."),
        ("west is excluded here. 'fedbandit include west' ends that.", "here. The operator of this site can include"),
        ("'fedbandit constructor'", "the operator of this site knows how"),
        ("a drug called 'x' is given", "a drug called 'x' is given"),
    ],
)
def test_commands_become_words(browser, tmp_path, text, words):  # noqa: F811
    with serving(tmp_path, neighbours=()) as agent, opened(browser, agent.url) as page:
        script = "async text => (await import('/page/words.js')).plain(text)"
        assert words in page.evaluate(script, text)
