"""Requests, decisions as they stand, cancelled ones, many rewards and the log, over HTTP on a real site and disk."""

import asyncio
import json
import logging
import re
from dataclasses import replace
from functools import partial

import httpx
import pytest

from fedbandit.agent.core.decisions import Expired, Retention
from fedbandit.agent.http import decisions as decision_paths
from fedbandit.agent.http.api import make_app
from fedbandit.agent.process import runtime
from fedbandit.agent.process.clock import LASTS, PatientClock, SteadyClock
from fedbandit.agent.process.logs import ForgottenDecisions
from fedbandit.agent.process.rights import ROLES
from live import TERMS, Driver, serving
from test_api import JSON, error_of, put_reward

WINDOW = replace(TERMS, reward_window=100.0)
ARMS = list(TERMS.arms)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("agent"), terms=WINDOW) as agent:
        yield agent


@pytest.fixture(scope="module")
def http(served):
    with httpx.Client(base_url=served.url, trust_env=False) as client:
        yield client


def ask(http, **fields):
    return http.post("/v1/decisions", json=fields)


def made(http, **fields):
    answer = ask(http, **fields)
    assert answer.status_code == 201, answer.text
    return answer.json()


# ---------------------------------------------------------------- requests


def test_a_decision_of_a_request(served, http):
    told = made(http, eligible=["metformin"], key="k1", subject="s1")
    assert told.keys() == {"id", "arm", "name", "propensity"}
    assert (told["arm"], told["name"]) == (1, "metformin")
    assert 0.0 < told["propensity"] <= 1.0
    before = served.rows()
    assert made(http, eligible=[1], key="k1", subject="s1") == told, "by name or by number"
    assert served.rows() == before
    assert made(http, subject="s1") | {"id": told["id"]} == told | {"propensity": 1.0}
    assert made(http, exclude=["none", 1])["name"] == "glipizide"


def test_a_count_is_answered_with_a_list_also_if_it_is_one(served, http):
    handed_out = http.get("/v1/state").json()["decisions"]["handed_out"]
    several = made(http, count=1000)["decisions"]
    assert len({it["id"] for it in several}) == 1000
    assert http.get("/v1/state").json()["decisions"]["handed_out"] == handed_out + 1000
    assert len(made(http, count=1)["decisions"]) == 1
    assert len(made(http, count=2.0)["decisions"]) == 2, "JSON has one kind of numbers"
    again = made(http, count=3, key="three")
    assert made(http, count=3, key="three") == again


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"exlude": ["none"]}, "exlude", "'exlude' is not a field; .* Did you mean 'exclude'?"),
        ({"Count": 5}, "Count", "Did you mean 'count'?"),
        ({"zzz": 5}, "zzz", "there are eligible, exclude, key, subject, count"),
        ({"count": 0}, "count", "a whole number from 1 to 1000"),
        ({"count": 1001}, "count", "a whole number from 1 to 1000"),
        ({"count": True}, "count", "a whole number from 1 to 1000"),
        ({"count": 1.5}, "count", "a whole number from 1 to 1000"),
        ({"count": "5"}, "count", "a whole number from 1 to 1000"),
        ({"key": ""}, "key", "1 to 200 printable characters"),
        ({"key": "x" * 201}, "key", "1 to 200 printable characters"),
        ({"key": 5}, "key", "1 to 200 printable characters"),
        ({"key": None}, "key", "1 to 200 printable characters"),
        ({"subject": "a\tb"}, "subject", "1 to 200 printable characters"),
        ({"eligible": "none"}, "eligible", "a list of names or numbers of arms"),
        ({"exclude": [True]}, "exclude[0]", "an arm"),
        ({"exclude": [0.5]}, "exclude[0]", "an arm"),
        ({"exclude": [-1]}, "exclude[0]", "an arm"),
        ({"eligible": ["none"], "exclude": ["none"]}, "exclude", "both given"),
    ],
    ids=str,
)
def test_a_request_that_makes_no_sense_is_422(served, http, fields, field, words):
    before = served.rows()
    answer = ask(http, **fields)
    assert answer.status_code == 422
    error = error_of(answer)
    assert error["field"] == field
    assert re.search(words, error["message"]), error["message"]
    assert served.rows() == before


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"eligible": ["metfromin"]}, "eligible[0]", "none, metformin, glipizide.*Did you mean 'metformin'?"),
        ({"exclude": ["none", 3]}, "exclude[1]", "its number, from 0 to 2"),
    ],
    ids=str,
)
def test_an_arm_that_is_not_there_is_404(served, http, fields, field, words):
    before = served.rows()
    answer = ask(http, **fields)
    assert answer.status_code == 404
    error = error_of(answer)
    assert (error["code"], error["field"]) == ("unknown_arm", field)
    assert re.search(words, error["message"]), error["message"]
    assert served.rows() == before


def test_refusals_of_a_request(served, http):
    first = made(http, key="refused")
    for fields, code in (
        ({"eligible": []}, "no_arm"),
        ({"exclude": ARMS}, "no_arm"),
        ({"key": "refused", "count": 1, "subject": "x"}, "key_reused"),
    ):
        before = served.rows()
        answer = ask(http, **fields)
        assert (answer.status_code, error_of(answer)["code"]) == (409, code)
        assert served.rows() == before
    http.delete(f"/v1/decisions/{first['id']}")
    answer = ask(http, key="refused")
    assert (answer.status_code, error_of(answer)["code"]) == (409, "cancelled")
    assert first["id"] in error_of(answer)["message"]


def test_a_stopped_arm_over_http(tmp_path):
    with serving(tmp_path) as agent, httpx.Client(base_url=agent.url, trust_env=False) as http:
        told = made(http, key="k")
        assert (
            http.post("/v1/arms", json={"change": "suspend", "arm": told["name"], "reason": "recalled"}).status_code
            == 201
        )
        answer = ask(http, key="k")
        assert (answer.status_code, error_of(answer)["code"]) == (409, "arm_stopped")
        assert told["id"] in error_of(answer)["message"]
        assert made(http)["arm"] != told["arm"]
        assert put_reward(http, told["id"], '{"value": 1}').status_code == 204
        rewarded = ask(http, key="k")
        assert (rewarded.status_code, rewarded.json()) == (409, answer.json()), "whether a reward came is not told"


# ---------------------------------------------------------------- queries


@pytest.mark.parametrize(
    ("method", "path", "words"),
    [
        ("POST", "/v1/decisions?count=5", "no query parameters. count is a field of the body"),
        ("POST", "/v1/decisions?cuont=5", "Did you mean 'count'?"),
        ("POST", "/v1/decisions?=", "no query parameters"),
        ("GET", "/v1/state?verbose", "this path takes no query parameters"),
        ("GET", "/metrics?name=x", "no query parameters"),
        ("GET", "/healthz?x=1", "no query parameters"),
        ("GET", "/openapi.json?x=1", "no query parameters"),
        ("GET", "/readyz?x=1", "no query parameters"),
        ("GET", "/v1/federation?x=1", "no query parameters"),
        ("DELETE", "/v1/excluded/east?force=1", "no query parameters"),
        ("PUT", "/v1/excluded/east?force=1", "no query parameters"),
        ("POST", "/v1/confirm?yes", "no query parameters"),
        ("POST", "/v1/restore?yes", "no query parameters"),
        ("POST", "/v1/rewards?rewards=1", "rewards is a field of the body"),
        ("PUT", "/v1/decisions/1-1/reward?value=1", "value is a field of the body"),
        ("GET", "/v1/decisions/1-1?full=1", "no query parameters"),
        ("DELETE", "/v1/decisions/1-1?x", "no query parameters"),
        ("GET", "/v1/log?afetr=5", "this path takes after. Did you mean 'after'?"),
        ("GET", "/v1/log?after=1&after=2", "after appears twice"),
    ],
)
def test_unknown_query_parameters_are_422(served, http, method, path, words):
    before = served.rows()
    answer = http.request(method, path)
    assert answer.status_code == 422
    assert words in error_of(answer)["message"]
    assert served.rows() == before


def test_every_operation_refuses_unknown_query_parameters(http):
    """Whatever paths there will be."""
    for path, operations in http.get("/openapi.json").json()["paths"].items():
        for method in operations:
            url = path.replace("{decision_id}", "1-1").replace("{name}", "east") + "?certainly_unknown=1"
            answer = http.request(method.upper(), url)
            assert (answer.status_code, error_of(answer)["field"]) == (422, "certainly_unknown"), url


# ---------------------------------------------------------------- one decision


def test_a_decision_as_it_stands(http):
    told = made(http, eligible=["none"])
    path = f"/v1/decisions/{told['id']}"
    seen = http.get(path).json()
    assert {key: seen[key] for key in told} == told
    assert seen["reward_until"] == seen["at"] + 100.0
    assert seen["remembered_until"] == seen["at"] + 100.0 + 30 * 86_400.0
    flags = {"rewarded": False, "counted": False, "late": False, "cancelled": False}
    assert seen.items() >= flags.items()
    put_reward(http, told["id"], '{"value": 0.125}')
    after = http.get(path)
    assert after.json() == seen | {"rewarded": True}
    assert "0.125" not in after.text, "nobody reads a reward back"
    assert http.get("/v1/decisions/nobody").status_code == 404


def test_without_a_window_a_reward_counts_until_it_is_forgotten(tmp_path):
    with serving(tmp_path) as agent, httpx.Client(base_url=agent.url, trust_env=False) as http:
        told = made(http)
        assert http.get(f"/v1/decisions/{told['id']}").json()["reward_until"] is None


def test_cancelling(served, http):
    told = made(http, eligible=[0])
    pulls = http.get("/v1/state").json()["arms"][0]["pulls"]
    path = f"/v1/decisions/{told['id']}"
    assert http.delete(path).status_code == 204
    before = served.rows()
    assert http.delete(path).status_code == 204
    assert served.rows() == before
    assert http.get("/v1/state").json()["arms"][0]["pulls"] == pulls - 1
    assert http.get(path).json()["cancelled"]
    answer = put_reward(http, told["id"], '{"value": 1}')
    assert (answer.status_code, error_of(answer)["code"]) == (409, "cancelled")
    answer = http.delete("/v1/decisions/nobody")
    assert (answer.status_code, error_of(answer)["code"]) == (404, "unknown_decision")
    used = made(http)["id"]
    put_reward(http, used, '{"value": 1}')
    answer = http.delete(f"/v1/decisions/{used}")
    assert (answer.status_code, error_of(answer)["code"]) == (409, "rewarded")


# ---------------------------------------------------------------- many rewards


def commits_of(served):
    return served.call(lambda driver: driver.file.execute("SELECT commits FROM agent").fetchone()[0])


def test_many_rewards(served, http):
    ids = [it["id"] for it in made(http, count=4)["decisions"]]
    http.delete(f"/v1/decisions/{ids[3]}")
    values = [(ids[0], 1), ("nobody", 0.5), (ids[1], 7.0), (ids[3], 0.5), (ids[2], 0.25), (ids[0], 0.5)]
    body = {"rewards": [{"id": name, "value": value} for name, value in values]}
    commits = commits_of(served)
    answer = http.post("/v1/rewards", json=body)
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [it["id"] for it in results] == [name for name, _ in values]
    assert [it["counted"] for it in results] == [True, False, False, False, True, True]
    assert [it["code"] for it in results] == [None, "unknown_decision", "invalid", "cancelled", None, None]
    assert "a number from 0 to 1, not 7.0" in results[2]["message"]
    after = served.rows()
    assert commits_of(served) == commits + 1, "one transaction"
    assert http.post("/v1/rewards", json=body).json()["results"] == results
    assert served.rows() == after
    rewarded = {row[0] for row in after["decision"] if row[6]}
    assert rewarded >= {ids[0], ids[2]}
    assert ids[1] not in rewarded


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 422, "rewards"),
        ({"rewards": []}, 422, "rewards"),
        ({"rewards": {}}, 422, "rewards"),
        ({"rewards": [{"id": "x", "value": 1}] * 1001}, 422, "rewards"),
        ({"rewards": [{"id": "x", "value": 1}], "reward": 1}, 422, "reward"),
        ({"rewards": [{"id": "x", "value": 1}] * 3 + [{"id": "x", "value": "1"}]}, 422, "rewards[3].value"),
        ({"rewards": [{"id": "x", "value": 1}, {"id": "x"}]}, 422, "rewards[1].value"),
        ({"rewards": [{"id": 5, "value": 1}]}, 422, "rewards[0].id"),
        ({"rewards": [{"id": "x", "value": True}]}, 422, "rewards[0].value"),
        ({"rewards": [{"id": "x", "vlaue": 1}]}, 422, "rewards[0].vlaue"),
        ({"rewards": [5]}, 422, "rewards[0]"),
        ([], 422, "body"),
    ],
    ids=lambda it: str(it)[:40],
)
def test_a_body_that_is_no_rewards(served, http, body, status, field):
    good = made(http)["id"]
    before = served.rows()
    if isinstance(body, dict) and isinstance(body.get("rewards"), list) and 0 < len(body["rewards"]) < 1000:
        body = body | {"rewards": [*body["rewards"], {"id": good, "value": 1}]}
    answer = http.post("/v1/rewards", json=body)
    assert (answer.status_code, error_of(answer)["field"]) == (status, field)
    assert served.rows() == before, "a body of the wrong shape changes nothing"


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e999", "9" * 400])
def test_rewards_that_are_no_numbers(http, value):
    body = f'{{"rewards": [{{"id": "x", "value": {value}}}]}}'
    answer = http.post("/v1/rewards", content=body, headers=JSON)
    assert answer.status_code == 422 or answer.json()["results"][0]["code"] in ("unknown_decision", "invalid")


def test_a_thousand_rewards_at_once(http):
    ids = [it["id"] for it in made(http, count=1000)["decisions"]]
    body = {"rewards": [{"id": name, "value": 0.123456789012345} for name in ids]}
    answer = http.post("/v1/rewards", content=json.dumps(body, indent=1), headers=JSON)
    assert all(it["counted"] for it in answer.json()["results"])


# ---------------------------------------------------------------- the log


def lines(http, query=""):
    answer = http.get(f"/v1/log{query}")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    return [json.loads(line) for line in answer.text.splitlines()]


def test_the_log(tmp_path, monkeypatch):
    monkeypatch.setattr(decision_paths, "_CHUNK", 3)
    with serving(tmp_path) as agent, httpx.Client(base_url=agent.url, trust_env=False) as http:
        assert lines(http) == []
        told = [made(http, exclude=["none"], subject=f"s{i % 2}") for i in range(8)]
        put_reward(http, told[0]["id"], '{"value": 0.25}')
        http.delete(f"/v1/decisions/{told[1]['id']}")
        told.append(made(http))
        found = lines(http)
        assert [it["id"] for it in found] == [it["id"] for it in told]
        for line, it in zip(found, told, strict=True):
            assert line.items() >= it.items()
        assert [it["eligible"] for it in found] == [[1, 2]] * 8 + [None]
        assert found[0]["subject"] == found[2]["subject"] != found[1]["subject"]
        assert (found[8]["subject"], found[0]["rewarded"], found[0]["counted"]) == (None, True, True)
        assert [it["cancelled"] for it in found] == [i == 1 for i in range(9)]
        assert {it["reward"] for it in found} == {None}, "they have left the disk"
        assert lines(http, "?after=7") == found[7:]
        for wrong in ("-1", "x", "1.5", "", "9" * 30, "%20"):
            assert http.get(f"/v1/log?after={wrong}").status_code == 422


def test_the_log_with_rewards_that_are_kept(tmp_path):
    with serving(tmp_path, keep_rewards=True) as agent, httpx.Client(base_url=agent.url, trust_env=False) as http:
        told = [made(http) for _ in range(8)]
        for i, it in enumerate(told[:6]):
            put_reward(http, it["id"], f'{{"value": {i / 8}}}')
        assert [it["reward"] for it in lines(http)] == [0.0, 0.125, 0.25, 0.375, 0.5, 0.625, None, None]
    with serving(tmp_path, keep_rewards=True) as agent, httpx.Client(base_url=agent.url, trust_env=False) as http:
        assert [it["reward"] for it in lines(http)][:2] == [0.0, 0.125]
    with serving(tmp_path) as agent, httpx.Client(base_url=agent.url, trust_env=False) as http:
        assert {it["reward"] for it in lines(http)} == {None}
        assert {row[1] for row in agent.rows()["kept"]} == {bytes(16)}


def test_the_log_is_of_one_moment_and_leaves_turns_to_others(tmp_path, monkeypatch):
    monkeypatch.setattr(decision_paths, "_CHUNK", 1)

    async def play():
        driver = Driver(tmp_path)
        await driver.start()
        first = [await driver.decide() for _ in range(20)]
        decisions, rewards = await driver.log(0)
        seen, asked = [], []
        async for chunk in decision_paths._lines(decisions, rewards, driver):
            seen += [json.loads(line) for line in chunk.splitlines()]
            asked.append(asyncio.create_task(driver.decide()))
            if len(seen) == 1:
                await driver.report(first[-1].id, 1.0)
                await driver.site.do(lambda site: site.expire(1e12, 0))
        await asyncio.gather(*asked)
        await driver.stop()
        return first, seen

    first, seen = asyncio.run(play())
    assert [it["id"] for it in seen] == [it.id for it in first]
    assert not any(it["rewarded"] for it in seen)


# ---------------------------------------------------------------- who may


@pytest.mark.parametrize("role", ROLES)
def test_rights(tmp_path, role):
    needs = {
        ("POST", "/v1/decisions"): "decide",
        ("GET", "/v1/decisions/1-1"): "report",
        ("DELETE", "/v1/decisions/1-1"): "decide",
        ("POST", "/v1/rewards"): "report",
        ("GET", "/v1/log"): "log",
    }
    tokens = {f"{role}-token-1234567": ROLES[role]}
    with serving(tmp_path, tokens=tokens) as agent, httpx.Client(base_url=agent.url, trust_env=False) as http:
        headers = {"Authorization": f"Bearer {next(iter(tokens))}"}
        for (method, path), right in needs.items():
            status = http.request(method, path, headers=headers).status_code
            assert (status == 403) == (right not in ROLES[role]), (method, path)
    assert "log" in ROLES["operator"]
    assert "log" not in ROLES["application"] | ROLES["viewer"]


# ---------------------------------------------------------------- what is forgotten


class Machine:
    """A computer whose clocks are the test's."""

    def __init__(self, folder, monkeypatch, terms=TERMS, **changes):
        self.folder, self.terms, self.changes = folder, terms, changes
        self.true, self.ahead, self.agent = 1e9, 0.0, None
        for name, kind in (("SteadyClock", SteadyClock), ("PatientClock", PatientClock)):
            made = partial(kind, wall=lambda: self.true + self.ahead, steady=lambda: self.true)
            monkeypatch.setattr(runtime, name, made)

    async def boot(self):
        if self.agent is not None:
            await self.agent.stop()
        self.agent = Driver(self.folder, self.terms, **self.changes)

    async def second(self):
        self.true += 1.0
        await self.agent._forget_old()


@pytest.mark.parametrize("window", [0.0, 3600.0], ids=["no window", "window"])
@pytest.mark.parametrize("restarts", [False, True], ids=["goes on", "starts while the clock is wrong"])
def test_a_clock_that_jumps_ahead_by_a_month_for_four_seconds_forgets_nothing(tmp_path, monkeypatch, window, restarts):
    month = 31 * 86_400.0
    machine = Machine(tmp_path, monkeypatch, replace(TERMS, reward_window=window), expire_after=30 * 86_400.0)

    async def play():
        await machine.boot()
        first = await machine.agent.decide()
        for _ in range(2 * int(LASTS)):
            await machine.second()
        machine.ahead = month
        if restarts:
            await machine.boot()
        during = [await machine.agent.decide()]
        for _ in range(4):
            await machine.second()
            during.append(await machine.agent.decide())
        machine.ahead = 0.0
        for _ in range(3 * int(LASTS)):
            await machine.second()
        await machine.boot()
        for _ in range(3 * int(LASTS)):
            await machine.second()
        seen = machine.agent.site.in_memory
        assert seen.remembered == 6
        assert machine.agent._forgotten.counts == {"time": 0, "keep": 0}
        if not restarts:
            assert seen.pending == 6, "and nothing is settled"
            for it in (first, *during):
                assert await machine.agent.report(it.id, 1.0)
            machine.ahead = month
            for _ in range(int(LASTS) - 1):
                await machine.second()
            assert seen.remembered == 6
            machine.ahead = month + 3600.0
            for _ in range(int(LASTS) + 2):
                await machine.second()
            assert machine.agent.site.in_memory.remembered == 0, "a jump that lasts is believed"
        await machine.agent.stop()

    asyncio.run(play())


def test_what_is_forgotten_is_counted_said_and_shown(tmp_path, monkeypatch, caplog):
    machine = Machine(tmp_path, monkeypatch, expire_after=1000.0, keep=10)
    caplog.set_level(logging.INFO, "fedbandit.agent")

    async def play():
        await machine.boot()
        for _ in range(15):
            await machine.agent.decide()
        shown = await machine.agent.state()
        assert any("decisions.keep is 10" in it for it in shown.warnings)
        await machine.second()
        for _ in range(1100):
            await machine.second()
        shown = (await machine.agent.state()).decisions
        assert (shown.forgotten, shown.remembered) == ({"time": 10, "keep": 5}, 0)
        assert (shown.keep, shown.expire_after) == (10, 1000.0)
        await machine.agent.stop()

    asyncio.run(play())
    assert "decisions forgotten without a reward: 5 more than decisions.keep (10); the default counts" in caplog.text


def test_the_metrics_of_it(tmp_path):
    with serving(tmp_path) as agent, httpx.Client(base_url=agent.url, trust_env=False) as http:
        agent.call(lambda driver: driver._forgotten.count(Expired(9, 3, 4)))
        text = http.get("/metrics").text
    for line in (
        'fedbandit_decisions_forgotten_total{reason="time"} 3.0',
        'fedbandit_decisions_forgotten_total{reason="keep"} 4.0',
        "fedbandit_decisions_keep 1000.0",
        "fedbandit_decisions_expire_after_seconds 2.592e+06",
    ):
        assert line in text.splitlines()


def test_at_most_a_line_a_minute(caplog):
    caplog.set_level(logging.INFO, "test")
    forgotten = ForgottenDecisions(logging.getLogger("test"), Retention(5, 3600.0), has_window=False)
    for second in range(120):
        forgotten.count(Expired(2, 1, 1))
        forgotten.say(float(second))
    assert [record.getMessage() for record in caplog.records] == [
        "decisions forgotten without a reward: 1 older than decisions.expire_after_hours (1), 1 more than "
        "decisions.keep (5); the default counts for them",
        "decisions forgotten without a reward: 60 older than decisions.expire_after_hours (1), 60 more than "
        "decisions.keep (5); the default counts for them",
    ]


@pytest.mark.parametrize(
    "body",
    [
        rb'{"rewards":[{"id":"ID","value":1},{"id":"\ud800","value":1}]}',
        rb'{"rewards":[{"id":"ID","value":1,"\ud800":2}]}',
        rb'{"rewards":[{"id":"ID","value":1,"\ud800":2,"\ud800":2}]}',
        '{"rewards":[{"id":"ID","value":1}]}'.encode("utf-16"),
    ],
    ids=["id", "field", "field twice", "utf-16"],
)
def test_half_a_character_changes_nothing(served, http, body):
    """An answer could not say it back, and would come too late: after the other rewards are on disk."""
    name = made(http)["id"]
    before = served.rows()
    given = body.replace(b"ID", name.encode()) if b"ID" in body else body
    answer = http.post("/v1/rewards", content=given, headers=JSON)
    assert answer.status_code == 400
    assert error_of(answer)["code"] == "invalid_json"
    assert served.rows() == before


def test_a_name_is_told_as_the_file_has_it(tmp_path):
    """An addition that could not be written has not happened: its number may be another arm's then."""

    class Changing(Driver):
        names, arm = (*ARMS, "drug B"), 0

        @property
        def arm_names(self):
            return self.names

        async def decide(self):
            return replace(await super().decide(), arm=self.arm)

    async def play():
        driver = Changing(tmp_path)
        await driver.start()
        transport = httpx.ASGITransport(app=make_app(driver))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            driver.names, driver.arm = (*ARMS, "drug A", "drug B"), len(ARMS)
            first = (await client.post("/v1/decisions")).json()["name"]
            driver.names, driver.arm = (*ARMS, "drug A", "drug C"), len(ARMS) + 1
            second = (await client.post("/v1/decisions")).json()["name"]
        await driver.stop()
        return first, second

    assert asyncio.run(play()) == ("drug A", "drug C")


def test_a_clock_that_was_not_read_for_a_while_must_show_again_what_lasts():
    """A process that was stopped, or a disk that was full: the first reading afterwards may be of a wrong clock."""
    true, ahead = [0.0], [0.0]
    clock = PatientClock(LASTS, lambda: 1e9 + true[0] + ahead[0], lambda: true[0])
    for _ in range(100):
        true[0] += 1.0
        clock.now()
    assert clock.now() == 1e9 + 100.0
    true[0] += 2 * LASTS
    ahead[0] = 30 * 86_400.0
    assert clock.now() is None
    ahead[0] = 0.0
    for _ in range(int(LASTS)):
        true[0] += 1.0
        assert (clock.now() or 0.0) <= 1e9 + true[0]
    assert clock.now() == 1e9 + true[0]
