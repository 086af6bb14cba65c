"""A call ends by its deadline, whatever the agent does: real sockets that hang, drip, reset or never answer."""

import socket
import threading
import time
from contextlib import ExitStack, contextmanager, suppress

import pytest

from fedbandit import Client, InvalidArgument
from fedbandit.agent import client as module
from test_client import both, free_port

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n"


@contextmanager
def server(behave):
    """A server that lets each connection be handled by ``behave(connection, stop)``, in a thread."""
    stop, threads = threading.Event(), []
    with socket.create_server(("127.0.0.1", 0)) as door:
        door.settimeout(0.05)

        def handle(connection):
            with connection, suppress(OSError):  # the client is gone
                behave(connection, stop)

        def accept():
            while not stop.is_set():
                try:
                    connection, _ = door.accept()
                except TimeoutError:
                    continue
                threads.append(threading.Thread(target=handle, args=(connection,)))
                threads[-1].start()

        threads.append(threading.Thread(target=accept))
        threads[0].start()
        try:
            yield f"http://127.0.0.1:{door.getsockname()[1]}"
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def hang(connection, stop):
    connection.recv(65536)
    stop.wait(60)


def drip_body(connection, stop):
    connection.recv(65536)
    connection.sendall(HEAD)
    while not stop.wait(0.05):
        connection.sendall(b" ")


def drip_head(connection, stop):
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
    while not stop.wait(0.05):
        connection.sendall(b"x")


def reset(connection, stop):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


CALLS = {
    "decide": lambda client: client.decide(),
    "reward": lambda client: client.reward("1-1", 0.5),
    "restore": lambda client: client.restore("a backup"),
}

# Seconds beside the deadline: others work on this machine.
MARGIN = 2.0


def ends(client, call, deadline):
    began = time.monotonic()
    with pytest.raises(module.Unreachable, match=r"no answer from http://127\.0\.0\.1"):
        call(client)
    assert time.monotonic() - began < deadline + MARGIN


@both
@pytest.mark.parametrize("behave", [hang, drip_body, drip_head, reset])
def test_a_call_ends_by_its_deadline(kind, behave):
    with server(behave) as url:
        for name in ("decide", "reward"):
            with kind(url, timeout=0.2, deadline=0.5, retries=15) as client:
                ends(client, CALLS[name], 0.5)


@both
def test_an_attempt_ends_by_its_timeout(kind):
    """Also one that is not repeated, on a connection that drips; the deadline is far away."""
    with server(drip_head) as url, kind(url, timeout=0.3, deadline=60.0) as client:
        ends(client, CALLS["restore"], 0.3)


@both
@pytest.mark.parametrize("call", ["decide", pytest.param("reward", marks=pytest.mark.slow)])
def test_by_default_a_web_page_waits_two_seconds(kind, call):
    with server(hang) as url, kind(url) as client:
        ends(client, CALLS[call], 2.0)


@both
def test_nobody_accepts_the_connection(kind):
    """A listener whose queue is full: packets are dropped, and a connection is never made."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        try:
            for one in waiting:
                one.setblocking(False)
                one.connect_ex(address)
            with kind(f"http://127.0.0.1:{address[1]}", timeout=0.2, deadline=0.5) as client:
                ends(client, CALLS["decide"], 0.5)
        finally:
            for one in waiting:
                one.close()


@both
def test_nobody_listens(kind):
    """All attempts fail at once; no pause begins that would end after the deadline."""
    with kind(f"http://127.0.0.1:{free_port()}", deadline=0.4, retries=15) as client:
        began = time.monotonic()
        with pytest.raises(module.Unreachable, match="refused"):
            client.decide()
        assert time.monotonic() - began < 0.4 + MARGIN


@both
def test_after_a_call_that_was_given_up_the_next_one_is_heard(kind):
    """And gets its own answer: the connection of the first is not used again."""
    answers = iter([b"", b'{"id": "1-2", "arm": 0, "name": "a"}'])

    def slow_then_fast(connection, stop):
        connection.recv(65536)
        body = next(answers)
        if not body:
            stop.wait(1.0)
            body = b'{"id": "1-1", "arm": 0, "name": "a"}'
        connection.sendall(b"HTTP/1.1 201 X\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    with server(slow_then_fast) as url, kind(url, timeout=0.2, deadline=5.0, retries=0) as client:
        with pytest.raises(module.Unreachable):
            client.decide()
        assert client.decide().id == "1-2"


def test_threads_have_deadlines_of_their_own():
    """A call that hangs in one thread takes nothing from another's."""
    with server(hang) as url, Client(url, timeout=0.5, deadline=0.5) as client:
        took = []

        def call():
            began = time.monotonic()
            with pytest.raises(module.Unreachable):
                client.decide()
            took.append(time.monotonic() - began)

        threads = [threading.Thread(target=call) for _ in range(8)]
        for thread in threads:
            thread.start()
            time.sleep(0.05)
        for thread in threads:
            thread.join()
    assert len(took) == 8
    assert all(0.45 < seconds < 0.5 + MARGIN for seconds in took)


# ---------------------------------------------------------------- names and addresses


@pytest.fixture
def addresses(monkeypatch):
    """Lets the name ``agent.example`` have these addresses."""
    usual, known = socket.getaddrinfo, []

    def found(host, port, *more, **named):
        if host not in ("agent.example", b"agent.example"):
            return usual(host, port, *more, **named)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (it, port)) for it in known]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    return known


@both
def test_a_host_with_several_addresses_has_one_deadline(kind, addresses):
    """None of them ever accepts: each is tried within what is left of the attempt."""
    addresses += [f"127.0.0.{k}" for k in range(2, 6)]
    with ExitStack() as stack:
        port = free_port()
        for address in addresses:
            full = stack.enter_context(socket.socket())
            full.bind((address, port))
            full.listen(0)
            for _ in range(4):
                one = stack.enter_context(socket.socket())
                one.setblocking(False)
                one.connect_ex((address, port))
        client = stack.enter_context(kind(f"http://agent.example:{port}", timeout=1.0, deadline=1.0, retries=0))
        began = time.monotonic()
        with pytest.raises(module.Unreachable, match="timed out"):
            client.decide()
        assert time.monotonic() - began < 1.0 + MARGIN, "three more attempts would take longer"


@both
def test_the_address_that_answers_is_used(kind, addresses):
    addresses += ["127.0.0.2", "127.0.0.1"]

    def decide(connection, stop):
        connection.recv(65536)
        body = b'{"id": "1-2", "arm": 0, "name": "a"}'
        connection.sendall(b"HTTP/1.1 201 X\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    with server(decide) as url:
        port = url.rpartition(":")[2]
        with kind(f"http://agent.example:{port}", timeout=5.0, deadline=5.0, retries=0) as client:
            assert client.decide().id == "1-2"


@both
def test_a_name_server_that_hangs_does_not_prolong_a_call(kind, monkeypatch):
    """Nobody can interrupt a system's lookup: it is left behind."""
    release = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: release.wait(20) and [])
    client = kind("http://agent.example:1", timeout=0.3, deadline=0.3)
    try:
        began = time.monotonic()
        with pytest.raises(module.Unreachable, match="timed out"):
            client.decide()
        assert time.monotonic() - began < 0.3 + MARGIN
    finally:
        release.set()
        client.close()


@pytest.mark.parametrize(
    "wrong",
    [{"timeout": 0.0}, {"timeout": "1"}, {"deadline": -1.0}, {"deadline": None}, {"retries": -1}, {"retries": 1.5}],
)
def test_a_bad_limit_is_named(wrong):
    (name,) = wrong
    with pytest.raises(InvalidArgument, match=f"{name} must be"):
        Client("http://127.0.0.1:1", **wrong)
