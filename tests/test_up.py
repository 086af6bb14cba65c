"""A federation on this machine: real agents, real certificates, simulated patients; nothing is left running."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from array import array
from math import sqrt
from pathlib import Path
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from typer.testing import CliRunner

from fedbandit.agent.client import Decision
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.http.server import PAGE, PAGE_HEADERS
from fedbandit.agent.http.state import (
    AnswerState,
    ArmState,
    DecisionState,
    FederationState,
    PrivacyState,
    RatesState,
    SiteState,
)
from fedbandit.cli import app
from fedbandit.cli import up as cli_up
from fedbandit.local import demo, report, up
from fedbandit.local.processes import LocalFederation
from fedbandit.local.report import up_figure
from fedbandit.local.up import OWN, FederationShown, page_listener, serving_page


def invoke(*arguments):
    return CliRunner().invoke(app, ["up", *map(str, arguments)])


def agents_of(folder):
    """Processes whose command line names this folder, as ``ps`` sees them."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if "agent" in command and any(part.startswith(str(folder)) for part in command):
                found.append(int(entry.name))
    return found


@pytest.fixture
def start(tmp_path):
    """A run in a process of its own, which serves when this returns."""
    started = []

    def begin(*options):
        command = [sys.executable, "-m", "fedbandit", "up", "-o", str(tmp_path), *map(str, options)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        for line in process.stdout:
            if line.startswith("  the whole federation: "):
                process.page = line.split(": ", 1)[1].strip()
            if line.startswith("running"):
                return process
        raise AssertionError(process.stderr.read())

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
    for pid in agents_of(tmp_path):
        os.kill(pid, signal.SIGKILL)


# ---------------------------------------------------------------- real runs


def test_a_short_run(tmp_path):
    ran = invoke("--for", "4s", "--speed", 15, "--seed", 3, "-o", tmp_path)
    assert ran.exit_code == 0, ran.output
    assert agents_of(tmp_path) == []
    for name in ("hospital-1", "hospital-2", "hospital-3"):
        assert re.search(rf"{name}: http://127\.0\.0\.1:\d+/\n", ran.output)
        assert (tmp_path / "sites-1" / name / "agent.log").exists()
    addresses = re.findall(r"^  (.+): http", ran.output, re.MULTILINE)
    assert addresses == ["the whole federation", "hospital-1", "hospital-2", "hospital-3"]
    assert "Best on average over all: glipizide+" in ran.output
    assert (tmp_path / "live.png").stat().st_size > 10_000

    found = json.loads((tmp_path / "result.json").read_text())
    assert (found["problem"], found["reward_window"]) == ("diabetes", 1.0)
    assert 4.0 <= found["seconds"] < 30.0
    for site in found["sites"]:
        assert site["bulletins"] > 0
        assert (site["refused"], site["unanswered"]) == (0, 0)
        assert sum(arm["patients"] for arm in site["arms"]) == site["patients"] > 0
        assert site["regret_of_uniform_choice"] > 0.0

    # What patients were given is what the agents handed out: the files say so, too.
    terms = up.setting_of("hospital", up.graph_of("complete", 3), None, 1.0, 15.0, 3).terms
    for site in found["sites"]:
        assert decisions_on_disk(tmp_path / "sites-1", site["name"], terms) == site["patients"]


@pytest.mark.slow
def test_a_run_starts_afresh_and_the_files_of_the_earlier_one_stay(tmp_path):
    for number in (1, 2):
        assert invoke("--for", "0.1", "--speed", 5, "-o", tmp_path).exit_code == 0
        assert {path.name for path in tmp_path.glob("sites-*")} == {f"sites-{it}" for it in range(1, number + 1)}


def decisions_on_disk(folder, name, terms):
    from fedbandit.agent.disk.journal import SqliteJournal

    journal = SqliteJournal(folder / name / "data" / "state.sqlite", name, terms, incarnation=1)
    try:
        return journal.load().numbering.decisions
    finally:
        journal.close()


@pytest.mark.slow
def test_ctrl_c_ends_it_with_the_table(start, tmp_path):
    process = start("--speed", 5)
    assert len(agents_of(tmp_path)) == 3
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "Best on average over all" in printed
    assert agents_of(tmp_path) == []


@pytest.mark.slow
def test_a_second_ctrl_c_kills(start, tmp_path):
    process = start("--speed", 5)
    with httpx.stream("GET", f"{process.page}v1/federation-events", trust_env=False, timeout=30) as stream:
        lines = stream.iter_lines()  # a page that is open delays nothing
        assert next(lines) == "event: federation"
        sites = json.loads(next(lines).removeprefix("data: "))["sites"]
        assert [(site["name"], site["running"]) for site in sites] == [(f"hospital-{i}", True) for i in (1, 2, 3)]
        kill_in_earnest(process, tmp_path)


def kill_in_earnest(process, tmp_path):
    for pid in agents_of(tmp_path):
        os.kill(pid, signal.SIGSTOP)  # none will stop in order
    process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=8)  # LocalFederation.stop alone would wait for 10 s
    assert process.returncode == 130
    assert said.endswith("killed\n")
    assert agents_of(tmp_path) == []


@pytest.mark.slow
def test_an_agent_that_dies_is_named_and_all_are_stopped(start, tmp_path):
    process = start("--speed", 5)
    victim = next(pid for pid in agents_of(tmp_path) if "hospital-2" in Path(f"/proc/{pid}/cmdline").read_text())
    os.kill(victim, signal.SIGKILL)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "hospital-2 ended with code -9" in said
    assert "ready: http://127.0.0.1" in said, "the end of its log"
    assert "Traceback" not in said
    assert agents_of(tmp_path) == []


# ---------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--for", "soon"], "--for must be seconds, or a number with s, m or h, such as 30s, 2m, 1h"),
        (["--for", "0"], "--for must be"),
        (["--for", "1d"], "--for must be"),
        (["--graph", "ringg"], "Did you mean 'ring'?"),
        (["--graph", "grid", "--agents", 6], "--graph must be grid:RxC, not 'grid'"),
        (["--graph", "ring:5", "--agents", 4], "--graph must be a graph of 4 agents, as --agents says"),
        (["--agents", 1], "--agents must be a whole number from 2 to 64"),
        (["--agents", 65], "--agents must be a whole number from 2 to 64"),
        (["--graph", "ring:65"], "--agents must be a whole number from 2 to 64"),
        (["--problem", "hospitals"], "--problem must be one of hospital, bernoulli"),
        (["--arms", 3], "--arms must be left out"),
        (["--problem", "bernoulli", "--arms", 1], "--arms must be a whole number from 2"),
        (["--speed", 0], "--speed must be a number above 0"),
        (["--epsilon", -1], "--epsilon must be a number above 0"),
        (["--seed", -1], "--seed must be a whole number"),
        (["--port", 65_536], "--port must be a whole number from 0 to 65535"),
        (["--port", -1], "--port must be a whole number from 0 to 65535"),
        (["-o", "/dev/null/x"], "error: --output must be a folder that this user can write to"),
    ],
)
def test_bad_options_exit_with_2(options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = invoke(*options)
    assert ran.exit_code == 2, ran.output
    assert message in ran.output
    assert not list(tmp_path.iterdir()), "nothing was made"


def test_a_port_that_is_taken_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with page_listener(0) as taken:
        ran = invoke("--port", taken.getsockname()[1])
    assert ran.exit_code == 2
    assert "--port must be a free port of this machine" in ran.output
    assert not list(tmp_path.iterdir()), "nothing was made"


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30.0), ("2m", 120.0), ("1h", 3600.0), ("7", 7.0), ("0.5m", 30.0)]
)
def test_durations(text, seconds):
    assert cli_up._seconds(text) == seconds


def test_graphs_with_and_without_a_size():
    assert up.graph_of("ring", 5).name == up.graph_of("ring:5", None).name == up.graph_of("ring:5", 5).name == "ring:5"
    assert up.graph_of("grid:2x3", 6).num_agents == 6
    assert up.graph_of("complete", None).num_agents == 3


def test_hospitals_of_any_number_share_the_records():
    """Their means lie about those of all records: a random split leaves nearly no bias."""
    setting = up.setting_of("hospital", up.graph_of("ring", 7), None, 1.0, 20.0, 1)
    assert setting.problem.means.shape == (7, 5)
    whole = up.setting_of("hospital", up.graph_of("complete", 3), None, 1.0, 20.0, 1).problem
    # About 14,500 records and 1,700 of the smallest arm each, so a standard deviation of 0.012.
    assert np.abs(setting.problem.means - whole.arm_means).max() < 5 * sqrt(0.24 / 1700)


# ---------------------------------------------------------------- what is said of a run


def state_of(name, own, estimates):
    arms = [
        ArmState(name=f"arm {k}", estimate=e, radius=None, own_mean=o, weight=1.0, pulls=1, rewards=1, releases=1)
        for k, (o, e) in enumerate(zip(own, estimates, strict=True))
    ]
    federation = FederationState(
        name="f",
        num_agents=3,
        arms=["a", "b"],
        low=0,
        high=1,
        reward_window=1.0,
        default_reward=0,
        counts="patients",
        policy="",
        digest="",
    )
    return SiteState(
        name=name,
        version="",
        incarnation=1,
        started=0.0,
        insecure=False,
        federation=federation,
        decisions=DecisionState(handed_out=1, pending=0, waiting=0, late=0, per_day=None, remembered=1),
        arms=arms,
        neighbours=[],
        privacy=PrivacyState(mechanism="", epsilon_per_reward=1.0, releases=1, promise=""),
        answer=AnswerState(leader=None, chance=None, settled=False, expected_loss=None, words=""),
        rates=RatesState(decisions_per_minute=0.0, rewards_per_minute=0.0),
        refused={},
        needs_person=[],
        warnings=[],
    )


@pytest.fixture
def finished(tmp_path):
    """A run of the demo's setting as if it had ended: arm 5 is best, and no hospital would find that alone."""
    setting = demo.live_setting()
    federation = LocalFederation(tmp_path, setting.terms, setting.links, secure=False)
    run = up.Run(setting, federation, [up.Visits() for _ in range(3)], seconds=10.0)
    for i, visits in enumerate(run.visits):
        visits.at.extend(np.linspace(0.0, 10.0, 500))
        visits.arms.extend([0, 1, 2, 3] * 30 + [4] * 380)
        visits.state = state_of(setting.names[i], setting.problem.means[i], setting.problem.arm_means)
    return run


def test_the_numbers_of_a_run(finished):
    gaps = finished.setting.problem.gaps
    site = report.numbers(finished)["sites"][1]
    assert site["regret"] == pytest.approx(30 * gaps[:4].sum())
    assert site["regret_of_uniform_choice"] == pytest.approx(500 * gaps.mean())
    assert site["best_arm_share_last_quarter"] == 1.0
    assert (site["alone"], site["together"]) == ("arm 2", "arm 5")
    assert report.regret_over_time(finished, 1)[1][-1] == pytest.approx(site["regret"])


def test_arms_that_are_added_during_a_run(finished, tmp_path):
    """Each site has its own, in its own order; hospital-3 has given one that its last state does not tell of."""
    setting, problem = finished.setting, finished.setting.problem
    for visits, names in zip(finished.visits, (["x", "y"], ["y"], []), strict=True):
        arms = visits.state.arms
        added = [arms[0].model_copy(update={"name": it, "own_mean": 2.0, "estimate": 0.0}) for it in names]
        visits.state = visits.state.model_copy(update={"arms": [*arms, *added]})
        visits.arms[-10:] = array("H", [5] * 10)
    assert setting.mean(1, 5) == pytest.approx(problem.means[1].mean())
    found = report.numbers(finished)
    assert [*found["true_means"]][5:] == ["x", "y", "added arm 6"]
    assert found["true_means"]["y"] == pytest.approx(problem.arm_means.mean())
    assert found["best_arm"] == "arm 5"
    first, second, third = found["sites"]
    assert [(arm["name"], arm["patients"]) for arm in first["arms"][5:]] == [("x", 10), ("y", 0)]
    assert [(arm["name"], arm["patients"]) for arm in third["arms"][5:]] == [("added arm 6", 10)]
    assert (second["alone"], second["together"]) == ("y", "arm 5")
    assert second["regret"] == pytest.approx(30 * problem.gaps[:4].sum() + 10 * problem.gaps.mean())
    assert report.regret_over_time(finished, 1)[1][-1] == pytest.approx(second["regret"])
    seen = report.shown(finished)
    assert seen.arms == [*found["true_means"]]
    assert {len(seen.true_means), *(len(site.means) for site in seen.sites)} == {8}
    assert report.live_table(finished)[2][1][4] == "y"
    assert "Added during the run" in report.note(finished)
    assert "hospital" in report.reading(finished)
    left = up_figure(finished).axes[0]
    assert [tick.get_text() for tick in left.get_xticklabels()][5:7] == ["x", "y"]


def test_patients_get_an_arm_that_was_added(finished):
    class Agent:
        rewards = 0

        async def decide(self):
            return Decision(id="d", arm=5, name="x")

        async def reward(self, decision, reward):
            Agent.rewards += 1

    async def stream():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(up._stream(finished, 0, Agent(), asyncio.get_running_loop().time()), 0.2)

    finished.visits[0] = up.Visits()
    asyncio.run(stream())
    assert Agent.rewards == len(finished.visits[0].arms) > 0


# ---------------------------------------------------------------- the page of the whole federation


def test_the_page_shows_all_sites_with_the_true_means(finished):
    seen = report.shown(finished)
    problem = finished.setting.problem
    assert seen.true_means == pytest.approx(problem.arm_means)
    assert (seen.best_arm, seen.arms, seen.graph.edges) == (4, list(finished.setting.arms), [(0, 1), (0, 2), (1, 2)])
    for i, site in enumerate(seen.sites):
        assert site.means == pytest.approx(problem.means[i])
        assert (site.name, site.patients, site.running) == (f"hospital-{i + 1}", len(finished.visits[i].arms), False)
        assert site.regret == report.numbers(finished)["sites"][i]["regret"]
        assert site.state == finished.visits[i].state
        assert site.age is None
    finished.visits[1].seen = 4.0
    assert report.shown(finished).sites[1].age == 6.0, "an agent that hangs is not shown as it was"


def served_page(run, story):
    """Run a story with a client of the page of a run."""

    async def tell():
        async with (
            serving_page(page_listener(0), lambda: report.shown(run)) as url,
            httpx.AsyncClient(base_url=url, trust_env=False, timeout=10.0) as client,
        ):
            return await story(client)

    return asyncio.run(tell())


def test_its_files_and_those_of_the_agents_page_are_served(finished):
    async def story(http):
        shared = {f"/page/{name}": file for name, file in PAGE.items()}
        own = {f"/local/{name}": file for name, file in OWN.items()}
        for path, file in {"/": OWN["index.html"], **shared, **own}.items():
            answer = await http.get(path)
            assert (answer.status_code, answer.content) == (200, file.content), path
            assert all(answer.headers[name] == value for name, value in PAGE_HEADERS.items())
            assert (await http.head(path)).status_code == 200
        for path in ("/local/..%2fup.py", "/local/nothing.js", "/page/%2e%2e/state.py", "/v1/state"):
            assert (await http.get(path)).status_code == 404, path
        assert (await http.post("/")).status_code == 405
        assert (await http.head("/v1/federation-events")).status_code == 405
        for path in ("/", "/v1/federation-events"):
            assert (await http.get(path, headers={"Host": "evil.example"})).status_code == 421

    served_page(finished, story)


def test_its_stream_shows_the_run_and_ends_with_it(finished):
    began = time.monotonic()

    async def story(http):
        async with http.stream("GET", "/v1/federation-events") as stream:
            assert all(stream.headers[name] == value for name, value in PAGE_HEADERS.items())
            lines = stream.aiter_lines()
            assert await anext(lines) == "event: federation"
            seen = FederationShown.model_validate_json((await anext(lines)).removeprefix("data: "))
            assert seen == report.shown(finished)
            finished.seconds += 1.0
            while not (line := await anext(lines)).startswith("data: "):
                pass
            return json.loads(line.removeprefix("data: "))["seconds"]

    assert served_page(finished, story) == finished.seconds
    assert time.monotonic() - began < 20.0


def test_the_reading_is_honest(finished):
    setting = finished.setting
    said = report.reading(finished)
    assert "Together all 3 sites have found arm 5" in said
    assert "Alone, hospital-1 (arm 3), hospital-2 (arm 2) and hospital-3 (arm 3) would settle" in said
    finished.visits[0].state = state_of("hospital-1", setting.problem.arm_means, setting.problem.means[0])
    said = report.reading(finished)
    assert "hospital-1 has not found arm 5 yet" in said
    assert "So far the own numbers of hospital-1 also point to arm 5" in said


def test_a_machine_that_does_not_keep_up_is_told(finished):
    assert "did not keep up" not in report.note(finished)
    del finished.visits[2].at[200:]
    assert "did not keep up: 20.0 patients per second at the slowest site instead of 50" in report.note(finished)


def test_rewards_that_came_too_late_are_told(finished):
    said = report.note(finished)
    assert "A reward counts 1 s after its decision, when its reward window ends." in said
    assert "came after" not in said
    for visits in finished.visits[:2]:
        decisions = visits.state.decisions.model_copy(update={"late": 3})
        visits.state = visits.state.model_copy(update={"decisions": decisions})
    assert "6 rewards came after their window: they counted as 0." in report.note(finished)
    assert [site["late"] for site in report.numbers(finished)["sites"]] == [3, 3, 0]


def test_the_figure_also_without_a_single_patient(finished, tmp_path):
    up_figure(finished).savefig(tmp_path / "some.png")
    finished.visits = [up.Visits() for _ in range(3)]
    up_figure(finished).savefig(tmp_path / "none.png")
    assert (tmp_path / "some.png").stat().st_size > (tmp_path / "none.png").stat().st_size
    assert report.final_table(finished)[2][0][3] == "–", "nothing is known yet"


@pytest.mark.parametrize(("sites", "problem"), [(3, "hospital"), (12, "hospital"), (30, "bernoulli")])
def test_no_legend_is_cut_off(sites, problem, tmp_path):
    setting = up.setting_of(problem, up.graph_of("ring", sites), None, 1.0, 20.0, 0)
    federation = LocalFederation(tmp_path, setting.terms, setting.links, secure=False)
    figure = up_figure(up.Run(setting, federation, [up.Visits() for _ in setting.names], seconds=1.0))
    FigureCanvasAgg(figure).draw()
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes)]
    assert len(legends) == (3 if sites < 30 else 2)
    for legend in legends:
        box = legend.get_window_extent()
        assert 0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert 0 <= box.y0 < box.y1 <= figure.bbox.y1


def test_the_live_demo_has_the_means_of_the_simulated_one():
    setting = demo.live_setting()
    np.testing.assert_array_equal(setting.problem.means, demo.problem().means)
    assert isinstance(setting.terms, Federation)
    assert all(means.argmax() != setting.problem.best_arm for means in setting.problem.means), "each alone is wrong"


def test_who_watches_an_agent_stops_when_it_is_told_to():
    """Also if that is while an answer arrives: ``asyncio.wait_for`` of Python 3.11 forgets it then."""

    async def scenario():
        class Answers:
            async def state(self):
                asyncio.get_running_loop().call_soon(watch.cancel)
                return {}

        run = SimpleNamespace(visits=[SimpleNamespace(state=None, seen=0.0)], seconds=1.0)
        watch = asyncio.create_task(up._watch(run, 0, Answers()))
        await asyncio.wait([watch], timeout=30.0)
        assert watch.cancelled()

    asyncio.run(scenario())
