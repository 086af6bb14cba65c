"""Late rewards over HTTP: what an application is told, and what an operator sees. The clock is the test's."""

import asyncio
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

import fedbandit
from fedbandit.agent.process import runtime
from fedbandit.agent.process.clock import SteadyClock
from live import TERMS, serving

WINDOW = replace(TERMS, reward_window=60.0, default_reward=0.25)


class Caller:
    """An application beside the agent, and its operator."""

    def __init__(self, served):
        self.served, self.http = served, httpx.Client(base_url=served.url, trust_env=False)

    def decide(self):
        return self.http.post("/v1/decisions").json()["id"]

    def report(self, decision, value):
        return self.http.put(f"/v1/decisions/{decision}/reward", json={"value": value})

    def counts(self):
        """Of the state: what is pending, waiting, late; rewards that count."""
        state = self.http.get("/v1/state").json()
        counted = sum(arm["rewards"] for arm in state["arms"])
        return *(state["decisions"][name] for name in ("pending", "waiting", "late")), counted

    def metric(self, name):
        families = text_string_to_metric_families(self.http.get("/metrics").text)
        return sum(sample.value for family in families for sample in family.samples if sample.name == name)

    def settle(self):
        """What the agent does once a second, now."""
        self.served.call(lambda driver: driver.site.do(lambda site: site.settle(driver._clock.now())))

    def on_disk(self, decision):
        """Whether it has had a reward, was played, and was late."""
        found = next(row for row in self.served.rows()["decision"] if row[0] == decision)
        played, late, rewarded = found[4:7]
        return rewarded, played, late

    def total(self):
        """The raw sum of all arms since their last releases."""
        known = self.served.call(lambda driver: dict(driver.site.in_memory.stored.known))
        return sum(fields["total"] for arm, fields in known.items() if arm >= 0) / 2**16


@pytest.fixture
def clock(monkeypatch):
    """The system's time, to be set."""
    wall = [1e9]
    monkeypatch.setattr(runtime, "SteadyClock", partial(SteadyClock, lambda: wall[0], lambda: wall[0]))
    return wall


@contextmanager
def calling(folder, terms=WINDOW):
    with serving(folder, terms=terms) as served:
        caller = Caller(served)
        with caller.http:
            yield caller


@pytest.fixture
def caller(tmp_path, clock):
    with calling(tmp_path) as made:
        yield made


# ---------------------------------------------------------------- with a window


def test_a_reward_within_its_window_waits_for_its_end(caller, clock):
    decision = caller.decide()
    assert caller.counts() == (1, 0, 0, 0)
    clock[0] += 59.0
    assert caller.report(decision, 1.0).status_code == 204
    assert caller.on_disk(decision) == (1, 0, 0)
    assert caller.counts() == (0, 1, 0, 0)
    assert caller.metric("fedbandit_rewards_waiting") == 1
    clock[0] += 1.0
    caller.settle()
    assert caller.on_disk(decision) == (1, 1, 0)
    assert caller.counts() == (0, 0, 0, 1)
    assert caller.metric("fedbandit_rewards_waiting") == 0
    assert caller.total() == 1.0
    assert caller.report(decision, 1.0).status_code == 204, "it was reported in time: a repetition says so"
    assert caller.report(decision, 0.5).status_code == 204, "and tells nothing of the first value"
    assert caller.total() == 1.0
    assert caller.metric("fedbandit_rewards_late_total") == 0


def test_a_reward_after_its_window_is_acknowledged_as_too_late(caller, clock):
    decision = caller.decide()
    clock[0] += 60.0
    caller.settle()
    for value in (1.0, 1.0, 0.5):
        answer = caller.report(decision, value)
        assert answer.status_code == 200
        assert answer.json() == {
            "counted": False,
            "code": "too_late",
            "message": "the reward window of this decision is over: the federation's default counts",
        }
    assert caller.on_disk(decision) == (0, 1, 1)
    assert caller.counts() == (0, 0, 1, 1)
    assert caller.metric("fedbandit_rewards_late_total") == 1
    assert caller.total() == 0.25
    document = caller.http.get("/openapi.json").json()["paths"]["/v1/decisions/{decision_id}/reward"]["put"]
    assert {"200", "204"} <= set(document["responses"])


def test_the_client_says_so(caller, clock):
    with fedbandit.Client(caller.served.url) as client:
        first, second = client.decide(), client.decide()
        assert client.reward(first, 1.0) is True
        clock[0] += 60.0
        caller.settle()
        assert client.reward(first, 1.0) is True
        assert client.reward(second, 1.0) is False

    async def ask():
        async with fedbandit.AsyncClient(caller.served.url) as client:
            return await client.reward(second.id, 1.0)

    assert asyncio.run(ask()) is False


# ---------------------------------------------------------------- without one


def test_without_a_window_a_missing_reward_is_named_and_expires_with_the_default(tmp_path, clock):
    terms = replace(TERMS, arms=("a", "b"), default_reward=0.25)  # batches of 4
    with calling(tmp_path, terms) as caller:
        of_arm = {"a": [], "b": []}
        while min(map(len, of_arm.values())) < 5:  # both are unknown: from the urn
            made = caller.http.post("/v1/decisions").json()
            of_arm[made["name"]].append(made["id"])
        first, *others = of_arm["a"]
        given = [len(of_arm["a"]), len(of_arm["b"])]
        clock[0] += 1.0
        for decision in others[:3]:
            assert caller.report(decision, 1.0).status_code == 204
        assert caller.http.get("/v1/state").json()["warnings"][:-1] == [], "there is nothing to release yet"
        assert caller.report(others[3], 1.0).status_code == 204
        assert caller.counts() == (sum(given) - 4, 4, 0, 0)
        state = caller.http.get("/v1/state").json()
        handed_out = datetime.fromtimestamp(clock[0] - 1.0, UTC)
        assert state["warnings"][0] == (
            f"4 rewards of a wait for that of the decision of {handed_out:%F %T}+00:00, "
            "which came before them; when it expires without one, the default counts. A reward_window would not wait."
        )
        assert "provided that the time of a report does not depend on the outcome" in state["privacy"]["promise"]
        assert caller.metric("fedbandit_warnings") == len(state["warnings"])
        clock[0] += 31 * 86_400.0
        before = clock[0] - 30 * 86_400.0
        caller.served.call(lambda driver: driver.site.do(lambda site: site.expire(before, 1000)))
        state = caller.http.get("/v1/state").json()
        assert not [warning for warning in state["warnings"] if "wait for" in warning]
        assert [arm["rewards"] for arm in state["arms"]] == given
        assert all(arm["releases"] > 0 for arm in state["arms"])
        assert caller.report(first, 1.0).status_code == 404
