"""Arms that are suspended for patients of some strata alone: what is given, who agrees, what is stored and shown."""

from contextlib import closing
from dataclasses import replace
from random import Random

import httpx
import pytest
from typer.testing import CliRunner

from fedbandit import Client, FedBatch, GossipUCB, InvalidArgument
from fedbandit.agent.core.arms import ArmChange, change_from
from fedbandit.agent.core.board import Board
from fedbandit.agent.core.bulletin import Bulletin, Signed, decode
from fedbandit.agent.core.context import Factors
from fedbandit.agent.core.decisions import Request, SiteDraws
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import NoArmLeft, Numbering, StoppedMeanwhile, Stored
from fedbandit.agent.core.site import Site
from fedbandit.agent.disk.journal import SqliteJournal
from fedbandit.cli.commands import app
from fedbandit.local.processes import LocalFederation
from fedbandit.testing.memory_network import MemoryNetwork
from processes import ask, wait_until
from test_page import SCREENSHOTS, browser, opened, shows  # noqa: F401  # a fixture
from test_strata_seen import served

ARMS = ("a", "b", "c")
FACTORS = Factors.of({"age": ("young", "old"), "renal": ("normal", "impaired")})
TERMS = Federation("test", ARMS, 0.0, 1.0, FedBatch(1.0, context="strata"), context=FACTORS, max_agents=3)
OLD, IMPAIRED = {"age": "old"}, {"renal": "impaired"}
LINKS = [("n", "s"), ("s", "e")]


def new_site(terms=TERMS, stored=None):
    return Site("here", terms, stored or Stored(Numbering(1, 0), key=b"key"), lambda _, count: [0] * count)


def asked(site, stratum, at=1.0, seed=0, **request):
    pick = Random(seed)  # noqa: S311
    draws = SiteDraws(tuple(pick.gauss(0.0, 1.0) for _ in site.arms.names), pick.random())
    return site.decide(at, draws, Request(context=FACTORS.levels(stratum), **request)).result


# ---------------------------------------------------------------- whom it is for


def test_levels_name_all_strata_that_have_them():
    assert FACTORS.with_levels("stratum", OLD) == (2, 3)
    assert FACTORS.with_levels("stratum", IMPAIRED) == (1, 3)
    assert FACTORS.with_levels("stratum", OLD | IMPAIRED) == (3,)
    assert FACTORS.common_levels((2, 3)) == OLD
    assert FACTORS.common_levels((3,)) == OLD | IMPAIRED
    assert FACTORS.common_levels((0, 3)) is None
    assert FACTORS.common_levels((1, 2, 3)) is None


@pytest.mark.parametrize(
    ("levels", "says"),
    [
        ({}, "stratum must be a level of at least one of age, renal"),
        ({"age": "olde"}, "stratum.age must be one of young, old, not 'olde'. Did you mean 'old'"),
        ({"sex": "f"}, "stratum.sex must be a level of one of age, renal"),
    ],
)
def test_others_are_refused(levels, says):
    site = new_site()
    before = site.stored
    with pytest.raises(InvalidArgument, match=says):
        site.change_arm("suspend", "a", 1, "x", levels)
    assert site.stored == before


def test_without_factors_there_is_nobody_to_suspend_it_for():
    site = new_site(replace(TERMS, context=None, policy=FedBatch(1.0)))
    with pytest.raises(InvalidArgument, match=r"stratum must be left out: the terms have no \[federation.context\]"):
        site.change_arm("suspend", "a", 1, "x", OLD)


@pytest.mark.parametrize("kind", ["add", "retire"])
def test_an_arm_is_added_and_retired_for_all(kind):
    with pytest.raises(InvalidArgument, match=rf"strata must be left out: to {kind} an arm is for all patients"):
        ArmChange(1, kind, "a", "here", 1, strata=(1,))


@pytest.mark.parametrize("strata", [(-1,), (24,), (1, 1), (2, 1), (True,), ("1",)])
def test_numbers_of_strata_are_checked(strata):
    with pytest.raises(InvalidArgument, match="strata must be different numbers from 0 to 23, in their order"):
        ArmChange(1, "suspend", "a", "here", 1, strata=strata)


# ---------------------------------------------------------------- what is given


@pytest.mark.parametrize("policy", [FedBatch(1.0, context="strata"), FedBatch(1.0), GossipUCB()])
def test_it_is_given_to_all_others(policy):
    """Also where the policy is not told of strata. Propensities are those among the arms that are left."""
    site, pick = new_site(replace(TERMS, policy=policy)), Random(1)  # noqa: S311
    site.change_arm("suspend", "a", 1, "rashes", OLD)
    given = {s: set() for s in range(4)}
    for t in range(400):
        made = asked(site, s := t % 4, at=float(t), seed=t)
        given[s].add(made.arm)
        assert s < 2 or made.propensity != 1.0 or made.deterministic is not None
        site.report(made.id, float(pick.random() < 0.5))
    assert 0 in given[0] | given[1]
    assert 0 not in given[2] | given[3]
    assert {1, 2} <= given[2] | given[3]


def test_an_arm_that_alone_is_asked_for_is_refused_in_words():
    site = new_site()
    site.change_arm("suspend", "a", 1, "rashes", OLD)
    with pytest.raises(NoArmLeft, match="no arm is left for this request: a: suspended by here"):
        asked(site, 2, eligible=(0,))
    assert asked(site, 0, eligible=(0,)).arm == 0


def test_a_key_whose_arm_was_stopped_for_its_patient_gets_no_decision():
    site = new_site()
    old, young = (asked(site, s, key=f"k{s}", eligible=(0,)) for s in (2, 0))
    site.change_arm("suspend", "a", 1, "rashes", OLD)
    with pytest.raises(StoppedMeanwhile):
        asked(site, 2, key="k2", eligible=(0,))
    assert asked(site, 0, key="k0", eligible=(0,)) == young
    assert site.report(old.id, 1.0).result, "what was given before is reported as ever"


def test_a_subject_gets_another_arm():
    site = new_site()
    assert asked(site, 2, subject="s", eligible=(0,)).arm == 0
    site.change_arm("suspend", "a", 1, "rashes", OLD)
    assert asked(site, 2, subject="s").arm != 0


def test_the_answer_of_a_stratum_is_among_the_arms_that_its_patients_get():
    site, pick = new_site(), Random(4)  # noqa: S311
    for _ in range(150):
        for s in range(4):
            for arm in range(3):
                made = asked(site, s, eligible=(arm,))
                site.report(made.id, float(pick.random() < (0.8, 0.5, 0.2)[arm]))
    assert [it.answer.leader for it in site.strata] == [0] * 4
    site.change_arm("suspend", "a", 1, "rashes", OLD)
    assert [it.answer.leader for it in site.strata] == [0, 0, 1, 1]
    assert [it.answer.chances[0] is None for it in site.strata] == [False, False, True, True]
    assert "Young: a, " in site.answer.words
    assert "all others: b, " in site.answer.words
    assert site.arms.standing("a").status == "active"
    assert [site.arms.standing_in("a", s).status for s in range(4)] == ["active"] * 2 + ["suspended"] * 2
    assert any("a is suspended for old by here; for others it is given" in it for it in site.warnings())


def test_a_stratum_without_arms_is_told():
    site = new_site()
    for name in ARMS:
        site.change_arm("suspend", name, 1, "x", OLD | IMPAIRED)
    assert any("no arm is left to give to patients who are (old, impaired)" in it for it in site.warnings())


# ---------------------------------------------------------------- other sites, resumes, and the disk


def network_of(terms=TERMS):
    network = MemoryNetwork(terms, LINKS, seed=3, spreads=True)
    for link in LINKS:
        network.exchange(*link)
    network.run()
    return network


def stopped(network, name):
    arms = network.site(name).arms
    return {arms.names[k]: [s for s in range(4) if k in arms.stopped_for(s)] for k in range(len(arms.names))}


def test_a_stop_counts_everywhere_and_its_own_site_takes_it_back_everywhere():
    network = network_of()
    network.change_arm("n", "suspend", "a", "rashes", OLD)
    network.run()
    for name in "nse":
        assert stopped(network, name) == {"a": [2, 3], "b": [], "c": []}
    network.change_arm("n", "resume", "a", "no rashes", OLD)
    network.run()
    for name in "nse":
        assert stopped(network, name) == {"a": [], "b": [], "c": []}


def test_another_site_resumes_it_for_itself_until_others_consent():
    network = network_of()
    network.change_arm("n", "suspend", "a", "rashes", OLD)
    network.run()
    network.change_arm("e", "resume", "a", "not here")
    network.run()
    assert stopped(network, "e")["a"] == []
    assert stopped(network, "n")["a"] == stopped(network, "s")["a"] == [2, 3]
    assert [it.kind for it in network.site("n").arms.waiting] == ["resume"]
    network.accept_arm("n", "a")
    network.run()
    assert stopped(network, "n")["a"] == stopped(network, "s")["a"] == [], "n takes its own stop back"


def test_stops_of_several_strata_are_lifted_by_what_covers_them():
    site = new_site()
    site.change_arm("suspend", "a", 1, "x", OLD)
    site.change_arm("suspend", "a", 2, "y", {"age": "young", "renal": "normal"})
    with pytest.raises(InvalidArgument, match="A stop is lifted as a whole"):
        site.change_arm("resume", "a", 3, "z", OLD | IMPAIRED)
    site.change_arm("resume", "a", 3, "z", OLD)
    assert [site.arms.stopped_for(s) for s in range(4)] == [{0}, set(), set(), set()]
    site.change_arm("resume", "a", 4, "z")
    assert not any(site.arms.stopped_for(s) for s in range(4))
    with pytest.raises(InvalidArgument, match="'a' is active"):
        site.change_arm("resume", "a", 5, "z")


def test_a_stop_for_all_and_one_for_some_are_two():
    site = new_site()
    site.change_arm("suspend", "a", 1, "x", OLD)
    again = site.change_arm("suspend", "a", 2, "y", OLD)
    assert again.records == (), "a repetition is no other stop"
    site.change_arm("suspend", "a", 3, "all")
    assert site.arms.standing("a").status == "suspended"
    assert site.arms.stopped_for(0) == site.arms.stopped_for(2) == site.arms.stopped_for(None) == {0}
    with pytest.raises(InvalidArgument, match="A stop is lifted as a whole"):
        site.change_arm("resume", "a", 4, "z", IMPAIRED)
    site.change_arm("resume", "a", 5, "z")
    assert site.arms.standing("a").status == "active"
    assert not site.arms.stopped_for(3)


def test_the_disk_and_bulletins_keep_for_whom(tmp_path):
    with closing(SqliteJournal(tmp_path / "state.sqlite", "here", TERMS, 1)) as journal:
        site = new_site(stored=journal.load())
        journal.commit(site.change_arm("suspend", "a", 1, "rashes", OLD).records)
        again = new_site(stored=journal.load())
    assert [again.arms.stopped_for(s) for s in range(4)] == [set(), set(), {0}, {0}]
    bulletin = again.publish(lambda _: (b"", b""), 2.0).result
    (change,) = decode(bulletin.body, TERMS.num_columns, TERMS.num_strata).changes
    assert change.strata == (2, 3)
    assert change_from(change.content) == change
    whole = replace(change, strata=())
    assert change_from(whole.content) == whole != change
    assert whole.id != change.id


@pytest.mark.parametrize(
    ("terms", "strata"), [(TERMS, (4,)), (replace(TERMS, context=None, policy=FedBatch(1.0)), (0,))]
)
def test_a_bulletin_with_strata_that_the_terms_do_not_have_is_refused(terms, strata):
    change = ArmChange(1, "suspend", "a", "liar", 1, strata=strata)
    lie = Bulletin(terms.digest(), "liar", 1, 1, 0, changes=(change,))
    with pytest.raises(InvalidArgument, match=r"changes.strata must be strata of the terms"):
        Board("here", terms).merge(Signed(lie.encode(), b"", b""), 1.0)


# ---------------------------------------------------------------- real agents, and the page


def command(*arguments):
    ran = CliRunner().invoke(app, [str(it) for it in arguments])
    return ran.exit_code, ran.output


@pytest.mark.slow
def test_operators_suspend_and_resume_it_for_some(tmp_path):
    """On the command line and over HTTP; the trail and the history say for whom, at both sites."""
    with LocalFederation(tmp_path, TERMS, [("north", "south")], 4.0) as running:
        north, south = (running.config(name) for name in ("north", "south"))
        code, said = command("arm", "suspend", "a", "--reason", "rashes", "--stratum", "age=old", "-c", north)
        assert code == 0, said
        assert "suspend 'a' for old by north" in said
        assert "1 site has it: south" in said
        code, said = command("arm", "list", "-c", south)
        assert code == 0
        assert "a  active" in said
        assert "in part    suspend 'a' for old by north" in said
        code, said = command("arm", "list", "--history", "-c", south)
        assert "suspend a for old" in said
        code, said = command("audit-log", "-c", north)
        assert "suspend arm a (for old, " in said
        for wrong in ("age", "age=", "=old", "age=ancient", "sex=f"):
            code, said = command("arm", "suspend", "a", "--reason", "x", "--stratum", wrong, "-c", north)
            assert code == 2, said
            assert "stratum" in said
        url = running.url("south")
        for _ in range(20):
            _, decided = ask(f"{url}/v1/decisions", "POST", {"context": {"age": "old", "renal": "normal"}})
            assert decided["name"] != "a"
        answer = httpx.post(
            f"{url}/v1/arms", json={"change": "suspend", "arm": "b", "reason": "x", "stratum": {"age": 3}}
        )
        assert (answer.status_code, answer.json()["error"]["field"]) == (422, "stratum")
        answer = httpx.post(
            f"{url}/v1/arms", json={"change": "suspend", "arm": "b", "reason": "x", "stratum": {"age": "o"}}
        )
        assert (answer.status_code, answer.json()["error"]["field"]) == (422, "stratum.age")
        with Client(running.url("north")) as client:
            made = client.change_arm("resume", "a", "no rashes", {"age": "old"})
            assert (made.whom, made.strata) == ("old", ["old, normal", "old, impaired"])
            wait_until(lambda: not client.state().arms[0].suspended_for)
        with Client(url) as client:
            wait_until(lambda: not client.state().arms[0].suspended_for)
        code, said = command("arm", "list", "--history", "-c", south)
        assert "resume a for old" in said


@pytest.mark.slow
@pytest.mark.parametrize("width", [1440, 390])
def test_the_page_suspends_and_resumes_it_for_some(browser, tmp_path, width):  # noqa: F811
    """Fails if the wrong patients lose it, a row does not say so, or the question does not say for whom."""
    from axe_playwright_python.sync_playwright import Axe

    with served(tmp_path, 100) as agent, opened(browser, agent.url, width) as page:
        shows(page, "#strata .group", "over 65, impaired")
        if width <= 800:
            page.get_by_role("button", name="Actions").click()
        page.get_by_role("button", name="Suspend… insulin, over 65, impaired").click()
        shows(page, "dialog", "This is for these patients alone: over 65, impaired.")
        violations = Axe().run(page, "dialog")
        assert violations.violations_count == 0, violations.generate_report()
        page.get_by_label("Why, in a few words").fill("kidneys")
        page.get_by_role("button", name="Suspend this treatment").click()
        shows(page, "#stops", "insulin is suspended for (over 65, impaired) by north: kidneys.")
        shows(page, "#strata tr.status-suspended", "insulin")
        assert page.locator("#strata tr.status-suspended").count() == 1
        assert page.locator("#arms tr.status-suspended").count() == 0
        shows(page, "#changes", "suspended insulin for (over 65, impaired)")
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SCREENSHOTS / f"strata-stop-{width}.png", full_page=True)
        violations = Axe().run(page)
        assert violations.violations_count == 0, violations.generate_report()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.get_by_role("button", name="Resume… insulin, (over 65, impaired)").click()
        page.get_by_label("Why, in a few words").fill("recovered")
        page.get_by_role("button", name="Resume this treatment").click()
        page.locator("#strata tr.status-suspended").wait_for(state="detached")
