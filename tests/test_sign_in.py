"""Signing in at the page: sessions begin and end, and the ways in which people steal, fix, forge and guess them."""

import json
import logging
import threading
from ipaddress import ip_address

import httpx
import pytest

from fedbandit.agent.core.trail import Filter
from fedbandit.agent.http.bodies import HttpError
from fedbandit.agent.http.sessions import BURST, EVERY, LASTS, MOST, MOST_ADDRESSES, Attempts, Sessions, cookie_in
from fedbandit.agent.process import serve
from fedbandit.agent.process.config import read_config
from fedbandit.agent.process.rights import ROLES, Caller
from fedbandit.agent.process.tokens import read_tokens
from live import bulletin_of, serving
from processes import wait_until

MEIER, LEE, APP = "the-token-of-dr-meier", "the-token-of-lee", "the-token-of-the-app"
OPERATOR, VIEWER = Caller("Dr. A. Meier", ROLES["operator"]), Caller("Lee", frozenset({"view"}))
PEOPLE = {MEIER: OPERATOR, LEE: VIEWER, APP: Caller("application", ROLES["application"])}
STOP = {"change": "suspend", "arm": "metformin", "reason": "recalled"}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("agent"), tokens=PEOPLE) as agent:
        agent.hear(bulletin_of("east"))
        yield agent


@pytest.fixture
def http(served):
    """A browser, without a cookie."""
    with httpx.Client(base_url=served.url, trust_env=False) as client:
        yield client


def sign_in(http, token=MEIER, **headers):
    return http.post("/v1/session", json={"token": token}, headers=headers)


def page_of(http):
    """What the page adds to a change."""
    csrf = http.get("/v1/session").json()["csrf"]
    return {"Origin": str(http.base_url).rstrip("/"), "X-CSRF-Token": csrf}


def error_of(answer):
    return answer.status_code, answer.json()["error"]["code"]


# ---------------------------------------------------------------- in and out


def test_a_person_signs_in_acts_and_signs_out(served, http, caplog):
    with caplog.at_level(logging.INFO, "fedbandit.agent"):
        answer = sign_in(http)
        assert answer.status_code == 201
        said = answer.headers["Set-Cookie"]
        assert said.startswith("fedbandit-north=")
        assert said.partition("; ")[2] == "Path=/; HttpOnly; SameSite=Strict", "until the browser is closed"
        assert "no-store" in answer.headers["Cache-Control"]
        known = http.get("/v1/session").json()
        assert (known["name"], known["way"], known["rights"]) == (OPERATOR.name, "session", sorted(OPERATOR.rights))
        assert 0.0 < known["lasts"] <= LASTS
        assert http.post("/v1/arms", json=STOP, headers=page_of(http)).status_code == 201
        assert error_of(http.post("/v1/decisions", headers=page_of(http))) == (403, "forbidden")
        gone = http.delete("/v1/session", headers=page_of(http))
        assert gone.status_code == 204
        assert "Max-Age=0" in gone.headers["Set-Cookie"]
    assert error_of(http.get("/v1/session")) == (401, "unauthorised")
    assert any("'metformin'" in line and line.endswith("by Dr. A. Meier: recalled") for line in caplog.messages)
    assert "sign in: Dr. A. Meier" in caplog.messages
    assert "sign out: Dr. A. Meier" in caplog.messages
    secrets = (MEIER, known["csrf"], said.partition("=")[2].partition(";")[0])
    assert not any(it in line for it in secrets for line in caplog.messages)


@pytest.mark.parametrize("token", ["", "wrong", MEIER[:-1], MEIER.upper(), f"{MEIER} ", "\ud800", "ü"])
def test_a_wrong_token_is_401_and_gives_no_cookie(tmp_path, token):
    with serving(tmp_path, tokens=PEOPLE) as agent:
        answer = httpx.post(
            f"{agent.url}/v1/session",
            content=json.dumps({"token": token}),
            headers={"Content-Type": "application/json"},
            trust_env=False,
        )
        assert error_of(answer) in ((401, "unauthorised"), (400, "invalid_json"))
        assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize("body", [b"", b"{}", b'{"token": 7}', b'{"token": "x", "name": "Lee"}', b"[]"])
def test_a_body_that_signs_nobody_in(http, body):
    answer = http.post("/v1/session", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.json()["error"]["message"]


def test_without_tokens_there_is_nothing_to_sign_in_to(tmp_path):
    with serving(tmp_path) as agent, httpx.Client(base_url=agent.url, trust_env=False) as http:
        known = http.get("/v1/session").json()
        assert (known["name"], known["way"], known["csrf"]) == ("", "no token", None)
        assert error_of(sign_in(http)) == (409, "signed_in")
        assert error_of(http.delete("/v1/session")) == (409, "signed_in")


def test_a_token_needs_no_session(http):
    """And no word of the page: no browser adds it by itself."""
    who = {"Authorization": f"Bearer {MEIER}"}
    assert http.delete("/v1/excluded/east", headers=who).status_code == 204
    assert error_of(http.delete("/v1/session", headers=who)) == (409, "signed_in")


# ---------------------------------------------------------------- forged: another page makes the browser call


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "OURS"},
        {"X-CSRF-Token": "RIGHT"},
        {"Origin": "OURS", "X-CSRF-Token": "wrong"},
        {"Origin": "https://evil.example", "X-CSRF-Token": "RIGHT"},
        {"Origin": "null", "X-CSRF-Token": "RIGHT"},
        {"Sec-Fetch-Site": "same-site", "X-CSRF-Token": "RIGHT"},
        {"Origin": "OURS", "Sec-Fetch-Site": "cross-site", "X-CSRF-Token": "RIGHT"},
    ],
)
def test_a_cookie_alone_changes_nothing(served, http, method, headers):
    sign_in(http)
    right = page_of(http)
    put = {"OURS": right["Origin"], "RIGHT": right["X-CSRF-Token"]}
    before = served.rows()
    path = {"POST": "/v1/arms", "PUT": "/v1/excluded/east", "DELETE": "/v1/excluded/east"}[method]
    given = {name: put.get(value, value) for name, value in headers.items()}
    body = STOP if method == "POST" else {"reason": "wrong"}
    assert error_of(http.request(method, path, json=body, headers=given)) == (403, "wrong_origin")
    assert served.rows() == before


def test_signing_in_is_not_for_other_pages(http):
    """Else a page could sign somebody in under its own name, and see what he does."""
    for origin in ("https://evil.example", "null"):
        answer = sign_in(http, Origin=origin)
        assert error_of(answer) == (403, "wrong_origin")
        assert "Set-Cookie" not in answer.headers
    answer = http.post("/v1/session", content=json.dumps({"token": MEIER}), headers={"Content-Type": "text/plain"})
    assert error_of(answer) == (415, "unsupported_type"), "a form of any page can send plain text"


def test_the_word_of_one_session_is_not_that_of_another(served, http):
    sign_in(http)
    with httpx.Client(base_url=served.url, trust_env=False) as other:
        sign_in(other, LEE)
        words = page_of(http)["X-CSRF-Token"], page_of(other)["X-CSRF-Token"]
    sign_in(http)
    assert len({*words, page_of(http)["X-CSRF-Token"]}) == 3


# ---------------------------------------------------------------- fixed: somebody gives a browser his own cookie


def test_the_secret_is_always_new(served, http):
    """A cookie that somebody else has set is never taken over; one that was valid ends."""
    http.cookies.set("fedbandit-north", "chosen-by-somebody-else", "127.0.0.1")
    sign_in(http)
    first = http.cookies["fedbandit-north"]
    assert first != "chosen-by-somebody-else"
    assert len(first) >= 43, "256 bits"
    sign_in(http)
    assert http.cookies["fedbandit-north"] != first
    with httpx.Client(base_url=served.url, trust_env=False, cookies={"fedbandit-north": first}) as thief:
        assert error_of(thief.get("/v1/state")) == (401, "unauthorised")
        assert "Max-Age=0" in thief.get("/v1/state").headers["Set-Cookie"]


def test_of_two_cookies_nobody_chooses(http):
    sign_in(http)
    secret = http.cookies["fedbandit-north"]
    twice = {"Cookie": f"fedbandit-north={secret}; fedbandit-north=x"}
    assert error_of(httpx.get(http.base_url.join("/v1/state"), headers=twice, trust_env=False)) == (400, "invalid")
    assert cookie_in(b"a=1; fedbandit-north=x=y ; b", "fedbandit-north") == "x=y"
    assert cookie_in(b"xfedbandit-north=1;fedbandit-north=", "fedbandit-north") is None
    with pytest.raises(HttpError):
        cookie_in(b"a=;a=", "a")


def test_at_an_https_address_only_a_cookie_with_a_prefix_counts(tmp_path):
    """A host beside the agent's could set one without; that of a plain address is not valid there."""
    url = "https://north.example.org"
    with serving(tmp_path, tokens=PEOPLE, url=url) as agent, httpx.Client(base_url=agent.url, trust_env=False) as http:
        there = {"Host": "north.example.org"}
        said = sign_in(http, **there).headers["Set-Cookie"]
        assert said.startswith("__Host-fedbandit-north=")
        assert said.partition("; ")[2] == "Path=/; HttpOnly; SameSite=Strict; Secure"
        secret = said.partition("=")[2].partition(";")[0]
        for name, status in (("__Host-fedbandit-north", 200), ("fedbandit-north", 401)):
            answer = http.get("/v1/state", headers=there | {"Cookie": f"{name}={secret}"})
            assert answer.status_code == status
        plain = sign_in(http).headers["Set-Cookie"]
        assert plain.startswith("fedbandit-north="), "on this machine itself there is no TLS"
        assert "Secure" not in plain


# ---------------------------------------------------------------- stolen: whoever has the cookie after its end


def test_a_stolen_cookie_is_worth_nothing_after_signing_out(served, http):
    """Its open streams end, too, at the next thing that they would tell."""
    sign_in(http)
    cookies = {"fedbandit-north": http.cookies["fedbandit-north"]}
    heard, ended = [], threading.Event()

    def steal():
        with (
            httpx.Client(base_url=served.url, trust_env=False, cookies=cookies, timeout=30) as thief,
            thief.stream("GET", "/v1/events") as stream,
        ):
            for line in stream.iter_lines():
                if line.startswith('data: {"name"'):
                    heard.append(json.loads(line.removeprefix("data: ")))
        ended.set()

    thread = threading.Thread(target=steal)
    thread.start()
    wait_until(lambda: served.call(lambda driver: driver.feed.num_streams) == 1)
    wait_until(lambda: heard)
    http.delete("/v1/session", headers=page_of(http))
    decision = served.call(lambda driver: driver.decide())
    assert ended.wait(12.0), "the stream goes on"
    thread.join()
    assert all(it["decisions"]["handed_out"] < decision.number for it in heard), "what was told before"
    thief = httpx.get(f"{served.url}/v1/state", cookies=cookies, trust_env=False)
    assert error_of(thief) == (401, "unauthorised")


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_a_session_ends_in_time():
    clock = Clock()
    sessions = Sessions("north", PEOPLE, clock)
    secret = sessions.begin(MEIER, OPERATOR)
    clock.now = LASTS - 1.0
    assert sessions.known(secret).caller.name == OPERATOR.name
    assert sessions.known(secret).lasts == 1.0
    clock.now = LASTS
    assert sessions.known(secret) is None
    clock.now = 0.0
    assert sessions.known(secret) is None, "for good"


def test_secrets_are_not_kept():
    """Whoever reads the memory, or a core, finds no cookie and no token."""
    sessions = Sessions("north", PEOPLE, Clock())
    secret = sessions.begin(MEIER, OPERATOR)
    kept = repr(sessions._sessions)
    assert secret not in kept
    assert MEIER not in kept


@pytest.mark.parametrize(
    "tokens",
    [
        {},
        {LEE: VIEWER},
        {"another-token-of-dr-meier": OPERATOR},
        {MEIER: VIEWER},
        {MEIER: Caller(OPERATOR.name, frozenset({"view"}))},
    ],
)
def test_a_session_ends_with_its_token(tokens):
    held = dict(PEOPLE)
    sessions = Sessions("north", held, Clock())
    secret, other = sessions.begin(MEIER, OPERATOR), sessions.begin(LEE, VIEWER)
    held.clear()
    held.update(tokens)
    assert sessions.known(secret) is None
    assert (sessions.known(other) is not None) == (LEE in tokens)
    held.update(PEOPLE)
    assert sessions.known(secret) is None, "for good"


def test_one_token_has_so_many_sessions():
    """And takes no place of another's."""
    sessions = Sessions("north", PEOPLE, Clock())
    other = sessions.begin(LEE, VIEWER)
    secrets = [sessions.begin(MEIER, OPERATOR) for _ in range(MOST + 5)]
    assert [sessions.known(it) is not None for it in secrets] == 5 * [False] + MOST * [True]
    assert sessions.known(other) is not None


def test_a_token_of_a_changed_file_is_another(tmp_path, monkeypatch, caplog):
    """The agent reads them again; a file that has gone ends its token, and no other."""
    monkeypatch.setattr(serve, "WATCH_EVERY", 0.02)
    (tmp_path / "site.toml").write_text(
        'name = "north"\ndata = "data"\n[federation]\nname = "trial"\narms = ["A", "B"]\nrewards = [0, 1]\n'
        '[federation.policy]\nepsilon = 1.0\n[tokens]\napplication = "app"\nviewer = "viewer"\n'
    )
    for name in ("app", "viewer"):
        (tmp_path / name).write_text(f"the-first-token-of-{name}\n")
        (tmp_path / name).chmod(0o600)
    config = read_config(tmp_path / "site.toml")
    tokens = read_tokens(config)
    with serving(tmp_path / "agent", tokens=tokens, keeps_tokens=True, role_files=config.role_files) as agent:

        def status(token, **cookies):
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            return httpx.get(f"{agent.url}/v1/state", headers=headers, cookies=cookies, trust_env=False).status_code

        with httpx.Client(base_url=agent.url, trust_env=False) as http:
            sign_in(http, "the-first-token-of-viewer")
            cookies = dict(http.cookies)
        assert status(None, **cookies) == status("the-first-token-of-viewer") == 200
        beside = tmp_path / "new"
        beside.write_text("the-second-token-of-viewer\n")
        beside.chmod(0o600)
        beside.replace(tmp_path / "viewer")
        wait_until(lambda: status("the-second-token-of-viewer") == 200)
        assert status("the-first-token-of-viewer") == status(None, **cookies) == 401
        assert status("the-first-token-of-app") == 200
        assert "tokens have changed, and sessions of the old ones end: viewer" in caplog.messages
        (tmp_path / "viewer").unlink()
        wait_until(lambda: status("the-second-token-of-viewer") == 401)
        assert status("the-first-token-of-app") == 200
        assert any("no such file; until then this token is not valid" in line for line in caplog.messages)
        told = agent.call(lambda driver: driver.trail(Filter(kind="rights")))[0]
        assert [(it.what, it.subject) for it in told][-2:] == [("change", "viewer"), ("revoke", "viewer")]
        (tmp_path / "app").unlink()
        wait_until(lambda: status("the-first-token-of-app") == 401)
        assert status(None) == 401, "without any token left nobody gets in"


# ---------------------------------------------------------------- guessed


def test_guessing_has_an_end(tmp_path, caplog):
    """Few lines of log, however many guesses; who has a session goes on."""
    with serving(tmp_path, tokens=PEOPLE) as agent, httpx.Client(base_url=agent.url, trust_env=False) as http:
        sign_in(http, LEE)
        with httpx.Client(base_url=agent.url, trust_env=False) as guesser:
            answers = [sign_in(guesser, f"guess-number-{i:05}") for i in range(BURST + 20)]
            assert [it.status_code for it in answers] == BURST * [401] + 20 * [429]
            right = sign_in(guesser)
            assert error_of(right) == (429, "too_many_attempts"), "else the answer would tell"
            assert 0 < int(right.headers["Retry-After"]) <= EVERY
        assert http.get("/v1/state").status_code == 200
        by_token = http.get("/v1/state", headers={"Authorization": f"Bearer {APP}"})
        assert by_token.status_code == 200, "whoever guesses keeps no application out"
        told = agent.call(lambda driver: driver.trail(Filter(kind="login")))[0]
        assert [(it.what, it.who, it.detail) for it in told] == [
            ("sign in", "Lee", ""),
            ("refuse", "", "1 wrong token"),
        ]
        said = [line for line in caplog.messages if "sign-in" in line]
        assert len(said) == 1
        assert "a wrong token from 127.0.0.1" in said[0]
        assert not any("guess-number" in line for line in caplog.messages)


def test_guesses_are_counted_by_machine():
    clock = Clock()
    attempts = Attempts(clock)
    for i in range(BURST):
        assert attempts.wait(ip_address(f"127.0.0.{i + 1}")) == 0.0
        attempts.failed(ip_address(f"127.0.0.{i + 1}"))
    assert attempts.wait(ip_address("127.9.9.9")) == attempts.wait(ip_address("::1")) == EVERY
    assert attempts.wait(ip_address("10.0.0.1")) == 0.0
    clock.now = EVERY
    assert attempts.wait(ip_address("127.0.0.1")) == 0.0
    attempts.failed(ip_address("127.0.0.1"))
    assert attempts.wait(ip_address("127.0.0.1")) == EVERY
    clock.now = 2 * BURST * EVERY
    for _ in range(BURST):
        assert attempts.wait(ip_address("127.0.0.1")) == 0.0
        attempts.failed(ip_address("127.0.0.1"))
    for i in range(BURST):
        attempts.failed(ip_address(f"2001:db8::{i:x}"))
    assert attempts.wait(ip_address("2001:db8::ffff")) > 0.0
    assert attempts.wait(ip_address("2001:db8:0:1::1")) == 0.0


def test_memory_of_guesses_is_bounded():
    clock = Clock()
    attempts = Attempts(clock)
    for i in range(2 * MOST_ADDRESSES):
        address = ip_address(0x0A000000 + i)
        if attempts.wait(address) == 0.0:
            attempts.failed(address)
    assert len(attempts._ready) == MOST_ADDRESSES
    assert attempts.wait(ip_address("10.0.0.0")) == 0.0, "who is known may go on"
    clock.now = EVERY
    assert attempts.wait(ip_address("192.0.2.1")) == 0.0
