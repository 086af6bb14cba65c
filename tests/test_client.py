"""The client, against a real server; and against one that breaks off, refuses or is not an agent."""

import asyncio
import inspect
import json
import os
import re
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

import fedbandit
from fedbandit import AgentError, AsyncClient, Client, InvalidArgument
from fedbandit.agent import client as module
from fedbandit.agent.http.state import SiteState
from live import TERMS, bulletin_of, serving

TOKEN = "t0ken"  # noqa: S105


class Blocking:
    """The asyncio client, called like the other one."""

    def __init__(self, *arguments, **named):
        self._runner = asyncio.Runner()
        self._client = AsyncClient(*arguments, **named)

    def __getattr__(self, name):
        return lambda *arguments, **named: self._runner.run(getattr(self._client, name)(*arguments, **named))

    def log(self, after=0):
        async def lines():
            return [line async for line in self._client.log(after)]

        return self._runner.run(lines())

    def __enter__(self):
        self._runner.run(self._client.__aenter__())
        return self

    def __exit__(self, *error):
        self._runner.run(self._client.__aexit__(*error))
        self._runner.close()

    def close(self):
        self._runner.run(self._client.close())
        self._runner.close()  # else a loop is left open, and the test that runs when it is collected fails


both = pytest.mark.parametrize("kind", [Client, Blocking], ids=["blocking", "asyncio"])


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("agent")) as agent:
        yield agent


@both
def test_the_host_of_an_ipv6_address_has_its_brackets(kind):
    """An agent refuses a name that is not its own: ``::1:8400`` is none."""
    heard = []
    try:
        door = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with door:

        def answer():
            connection, _ = door.accept()
            with connection:
                heard.append(connection.recv(65536))

        threading.Thread(target=answer, daemon=True).start()
        port = door.getsockname()[1]
        with kind(f"http://[::1]:{port}", timeout=5.0, retries=0) as client, pytest.raises(AgentError):
            client.state()
    assert f"host: [::1]:{port}\r\n".encode() in heard[0].lower()


@both
def test_decide_reward_state(served, kind):
    with kind(served.url) as client:
        before = client.state().decisions.handed_out
        decision = client.decide()
        assert decision.name == TERMS.arms[decision.arm]
        client.reward(decision, 1.0)
        client.reward(decision.id, 1)  # the same again
        state = client.state()
    assert isinstance(state, SiteState)
    assert state == served.call(lambda driver: driver.state())
    assert state.decisions.handed_out == before + 1
    assert served.rewards()[decision.id] == 1.0
    with pytest.raises(AttributeError):
        decision.arm = 0


@both
def test_members(served, kind):
    served.hear(bulletin_of("east"))
    with kind(served.url) as client:
        client.exclude("east", "wrong")
        client.exclude("east", "once more")
        with pytest.raises(module.UnknownMember, match="name must be one of"):
            client.exclude("west", "wrong")
        with pytest.raises(module.UnknownMember):
            client.exclude("b?c#d é", "wrong")
        assert [(it.counts, it.excluded) for it in client.state().members if it.name == "east"] == [(False, True)]
        client.include("east")
        client.include("east")
        assert client.member("east").name == "east"
        with pytest.raises(module.UnknownMember, match="no bulletin of this site is here"):
            client.member("west")


@both
def test_errors_say_what_the_agent_says(served, kind):
    with kind(served.url) as client:
        decision = client.decide()
        client.reward(decision, 0.5)
        before = served.rows()
        assert client.reward(decision, 0.25) is True, "the first counts"
        with pytest.raises(module.UnknownDecision, match="no decision has the id '1-77'") as unknown:
            client.reward("1-77", 0.5)
        assert unknown.value.code == "unknown_decision"
        with pytest.raises(module.UnknownDecision):
            client.reward("b?c#d é", 0.5)
        with pytest.raises(AgentError, match="there is nothing at"):
            client.reward("a/b", 0.5)
        waiting = client.decide()
        with pytest.raises(module.InvalidRequest, match="value must be a number from 0 to 1, not 2") as refused:
            client.reward(waiting, 2)
        said = refused.value
        assert (said.code, said.field, said.accepted) == ("invalid", "value", "a number from 0 to 1")
    assert served.rows()["known"] == before["known"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "1", None, True])
def test_what_is_no_number_is_not_sent(served, value):
    with Client(served.url) as client, pytest.raises(module.InvalidRequest, match="value must be a finite number"):
        client.reward("1-1", value)


@pytest.mark.parametrize("url", ["127.0.0.1:8400", "ftp://x", "", None, "http://u:p@127.0.0.1:1"])
def test_a_bad_address(url):
    with pytest.raises(InvalidArgument, match="url must be an address such as"):
        Client(url)


@both
def test_the_token(tmp_path, kind):
    with serving(tmp_path, token=TOKEN) as agent:
        with kind(agent.url, token=TOKEN) as client:
            client.reward(client.decide(), 1.0)
        for wrong in (None, "other"):
            with kind(agent.url, token=wrong) as client, pytest.raises(module.Unauthorised, match="token"):
                client.decide()
        assert len(agent.rows()["decision"]) == 1


def test_every_error_is_an_agent_error():
    kinds = [kind for _, kind in inspect.getmembers(module, inspect.isclass) if issubclass(kind, Exception)]
    own = {kind for kind in kinds if kind.__module__.startswith("fedbandit.agent")}
    assert {kind.__name__ for kind in own} <= set(module.__all__)
    assert len(own) == 13
    assert all(issubclass(kind, AgentError) for kind in own)


# ---------------------------------------------------------------- faults


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@both
def test_nobody_there(kind):
    url = f"http://127.0.0.1:{free_port()}"
    with kind(url) as client:
        for call in (client.decide, client.state, lambda: client.reward("1-1", 0.5)):
            with pytest.raises(module.Unreachable, match=f"no answer from {url}"):
                call()


@both
def test_an_agent_that_is_starting_is_waited_for(tmp_path, kind):
    """Nobody listens for a third of a second: who is patient asks again until somebody does."""
    port, box = free_port(), {}
    stop = threading.Event()

    def later():
        stop.wait(0.3)
        with serving(tmp_path, port=port) as agent:
            stop.wait(10)
            box.update(agent.rewards())

    thread = threading.Thread(target=later)
    thread.start()
    try:
        with kind(f"http://127.0.0.1:{port}", deadline=20.0, retries=100) as client:
            client.reward(client.decide(), 1.0)
    finally:
        stop.set()
        thread.join()
    assert [*box.values()] == [1.0]


def whole_request(connection):
    """Head and body, which may come apart."""
    said = b""
    while True:
        said += connection.recv(65536)
        head, end, body = said.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        if end and len(body) >= (int(length[1]) if length else 0):
            return said


@contextmanager
def scripted(*answers):
    """A server that says one thing per connection: bytes, or nothing (it breaks off). Yields address and requests."""
    heard, stop = [], threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)

        def run():
            left = list(answers)
            while left and not stop.is_set():
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    continue
                with connection:
                    heard.append(whole_request(connection))
                    connection.sendall(left.pop(0))

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}", heard
        finally:
            stop.set()
            thread.join()  # before the socket is closed, or it wakes up in another test


def answer(status, body=b""):
    head = f"HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


BUSY = answer(503, b'{"error": {"code": "unavailable", "message": "disk full", "field": null, "accepted": null}}')
HANDED_OUT = answer(201, b'{"id": "1-1", "arm": 0, "name": "none"}')


@both
@pytest.mark.parametrize("first", [b"", BUSY], ids=["broken off", "503"])
def test_a_reward_is_reported_again(kind, first):
    with scripted(first, first, answer(204)) as (url, heard), kind(url) as client:
        client.reward("1-1", 0.5)
    assert len(heard) == 3
    assert all(b"PUT /v1/decisions/1-1/reward" in request for request in heard)


def body_of(request):
    return json.loads(request.partition(b"\r\n\r\n")[2])


@both
@pytest.mark.parametrize("first", [b"", BUSY], ids=["broken off", "503"])
def test_a_decision_is_asked_for_again_with_its_key(kind, first):
    """Whether or not the first request has handed one out, there is one. Another call has another key."""
    with scripted(first, first, HANDED_OUT, HANDED_OUT) as (url, heard), kind(url) as client:
        assert client.decide().id == "1-1"
        client.decide()
    keys = [body_of(request)["key"] for request in heard]
    assert len(keys) == 4
    assert keys[0] == keys[1] == keys[2] != keys[3]
    assert all(len(key) == 32 for key in keys)


@both
def test_a_new_incarnation_that_may_have_begun_is_not_asked_for_again(kind):
    with scripted(b"", answer(200, b"{}")) as (url, heard), kind(url) as client:
        with pytest.raises(module.Unreachable):
            client.restore("a backup")
        assert len(heard) == 1


@both
@pytest.mark.parametrize("retries", [0, 2])
def test_a_reward_is_given_up_after_some_attempts(kind, retries):
    with scripted(*[BUSY] * 9) as (url, heard), kind(url, deadline=20.0, retries=retries) as client:
        with pytest.raises(module.Unavailable, match="disk full") as refused:
            client.reward("1-1", 0.5)
        assert len(heard) == 1 + retries
    assert (refused.value.code, refused.value.field, refused.value.accepted) == ("unavailable", None, None)


@both
@pytest.mark.parametrize(
    "said", [answer(200, b"<html>"), answer(201, b'{"id": 1}'), answer(404, b"<html>"), answer(500, b'{"error": 1}')]
)
def test_somebody_else_at_this_address(kind, said):
    expected = pytest.raises(AgentError, match="does not answer like an agent")
    with scripted(said) as (url, _), kind(url) as client, expected:
        client.decide()


def test_no_proxy_is_asked(served, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with Client(served.url) as client:
        assert client.state().name == "north"


# ---------------------------------------------------------------- what it needs


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_it_is_light():
    code = (
        "import sys, fedbandit\n"
        "fedbandit.Client, fedbandit.AsyncClient, fedbandit.AgentError\n"
        "heavy = {'fastapi', 'starlette', 'uvicorn', 'websockets', 'prometheus_client', 'numpy', 'numba', 'sqlite3'}\n"
        "print(*sorted(heavy & set(sys.modules)))\n"
    )
    assert run_python(code) == ""


def test_a_client_that_nobody_closes_says_nothing(served):
    """Neither when it is dropped, nor when Python ends."""
    code = (
        "import gc, sys, fedbandit\n"
        f"dropped, kept = (fedbandit.Client({served.url!r}, timeout=10.0) for _ in range(2))\n"
        "dropped.ready(), kept.ready(), next(kept.log(), None)\n"
        "unread = kept.log()\n"
        "next(unread, None)\n"
        "del dropped\n"
        "gc.collect()\n"
    )
    ran = subprocess.run([sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_a_forked_process_has_connections_of_its_own(served):
    """As web servers fork their workers, perhaps after the first call."""
    with Client(served.url, timeout=10.0, deadline=10.0) as client:
        client.ready()
        child = os.fork()
        if child == 0:
            try:
                client.ready()
                os._exit(7)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        client.ready()


def test_the_public_names():
    assert {"AgentError", "AsyncClient", "Client"} <= set(fedbandit.__all__)
    calls = {name for name in vars(Client) if not name.startswith("_")}
    assert calls == {name for name in vars(AsyncClient) if not name.startswith("_")}
