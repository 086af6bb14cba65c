"""Every call of the client: with a real agent, and with a small server that gives the documented answers."""

import inspect
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fedbandit import Client, InvalidArgument
from fedbandit.agent import client as module
from fedbandit.agent.client import calls
from live import TERMS, serving
from test_client import both, scripted


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("agent")) as agent:
        yield agent


# ---------------------------------------------------------------- a real agent


@both
def test_a_key_is_one_decision(served, kind):
    with kind(served.url) as client:
        first = client.decide(key=f"visit 1 {kind}")
        assert client.decide(key=f"visit 1 {kind}") == first
        assert client.decide(key=f"visit 2 {kind}").id != first.id
        assert client.decide().id != client.decide().id
        with pytest.raises(module.KeyReused) as refused:
            client.decide(key=f"visit 1 {kind}", eligible=["none"])
    assert (refused.value.code, refused.value.field) == ("key_reused", "key")


@both
def test_eligible_and_excluded_arms(served, kind):
    with kind(served.url) as client:
        assert {client.decide(eligible=["metformin"]).name for _ in range(5)} == {"metformin"}
        assert {client.decide(eligible=[1]).name for _ in range(5)} == {"metformin"}
        assert {client.decide(exclude=TERMS.arms[:2]).name for _ in range(5)} == {TERMS.arms[2]}
        with pytest.raises(module.NoArm):
            client.decide(exclude=TERMS.arms)
        with pytest.raises(module.InvalidRequest, match="metformin") as refused:
            client.decide(eligible=["metformim"])
    assert refused.value.field.startswith("eligible")
    assert "metformin" in refused.value.accepted


@both
def test_many_decisions_and_rewards(served, kind):
    with kind(served.url) as client:
        before = client.state().decisions.handed_out
        decisions = client.decide_many(5, key=f"batch {kind}")
        assert client.decide_many(5, key=f"batch {kind}") == decisions
        assert len({it.id for it in decisions}) == 5
        assert client.state().decisions.handed_out == before + 5
        assert [it.name for it in client.decide_many(1, eligible=["none"])] == ["none"]
        said = client.rewards([(decisions[0], 1.0), (decisions[1].id, 0.0), ("1-77", 1.0), (decisions[2], 7.0)])
        assert [it.counted for it in said] == [True, True, False, False]
        assert [it.code for it in said] == [None, None, "unknown_decision", "invalid"]
        assert client.decision(decisions[0]).rewarded
        assert not client.decision(decisions[2].id).rewarded


@both
def test_a_decision_is_looked_at_and_cancelled(served, kind):
    with kind(served.url) as client:
        made = client.decide()
        known = client.decision(made)
        assert isinstance(known, module.Decision)
        assert (known.id, known.arm, known.name, known.propensity) == (made.id, made.arm, made.name, made.propensity)
        assert not known.cancelled
        client.cancel(made)
        client.cancel(made.id)  # the same again
        assert client.decision(made).cancelled
        with pytest.raises(module.Cancelled):
            client.reward(made, 1.0)
        other = client.decide()
        client.reward(other, 1.0)
        with pytest.raises(module.TooLateToCancel):
            client.cancel(other)
        for call in (client.decision, client.cancel):
            with pytest.raises(module.UnknownDecision):
                call("1-77")


@both
def test_the_log_is_a_stream_of_lines(tmp_path, kind):
    with serving(tmp_path) as agent, kind(agent.url, timeout=10.0) as client:
        made = client.decide_many(500)
        client.reward(made[0], 1.0)
        lines = list(client.log())
        assert [line.id for line in lines] == [it.id for it in made]
        assert [line.rewarded for line in lines] == [True] + [False] * 499
        assert [line.number for line in client.log(after=498)] == [499, 500]
        client.decide()  # the connection is whole


def test_a_log_that_is_not_read_to_its_end_harms_nobody(tmp_path):
    with serving(tmp_path) as agent, Client(agent.url, timeout=10.0) as client:
        client.decide_many(1000)
        for line in client.log():
            assert line.number == 1
            client.reward(line.id, 1.0)  # another call meanwhile, with its own deadline
            break
        assert client.decision(line.id).rewarded


# ---------------------------------------------------------------- documented answers

CHANGE = {
    "id": "c0ffee",
    "version": 3,
    "reason": "recalled",
    "whom": "",
    "strata": [],
    "receipts": [{"site": "east", "has_it": True, "resumed_by": None, "last_heard": 2.0}],
    "change": "suspend",
    "arm": "none",
    "by": "north",
    "at": 1.0,
    "accepted": True,
    "accepted_by": [],
    "not_accepted_by": [],
}
ARMS = {
    "version": 1,
    "arms": [{"name": "none", "arm": 0, "status": "suspended", "last_change": CHANGE, "suspended_for": []}],
    "waiting": [],
    "changes": [CHANGE],
}


@contextmanager
def answering(answers):
    """A server with one answer for each method and path; yields its address and what it heard."""
    heard = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self):
            length = int(self.headers.get("Content-Length") or 0)
            heard.append((self.command, self.path, json.loads(self.rfile.read(length) or b"null")))
            status, body = answers[self.command, self.path]
            said = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as web:
        thread = threading.Thread(target=web.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{web.server_port}", heard
        finally:
            web.shutdown()
            thread.join()


@both
def test_arms_are_read_changed_and_accepted(kind):
    answers = {
        ("GET", "/v1/arms"): (200, ARMS),
        ("POST", "/v1/arms"): (201, CHANGE),
        ("POST", "/v1/arms/accept"): (200, ARMS),
    }
    with answering(answers) as (url, heard), kind(url) as client:
        assert client.arms().model_dump() == ARMS
        assert client.change_arm("suspend", "none", "recalled").model_dump() == CHANGE
        assert client.accept_arm("none", retire=True).model_dump() == ARMS
    assert heard == [
        ("GET", "/v1/arms", None),
        ("POST", "/v1/arms", {"change": "suspend", "arm": "none", "reason": "recalled"}),
        ("POST", "/v1/arms/accept", {"arm": "none", "retire": True}),
    ]


@both
@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("no_arm", module.NoArm),
        ("key_reused", module.KeyReused),
        ("arm_stopped", module.ArmStopped),
        ("horizon_reached", module.AgentError),
        ("a code of a later version", module.AgentError),
    ],
)
def test_refusals_are_kinds_of_errors(kind, code, error):
    said = {"error": {"code": code, "message": "in words", "field": "key", "accepted": "another key"}}
    with (
        answering({("POST", "/v1/decisions"): (409, said)}) as (url, heard),
        kind(url) as client,
        pytest.raises(module.AgentError, match="in words") as refused,
    ):
        client.decide(subject="patient 7", exclude=["none"])
    assert type(refused.value) is error
    assert (refused.value.code, refused.value.field, refused.value.accepted) == (code, "key", "another key")
    ((_, _, body),) = heard
    assert (body["subject"], body["exclude"], len(body["key"])) == ("patient 7", ["none"], 32)


@both
def test_a_log_that_breaks_off_or_is_none_is_noticed(kind):
    broken_off = scripted(b"HTTP/1.1 200 X\r\nContent-Length: 1000\r\n\r\n")
    other = answering({("GET", "/v1/log?after=0"): (200, b'{"id": "1-1"}\n')})
    said = {"error": {"code": "forbidden", "message": "this token lacks the right 'log'"}}
    refused = answering({("GET", "/v1/log?after=0"): (403, said)})
    for server, error, words in (
        (broken_off, module.Unreachable, "no answer from"),
        (other, module.AgentError, "does not answer like an agent"),
        (refused, module.Forbidden, "'log'"),
    ):
        with server as (url, _), kind(url) as client, pytest.raises(error, match=words):
            list(client.log())


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda client: client.decide(eligible="none"), "eligible"),
        (lambda client: client.decide(exclude="none"), "exclude"),
        (lambda client: client.decide(key=7), "key"),
        (lambda client: client.decide(subject=7), "subject"),
        (lambda client: client.decide_many(0), "count"),
        (lambda client: client.decision(7), "decision"),
        (lambda client: client.cancel(None), "decision"),
        (lambda client: client.change_arm("add", 7), "name"),
        (lambda client: list(client.log(-1)), "after"),
    ],
)
def test_mistakes_are_named_before_anything_is_sent(call, name):
    with Client("http://127.0.0.1:9") as client, pytest.raises(InvalidArgument, match=f"{name} must be"):
        call(client)


def test_methods_have_names_signatures_and_words():
    for kind in (Client, module.AsyncClient):
        for name in calls.__dict__:
            method = getattr(kind, name, None)
            if method is not None and not name.startswith("_") and name != "log":
                assert method.__name__ == name
                assert method.__doc__
                assert next(iter(inspect.signature(method).parameters)) == "self"
    assert str(inspect.signature(Client("http://127.0.0.1:9").reward)).startswith("(decision:")
