"""What people see of strata: evidence, tables, the terminal, the report and the page, each per stratum."""

import csv
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from math import sqrt
from random import Random

import pytest
from typer.testing import CliRunner

from fedbandit import Client, FedBatch
from fedbandit.agent.client import InvalidRequest
from fedbandit.agent.core.context import Factors
from fedbandit.agent.core.decisions import Request, Retention, SiteDraws
from fedbandit.agent.core.evidence import MOSTLY, evidence_of
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import Numbering, Stored
from fedbandit.agent.core.site import Site
from fedbandit.agent.core.words import Words
from fedbandit.agent.http.evidence import evidence_of_all
from fedbandit.agent.http.snapshot import arms_body, point_of, site_state
from fedbandit.cli.commands import app
from fedbandit.privacy.noise import GRID
from fedbandit.report import Facts, page_of, tables_of
from fedbandit.rules.strata_influence import mean_in_stratum
from fedbandit.testing.memory_network import MemoryNetwork
from live import serving, unsigned
from test_page import SCREENSHOTS, browser, opened, shows  # noqa: F401  # a fixture
from test_report import text_of

ARMS = ("none", "metformin", "insulin")
FACTORS = Factors.of({"age": ("under 65", "over 65"), "renal": ("normal", "impaired")})
WORDS = Words("treatment", "success", "failure")
TERMS = Federation("trial", ARMS, 0.0, 1.0, FedBatch(2.0, context="strata"), context=FACTORS, words=WORDS, max_agents=3)
SHARES = (0.4, 0.1, 0.3, 0.2)
"""How often each stratum comes."""

MEANS = ((0.3, 0.4, 0.7), (0.3, 0.4, 0.7), (0.3, 0.7, 0.4), (0.3, 0.7, 0.4))
"""By stratum and arm: over 65 metformin is better, else insulin."""


def patient(pick):
    return pick.choices(range(FACTORS.num_strata), SHARES)[0]


def played(patients=400, terms=TERMS):
    """Three sites after so many patients each."""
    network, pick = MemoryNetwork(terms, [("here", "there"), ("there", "yonder")], seed=3), Random(2)  # noqa: S311
    for _ in range(patients):
        for name in network.names:
            network.now += 60.0
            s = patient(pick)
            decision = network.decide(name, context=FACTORS.levels(s))
            network.report(name, decision.id, float(pick.random() < MEANS[s][decision.arm]))
        for link in network.links:
            network.exchange(*link)
        network.run()
    return network


@pytest.fixture(scope="module")
def network():
    return played()


def facts_of(network, name="here"):
    site, at = network.site(name), network.now
    state = site_state(site, None, {}, {}, at, at, Retention(10_000, 1e9), {}, [], (0.0, 0.0))
    evidence, *strata = evidence_of_all(site, None, at)
    points = tuple(point_of(site, at - 1000.0 * (5 - k)) for k in range(5))
    return Facts(at, True, state, evidence, arms_body(site), points, tuple(strata))


# ---------------------------------------------------------------- numbers


def test_the_mean_of_a_stratum_is_that_of_the_sums_in_which_it_is():
    """Two sums: one of the stratum alone, one half of which is; by hand."""
    alone, both = (0.1, 0.02), (0.3, 0.04)  # value above the middle, variance
    score = (alone[0] / alone[1] + 0.5 * both[0] / both[1], 0.5 * both[0] / both[1])
    precision = (1 / alone[1] + 0.25 / both[1], 0.25 / both[1], 0.25 / both[1], 0.25 / both[1])
    found = mean_in_stratum((2.0, 1.0, 1.0, *score, *precision), 0, 2)
    weights = (1 / alone[1], 0.5 / both[1])
    mean = (weights[0] * alone[0] + weights[1] * both[0]) / sum(weights)
    assert found.mean == pytest.approx(0.5 + mean)
    assert found.variance == pytest.approx((weights[0] ** 2 * alone[1] + weights[1] ** 2 * both[1]) / sum(weights) ** 2)
    assert found.part == pytest.approx((weights[0] + 0.5 * weights[1]) / sum(weights))
    assert mean_in_stratum((2.0, 1.0, 1.0, *score, *precision), 1, 2).part == pytest.approx(0.5)
    assert mean_in_stratum((0.0, 1.0, 1.0, *[0.0] * 6), 0, 2) is None


def test_estimates_of_a_stratum_are_those_of_its_answer(network):
    site = network.site("here")
    for it in site.strata:
        arms, differences = evidence_of(site, "none", it.stratum)
        assert [each.estimate for each in arms] == list(it.theta)
        assert differences[0].estimate == pytest.approx(it.theta[1] - it.theta[0])
        for each, error in zip(arms, it.errors, strict=True):
            assert each.interval.high == pytest.approx(min(each.estimate + 1.96 * error, 1.0), rel=1e-3)
            assert sum(one.share for one in each.sites) == pytest.approx(1.0)
            known = [one for one in each.sites if one.mean is not None and one.part >= MOSTLY]
            assert (0 if each.spread is None else each.spread.sites) == (len(known) if len(known) > 1 else 0)


def test_means_of_sites_are_near_the_truth_and_say_what_is_in_them(network):
    """No mean of a site is off by 6 of its standard deviations from that of the patients who are in it."""
    for it in network.site("here").strata:
        for k, each in enumerate(evidence_of(network.site("here"), "none", it.stratum)[0]):
            for one in each.sites:
                if one.mean is not None and one.part > 0.999:
                    assert abs(one.mean - MEANS[it.stratum][k]) < 6.0 * one.deviation
                assert one.mean is None or 0.0 < one.part <= 1.0


def test_patients_of_strata_are_those_of_all_sites(network):
    """Of this site as it knows them, of others as they said last; they add up."""
    site = network.site("here")
    for k in range(len(ARMS)):
        assert sum(site.tried_in[k]) == site.tried[k]
        assert sum(site.patients_in[k]) == site.patients[k]
        for s in range(FACTORS.num_strata):
            seen = {it.site: it.patients for it in evidence_of(site, "none", s)[0][k].sites}
            assert seen["here"] == site.tried_in[k][s]
            assert sum(seen.values()) == site.patients_in[k][s]
            own = sum(network.site(name).tried_in[k][s] for name in network.names)
            assert abs(own - site.patients_in[k][s]) <= 3, "decisions since the last bulletins"


def test_what_is_cancelled_is_given_back_to_its_stratum():
    site = Site("here", TERMS, Stored(Numbering(1, 0), key=b"key"), lambda _, count: [0] * count)
    made = [
        site.decide(1.0, SiteDraws((0.0,) * 3, 0.5), Request((k,), context=FACTORS.levels(2))).result for k in (0, 1, 1)
    ]
    assert site.tried_in == ((0, 0, 1, 0), (0, 0, 2, 0), (0, 0, 0, 0))
    site.cancel(made[1].id, 2.0)
    site.report(made[2].id, 1.0)
    assert site.tried_in == ((0, 0, 1, 0), (0, 0, 1, 0), (0, 0, 0, 0))
    again = Site("here", TERMS, site.stored, lambda _, count: [0] * count)
    assert again.tried_in == site.tried_in


# ---------------------------------------------------------------- tables, and the report


def test_the_tables_have_rows_of_each_stratum(network):
    facts = facts_of(network)
    tables = {name: list(csv.DictReader(StringIO(it))) for name, it in tables_of(facts).items()}
    labels = ["", *FACTORS.labels]
    assert list(dict.fromkeys(it["stratum"] for it in tables["evidence.csv"])) == labels
    for body in (facts.evidence, *facts.strata):
        for it in body.arms:
            where = {"kind": "arm", "stratum": body.stratum or "", "arm": it.arm, "site": ""}
            (row,) = [row for row in tables["evidence.csv"] if where.items() <= row.items()]
            assert float(row["estimate"]) == it.estimate
            assert int(row["patients"]) == it.patients
    of_all = {(it["site"], it["arm"]): int(it["patients"]) for it in tables["sites.csv"] if not it["stratum"]}
    summed = dict.fromkeys(of_all, 0)
    for it in tables["sites.csv"]:
        if it["stratum"]:
            summed[it["site"], it["arm"]] += int(it["patients"])
    assert summed == of_all


def test_the_report_says_for_whom(network):
    facts = facts_of(network)
    said = text_of(page_of(facts))
    assert "Whom it is best for" in said
    assert facts.state.answer.words in said
    for it in facts.state.answer.strata:
        assert f"{it.label} : compared with" in said
        for value, around, patients in zip(it.estimates, it.intervals, it.patients, strict=True):
            assert f"{value:.3f} ({around.low:.3f} to {around.high:.3f})" in said
            assert f"{patients:,}" in said
    mixed = [each for body in facts.strata for it in body.differences for each in it.sites if each.part < 0.995]
    assert mixed
    assert f"{100 * mixed[0].part:.0f} % from this group" in said


# ---------------------------------------------------------------- a real agent


def bulletin_of(name, patients=400):
    """What a site says after some patients, without noise."""
    site = Site(name, TERMS, Stored(Numbering(1, 0), key=b"key"), lambda _, count: [0] * count)
    pick = Random(name)  # noqa: S311
    for _ in range(patients):
        s, arm = patient(pick), pick.randrange(3)
        decided = site.decide(0.0, SiteDraws((0.0,) * 3, 0.5), Request((arm,), context=FACTORS.levels(s)))
        site.report(decided.result.id, float(pick.random() < MEANS[s][arm]))
    return site.publish(unsigned, 1.0).result


@contextmanager
def served(tmp_path, patients=300):
    """An agent with patients of its own that has heard of two other sites."""
    with serving(tmp_path, terms=TERMS, neighbours=()) as agent:
        agent.hear(bulletin_of("east"), bulletin_of("south"))
        pick = Random(1)  # noqa: S311
        with Client(agent.url) as client:
            for _ in range(patients // 10):
                s, arm = patient(pick), pick.randrange(3)
                told = client.decide_many(10, eligible=[arm], context=FACTORS.levels(s))
                client.rewards((it, float(pick.random() < MEANS[s][arm])) for it in told)
        yield agent


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    with served(tmp_path_factory.mktemp("agent")) as running:
        yield running


def status(*arguments):
    done = CliRunner().invoke(app, ["status", *arguments])
    return done.exit_code, done.output


def test_evidence_of_a_stratum_over_http(agent):
    with Client(agent.url) as client:
        state = client.state()
        for k, it in enumerate(state.answer.strata):
            found = client.evidence("none", it.label)
            assert found.stratum == it.label == FACTORS.labels[k]
            assert [each.estimate for each in found.arms] == it.estimates
            assert [each.interval for each in found.arms] == it.intervals
            assert [each.patients for each in found.arms] == it.patients
            assert {each.site for each in found.arms[0].sites} == {"north", "east", "south"}
        pulls = [sum(it.pulls[k] for it in state.answer.strata) for k in range(3)]
        assert pulls == [it.pulls for it in state.arms]
        whole = client.evidence("none")
        assert whole.stratum is None
        assert all(each.part == 1.0 for it in whole.arms for each in it.sites)
        with pytest.raises(InvalidRequest, match=r"must be one of under 65, normal; .* Did you mean 'over 65, n"):
            client.evidence("none", "over 65, norm")


def test_a_stratum_where_there_are_none_is_refused(tmp_path):
    with (
        serving(tmp_path) as agent,
        Client(agent.url) as client,
        pytest.raises(InvalidRequest, match="stratum must be left"),
    ):
        client.evidence(None, "over 65")


def test_the_terminal_shows_a_stratum(agent):
    code, said = status(agent.url, "--stratum", "over 65, normal", "--reference", "none")
    assert code == 0, said
    assert "over 65, normal: metformin, less that of none: about " in said
    with Client(agent.url) as client:
        strata = client.state().answer.strata
        found = client.evidence("none", "over 65, normal").differences[0]
    assert f"{found.estimate:.3f} ({found.interval.low:.3f} to {found.interval.high:.3f})" in said
    assert f"{strata[0].estimates[0]:.3f} ({strata[0].intervals[0].low:.3f} to" in said
    assert f"{strata[0].patients[0]:,} patients" in said
    code, said = status(agent.url, "--stratum", "old")
    assert code == 1
    assert "stratum must be one of under 65, normal" in said


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 390)])
def test_the_page_says_for_whom(browser, agent, scheme, width):  # noqa: F811
    """Fails if a stratum has no row, a number is not that of the state, or the forest plot is that of all patients."""
    from axe_playwright_python.sync_playwright import Axe

    with Client(agent.url) as client:
        strata = client.state().answer.strata
        found = client.evidence(None, "over 65, impaired")
    with opened(browser, agent.url, width, scheme) as page:
        shows(page, "#strata .group", "over 65, impaired")
        rows = page.locator("#strata > tbody > tr")
        assert rows.count() == len(strata) * len(ARMS)
        for s, it in enumerate(strata):
            for k, arm in enumerate(ARMS):
                said = rows.nth(s * len(ARMS) + k).inner_text()
                assert arm in said
                assert f"{it.estimates[k]:.3f}" in said
                assert f"{it.patients[k]:,}" in said
                assert ("best so far" in said) == (arm == it.leader)
        shows(page, "#forest tr.all", "all sites")
        page.locator("#forest-whom").select_option("over 65, impaired")
        page.locator("#forest-of").select_option(f"arm {ARMS[1]}")
        shows(page, "#forest-words", "Patients (over 65, impaired): The mean success of metformin")
        shows(page, "#forest tr.all", f"{found.arms[1].estimate:.3f}")
        for it in found.arms[1].sites:
            row = page.locator("#forest > tbody > tr", has_text=it.site)
            assert f"{it.mean:.3f}" in row.inner_text()
            assert ("from these patients" in row.inner_text()) == (it.part < 0.995)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        violations = Axe().run(page)
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SCREENSHOTS / f"strata-{scheme}-{width}.png", full_page=True)
        assert violations.violations_count == 0, violations.generate_report()


@pytest.mark.slow
def test_the_report_in_a_browser(browser, network, tmp_path):  # noqa: F811
    """A table of strata fits the width of A4."""
    path = tmp_path / "report.html"
    path.write_text(page_of(facts_of(network)))
    with opened(browser, path.as_uri(), 680) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= 680
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SCREENSHOTS / "report-strata.png", full_page=True)


def test_rounding_to_the_grid_is_all_that_a_mean_loses(network):
    """A site's own mean of a stratum is what its record says, in units of the reward."""
    site = network.site("here")
    rows, _ = site.board.rows("metformin")
    for s in range(FACTORS.num_strata):
        for row, it in zip(rows, evidence_of(site, "none", s)[0][1].sites, strict=True):
            found = mean_in_stratum(row, s, FACTORS.num_strata)
            assert it.mean == pytest.approx(found.mean, abs=2.0 / GRID)
            assert it.deviation == pytest.approx(sqrt(found.variance), rel=1e-9)


def test_labels_name_one_stratum_each():
    assert [FACTORS.labelled("stratum", it) for it in FACTORS.labels] == [0, 1, 2, 3]
    assert replace(TERMS, context=FACTORS).context.labels == FACTORS.labels
