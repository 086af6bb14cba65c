"""What people see of other policies: on the page, in a terminal, in the report; and a real file, opened again."""

from dataclasses import replace

import pytest
from rich.console import Console

from fedbandit import Shares
from fedbandit.agent.core.evaluation import EvaluatedPolicy, Evaluation
from fedbandit.agent.core.words import Words
from fedbandit.agent.http.state import SiteState
from fedbandit.cli.status_view import AgentStatus, printed, view
from fedbandit.report.facts import of_agent
from fedbandit.report.page import page_of
from fedbandit.report.tables import tables_of
from live import TERMS, serving
from processes import ask
from test_page import MEANS, SCREENSHOTS, browser, opened, shows  # noqa: F401  # a fixture

PLAN = Evaluation(
    0.5,
    (EvaluatedPolicy("always metformin"), EvaluatedPolicy("half and half", (("metformin", 0.5), ("none", 0.5)))),
    10,
    50,
)
EVALUATING = replace(
    TERMS, evaluation=PLAN, shares=Shares(least_share=0.1), words=Words("treatment", "success", "failure")
)


def played(agent, count=200):
    for _ in range(count):
        decision = agent.call(lambda driver: driver.decide())
        value = float(decision.number % 10 < 10 * MEANS.get(EVALUATING.arms[decision.arm], 0.5))
        agent.call(lambda driver, it=decision, value=value: driver.report(it.id, value))
    last = agent.call(lambda driver: driver.decide())  # whatever is due is settled before it
    agent.call(lambda driver: driver.report(last.id, 1.0))


def named(state):
    return {it["name"]: it for it in state["evaluation"]["policies"]}


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_other_policies_are_on_the_page_in_a_terminal_and_in_the_report(browser, tmp_path, width, scheme):  # noqa: F811
    """Fails if any of them leaves out a policy, its estimate or what it costs."""
    from axe_playwright_python.sync_playwright import Axe

    from fedbandit.agent.client import Client

    with serving(tmp_path, terms=EVALUATING, neighbours=()) as agent:
        _, state = ask(f"{agent.url}/v1/state")
        assert all(it["estimate"] is None for it in named(state).values())
        assert all(it["remark"] == "nothing was released yet" for it in named(state).values())
        with opened(browser, agent.url, width, scheme) as page:
            shows(page, "#evaluation", "nothing was released yet")
            played(agent)
            shows(page, "#evaluation > tbody > tr:first-child", "200")
            _, state = ask(f"{agent.url}/v1/state")
            assert list(named(state)) == ["as given", "always metformin", "half and half"]
            for name, it in named(state).items():
                row = page.locator("#evaluation > tbody > tr", has_text=name).first
                assert f"{it['estimate']:.3f}" in row.inner_text()
                assert it["interval"]["low"] <= it["estimate"] <= it["interval"]["high"]
                assert it["decisions"] == 200
            assert "epsilon 0.5 of privacy" in page.locator("#evaluation-words").inner_text()
            assert "metformin 50 %, none 50 %" in page.locator("#evaluation").inner_text()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            SCREENSHOTS.mkdir(parents=True, exist_ok=True)
            page.locator("section", has=page.locator("#evaluation")).screenshot(
                path=SCREENSHOTS / f"evaluation-{scheme}-{width}.png"
            )
            found = Axe().run(page)
            assert found.violations_count == 0, found.generate_report()
        assert state["privacy"]["epsilon_per_reward"] == 1.5
        assert "With epsilon 1.5 (1 of it for the treatments, 0.5 to evaluate" in state["privacy"]["promise"]
        assert "noisy sums of 50 decisions each" in state["privacy"]["mechanism"]
        seen = AgentStatus(agent.url, SiteState(**state), [], 0.0)
        for columns in (60, 120):
            said = "\n".join(printed(view([seen], columns), Console(width=columns)))
            assert "always metformin" in said
            assert f"{named(state)['as given']['estimate']:.3f}" in said
        with Client(agent.url) as client:
            facts = of_agent(client, None, 1e9)
        document = page_of(facts)
        assert "How other policies would have done" in document
        assert "each treatment as often as it is likely to be the best, by what all sites have released" in document
        assert tables_of(facts)["policies.csv"].count("\n") == 4
        page = browser.new_page(viewport={"width": 900, "height": 1200})
        page.set_content(document)
        shown = page.locator("section", has_text="How other policies would have done").last
        shown.screenshot(path=SCREENSHOTS / "evaluation-report.png")
        page.close()


def test_a_real_file_keeps_the_sums_and_releases_no_reward_again(tmp_path):
    """Its noise is none here: what is known after each start is what was known before, and 50 decisions more."""
    with serving(tmp_path, terms=EVALUATING, neighbours=()) as agent:
        played(agent, 70)
        before = named(ask(f"{agent.url}/v1/state")[1])
    assert before["as given"]["decisions"] == 50
    with serving(tmp_path, terms=EVALUATING, neighbours=()) as agent:
        again = named(ask(f"{agent.url}/v1/state")[1])
        assert (again["as given"]["decisions"], again["as given"]["estimate"]) == (50, before["as given"]["estimate"])
        played(agent, 40)
        assert named(ask(f"{agent.url}/v1/state")[1])["as given"]["decisions"] == 100
