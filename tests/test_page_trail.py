"""What was done at a site, on its page: the audit trail, and the changes of arms and members, for who may read them."""

import json
import re
import time
from dataclasses import asdict, replace

import pytest

from fedbandit.agent.core.records import Numbering, Stored
from fedbandit.agent.core.site import Site
from fedbandit.agent.core.trail import KINDS, Entry, Filter, Head, fault_of
from fedbandit.agent.core.words import Words
from fedbandit.agent.http import audit_log
from fedbandit.agent.process.rights import ROLES, Caller
from live import TERMS, bulletin_of, serving, unsigned
from processes import ask, wait_until
from test_page import SCREENSHOTS, browser, opened, shows  # noqa: F401  # a fixture

PEOPLE = {"operator-token": Caller("Dr. A. Meier", ROLES["operator"]), "viewer-token": ROLES["viewer"]}
SIGNED_OUT = ("401: ", "Failed to load resource: the server responded with a status of 401")
WHY = "<b>two patients</b> had rashes"


def sign_in(page, token):
    page.locator("#token").fill(token)
    page.keyboard.press("Enter")
    shows(page, "#site", "north")


def changed_by_clinic(terms=TERMS):
    """A bulletin of a site that adds an arm and says why."""
    site = Site("clinic", terms, Stored(Numbering(1, 0)), lambda epsilon, count: [0] * count)
    site.change_arm("add", "<i>new</i>", 1, "the board has agreed")
    return site.publish(unsigned, 1.0).result


def act(it):
    """At the page: a change of this site, the consent to one of another site, and a member that is excluded."""
    it.locator("[aria-label='Suspend… metformin']").click()
    it.locator("dialog input").fill(WHY)
    it.locator("dialog .go").click()
    it.get_by_role("button", name="Accept… to add").click()
    it.locator("dialog input").fill("as agreed")
    it.locator("dialog .go").click()
    it.get_by_role("button", name="Exclude… clinic").click()
    it.locator("dialog input").fill("its data are wrong")
    it.locator("dialog .go").click()


def texts(page, table):
    """The rows of a table but for their times; what is on a line of its own follows a slash."""
    rows = """table => [...document.querySelectorAll(`#${table} > tbody > tr`)].map(row =>
      [...row.querySelectorAll("td")].map(it => it.innerText.trim().replaceAll("\\n", " / ")))"""
    return page.evaluate(rows, table)


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 390)])
def test_what_people_did_is_told_to_whoever_may_read_it(browser, tmp_path, scheme, width):  # noqa: F811
    """Fails if an entry is lost, told without person, way or reason, or a change without its acceptance here."""
    from axe_playwright_python.sync_playwright import Axe

    with (
        serving(tmp_path, tokens=PEOPLE) as agent,
        opened(browser, agent.url, width, scheme, errors=SIGNED_OUT) as page,
    ):
        sign_in(page, "operator-token")
        if width <= 800:
            page.get_by_role("button", name="Actions").click()
        agent.hear(changed_by_clinic())
        page.get_by_role("button", name="Accept… to add").wait_for()
        shows(page, "#changes > tbody > tr:first-child", "waits")
        act(page)
        meier = "Dr. A. Meier / signed in at the page"
        shows(page, "#changes > tbody > tr:first-child", "its data are wrong")
        told = texts(page, "changes")
        assert told[0] == ["excluded clinic", meier, "this site", "its data are wrong", ""]
        assert told[1] == ["suspended metformin", meier, "this site", WHY, ""]
        assert told[2][:4] == ["added <i>new</i>", "–", "clinic", "the board has agreed"]
        assert re.fullmatch(r"Dr\. A\. Meier / \d\d:\d\d:\d\d", told[2][4])
        assert [it[0] for it in told[3:]] == ["linked south", "linked east"]
        shows(page, "#trail > tbody > tr:first-child", "excluded clinic")
        way = "signed in at the page"
        assert texts(page, "trail")[:4] == [
            ["Dr. A. Meier", way, "excluded clinic", "its data are wrong"],
            ["Dr. A. Meier", way, "accepted what clinic has done to <i>new</i>", "as agreed"],
            ["Dr. A. Meier", way, "suspended metformin", WHY],
            ["clinic", "", "added <i>new</i>", "the board has agreed"],
        ]
        assert page.locator("#trail b, #trail i, #changes b, #changes i").count() == 0
        at = page.locator("#trail time").first.get_attribute("datetime")
        newest = agent.call(lambda driver: driver.trail(Filter(last=1)))[0][0]
        assert abs(time.time() - newest.at / 1000) < 600
        assert at.startswith(time.strftime("%Y-%m-%dT%H:%M", time.gmtime(newest.at / 1000)))
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SCREENSHOTS / f"trail-{scheme}-{width}.png", full_page=True)
        for part in ("changes", "trail"):
            page.locator(f"#{part}-section").screenshot(path=SCREENSHOTS / f"{part}-{scheme}-{width}.png")
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()


@pytest.mark.slow
def test_whoever_may_not_read_it_sees_nothing_of_it_and_does_not_ask(browser, tmp_path):  # noqa: F811
    """Fails if the page asks without the right, or leaves what the person before has seen."""
    with serving(tmp_path, tokens=PEOPLE) as agent, opened(browser, agent.url, errors=SIGNED_OUT) as page:
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        sign_in(page, "operator-token")
        shows(page, "#trail", "Dr. A. Meier")
        assert any("audit-log" in it for it in asked)
        page.locator("#sign-out").click()
        shows(page, "#sign-in", "With your token of this site")
        asked.clear()
        sign_in(page, "viewer-token")
        shows(page, "#person", "Signed in as who has viewer-token")
        shows(page, "#connection", "Live")
        agent.hear(bulletin_of("clinic"))
        shows(page, "#members", "clinic")
        page.locator("#trail-section").wait_for(state="hidden")
        assert not page.locator("#changes-section").is_visible()
        wait_until(lambda: page.locator("#trail > tbody > tr, #changes > tbody > tr").count() == 0)
        assert [it for it in asked if "audit-log" in it] == []


def test_the_trail_is_filtered_and_downloaded_whole(browser, tmp_path, monkeypatch):  # noqa: F811
    """Fails if a kind has no words, another kind passes, or the file is not the trail as it is on disk, verified."""
    monkeypatch.setattr(audit_log, "MOST_SHOWN", 3)  # entries in one answer
    with serving(tmp_path, neighbours=()) as agent, opened(browser, agent.url) as page:
        for change in ("suspend", "resume", "suspend", "resume"):
            ask(f"{agent.url}/v1/arms", "POST", {"change": change, "arm": "none", "reason": "recalled"})
        shows(page, "#trail > tbody > tr:first-child", "resumed none")
        kinds = page.locator("#trail-of option").evaluate_all("all => all.map(it => [it.value, it.textContent])")
        assert {value for value, _ in kinds} == {"", *KINDS}
        assert all(text and "{" not in text for _, text in kinds)
        page.locator("#trail-of").select_option("rights")
        wait_until(lambda: [it[2][:22] for it in texts(page, "trail")] == ["gave rights to anybody"])
        assert "to change arms" in page.locator("#trail").inner_text()
        page.locator("#trail-of").select_option("restore")
        page.locator("#trail").wait_for(state="hidden")
        shows(page, "#trail-words", "0 entries of ")
        with page.expect_download() as begun:
            page.get_by_role("button", name="Download all").click()
        assert re.fullmatch(r"audit-trail-north-\d{4}-\d\d-\d\d\.jsonl", begun.value.suggested_filename)
        lines = begun.value.path().read_text(encoding="utf-8").splitlines()
        entries, head = agent.call(lambda driver: driver.trail(Filter()))
        assert [json.loads(line) for line in lines] == [asdict(it) for it in entries]
        assert fault_of([Entry(**json.loads(line)) for line in lines], [Head(head.number, head.hash)]) is None
        assert len(lines) > 2 * 3


def test_it_is_in_the_words_of_the_terms(browser, tmp_path):  # noqa: F811
    """Fails if a deed is told as the trail writes it: rights by their names in a file, arms where there are none."""
    terms = replace(TERMS, words=Words("treatment", "success", "failure"))
    with serving(tmp_path, terms=terms, neighbours=()) as agent, opened(browser, agent.url) as page:
        shows(page, "#trail", "gave rights to anybody")
        said = page.locator("#trail-section").inner_text() + page.locator("#changes-section").inner_text()
        assert "to change treatments" in said
        assert re.findall(r"\b(?:arms?|rewards?|decide|audit)\b", said) == []
        deeds = page.evaluate(
            """async () => {
              const { done, way } = await import("/page/deeds.js");
              const said = ["history enter A 12 rewards", "login refuse  3 wrong tokens", "release release A 7",
                "member admit east ", "confirm new-deed x y", "arm constructor A id"].map(it => {
                const [kind, what, subject, ...rest] = it.split(" ");
                const entry = { kind, what, subject, site: "west", detail: rest.join(" ") };
                return done(entry).map(part => part.textContent ?? part).join("");
              });
              return [...said, way({ how: "constructor" }), way({ how: "site.toml" })];
            }"""
        )
        assert deeds == [
            "entered earlier patients of A: 12",
            "could not sign in: 3 wrong tokens",
            "told the others a mean of A, number 7",
            "no longer refuses east",
            "new-deed x y",
            "constructor A id",
            "constructor",
            "site.toml",
        ]


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "width"), [("light", 1300), ("dark", 390)])
def test_what_waits_says_why_and_which_sites_have_accepted_it(browser, tmp_path, scheme, width):  # noqa: F811
    """Also when another site accepts it meanwhile: a person decides by what others have done."""
    from axe_playwright_python.sync_playwright import Axe

    clinic, ward = (Site(name, TERMS, Stored(Numbering(1, 0))) for name in ("clinic", "ward"))
    clinic.change_arm("add", "new", 1, "licensed in May")
    asked = clinic.publish(unsigned, 1.0).result
    ward.merge(asked, "clinic", 1.0)
    told = "clinic asks to add new: licensed in May. {} It waits for this site's consent."
    with serving(tmp_path) as agent, opened(browser, agent.url, width, scheme) as page:
        agent.hear(asked)
        shows(page, "#waiting", "clinic asks to add new: licensed in May. It waits for this site's consent.")
        agent.hear(ward.publish(unsigned, 1.0).result)
        shows(page, "#waiting", told.format("No other site has accepted it yet."))
        ward.accept_arm("new")
        agent.hear(ward.publish(unsigned, 2.0).result)
        shows(page, "#waiting", told.format("All other sites have accepted it: ward."))
        page.screenshot(path=SCREENSHOTS / f"consent-{scheme}-{width}.png")
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
