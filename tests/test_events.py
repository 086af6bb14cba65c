"""The agent's page over HTTP: its files and their headers, streams of events, the history, rights; what they cost."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
import zipfile
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbandit.agent.core.decisions import Retention, SiteDraws
from fedbandit.agent.core.records import Numbering, Stored
from fedbandit.agent.core.site import Site
from fedbandit.agent.http import events, server
from fedbandit.agent.http.bodies import HttpError
from fedbandit.agent.http.past import History, Past, Rates
from fedbandit.agent.http.server import PAGE, PAGE_HEADERS
from fedbandit.agent.http.snapshot import point_of, site_state
from fedbandit.agent.http.state import HistoryPoint, SiteState
from fedbandit.agent.process.rights import ROLES
from fedbandit.checks import InvalidArgument
from fedbandit.local.up import OWN
from live import TERMS, serving
from processes import lines, running

TOKENS = {f"token-of-the-{role}": rights for role, rights in ROLES.items()}


@pytest.fixture
def served(tmp_path):
    with serving(tmp_path) as agent:
        yield agent


@pytest.fixture
def http(served):
    with httpx.Client(base_url=served.url, trust_env=False) as client:
        yield client


class Reader:
    """Reads a stream of events."""

    def __init__(self, answer):
        self.status_code, self.headers, self._lines = answer.status_code, answer.headers, answer.iter_lines()

    def next(self, kind=None):
        """The next event (of a kind): its name and its data."""
        event = None
        for line in self._lines:
            if line.startswith("event: "):
                event = line.removeprefix("event: ")
            elif line.startswith("data: ") and kind in (None, event):
                return event, json.loads(line.removeprefix("data: "))
        return None, None


@contextmanager
def reading(url, token=None, timeout=10.0):
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    with (
        httpx.Client(base_url=url, trust_env=False, timeout=timeout) as client,
        client.stream("GET", "/v1/events", headers=headers) as answer,
    ):
        yield Reader(answer)


def play(http, number, value=0.5):
    for _ in range(number):
        name = http.post("/v1/decisions").json()["id"]
        assert http.put(f"/v1/decisions/{name}/reward", json={"value": value}).status_code == 204


def eventually(holds, within=30.0):
    until = time.monotonic() + within
    while not (found := holds()):
        assert time.monotonic() < until
        time.sleep(0.01)
    return found


# ---------------------------------------------------------------- files


def has_page_headers(answer):
    return all(answer.headers.get(name) == value for name, value in PAGE_HEADERS.items())


def test_every_file_is_served_with_a_strict_policy(http):
    assert "index.html" in PAGE
    for path, file in {"/": PAGE["index.html"], **{f"/page/{name}": file for name, file in PAGE.items()}}.items():
        answer = http.get(path)
        assert (answer.status_code, answer.content) == (200, file.content)
        assert has_page_headers(answer), path
        assert answer.headers["content-type"] == file.media_type
        assert answer.headers["cache-control"] == "no-cache"
        head = http.head(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == str(len(file.content))
        assert has_page_headers(head)
        again = http.get(path, headers={"If-None-Match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert has_page_headers(again)
        assert http.get(path, headers={"If-None-Match": '"other"'}).status_code == 200


def test_the_policy_allows_this_agent_and_nothing_else():
    rules = dict(rule.strip().split(" ", 1) for rule in PAGE_HEADERS["Content-Security-Policy"].split(";"))
    assert rules.pop("default-src") == "'none'"
    assert set(rules.values()) == {"'self'", "'none'"}, "no inline script, no eval, no other server"
    assert rules["frame-ancestors"] == rules["form-action"] == rules["base-uri"] == "'none'"


def raw_status(port, path):
    with socket.create_connection(("127.0.0.1", port), timeout=5) as line:
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while part := line.recv(65536):
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), head.decode().lower(), body


@pytest.mark.parametrize(
    "name",
    [
        "",
        "nothing.js",
        "../page_files.py",
        "../../../../../../etc/passwd",
        "%2e%2e/page_files.py",
        "..%2fpage_files.py",
        "%2fetc%2fpasswd",
        "/etc/passwd",
        "index.html/",
        "./index.html",
        "index.html%00",
        "INDEX.HTML",
        "..\\page_files.py",
    ],
)
def test_only_listed_names_are_found(served, name):
    status, head, body = raw_status(served.port, f"/page/{name}")
    assert status == 404
    assert json.loads(body)["error"]["code"] == "not_found"
    assert "content-security-policy: default-src 'none'" in head, "errors have it, too"


def test_other_ends_of_names_are_not_listed(tmp_path):
    for name in ("a.js", "b.py", "c", "d.css", "deep/e.svg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    assert set(server.files_in(tmp_path)) == {"a.js", "d.css", "deep/e.svg"}


def test_files_need_no_token_but_the_host_must_be_ours(tmp_path):
    with serving(tmp_path, tokens=TOKENS) as agent, httpx.Client(base_url=agent.url, trust_env=False) as http:
        assert http.get("/").status_code == 200
        assert http.get("/page/index.html").status_code == 200
        assert http.get("/", headers={"Host": "evil.example"}).status_code == 421
        assert http.get("/", headers={"Origin": "http://evil.example"}).status_code == 403
        assert http.post("/").status_code == 405
        for path in ("/v1/events", "/v1/history", "/v1/session", "/v1/state", "/pages", "/page"):
            assert http.get(path).status_code == 401, path


BROWSER = {
    "a link": {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
    "a link of a neighbour on this machine": {
        **{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    },
    "a frame": {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    "an image": {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
    "a script": {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"},
}


def test_pages_of_others_may_open_the_page_and_nothing_else(served, http):
    """A frame or a link sends no Origin, and could take all streams of an agent without tokens."""
    for who, headers in BROWSER.items():
        for path in ("/", "/page/page.js", "/v1/events", "/v1/state", "/metrics", "/healthz", "/nothing"):
            answer = http.get(path, headers=headers)
            assert has_page_headers(answer), path
            if path == "/" and who.startswith("a link"):
                assert answer.status_code == 200
            else:
                assert (answer.status_code, answer.json()["error"]["code"]) == (403, "wrong_origin"), (who, path)
        assert http.post("/", headers=headers).status_code == 403
    for site in ("none", "same-origin"):
        assert http.get("/page/page.js", headers={"Sec-Fetch-Site": site}).status_code == 200
        assert http.get("/v1/state", headers={"Sec-Fetch-Site": site}).status_code == 200
    twice = [("Sec-Fetch-Site", "none"), ("Sec-Fetch-Site", "cross-site")]
    assert http.get("/v1/state", headers=twice).status_code == 400
    assert served.driver.feed.num_streams == 0


def test_every_answer_has_the_strict_headers(served, http):
    """Also that of a fault, which nothing but the server sees."""
    paths = ("/v1/state", "/v1/log", "/metrics", "/healthz", "/openapi.json", "/nothing", "/page/nothing")
    answers = [*map(http.get, paths), http.post("/v1/decisions")]
    served.driver.decide = None
    answers.append(http.post("/v1/decisions"))
    assert answers[-1].status_code == 500
    for answer in answers:
        assert has_page_headers(answer), answer.url
        assert answer.headers.get_list("cache-control") == ["no-store"], answer.url


def test_the_wheel_has_the_page(tmp_path):
    """Hatch packs what git does not ignore."""
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path]
    subprocess.run(command, cwd=root, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        for folder, page in (("agent/http", PAGE), ("local", OWN)):
            assert "index.html" in page
            for name, file in page.items():
                assert files.read(f"fedbandit/{folder}/page/{name}") == file.content


# ---------------------------------------------------------------- rights


def test_each_role_sees_its_rights_and_may_watch(tmp_path):
    with serving(tmp_path, tokens=TOKENS) as agent, httpx.Client(base_url=agent.url, trust_env=False) as http:
        for role, rights in ROLES.items():
            token = f"token-of-the-{role}"
            headers = {"Authorization": f"Bearer {token}"}
            assert http.get("/v1/session", headers=headers).json()["rights"] == sorted(rights)
            assert http.get("/v1/history", headers=headers).status_code == 200
            with reading(agent.url, token) as reader:
                assert reader.next()[0] == "state"


def test_without_the_right_to_view_nobody_watches(tmp_path):
    tokens = {"of-a-reporter": frozenset({"decide", "report"})}
    with serving(tmp_path, tokens=tokens) as agent, httpx.Client(base_url=agent.url, trust_env=False) as http:
        for path in ("/v1/events", "/v1/history"):
            answer = http.get(path, headers={"Authorization": "Bearer of-a-reporter"})
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")


# ---------------------------------------------------------------- streams


def test_a_stream_tells_the_state_at_once_and_what_changes(served, http):
    with reading(served.url) as reader:
        assert reader.headers["content-type"].startswith("text/event-stream")
        assert reader.headers["cache-control"] == "no-store"
        event, first = reader.next()
        assert event == "state"
        assert SiteState.model_validate(first).decisions.handed_out == 0
        play(http, 5)
        while reader.next("state")[1]["decisions"]["handed_out"] < 5:
            pass
        point = reader.next("point")[1]
        assert point["decisions"] <= 5
        seen = http.get("/v1/history").json()
        assert point in seen["points"]
        assert seen["arms"] == list(TERMS.arms)


def test_a_stream_tells_of_each_bulletin(served):
    with reading(served.url) as reader:
        reader.next("state")
        served.call(lambda driver: driver._noted("east", time.time(), True, "south"))
        told = reader.next("bulletin")[1]
        assert told.pop("at") == pytest.approx(time.time(), abs=60.0)
        assert told == {"neighbour": "east", "sent": True, "site": "south"}


def test_states_come_at_most_twice_a_second(served, http):
    with reading(served.url) as reader:
        times, until = [], time.monotonic() + 2.5
        while time.monotonic() < until:
            play(http, 1)
            reader.next("state")
            times.append(time.monotonic())
    assert 2 <= len(times) <= 2.5 / events.EVERY + 3


def test_the_17th_stream_is_refused_in_words_and_a_place_is_free_again(served, http):
    lines = []
    try:
        for _ in range(events.MAX_STREAMS):
            line = socket.create_connection(("127.0.0.1", served.port), timeout=5)
            line.sendall(b"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert b"200 OK" in line.recv(4096)
            lines.append(line)
        refused = http.get("/v1/events")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "busy")
        assert "16 streams are open" in refused.json()["error"]["message"]
        play(http, 3)  # decisions go on
        lines.pop().close()  # one vanishes
        eventually(lambda: served.driver.feed.num_streams == events.MAX_STREAMS - 1)
        with reading(served.url) as reader:
            assert reader.next()[0] == "state"
    finally:
        for line in lines:
            line.close()
    eventually(lambda: served.driver.feed.num_streams == 0)


def test_a_reader_that_does_not_read_holds_little_and_is_dropped(served, http, monkeypatch):
    monkeypatch.setattr(events, "STALLED", 1.0)
    monkeypatch.setattr(events, "EVERY", 0.001)
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.connect(("127.0.0.1", served.port))
        line.sendall(b"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        (stream,) = eventually(lambda: served.driver.feed._streams)
        big = b"x" * 2**20

        def flood(driver):
            for k in range(50):
                stream.put_state(b"event: state\ndata: %d%s\n\n" % (k, big))
                stream.put_point(b"event: point\ndata: {}\n\n")
                driver.feed.bulletin("east", 0.0, True, "south")
            return stream.waiting

        most = 2 + events.POINTS_WAITING + events.BULLETINS_PER_SECOND
        assert served.call(flood) <= most
        for _ in range(5):
            time.sleep(0.05)
            assert served.call(flood) <= most
        play(http, 3)
        eventually(lambda: served.driver.feed.num_streams == 0)


def test_readers_of_small_states_that_do_not_read_are_dropped_soon(served, monkeypatch):
    """Small states must not vanish for hours in buffers of the system: it takes megabytes if nobody forbids it.

    An agent that sends 10 kB a second has filled this room after 25 s, and then waits for ``STALLED``.
    """
    monkeypatch.setattr(events, "STALLED", 0.5)
    room, size = 250_000, 5_000
    lines = [socket.create_connection(("127.0.0.1", served.port), timeout=5) for _ in range(events.MAX_STREAMS)]
    try:
        for line in lines:
            line.sendall(b"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        eventually(lambda: served.driver.feed.num_streams == events.MAX_STREAMS)
        streams = set(served.driver.feed._streams)

        def send(number):
            for stream in streams:
                stream.put_state(b"event: state\ndata: %d %s\n\n" % (number, b"x" * size))

        for k in range(room // size):
            served.call(lambda _, k=k: send(k))
            time.sleep(0.005)
        eventually(lambda: served.driver.feed.num_streams == 0)
    finally:
        for line in lines:
            line.close()


def test_a_full_disk_is_told_and_the_stream_goes_on(served, http, monkeypatch):
    with reading(served.url) as reader:
        reader.next("state")
        monkeypatch.setattr(
            "fedbandit.agent.process.runtime.check_free_space", lambda _: (_ for _ in ()).throw(OSError("full"))
        )
        served.call(lambda driver: driver.fill_disk())
        for _ in range(200):
            if http.post("/v1/decisions").status_code == 503:
                break
        told = reader.next("problem")[1]["message"]
        assert "journal" in told
        assert str(served.driver.config.data) not in told, "no path"
        monkeypatch.undo()
        served.call(lambda driver: driver.fill_disk(False))
        served.driver.site.problem = None
        play(http, 1)
        assert reader.next("state")[1]["decisions"]["handed_out"] > 0


def test_a_problem_is_told_once_also_when_it_is_over_and_a_state_follows():
    async def story():
        problems = iter(["full", "full", None, None, "full"])
        stream = events.Stream()
        for problem in problems:
            stream.put_problem(problem)
            stream.put_state(b"state")
            yield await stream.next(0.01)

    async def run():
        return [said async for said in story()]

    comment = b": still here\n\n"
    full, over = (b'event: problem\ndata: {"message": %s}\n\nstate' % said for said in (b'"full"', b"null"))
    assert asyncio.run(run()) == [full, comment, over, comment, full]


def test_a_stopping_agent_ends_streams_at_once(served, http):
    with reading(served.url, timeout=3.0) as reader:
        reader.next("state")
        served.call(lambda driver: driver.feed.close())
        assert reader.next() == (None, None)
        assert http.get("/v1/events").status_code == 503


def test_sigterm_ends_an_agent_with_open_streams_within_its_usual_time(tmp_path):
    """One reader reads, one does not. Before that, a real bulletin is told at both ends."""
    with running(tmp_path, [("north", "south")]) as federation:
        url = federation.url("north")
        with reading(federation.url("south")) as there, reading(url) as here:
            for reader in (here, there):
                reader.next("state")
            assert httpx.post(f"{url}/v1/decisions", trust_env=False).status_code == 201
            for reader, neighbour, sent in ((here, "south", True), (there, "north", False)):
                told = reader.next("bulletin")[1]
                while (told["site"], told["sent"]) != ("north", sent):
                    told = reader.next("bulletin")[1]
                assert told["neighbour"] == neighbour
        with reading(url) as reader, socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as lazy:
            lazy.sendall(b"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            reader.next("state")
            federation.signal("north", signal.SIGTERM)
            assert reader.next("no such event") == (None, None)
            assert federation.stop("north") == 0, "else it is killed after ten seconds"
        assert not lines(federation, "north", "ERROR"), federation.log("north").read_text()
        assert not lines(federation, "north", "Traceback"), federation.log("north").read_text()


def test_without_readers_a_feed_does_nothing():
    async def run():
        reads = []

        async def read():
            reads.append(1)
            return SiteState.model_construct(), 0.0

        it = events.Feed(read, lambda error: None, "state")
        it.bulletin("east", 0.0, True, "south")
        await asyncio.sleep(0.01)
        assert reads == []
        stream = it.open()
        await stream.next()
        assert reads == [1]
        it.leave(stream)
        await asyncio.sleep(0.01)
        assert it._task.done()

    asyncio.run(run())


def test_a_state_that_takes_long_to_read_is_read_rarely(monkeypatch):
    """Others waited 30 ms for each: so there is one in a second, though one may come every millisecond."""
    monkeypatch.setattr(events, "EVERY", 0.001)

    async def run():
        reads = []

        async def read():
            reads.append(1)
            return SiteState.model_construct(), 0.03

        it = events.Feed(read, lambda error: None, "state")
        it.open()
        await asyncio.sleep(0.2)
        it.close()
        return len(reads)

    assert asyncio.run(run()) == 1


def test_how_long_others_wait_for_a_state_is_measured_where_it_is_read(served, monkeypatch):
    shown = served.driver._shown

    def slow(site):
        time.sleep(0.05)
        return shown(site)

    monkeypatch.setattr(served.driver, "_shown", slow)
    told = []

    def watch(driver):
        asyncio.get_running_loop().create_task(driver._watched()).add_done_callback(lambda it: told.append(it.result()))

    served.call(watch)
    eventually(lambda: told)
    assert 0.05 <= told[0][1] < 5.0


def test_bulletins_are_bounded_per_second():
    async def run():
        stream = events.Stream()
        for k in range(100):
            stream.put_bulletin(b"%d," % k, now=k / 1000)
        sent = await stream.next()
        stream.put_bulletin(b"later", now=1.05)
        return sent, await stream.next(0.01)

    sent, later = asyncio.run(run())
    assert sent.count(b",") == events.BULLETINS_PER_SECOND
    assert later == b"later"


def test_a_stopped_feed_opens_no_stream():
    async def run():
        it = events.Feed(lambda: None, lambda error: None, "state")
        it.close()
        with pytest.raises(HttpError):
            it.open()

    asyncio.run(run())


# ---------------------------------------------------------------- history and rates


def point(at, k=0):
    return HistoryPoint(
        at=at, estimates=[None], lows=[None], highs=[None], own_means=[None], pulls=[k], decisions=k, rewards=k
    )


@settings(deadline=None, max_examples=30)
@given(gaps=st.lists(st.floats(2.0, 1e4), min_size=12, max_size=60), most=st.integers(3, 10))
def test_the_whole_run_stays_visible(gaps, most):
    history, at, added = History(most), 0.0, []
    for k, gap in enumerate(gaps):
        at += gap
        added.append(point(at, k))
        assert history.add(added[-1])
        assert len(history.points) <= most
    kept = list(history.points)
    assert kept[0] == added[0]
    assert kept[-1] == added[-1]
    assert kept == [it for it in added if it in kept], "in order, and nothing is made up"


def test_spacing_grows_with_the_root_of_the_age():
    """500 points over a month: the last day has more than its share, and no gap is wider than 2 % of the month."""
    history = History()
    for k in range(8_640):  # five minutes apart
        history.add(point(300.0 * k, k))
    times = [it.at for it in history.points]
    assert len(times) == 500
    last = times[-1]
    assert sum(at >= last - 86_400.0 for at in times) >= 3 * 500 / 30
    assert max(b - a for a, b in pairwise(times)) < 0.02 * last


def test_what_says_nothing_new_or_comes_too_soon_is_left_out():
    history = History()
    assert history.add(point(0.0))
    assert not history.add(point(10.0)), "nothing new"
    assert not history.add(point(1.0, 1)), "too soon"
    assert history.add(point(2.0, 1))
    assert not history.add(point(-5.0, 2)), "time never goes back"


def test_rates_are_those_of_the_last_minute():
    rates = Rates()
    assert rates.per_minute == (0.0, 0.0)
    for second in range(300):
        rates.look(float(second), min(second, 200) * 2, min(second, 200))
        if second == 30:
            assert rates.per_minute == pytest.approx((120.0, 60.0))
    assert rates.per_minute == (0.0, 0.0), "nothing has happened for a minute"
    rates.look(300.0, 5, 0)  # loaded again: counts begin anew
    assert rates.per_minute == (0.0, 0.0)


def test_the_rate_of_rewards_counts_each_once():
    """Clients repeat a report whose answer was lost; one that came too late was reported, too."""
    terms = replace(TERMS, reward_window=10.0)
    site = Site("here", terms, Stored(Numbering(1, 0)), lambda epsilon, count: [0] * count)
    decisions = [site.decide(float(at), SiteDraws((0.1, 0.0, 0.0), 0.5, None)).result.id for at in (0, 0, 0, 0, 60)]
    past = Past(0.0, SimpleNamespace(point=lambda it: None))
    past.note(point_of(site, 0.0), site.reported)
    site.report(decisions[4], 1.0)
    site.report_all([(it, 0.0) for it in (*decisions[2:], "unknown", *decisions[3:])])
    site.report(decisions[4], 1.0)
    with pytest.raises(InvalidArgument):
        site.report(decisions[0], 7.0)
    past.note(point_of(site, 60.0), site.reported)
    assert past.per_minute[1] == 3.0, "one in time, two too late"


def test_rates_in_the_state(served, http):
    play(http, 10)
    assert eventually(lambda: http.get("/v1/state").json()["rates"]["decisions_per_minute"]) > 0.0
    assert eventually(lambda: http.get("/v1/state").json()["rates"]["rewards_per_minute"]) > 0.0


# ---------------------------------------------------------------- privacy


def shown_after_each(rewards):
    """All that viewers see of a site after each reward: history, events, rates and answer, byte for byte."""
    site = Site("here", TERMS, Stored(Numbering(1, 0)), lambda epsilon, count: [0] * count)
    points, past = [], []
    watched = Past(0.0, SimpleNamespace(point=lambda it: points.append(it.model_dump_json())))
    for k, reward in enumerate(rewards):
        decision = site.decide(float(k), SiteDraws((0.1 * (k % 3), 0.2 * (k % 2), 0.0), 0.5, None)).result
        site.report(decision.id, reward)
        watched.note(point_of(site, 10.0 * k), site.reported)
        state = site_state(
            site, None, {}, {}, 0.0, 0.0, Retention(10, 1.0), {}, site.warnings(), watched.per_minute
        ).model_dump_json()
        past.append((state, watched.history(TERMS.arms).model_dump_json(), *points, sum(site.releases)))
    return past


def test_an_unreleased_reward_changes_no_byte_of_what_viewers_see():
    """Two sites that differ in one reward of an open batch alone show the same, until that batch is released."""
    rewards = [0.25, 0.75, 0.5] * 14
    before = shown_after_each(rewards)
    hidden = 0
    for k in range(12, 30, 3):
        other = shown_after_each([*rewards[:k], 1.0 - rewards[k] ** 2, *rewards[k + 1 :]])
        differ = [i for i, (a, b) in enumerate(zip(before, other, strict=True)) if a != b]
        first = next((i for i in range(k, len(rewards)) if before[i][-1] > before[k - 1][-1]), len(rewards))
        assert not differ or differ[0] >= first, "nothing shows before a release"
        hidden += first > k
    assert hidden >= 3, "some rewards did wait"
    assert any(a != b for a, b in zip(before, shown_after_each([1.0, *rewards[1:]]), strict=True)), "it can fail"
