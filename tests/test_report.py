"""The report for a steering committee: what it says, from running and stopped sites; in a browser, printed on A4."""

import csv
import re
import shutil
import subprocess
from dataclasses import replace
from html import unescape
from io import StringIO

import pytest
from typer.testing import CliRunner

from fedbandit import Client, FedBatch
from fedbandit.agent.core.decisions import Retention
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.guardrails import Guardrails
from fedbandit.agent.core.records import Numbering, Stored
from fedbandit.agent.core.site import Site
from fedbandit.agent.core.trail import Deed
from fedbandit.agent.core.words import Plan, Words
from fedbandit.agent.disk.journal import JournalError
from fedbandit.agent.http.evidence import evidence_body
from fedbandit.agent.http.snapshot import arms_body, point_of, site_state
from fedbandit.agent.http.state import ArmChangeBody
from fedbandit.agent.process.rights import ROLES, Caller
from fedbandit.cli.commands import app
from fedbandit.local.processes import LocalFederation
from fedbandit.report import Facts, of_agent, of_folder, page_of, tables_of
from fedbandit.report.drawings import Scale, Span, lines_over_time, row, vertical
from fedbandit.report.page import class_of_share
from live import TERMS, bulletin_of, serving, unsigned
from processes import ask, wait_until
from test_evidence import played
from test_page import SCREENSHOTS, browser, opened  # noqa: F401  # a fixture

WORDS = Words("treatment", "success", "failure")
PLAN = Plan("Which treatment keeps most patients at home?", "2026-03-02", 4000, "after 4,000 patients")
NASTY = '</style><script>alert("1")</script>'


def facts_of(network, name="here", reference=None):
    """What one site in memory knows, over half its time and at the end."""
    site = network.site(name)
    at = network.now
    state = site_state(site, None, {}, {}, at, at, Retention(10_000, 1e9), {}, [], (0.0, 0.0))
    points = tuple(point_of(site, at - 1000.0 * (5 - k)) for k in range(5))
    return Facts(at, True, state, evidence_body(site, reference, at), arms_body(site), points)


def text_of(page):
    """What is read on a page."""
    return " ".join(unescape(re.sub("<[^>]*>", " ", page.split("</style>", 1)[1])).split())


# ---------------------------------------------------------------- what it says


def test_it_says_what_a_committee_asks():
    """Question, terms, privacy, patients, estimates, comparisons, stops with reasons, versions, how to check."""
    network = played(words=WORDS, plan=PLAN, guardrails=Guardrails("none", 0.6))
    network.change_arm("there", "suspend", "glipizide", "recalled by the maker")
    network.run()
    facts = facts_of(network)
    said = text_of(page_of(facts))
    assert facts.state.answer.words in said
    assert "Which treatment keeps most patients at home?" in said
    assert "planned for 2026-03-02" in said
    assert "600 over all sites, of 4,000 planned (15 %)" in said
    assert "after 4,000 patients" in said
    assert "is suspended at every site; a person can resume it" in said
    assert facts.state.privacy.promise in said
    assert facts.state.federation.digest in said
    assert re.search(r"glipizide suspended there recalled by the maker", said)
    assert "Now 2 of 3 treatments are given; not: glipizide (suspended)." in said
    for it in facts.evidence.differences:
        assert it.words in said
    for it in facts.evidence.arms:
        assert it.spread_in_words in said
        assert f"{it.estimate:.3f} ({it.interval.low:.3f} to {it.interval.high:.3f})" in said
        assert f"{it.always.low:.3f} to {it.always.high:.3f} (calibrated)" in said
        for each in it.sites:
            assert f"{each.mean:.3f} ({each.interval.low:.3f} to {each.interval.high:.3f})" in said
    totals = [sum(each.patients for each in it.sites) for it in facts.evidence.arms]
    assert f"all sites {' '.join(f'{it:,}' for it in totals)} {sum(totals):,}" in said
    assert not re.search(r"\b(arm|reward|gossip|bulletin)s?\b", said.replace("fedbandit", "")), "words of the terms"


def test_before_anything_is_known():
    network = played(0)
    said = text_of(page_of(replace(facts_of(network), points=())))
    assert "Nothing to draw yet." in said
    assert "No arm was added, stopped or resumed." in said
    assert "nothing yet" in said
    assert "none was written down" in said


def test_a_stop_that_was_resumed_misses_nobody():
    network = played(20)
    network.change_arm("there", "suspend", "glipizide", "recalled")
    network.run()
    network.change_arm("there", "resume", "glipizide", "another batch")
    network.run()
    facts = facts_of(network, "there")
    assert [it["not_yet"] for it in csv.DictReader(StringIO(tables_of(facts)["changes.csv"]))] == ["", ""]
    said = text_of(page_of(facts))
    assert "glipizide suspended there recalled" in said
    assert "glipizide resumed there another batch" in said
    assert "not: here" not in said
    assert "Now all 3 arms are given." in said


def test_numbers_in_the_tables_are_those_of_the_page():
    facts = facts_of(played(words=WORDS))
    tables = {name: list(csv.DictReader(StringIO(text))) for name, text in tables_of(facts).items()}
    assert set(tables) == {"sites.csv", "evidence.csv", "history.csv", "changes.csv", "policies.csv"}
    assert sum(int(it["patients"]) for it in tables["sites.csv"]) == 600
    for it in facts.evidence.arms:
        of_arm = [each for each in tables["sites.csv"] if each["arm"] == it.arm]
        assert sum(float(each["share"]) for each in of_arm) == pytest.approx(1.0)
        last = [each for each in tables["history.csv"] if each["arm"] == it.arm][-1]
        assert float(last["estimate"]) == it.estimate
        assert float(last["always_low"]) == it.always.low
    assert tables["changes.csv"] == []


def test_names_of_strangers_are_text():
    """Names and reasons that are markup or formulas: neither the page nor a spreadsheet runs them."""
    terms = Federation(f"trial {NASTY}", ("=1+1", f"b{NASTY}"), 0.0, 1.0, FedBatch(2.0), words=WORDS)
    with_names = played(3)
    facts = facts_of(with_names)
    state = facts.state.model_copy(
        update={
            "name": NASTY,
            "federation": facts.state.federation.model_copy(update={"name": terms.name, "arms": list(terms.arms)}),
            "arms": [it.model_copy(update={"name": f"=x{NASTY}"}) for it in facts.state.arms],
        }
    )
    page = page_of(replace(facts, state=state))
    assert "<script" not in page
    assert page.count("</style>") == 1
    assert NASTY in text_of(page)
    assert "\n'=" not in tables_of(facts)["history.csv"]
    assert ",\"'=x" in tables_of(replace(facts, state=state))["history.csv"]


def test_it_has_no_count_that_a_patient_can_move():
    """Whether something was reported can depend on the outcome: the page has classes, and no tables of such counts."""
    facts = facts_of(played(100))

    def with_missing(count):
        decisions = facts.state.decisions.model_copy(update={"missing": count, "late": count})
        return replace(facts, state=facts.state.model_copy(update={"decisions": decisions}))

    assert page_of(with_missing(20)) == page_of(with_missing(21))
    assert tables_of(with_missing(20)) == tables_of(with_missing(60))
    assert page_of(with_missing(20)) != page_of(with_missing(60)), "it can fail"


@pytest.mark.parametrize(
    ("part", "total", "words"),
    [
        *((0, 10, "none"), (0, 0, "none"), (1, 200, "less than 1 %"), (2, 200, "1 to 5 %")),
        *((99, 1000, "5 to 10 %"), (100, 1000, "10 to 25 %"), (499, 1000, "25 to 50 %"), (500, 1000, "more than half")),
    ],
)
def test_shares_are_classes(part, total, words):
    assert class_of_share(part, total) == words


def test_missing_and_refused_rewards_are_counted(tmp_path):
    with serving(tmp_path, terms=replace(TERMS, reward_window=0.3), neighbours=()) as agent:
        decisions = [agent.call(lambda driver: driver.decide()).id for _ in range(4)]
        ask(f"{agent.url}/v1/decisions/{decisions[0]}/reward", "PUT", {"value": 1.0})
        assert ask(f"{agent.url}/v1/decisions/{decisions[1]}/reward", "PUT", {"value": 7.0})[0] == 422
        wait_until(lambda: ask(f"{agent.url}/v1/state")[1]["decisions"]["missing"] == 3)
        assert ask(f"{agent.url}/v1/state")[1]["decisions"]["out_of_range"] == 1
        config = agent.driver.config
    with serving(tmp_path, terms=config.terms, neighbours=()) as agent:
        seen = ask(f"{agent.url}/v1/state")[1]["decisions"]
        assert (seen["missing"], seen["out_of_range"]) == (3, 0), "after a restart"


# ---------------------------------------------------------------- drawings


def test_an_interval_lies_where_its_numbers_are():
    scale = Scale([0.0, 1.0], 0.0, 1.0, 250)
    drawn = row(scale, Span(0.5, 0.25, 0.75))
    assert 'cx="125.0"' in drawn
    assert [float(it) for it in re.findall(r'class="interval" x1="([0-9.]+)"', drawn)] == [70.0, 70.0, 180.0]
    assert scale.ticks[0] == (0.0, "0.0")
    assert scale.ticks[-1] == (1.0, "1.0")


@pytest.mark.parametrize(
    ("values", "least", "most"),
    [([], 0.0, 1.0), ([0.5], 0.0, 1.0), ([0.5, 0.5001], 0, 1), ([-3e9, 5e9], -1e10, 1e10), ([float("nan")], 0, 1)],
)
def test_any_numbers_have_a_scale(values, least, most):
    scale = Scale(values, least, most, 250)
    assert 2 <= len(scale.ticks) <= 12
    assert all(0.0 <= scale(it) <= 250.0 for it in (least, most, *(it for it in values if it == it)))


def test_a_gap_in_what_is_known_is_a_gap_in_the_drawing():
    spans = [Span(None), Span(0.5, 0.4, 0.6), Span(0.6, 0.5, 0.7), Span(None), Span(0.5, 0.4, 0.6)]
    drawn = lines_over_time([0.0, 10.0, 20.0, 30.0, 40.0], 50.0, spans, spans, vertical([0.4, 0.7], 0.0, 1.0), "x")
    line = re.search(r'class="estimate" d="([^"]*)"', drawn)[1]
    assert line.count("M") == 2
    assert re.search(r'class="band" d="([^"]*)"', drawn)[1].count("Z") == 2


# ---------------------------------------------------------------- from running and stopped sites


def report(*arguments):
    done = CliRunner().invoke(app, ["report", *map(str, arguments)])
    return done.exit_code, done.output


def test_a_stopped_site_reports_the_same(tmp_path):
    with serving(tmp_path, terms=replace(TERMS, words=WORDS), neighbours=()) as agent:
        agent.hear(bulletin_of("east", agent.driver.terms, reward=1.0))
        for _ in range(40):
            decision = agent.call(lambda driver: driver.decide())
            agent.call(lambda driver, it=decision: driver.report(it.id, float(it.arm == 1)))
        agent.call(lambda driver: driver.change_arm("suspend", "none", Deed("Lee", "a token", "recalled")))
        wait_until(lambda: ask(f"{agent.url}/v1/history")[1]["points"])
        with Client(agent.url) as client:
            running = of_agent(client, None, 5.0)
        config = agent.driver.config
    before = {it.name: it.read_bytes() for it in tmp_path.iterdir()}
    stopped = of_folder(config, None, 5.0)
    assert {it.name: it.read_bytes() for it in tmp_path.iterdir()} == before, "to look changes nothing"
    assert stopped.evidence.model_copy(update={"at": 0.0}) == running.evidence.model_copy(update={"at": 0.0})
    assert stopped.state.answer == running.state.answer
    assert [it.reason for it in stopped.arms.changes] == ["recalled"]
    assert stopped.points[: len(running.points)] == running.points
    pages = [text_of(page_of(it)) for it in (running, stopped)]
    for page in pages:
        assert "none suspended north Lee recalled" in page
    assert "its agent was running" in pages[0]
    assert "its agent had stopped" in pages[1]


def test_it_tells_persons_to_whoever_may_read_the_trail(tmp_path):
    """Who stopped an arm here, and who accepted another site's change; a viewer gets the same without names."""
    tokens = {16 * "v": Caller("viewer", ROLES["viewer"]), 16 * "o": Caller("operator", ROLES["operator"])}
    east = Site("east", TERMS, Stored(Numbering(1, 0)))
    east.change_arm("add", "new", 5, "a trial elsewhere")
    with serving(tmp_path, tokens=tokens, neighbours=()) as agent:
        agent.hear(east.publish(unsigned, 1.0).result)
        with Client(agent.url, token=16 * "o") as client:
            waiting = text_of(page_of(of_agent(client, None, 5.0)))
        agent.call(lambda driver: driver.change_arm("suspend", "none", Deed("Lee", "token", "recalled")))
        agent.call(lambda driver: driver.change_arm("resume", "none", Deed("Lee", "token", "another batch")))
        agent.call(lambda driver: driver.accept_arm("new", False, Deed("Dr. A. Meier", "token", "")))
        with Client(agent.url, token=16 * "o") as operator, Client(agent.url, token=16 * "v") as viewer:
            told, seen = (of_agent(client, None, 5.0) for client in (operator, viewer))
    assert "new added, not accepted here east a trial elsewhere" in waiting
    assert "new added east a trial elsewhere accepted here by Dr. A. Meier" in text_of(page_of(told))
    rows = list(csv.DictReader(StringIO(tables_of(told)["changes.csv"])))
    assert [(it["change"], it["person"], it["accepted_by"]) for it in rows] == [
        *(("add", "", "Dr. A. Meier"), ("suspend", "Lee", ""), ("resume", "Lee", "")),
    ]
    assert all(name not in page_of(seen) for name in ("Lee", "Meier"))
    assert "none suspended north recalled" in text_of(page_of(seen))


def test_a_folder_that_an_agent_would_refuse_gives_no_report(tmp_path):
    with serving(tmp_path, neighbours=()) as agent:
        agent.call(lambda driver: driver.decide())
        config = agent.driver.config
    with pytest.raises(JournalError, match="has no state yet"):
        of_folder(replace(config, data=tmp_path / "none"), None, 0.0)
    with pytest.raises(JournalError, match="other terms"):
        of_folder(replace(config, terms=replace(TERMS, high=2.0)), None, 0.0)


@pytest.mark.slow
def test_the_command(tmp_path):
    """From a running agent, a stopped one and a killed one; mistakes name the option."""
    terms = Federation("trial", ("none", "metformin"), 0.0, 1.0, FedBatch(8.0, first_batch=2), max_agents=3)
    with LocalFederation(tmp_path, terms, [("north", "south")], 4.0) as running:
        for _ in range(30):
            _, decision = ask(f"{running.url('north')}/v1/decisions", "POST")
            ask(f"{running.url('north')}/v1/decisions/{decision['id']}/reward", "PUT", {"value": 1.0})
        config, out = running.config("north"), tmp_path / "report"
        code, said = report("-c", config, "-o", out)
        assert code == 0, said
        assert sorted(it.name for it in out.iterdir()) == [
            *("changes.csv", "evidence.csv", "history.csv", "report.html", "sites.csv")
        ]
        assert "its agent was running" in text_of((out / "report.html").read_text())
        code, said = report("-c", config, "-o", out, "--reference", "nothing")
        assert code == 2
        assert "none, metformin" in said
        code, said = report("-c", config, "-o", config)
        assert code == 2
        assert "--output" in said
        running.kill("north")
        code, said = report("-c", config, "-o", out)
        assert code == 0, said
        assert "30 decisions" in text_of((out / "report.html").read_text())
        running.start("north")
        running.wait_ready("north")
        running.stop("north")
        code, said = report("-c", config, "-o", out, "--reference", "nothing")
        assert code == 2
        assert "--reference" in said
        assert report("-c", config, "-o", out)[0] == 0
        assert "its agent had stopped" in text_of((out / "report.html").read_text())


# ---------------------------------------------------------------- on a screen, and on paper


def large_facts(num_sites=45, num_arms=12):
    """As ``facts_of``, with many sites and arms, and long names."""
    facts = facts_of(played(60, words=WORDS, plan=PLAN))
    sites = [f"site {k} of the federation of hospitals" for k in range(num_sites)]

    def grown(it, k):
        shown = [it.sites[i % 3].model_copy(update={"site": name}) for i, name in enumerate(sites)]
        return it.model_copy(update={"arm": f"treatment {k}, twice a day with meals", "sites": shown})

    arms = [grown(facts.evidence.arms[k % 3], k) for k in range(num_arms)]
    differences = [grown(facts.evidence.differences[k % 2], k) for k in range(num_arms - 1)]
    evidence = facts.evidence.model_copy(update={"arms": arms, "differences": differences})
    states = [facts.state.arms[k % 3].model_copy(update={"name": it.arm}) for k, it in enumerate(arms)]
    members = [facts.state.members[k % 3].model_copy(update={"name": it}) for k, it in enumerate(sites)]
    changes = [change(k, sites) for k in range(30)]
    return replace(
        facts,
        evidence=evidence,
        state=facts.state.model_copy(update={"arms": states, "members": members}),
        arms=facts.arms.model_copy(update={"changes": changes}),
    )


def change(k, sites):
    why = "a reason that takes a line or two of a narrow column in a table, as people write them " * 2
    kind = ("suspend", "resume")[k % 2]
    return ArmChangeBody(
        id=f"{k}", version=k, reason=why.strip(), change=kind, arm="metformin", by=sites[k], at=1e9 + k, accepted=True
    )


def printed(browser, page, path):  # noqa: F811
    """Print a page; the text of each sheet if pdftotext is there."""
    page.pdf(path=path, prefer_css_page_size=True, print_background=True)
    if shutil.which("pdftotext") is None:
        return None
    done = subprocess.run(["pdftotext", "-layout", path, "-"], capture_output=True, text=True, check=True)
    return done.stdout.split("\f")[:-1]


A4 = 680  # pixels of the width of its text: 180 mm


@pytest.mark.parametrize("facts", [pytest.param(large_facts, marks=pytest.mark.slow), lambda: facts_of(played(60))])
def test_on_a4_nothing_is_cut(browser, tmp_path, facts):  # noqa: F811
    """No element is wider than the paper; long tables repeat their heading, rows and short tables stay whole."""
    from axe_playwright_python.sync_playwright import Axe

    path = tmp_path / "report.html"
    path.write_text(page_of(facts()))
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    kind = "large" if facts is large_facts else "small"
    with opened(browser, path.as_uri(), 900) as page:
        page.screenshot(path=SCREENSHOTS / f"report-{kind}.png", full_page=kind == "small")
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        page.emulate_media(media="print")
        page.set_viewport_size({"width": A4, "height": 1000})
        wide = page.evaluate(
            """() => [...document.querySelectorAll("main *")].filter(it =>
              it.getBoundingClientRect().right > innerWidth + 0.5).map(it => it.outerHTML.slice(0, 200))"""
        )
        assert wide == []
        style = "(it, name) => getComputedStyle(it)[name]"
        assert page.locator("thead").first.evaluate(f"it => ({style})(it, 'display')") == "table-header-group"
        assert page.locator("tbody tr").first.evaluate(f"it => ({style})(it, 'breakInside')") == "avoid"
        sheets = printed(browser, page, SCREENSHOTS / f"report-{kind}.pdf")
    content = (SCREENSHOTS / f"report-{kind}.pdf").read_bytes()
    assert re.search(rb"/MediaBox \[0 0 59[456](\.\d+)? 84[12]", content), "A4"
    if sheets is not None:
        count = len(sheets)
        assert all(f"{i} of {count}" in sheet for i, sheet in enumerate(sheets, 1)), "numbered"
        rows = [line for sheet in sheets for line in sheet.splitlines() if re.match(r" *site \d+ of the", line)]
        if facts is large_facts:
            for sheet in sheets:
                lines = sheet.splitlines()
                if any(re.match(r" *site \d+ of the", line) for line in lines):
                    first = next(i for i, line in enumerate(lines) if re.match(r" *site \d+ of the", line))
                    assert any(re.match(r" *(site\b|when)", line) for line in lines[:first]), "a heading comes before"
            assert rows


def test_on_a_phone_it_does_not_scroll_sideways(browser, tmp_path):  # noqa: F811
    path = tmp_path / "report.html"
    path.write_text(page_of(facts_of(played(60, words=WORDS))))
    with opened(browser, path.as_uri(), 390) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SCREENSHOTS / "report-390.png")


def test_it_asks_nobody_for_anything():
    """One file: no script, no link to another, no picture from elsewhere."""
    page = page_of(facts_of(played(3)))
    assert not re.search(r"<(script|link|img|iframe|object|embed)\b|@import|url\(|https?://", page)
