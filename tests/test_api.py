"""HTTP, against a real server with a real site on a real disk."""

import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from prometheus_client.parser import text_string_to_metric_families

from fedbandit import FedBatch, InvalidArgument
from fedbandit.agent.disk import durable_site
from fedbandit.agent.disk.durable_site import DurableSite
from fedbandit.agent.disk.journal import SqliteJournal
from fedbandit.agent.http import server
from fedbandit.agent.http.access import Door
from fedbandit.agent.http.api import make_app
from fedbandit.agent.http.server import PAGE_HEADERS
from fedbandit.agent.http.state import SiteState
from fedbandit.agent.process.addresses import Address
from fedbandit.agent.process.config import Neighbour
from fedbandit.agent.process.rights import ALL_RIGHTS, Caller
from live import TERMS, bulletin_of, serving

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("agent")) as agent:
        yield agent


@pytest.fixture(scope="module")
def http(served):
    with httpx.Client(base_url=served.url, trust_env=False) as client:
        yield client


def decide(http):
    return http.post("/v1/decisions").json()["id"]


def put_reward(http, decision, content, headers=JSON):
    return http.put(f"/v1/decisions/{decision}/reward", content=content, headers=headers)


def error_of(answer):
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message", "field", "accepted"}
    assert answer.headers["content-type"] == "application/json"
    return body["error"]


# ---------------------------------------------------------------- decisions and rewards


@pytest.mark.parametrize("body", [None, "{}", " {} "])
def test_a_decision_is_on_disk_when_it_is_answered(served, http, body):
    answer = http.post("/v1/decisions", content=body, headers=JSON if body else {})
    assert answer.status_code == 201
    told = answer.json()
    assert set(told) == {"id", "arm", "name", "propensity"}
    assert told["name"] == TERMS.arms[told["arm"]]
    assert served.rows()["decision"][-1][0] == told["id"]


def test_a_reward_may_be_repeated_but_not_changed(served, http):
    decision = decide(http)
    assert put_reward(http, decision, '{"value": 0.5}').status_code == 204
    before = served.rows()
    again = put_reward(http, decision, '{"value": 0.5}')
    assert (again.status_code, again.content) == (204, b"")
    other = put_reward(http, decision, '{"value": 0.25}')
    assert (other.status_code, other.content) == (204, b""), "it tells nothing of the first"
    assert served.rows() == before
    assert served.rewards()[decision] == 0.5


@pytest.mark.parametrize("value", ["0", "1", "1.0", "0.125", "1e-3", "5e-324", "-0.0"])
def test_rewards_in_the_range(http, value):
    assert put_reward(http, decide(http), f'{{"value": {value}}}').status_code == 204


OUTSIDE = ["2", "-0.001", "1.0000000000000002", "NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 400]
OTHERS = ["true", "false", "null", '"1"', '""', "[1]", "{}", '{"value": 1}']


@pytest.mark.parametrize("value", OUTSIDE + OTHERS, ids=lambda value: value[:12])
def test_a_reward_that_is_none_is_refused_with_the_range(served, http, value):
    decision = decide(http)
    before = served.rows()
    answer = put_reward(http, decision, f'{{"value": {value}}}')
    assert answer.status_code == 422
    error = error_of(answer)
    assert (error["code"], error["field"], error["accepted"]) == ("invalid", "value", "a number from 0 to 1")
    assert error["message"].startswith("value must be a number from 0 to 1, not ")
    assert served.rows() == before


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ("{}", 422, "value"),
        ('{"value": 1, "weight": 2}', 422, "weight"),
        ('{"Value": 1}', 422, "Value"),
        ("[]", 422, "body"),
        ("0.5", 422, "body"),
        ("null", 422, "body"),
        ("", 400, "body"),
        ("value=1", 400, "body"),
        ('{"value": 1', 400, "body"),
        ('{"value": 01}', 400, "body"),
        (b"\xff\xfe", 400, "body"),
        ("[" * 60_000, 400, "body"),
    ],
    ids=lambda x: str(x)[:20],
)
def test_a_body_that_is_no_reward(served, http, body, status, field):
    decision = decide(http)
    before = served.rows()
    answer = put_reward(http, decision, body)
    assert answer.status_code == status
    assert error_of(answer)["field"] == field
    assert served.rows() == before


@pytest.mark.parametrize(("body", "status"), [("[]", 422), ('{"arm": 1}', 422), ("null", 422), ("{", 400)])
def test_nothing_is_said_when_asking(served, http, body, status):
    before = served.rows()
    some = "eligible, exclude, key, subject, count, context"
    for method, path, accepted in (
        ("POST", "/v1/decisions", some if "arm" in body else f"no body, or an object with some of {some}"),
        (
            "DELETE",
            "/v1/excluded/east",
            "reason" if "arm" in body else 'left out, or {"reason": "its data are right again"}',
        ),
        (
            "PUT",
            "/v1/excluded/east",
            "reason" if "arm" in body else 'an object such as {"reason": "its data are wrong"}',
        ),
    ):
        answer = http.request(method, path, content=body, headers=JSON)
        assert answer.status_code == status
        assert error_of(answer)["accepted"] == accepted
    assert served.rows() == before


def test_an_unknown_decision_is_404(served, http):
    before = served.rows()
    for decision in ("1-999999", "x", "%00", "%F0%9F%92%8A", "a%20b", "x" * 5000):
        answer = put_reward(http, decision, '{"value": 0.5}')
        assert answer.status_code == 404
        assert error_of(answer)["code"] == "unknown_decision"
    assert served.rows() == before


def test_an_expired_decision_is_404(tmp_path):
    with serving(tmp_path) as agent, httpx.Client(base_url=agent.url, trust_env=False) as http:
        decision = decide(http)
        agent.call(lambda driver: driver.site.do(lambda site: site.expire(1e12, 1000)))
        answer = put_reward(http, decision, '{"value": 0.5}')
        assert answer.status_code == 404
        assert "expired" in error_of(answer)["message"]


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""])
def test_another_content_type_is_415(served, http, kind):
    decision = decide(http)
    before = served.rows()
    headers = {} if kind is None else {"Content-Type": kind}
    for answer in (
        put_reward(http, decision, '{"value": 0.5}', headers),
        http.post("/v1/decisions", content="{}", headers=headers),
    ):
        assert answer.status_code == 415
        assert error_of(answer)["accepted"] == "application/json"
    assert served.rows() == before


def test_the_content_type_may_have_parameters(http):
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert put_reward(http, decide(http), '{"value": 0.5}', headers).status_code == 204


# ---------------------------------------------------------------- sizes


def raw(served, request, then=b""):
    """What a server says to bytes, and whether it hung up; ``then`` is sent bit by bit until it does."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        connection.sendall(request)
        sent = 0
        if then:
            try:
                for _ in range(1000):
                    connection.sendall(then)
                    sent += len(then)
            except OSError:
                pass
        heard = b""
        try:
            while part := connection.recv(65536):
                heard += part
        except ConnectionResetError:
            pass
        return heard, sent


@pytest.mark.parametrize(
    "line", [b"POST /v1/decisions", b"PUT /v1/decisions/1-1/reward", b"PUT /v1/excluded/east", b"GET /v1/state"]
)
def test_a_large_body_is_413_before_it_is_sent(served, line):
    """Nothing of the body is sent, and the answer comes all the same."""
    before = served.rows()
    heard, _ = raw(
        served,
        line + b" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 262145\r\n\r\n",
    )
    assert heard.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in heard.lower()
    assert json.loads(heard.partition(b"\r\n\r\n")[2])["error"]["accepted"] == "at most 262144 bytes"
    assert served.rows() == before


def test_an_endless_body_is_not_read_to_its_end(served):
    """1,000 pieces of 64 KiB without a declared length: the server hangs up early."""
    before = served.rows()
    piece = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    start = b" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    for line in (b"POST /v1/decisions", b"PUT /v1/decisions/1-1/reward", b"DELETE /v1/excluded/east"):
        heard, sent = raw(served, line + start, piece)
        assert sent < 0.5 * 1000 * len(piece)
        assert heard == b"" or heard.startswith(b"HTTP/1.1 413 ")  # a reset may overtake the answer
    assert served.rows() == before


@pytest.mark.parametrize(
    "start",
    [b"GET /", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"],
)
def test_a_line_without_end_is_not_kept(served, start):
    """64 MiB: the server hangs up after one, and says why if that is still heard."""
    piece = b"X: a\r\n" * 0x3000 if start.endswith(b"\n") else b"a" * 0x10000
    heard, sent = raw(served, start, piece)
    assert sent < 0.5 * 1000 * len(piece)
    assert heard == b"" or json.loads(heard.partition(b"\r\n\r\n")[2])["error"]["code"] == "invalid"


def test_what_is_no_http_is_told_in_the_form_of_all_errors(served):
    heard, _ = raw(served, b"\x16\x03\x01\x00\xff\r\n\r\n")
    assert heard.startswith(b"HTTP/1.1 400 ")
    assert all(f"\r\n{name.lower()}: {value}\r\n".encode() in heard for name, value in PAGE_HEADERS.items())
    assert b"\r\ncache-control: no-store\r\n" in heard
    assert set(json.loads(heard.partition(b"\r\n\r\n")[2])["error"]) == {"code", "message", "field", "accepted"}


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET /heal",
        b"PUT /v1/decisions/1-1/reward HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 20\r\n\r\n{",
    ],
)
def test_who_does_not_go_on_is_hung_up_on(served, monkeypatch, said):
    """Nor does it help to say a little now and then."""
    monkeypatch.setattr(server, "PATIENCE", 0.5)
    begun = time.monotonic()
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        connection.sendall(said)
        connection.settimeout(0.1)
        heard = None
        while heard is None and time.monotonic() - begun < 10:
            try:
                heard = connection.recv(100)
            except TimeoutError:
                if said:
                    connection.sendall(b" ")
            except OSError:
                heard = b""
    assert heard == b""
    assert 0.4 < time.monotonic() - begun < 8


def test_a_body_of_just_the_size(http):
    body = b'{"value": 0.5' + b" " * (256 * 1024 - 14) + b"}"
    assert len(body) == 256 * 1024
    assert put_reward(http, decide(http), body).status_code == 204
    assert put_reward(http, decide(http), body + b" ").status_code == 413

    def pieces():
        yield body
        yield b" "

    assert put_reward(http, decide(http), pieces()).status_code == 413


def test_a_request_that_breaks_off_changes_nothing(served, http):
    decision = decide(http)
    before = served.rows()
    with socket.create_connection(("127.0.0.1", served.port)) as connection:
        head = f"PUT /v1/decisions/{decision}/reward HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(head.encode() + b'Content-Length: 14\r\n\r\n{"value": 0.')
    assert http.get("/healthz").status_code == 200
    assert served.rows() == before


# ---------------------------------------------------------------- paths and neighbours


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/decisions", "POST"),
        ("POST", "/v1/decisions/1-1/reward", "PUT"),
        ("POST", "/v1/excluded/east", "DELETE, PUT"),
        ("PUT", "/v1/members/east", "GET"),
        ("PUT", "/v1/state", "GET"),
        ("POST", "/metrics", "GET"),
        ("TRACE", "/healthz", "GET"),
        ("OPTIONS", "/v1/decisions", "POST"),
    ],
)
def test_another_method_is_405(http, method, path, allowed):
    answer = http.request(method, path)
    assert answer.status_code == 405
    assert answer.headers["allow"] == error_of(answer)["accepted"] == allowed


@pytest.mark.parametrize(
    "path",
    [
        "/page",
        "/v1",
        "/v1/",
        "/v1/state/",
        "/v1/decisions/x/y",
        "/docs",
        "/redoc",
        "/v1/members/",
        "/v1/excluded/",
        "/..%2f",
    ],
)
def test_an_unknown_path_is_404(http, path):
    answer = http.get(path)
    assert answer.status_code == 404
    assert error_of(answer)["code"] == "not_found"


def test_members_are_excluded_and_included(served, http):
    served.hear(bulletin_of("east", reward=1.0), bulletin_of("south"))

    def seen():
        members = http.get("/v1/state").json()["members"]
        return {it["name"]: (it["counts"], it["excluded"]) for it in members if it["name"] != "north"}

    others = {"south": (True, False)}
    assert seen() == {"east": (True, False)} | others
    answer = http.put("/v1/excluded/east", json={"reason": "its data are wrong"})
    assert answer.status_code == 204
    assert served.rows()["excluded"][0][::2] == ("east", "its data are wrong")
    assert seen() == {"east": (False, True)} | others
    before = served.rows()
    assert http.put("/v1/excluded/east", json={"reason": "once more"}).status_code == 204
    assert http.delete("/v1/excluded/south").status_code == 204
    answer = http.put("/v1/excluded/west", json={"reason": "wrong"})
    assert (answer.status_code, error_of(answer)["code"], error_of(answer)["field"]) == (404, "unknown_member", "name")
    answer = http.put("/v1/excluded/north", json={"reason": "wrong"})
    assert (answer.status_code, error_of(answer)["field"]) == (404, "name")
    assert served.rows() == before
    assert http.delete("/v1/excluded/east").status_code == 204
    assert served.rows()["excluded"] == []
    assert seen() == {"east": (True, False)} | others


def test_what_a_member_has_signed_is_shown_byte_for_byte(served, http):
    """Also two bulletins with one number, which are a proof; state and members name the site."""
    first, second, other = (bulletin_of("clinic", reward=value, number=2) for value in (1.0, 0.0, 0.5))
    before = bulletin_of("clinic", number=1)
    served.hear(before, first)
    found = http.get("/v1/members/clinic").json()
    assert found["bulletin"]["body"].encode() == first.body
    assert (found["conflict"], found["certificates"]) == ([], {})
    served.hear(second, other)
    found = http.get("/v1/members/clinic").json()
    halves = [it["body"].encode() for it in found["conflict"]]
    assert len(halves) == 2
    assert set(halves) < {first.body, second.body, other.body}
    (shown,) = (it for it in http.get("/v1/state").json()["members"] if it["name"] == "clinic")
    assert shown["conflict"] == {"incarnation": 1, "number": 2, "signatures": ["", ""]}
    assert shown["counts"], "with its last bulletin before"
    answer = http.get("/v1/members/west")
    assert (answer.status_code, error_of(answer)["code"]) == (404, "unknown_member")


def test_a_stop_says_why_and_who_has_it(tmp_path):
    with serving(tmp_path) as agent, httpx.Client(base_url=agent.url, trust_env=False) as http:
        agent.hear(bulletin_of("east"), bulletin_of("south"))
        check_a_stop(http)


def check_a_stop(http):
    said = {"change": "suspend", "arm": TERMS.arms[1], "reason": "recalled"}
    answer = http.post("/v1/arms", json=said)
    assert answer.status_code == 201
    assert answer.json()["reason"] == "recalled"
    assert [(it["site"], it["has_it"]) for it in answer.json()["receipts"]] == [("east", False), ("south", False)]
    arm = http.get("/v1/state").json()["arms"][1]
    assert (arm["status"], arm["changed_by"], arm["reason"]) == ("suspended", "north", "recalled")
    assert (arm["acknowledged_by"], arm["missing"]) == ([], ["east", "south"])
    answer = http.post("/v1/arms", json=said | {"arm": TERMS.arms[2], "reason": "x" * 201})
    assert (answer.status_code, error_of(answer)["field"]) == (422, "reason")


def test_the_password_of_a_proxy_is_not_shown(tmp_path):
    east = Neighbour("east", Address("127.0.0.1", 1), "http://user:secret-word@proxy.example:3128")
    with serving(tmp_path, neighbours=(east,)) as agent, httpx.Client(base_url=agent.url, trust_env=False) as http:
        assert http.get("/v1/state").json()["neighbours"][0]["proxy"] == "http://proxy.example:3128"
        for path in ("/v1/state", "/metrics", "/v1/members/north", "/v1/history"):
            assert "secret-word" not in http.get(path).text


def test_to_look_writes_nothing(served, http):
    """State, metrics, page, readyz and the proofs of members: not a byte of any file, however often."""
    served.hear(bulletin_of("east"))
    decide(http)
    served.call(lambda driver: driver._save_board())
    served.settle()
    before = served.call(lambda driver: driver.site._journal.mark)
    for path in (
        "/v1/state",
        "/metrics",
        "/readyz",
        "/",
        "/v1/arms",
        "/v1/members/east",
        "/v1/history",
        "/v1/federation",
    ):
        assert http.get(path).status_code == 200, path
    assert served.call(lambda driver: driver.site._journal.mark) == before


# ---------------------------------------------------------------- a disk that fails, an agent that is not ready


def test_a_full_disk_is_503_and_changes_nothing(tmp_path):
    with serving(tmp_path) as agent, httpx.Client(base_url=agent.url, trust_env=False) as http:
        decision = decide(http)
        agent.call(lambda driver: driver.fill_disk())
        handed_out = 1
        while http.post("/v1/decisions").status_code == 201:  # what fits into the last page still goes
            handed_out += 1
            assert handed_out < 2000
        before = agent.rows()
        answer = http.post("/v1/decisions")
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert error_of(answer)["code"] == "unavailable"
        assert "full" in error_of(answer)["message"]
        assert str(tmp_path) not in answer.text
        assert "north.db" not in answer.text
        assert agent.rows() == before
        assert len(before["decision"]) == handed_out
        agent.call(lambda driver: driver.fill_disk(False))
        assert http.post("/v1/decisions").status_code == 201
        assert put_reward(http, decision, '{"value": 1}').status_code == 204


def test_ready_or_why_not(tmp_path):
    with serving(tmp_path) as agent, httpx.Client(base_url=agent.url, trust_env=False) as http:
        assert http.get("/healthz").json() == {"alive": True}
        assert http.get("/readyz").json() == {"ready": True}
        agent.driver.reason = "the journal is full"
        answer = http.get("/readyz")
        assert answer.status_code == 503
        assert error_of(answer)["message"] == "the journal is full"
        assert http.get("/healthz").status_code == 200
        assert "fedbandit_ready 0.0" in http.get("/metrics").text


def test_who_reads_waits_for_a_slow_disk_and_holds_up_nobody(served, http, monkeypatch):
    """On the way to the disk is a decision: what shows it waits for it, and all else is answered meanwhile."""
    gate, begun, commit = threading.Event(), threading.Event(), SqliteJournal.commit

    def waits(journal, records):
        begun.set()
        assert gate.wait(60)
        commit(journal, records)

    paths = "/v1/state", "/v1/federation", "/v1/arms", "/v1/history", "/readyz", "/metrics"
    monkeypatch.setattr(durable_site, "SLOW", -1.0)  # each commit in the thread
    monkeypatch.setattr(DurableSite, "erase", lambda _: None)  # which waits for it, once a second
    monkeypatch.setattr(SqliteJournal, "commit", waits)
    try:
        with ThreadPoolExecutor(1 + len(paths)) as callers:
            deciding = callers.submit(httpx.post, f"{served.url}/v1/decisions", trust_env=False)
            assert begun.wait(10)
            reading = [callers.submit(httpx.get, f"{served.url}{path}", trust_env=False) for path in paths]
            for _ in range(3):
                assert http.get("/healthz", timeout=3.0).status_code == 200
                time.sleep(0.05)
            assert not any(it.done() for it in (deciding, *reading))
            gate.set()
            assert [it.result().status_code for it in (deciding, *reading)] == [201, *[200] * len(paths)]
    finally:
        gate.set()


def test_a_mistake_of_the_agent_is_500_without_its_words(tmp_path):
    with serving(tmp_path) as agent, httpx.Client(base_url=agent.url, trust_env=False) as http:
        agent.driver._random = None
        answer = http.post("/v1/decisions")
        assert answer.status_code == 500
        assert error_of(answer)["message"] == "internal error; see the agent's log"


# ---------------------------------------------------------------- who may call


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "LOCALHOST:8400", "[::1]", "[::1]:80", "127.0.0.1:1", "localhost:"]
)
def test_hosts_of_this_machine(http, host):
    assert http.get("/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "::1", "a:b", "localhost@evil", "[x]"],
)
def test_another_host_is_421(served, http, host):
    before = served.rows()
    for method, path in (("GET", "/healthz"), ("POST", "/v1/decisions"), ("GET", "/nothing")):
        answer = http.request(method, path, headers={"Host": host})
        assert answer.status_code == 421
        assert error_of(answer)["field"] == "Host"
    assert served.rows() == before


def test_beyond_this_machine_any_name_will_do_but_the_token_must_be_there(served):
    app = make_app(served.driver, {"a-token-of-some-length": Caller("all", ALL_RIGHTS)}, Door(hosts=None))
    transport = httpx.ASGITransport(app=app)

    async def ask(headers):
        async with httpx.AsyncClient(transport=transport, base_url="http://agent.example:8400") as client:
            return (await client.get("/v1/state", headers=headers)).status_code

    assert asyncio.run(ask({"Authorization": "Bearer a-token-of-some-length"})) == 200
    assert asyncio.run(ask({})) == 401
    assert asyncio.run(ask({"Authorization": "Bearer a-token-of-some-length", "Host": ""})) == 421


def test_no_host_is_421(served):
    heard, _ = raw(served, b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n")
    assert heard.startswith((b"HTTP/1.1 421 ", b"HTTP/1.1 400 "))


@pytest.mark.parametrize("name", ["Host", "Origin", "Authorization", "Content-Type", "Content-Length"])
def test_a_header_that_stands_twice_is_400(served, name):
    """Also if both say the same, and if one of them would do: who wins must not be a matter of taste."""
    before = served.rows()
    good = {"Host": "localhost", "Origin": "http://localhost", "Content-Type": "application/json"}
    sent = {"Host": "localhost"} | {name: good.get(name, "0")}
    for other in (sent[name], "evil.example"):
        if name == "Content-Length" and other != "0":
            continue  # not a number: refused by the parser
        for pair in ((sent[name], other), (other, sent[name])):
            head = "".join(f"{key}: {value}\r\n" for key, value in sent.items() if key != name)
            head += "".join(f"{name}: {value}\r\n" for value in pair)
            heard, _ = raw(served, f"POST /v1/decisions HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode())
            assert heard.startswith(b"HTTP/1.1 400 "), heard
            if name != "Content-Length":  # the parser knows that one
                assert json.loads(heard.partition(b"\r\n\r\n")[2])["error"]["field"] == name
    assert served.rows() == before


@pytest.mark.parametrize(
    "body", ['{"value": 0.5, "value": 1.0}', '{"value": 0.5, "\\u0076alue": 0.5}', '{"value": 1, "x": 1, "value": 1}']
)
def test_a_key_that_stands_twice_is_422(served, http, body):
    decision = decide(http)
    before = served.rows()
    answer = put_reward(http, decision, body)
    assert answer.status_code == 422
    assert error_of(answer)["field"] == "value"
    assert "appears twice" in error_of(answer)["message"]
    assert served.rows() == before


def test_a_page_from_elsewhere_cannot_ask_for_a_decision(served, http):
    """A browser sends such a POST without asking first, and names the page's origin."""
    before = served.rows()
    for origin in ("https://evil.example", "null", "http://localhost:1", f"http://evil.example#{served.url}"):
        answer = http.post("/v1/decisions", headers={"Origin": origin})
        assert answer.status_code == 403
        assert error_of(answer)["field"] == "Origin"
    assert served.rows() == before
    assert http.post("/v1/decisions", headers={"Origin": served.url}).status_code == 201
    assert not [name for name in http.get("/healthz").headers if name.startswith("access-control")]


def test_the_token(tmp_path):
    token = "s3cret.token-1"  # noqa: S105
    with serving(tmp_path, token) as agent, httpx.Client(base_url=agent.url, trust_env=False) as http:
        before = agent.rows()
        asked = [("POST", "/v1/decisions"), ("GET", "/v1/state"), ("GET", "/metrics"), ("GET", "/openapi.json")]
        asked += [("PUT", "/v1/decisions/1-1/reward"), ("DELETE", "/v1/excluded/east"), ("GET", "/nothing")]
        wrong = [None, "Bearer", "Bearer s3cret.token-", "Bearer s3cret.token-11", "s3cret.token-1", "Basic x", "é"]
        for method, path in asked:
            for said in wrong:
                headers = {} if said is None else {"Authorization": said.encode()}
                answer = http.request(method, path, headers=headers)
                assert answer.status_code == 401
                assert answer.headers["www-authenticate"].startswith("Bearer")
                assert error_of(answer)["code"] == "unauthorised"
                assert "s3cret" not in answer.text
        assert agent.rows() == before
        assert http.get("/healthz").status_code == http.get("/readyz").status_code == 200
        right = {"Authorization": "Bearer s3cret.token-1"}
        assert http.post("/v1/decisions", headers=right).status_code == 201
        document = http.get("/openapi.json", headers=right).json()
    assert document["paths"]["/v1/decisions"]["post"]["security"] == [{"token": ["decide"]}]
    assert "401" in document["paths"]["/metrics"]["get"]["responses"]
    assert "401" not in document["paths"]["/healthz"]["get"]["responses"]


@pytest.mark.parametrize("token", ["", "a b", "a\nb", "ü", "="])
def test_a_token_that_no_header_can_carry_is_refused(served, token):
    """At once, not with the first request; and it is not printed."""
    with pytest.raises(InvalidArgument, match=r"token must be .*hidden"):
        make_app(served.driver, {token: Caller("all", ALL_RIGHTS)})


# ---------------------------------------------------------------- state, metrics, document


def test_the_state_is_the_agents(served, http):
    served.settle()
    for _ in range(10):
        before = served.call(lambda driver: driver.state())
        answer = http.get("/v1/state")
        if before == served.call(lambda driver: driver.state()):
            break  # else its rates have changed, as they do once a second
    assert answer.status_code == 200
    assert SiteState.model_validate_json(answer.content) == before


def test_metrics_agree_with_the_state(tmp_path):
    terms = replace(TERMS, policy=FedBatch(2.0, first_batch=1))
    with serving(tmp_path, terms=terms) as agent, httpx.Client(base_url=agent.url, trust_env=False) as http:
        given = []  # unknown arms are drawn at random: it goes on until each has a reward
        while len(set(given)) < terms.num_arms:
            told = http.post("/v1/decisions").json()
            put_reward(http, told["id"], '{"value": 0.5}')
            given.append(told["arm"])
        decide(http)
        put_reward(http, "unknown", '{"value": 1}')
        agent.hear(bulletin_of("east", terms))
        agent.call(lambda driver: driver._publish())
        agent.call(lambda driver: [driver.refusals.count("certificate", "a test") for _ in range(3)])
        agent.call(lambda driver: driver.links.statuses["east"].opened(1_700_000_000.5, True))
        answer = http.get("/metrics")
        state = SiteState.model_validate_json(http.get("/v1/state").content)
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    seen = {}
    for family in families.values():
        assert family.documentation
        for sample in family.samples:
            seen[(sample.name, *sample.labels.values())] = sample.value

    assert seen[("fedbandit_decisions_total",)] == state.decisions.handed_out == len(given) + 1
    assert seen[("fedbandit_decisions_pending",)] == state.decisions.pending == 1
    assert seen[("fedbandit_decisions_remembered",)] == state.decisions.remembered == len(given) + 1
    assert seen[("fedbandit_privacy_epsilon",)] == 2.0
    assert seen[("fedbandit_ready",)] == 1.0
    assert seen[("fedbandit_warnings", "terms")] == len(state.warnings_of_terms) == 1.0  # without certificates
    assert seen[("fedbandit_warnings", "other")] == 0.0
    assert seen[("fedbandit_settled",)] == state.answer.settled
    assert seen[("fedbandit_reward_window_seconds",)] == 0.0
    assert seen[("fedbandit_refused_total", "certificate")] == 3.0
    for arm in state.arms:
        assert seen[("fedbandit_arm_pulls", arm.name)] == arm.pulls
        assert [seen[("fedbandit_arm_status", arm.name, it)] for it in ("active", "suspended", "retired")] == [1, 0, 0]
        assert seen[("fedbandit_arm_rewards_total", arm.name)] == arm.rewards > 0
        assert seen[("fedbandit_arm_releases_total", arm.name)] == arm.releases > 0
        assert seen[("fedbandit_arm_estimate", arm.name)] == arm.estimate
        assert seen[("fedbandit_arm_radius", arm.name)] == arm.radius
        assert seen[("fedbandit_arm_own_mean", arm.name)] == arm.own_mean
        assert seen[("fedbandit_arm_weight", arm.name)] == arm.weight
    for link in state.neighbours:
        assert seen[("fedbandit_neighbour_received_total", link.name)] == link.received
        assert seen[("fedbandit_neighbour_sent_total", link.name)] == link.sent
        assert seen[("fedbandit_neighbour_failures_total", link.name)] == link.failures
        assert seen[("fedbandit_neighbour_refusals_total", link.name)] == link.refusals
        assert seen[("fedbandit_neighbour_reachable", link.name)] == link.reachable
    assert [it.name for it in state.members] == ["east", "north"]
    assert seen[("fedbandit_members_counted",)] == state.federation.num_agents == 2
    for it in state.members:
        assert seen[("fedbandit_member_counts", it.name)] == it.counts == 1.0
        assert seen[("fedbandit_member_conflict", it.name)] == 0.0
        assert seen[("fedbandit_member_oddities", it.name)] == len(it.oddities)
        assert seen[("fedbandit_member_share_ratio", it.name)] == it.share
        assert seen[("fedbandit_member_bulletin_timestamp_seconds", it.name)] == it.since
    last = "fedbandit_neighbour_last_heard_timestamp_seconds"
    assert seen[(last, "east")] == 1_700_000_000.5
    assert (last, "south") not in seen
    info = families["fedbandit_agent_info"].samples[0].labels
    assert info["federation_digest"] == state.federation.digest
    assert info["version"] == state.version
    assert seen[("fedbandit_decide_duration_seconds_count",)] == len(given) + 1
    assert seen[("fedbandit_reward_duration_seconds_count",)] == len(given) + 1  # the refused one took its time too
    assert seen[("process_open_fds",)] > 0


def test_an_unknown_arm_has_no_estimate(tmp_path):
    with serving(tmp_path) as agent:
        text = httpx.get(f"{agent.url}/metrics", trust_env=False).text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert [len(families[f"fedbandit_arm_{name}"].samples) for name in ("estimate", "radius", "pulls")] == [0, 0, 3]


def test_the_document(http):
    document = http.get("/openapi.json").json()
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    names = {operation["operationId"] for operation in operations}
    assert names == {
        "decide",
        "decision",
        "cancel",
        "reward",
        "rewards",
        "log",
        "federation",
        "arms",
        "change_arm",
        "accept_arm",
        "member",
        "exclude",
        "include",
        "confirm",
        "restore",
        "state",
        "history",
        "evidence",
        "evidence_table",
        "audit_log",
        "events",
        "session",
        "sign_in",
        "sign_out",
        "healthz",
        "readyz",
        "metrics",
    }
    for operation in operations:
        assert operation["summary"]
        assert {"403", "405", "413", "421", "500"} <= set(operation["responses"])
        for status, answer in operation["responses"].items():
            assert answer["description"]
            if status >= "4":
                reference = answer["content"]["application/json"]["schema"]["$ref"]
                assert reference == "#/components/schemas/ErrorBody"
    body = document["paths"]["/v1/decisions/{decision_id}/reward"]["put"]["requestBody"]
    value = body["content"]["application/json"]["schema"]["properties"]["value"]
    assert (value["minimum"], value["maximum"]) == (0.0, 1.0)


def is_for_people(body):
    """A schema cannot say which characters can be printed."""
    reason = body.get("reason", "") if isinstance(body, dict) else ""
    return not isinstance(reason, str) or reason == "" or (reason.isprintable() and reason.strip() != "")


@pytest.mark.parametrize(
    ("token", "examples"),
    [("t0ken", 20), *(pytest.param(it, 50, marks=pytest.mark.slow) for it in ("t0ken", None))],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_server_is_what_the_document_says(tmp_path, token, examples):
    """schemathesis, with all its checks: valid and invalid requests to every operation."""
    import schemathesis
    from schemathesis.specs.openapi.checks import use_after_free

    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    some = settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    with serving(tmp_path, token=token) as agent:
        schema = schemathesis.openapi.from_url(f"{agent.url}/openapi.json", headers=headers)
        schema = schema.exclude(path="/v1/events")  # it never ends: see test_events.py
        tried = set()
        for found in schema.get_all_operations():
            operation = found.ok()
            for mode in schemathesis.GenerationMode:
                if mode is schemathesis.GenerationMode.NEGATIVE and "requestBody" not in operation.definition.raw:
                    continue  # any text is a name: without a body nothing can be invalid
                cases = operation.as_strategy(generation_mode=mode)

                @some
                @given(case=cases)
                def call(case):
                    assume(is_for_people(case.body))
                    tried.add((case.operation.label, case.call_and_validate(headers=headers).status_code))

                call()

        class Machine(schema.as_state_machine()):
            def get_call_kwargs(self, case):
                return {"headers": headers}

            def validate_response(self, response, case, **_):
                others = {"excluded_checks": [use_after_free]}  # a cancelled decision can still be looked at
                case.validate_response(response, recorder=self.recorder, **others)

        Machine.run(settings=settings(some, max_examples=20, stateful_step_count=8))
        assert any(row[6] for row in agent.rows()["decision"])  # it followed the link to the reward
    assert {("POST /v1/decisions", status) for status in (201, 422)} <= tried
    assert {("PUT /v1/decisions/{decision_id}/reward", status) for status in (404, 422)} <= tried
    assert {("PUT /v1/excluded/{name}", 404), ("GET /v1/state", 200), ("GET /metrics", 200)} <= tried


def test_the_api_is_light():
    """An agent's process stays small: no NumPy, no engine, no client."""
    code = (
        "import sys\n"
        "import fedbandit.agent.http.api\n"
        "heavy = {'numba', 'numpy', 'opendp', 'networkx', 'xarray', 'matplotlib', 'aiohttp', 'fedbandit.simulation'}\n"
        "print(*sorted(heavy & set(sys.modules)))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == ""


def test_no_telemetry_leaves_the_agent(tmp_path):
    """The framework hands spans to whatever provider the process has; ours must not, even if one is there."""
    code = (
        "import sys, httpx\n"
        "from pathlib import Path\n"
        "from opentelemetry import trace\n"
        "heard = []\n"
        "class Tracer(trace.NoOpTracer):\n"
        "    def start_span(self, name, *_, **__):\n"
        "        heard.append(name)\n"
        "        return trace.INVALID_SPAN\n"
        "class Provider(trace.TracerProvider):\n"
        "    def get_tracer(self, *_, **__):\n"
        "        return Tracer()\n"
        "trace.set_tracer_provider(Provider())\n"
        "from live import serving\n"
        "with serving(Path(sys.argv[1])) as agent:\n"
        "    assert httpx.post(f'{agent.url}/v1/decisions', trust_env=False).status_code == 201\n"
        "trace.get_tracer_provider().get_tracer('x').start_span('the provider is heard')\n"
        "print(*heard, sep=', ')\n"
    )
    folder = Path(__file__).parent
    command = [sys.executable, "-c", f"import sys\nsys.path.insert(0, {str(folder)!r})\n{code}", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "the provider is heard"
