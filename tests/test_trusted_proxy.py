"""A trusted reverse proxy says who calls; nobody else can."""

import asyncio
import logging
import stat
from datetime import UTC, datetime
from ipaddress import ip_address

import httpx
import pytest

from fedbandit.agent.core.trail import Filter
from fedbandit.agent.http.bodies import HttpError
from fedbandit.agent.http.proxy import ProxyWord
from fedbandit.agent.http.server import CONNECTION, listening_socket
from fedbandit.agent.http.sessions import LASTS, PROXY_LASTS, Sessions
from fedbandit.agent.process.check import check
from fedbandit.agent.process.config import ConfigError, TrustedProxy, read_config
from fedbandit.agent.process.rights import ROLES, Caller
from fedbandit.agent.process.tokens import read_proxy_secret
from live import bulletin_of, serving

URL = "https://north.example.org"
SECRET = "the-secret-of-the-proxy"  # noqa: S105
APP = "the-token-of-the-app"
TOKENS = {APP: Caller("application", ROLES["application"])}
GROUPS = {"staff": ROLES["viewer"], "trial": ROLES["operator"]}
USER, OTHERS = "X-Forwarded-User", "X-Forwarded-Groups"
STOP = {"change": "suspend", "arm": "metformin", "reason": "recalled"}


def trusted(peer):
    return TrustedProxy(peer, GROUPS, USER, OTHERS, sign_out="/oauth2/sign_out")


def word_for(proxy, who):
    """What changes of this person must repeat."""
    return {"X-CSRF-Token": proxy.get("/v1/session", headers=who).json()["csrf"]}


@pytest.fixture(scope="module")
def behind(tmp_path_factory):
    """An agent, and a client at the socket that only its proxy can open."""
    folder = tmp_path_factory.mktemp("agent")
    path = folder / "proxy.sock"
    with serving(folder, tokens=TOKENS, url=URL, proxy=trusted(path)) as agent:
        agent.hear(bulletin_of("east"))
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url=URL.replace("https", "http")) as proxy:
            yield agent, proxy


@pytest.fixture(scope="module")
def on_loopback(tmp_path_factory):
    proxy = trusted(ip_address("127.0.0.1"))
    with serving(tmp_path_factory.mktemp("agent"), tokens=TOKENS, url=URL, proxy=proxy, proxy_secret=SECRET) as agent:
        yield agent


def error_of(answer):
    return answer.status_code, answer.json()["error"]["code"]


# ---------------------------------------------------------------- the proxy itself


@pytest.mark.parametrize(
    ("groups", "rights"),
    [
        ("trial", ROLES["operator"]),
        ("staff", ROLES["viewer"]),
        ("cooks, staff ,trial", ROLES["viewer"] | ROLES["operator"]),
        ("Trial,trials", frozenset()),
        ("", frozenset()),
    ],
)
def test_groups_have_rights(behind, groups, rights):
    answer = behind[1].get("/v1/session", headers={USER: "lee@example.org", OTHERS: groups})
    known = answer.json()
    assert (known["name"], known["rights"], known["way"]) == ("lee@example.org", sorted(rights), "proxy")
    assert (known["lasts"], known["sign_out"]) == (None, "/oauth2/sign_out")


def test_a_person_behind_the_proxy_acts_under_his_name(behind, caplog):
    agent, proxy = behind
    who = {USER: "Zoë Müller".encode(), OTHERS: "trial", "Origin": URL}
    who |= word_for(proxy, who)
    with caplog.at_level(logging.WARNING, "fedbandit.agent"):
        assert proxy.post("/v1/arms", json=STOP, headers=who).status_code == 201
    assert any("'metformin'" in line and line.endswith("by Zoë Müller: recalled") for line in caplog.messages)
    assert error_of(proxy.post("/v1/arms", json=STOP, headers=who | {OTHERS: "staff"})) == (403, "forbidden")
    answer = proxy.get("/v1/state", headers=who | {OTHERS: "cooks"})
    assert "none of the groups of Zoë Müller has the right 'view'" in answer.json()["error"]["message"]
    assert agent.call(lambda driver: driver.arms()).names


def test_without_a_word_of_the_proxy_a_token_is_needed(behind):
    _, proxy = behind
    assert error_of(proxy.get("/v1/state")) == (401, "unauthorised")
    assert proxy.get("/healthz").status_code == 200
    assert proxy.post("/v1/decisions", headers={"Authorization": f"Bearer {APP}"}).status_code == 201


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ([(USER, "Lee"), (USER, "Meier")], USER),
        ([(USER, "Lee"), (OTHERS, "staff"), (OTHERS, "trial")], OTHERS),
        ([(USER, "Lee"), (OTHERS, "staff"), ("Authorization", f"Bearer {APP}")], "Authorization"),
        ([(USER, "Lee"), (OTHERS, "staff"), ("Authorization", "Basic bGVlOmxlZQ==")], "Authorization"),
        ([(OTHERS, "staff")], USER),
        ([(USER, "")], USER),
        ([(USER, "x" * 65)], USER),
        ([(USER, "operator")], USER),
        ([(USER, "token_file")], USER),
        ([(USER, b"L\xe9")], USER),
        ([(USER, "\u202eeel")], USER),
        ([(USER, "Lee"), (OTHERS, b"\xff")], OTHERS),
    ],
)
def test_what_is_ambiguous_or_no_name_is_400(behind, headers, field):
    coded = [(name, value if isinstance(value, bytes) else value.encode()) for name, value in headers]
    answer = behind[1].get("/v1/session", headers=coded)
    assert error_of(answer) == (400, "invalid")
    assert answer.json()["error"]["field"] == field


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "http://north.example.org"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
        ({"Origin": URL}, 204),
        ({"Sec-Fetch-Site": "same-origin"}, 204),
    ],
)
def test_only_the_page_of_the_agent_changes_anything(behind, headers, status):
    """A browser adds what the proxy knows a person by to whatever any page asks for."""
    agent, proxy = behind
    before = agent.rows()
    who = {USER: "Lee", OTHERS: "trial"}
    answer = proxy.request("DELETE", "/v1/excluded/east", headers=who | word_for(proxy, who) | headers)
    assert answer.status_code == status
    assert agent.rows() == before
    if status != 204:
        assert answer.json()["error"]["code"] == "wrong_origin"


def test_the_audit_trail_tells_when_somebody_comes(behind):
    """Once in eight hours: the proxy tells nobody when a session begins there."""
    agent, proxy = behind
    for _ in range(3):
        proxy.get("/v1/session", headers={USER: "Newcomer", OTHERS: "staff"})
    told = agent.call(lambda driver: driver.trail(Filter(kind="login", person="Newcomer")))[0]
    assert [(it.what, it.how) for it in told] == [("sign in", "proxy")]


def test_what_a_proxy_has_said_is_not_true_for_ever():
    """A stream that is open ends, and its reader asks again; who came long ago comes anew."""
    clock = Clock()
    sessions = Sessions("north", TOKENS, clock)
    still = sessions.for_a_while()
    assert sessions.is_first("Lee")
    clock.now = PROXY_LASTS - 1.0
    assert still()
    assert not sessions.is_first("Lee")
    clock.now = PROXY_LASTS
    assert not still()
    clock.now = LASTS
    assert sessions.is_first("Lee")


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_a_check_says_whether_the_proxy_can_be_heard(write, tmp_path):
    def found():
        checked = asyncio.run(check(read_config(write(AT_SOCKET.replace(', north"', '"'))), True, datetime.now(UTC)))
        return [(it.level, it.words) for it in checked if it.about == "http.trusted_proxy.peer"]

    folder = tmp_path / "run"
    assert found() == [("error", f"{folder}: No such file or directory")]
    folder.mkdir()
    folder.chmod(0o777)
    assert found() == [("error", f"{folder}: everybody may write in {folder}: chmod o-w {folder}")]
    folder.chmod(0o750)
    assert found() == [("ok", f"the agent can listen for its proxy at {folder}/proxy.sock")]


def test_each_persons_word_is_his_own(behind):
    """Else who may look could have a browser of who may change do it."""
    _, proxy = behind
    lee, meier = {USER: "Lee", OTHERS: "trial"}, {USER: "Meier", OTHERS: "trial"}
    words = word_for(proxy, lee), word_for(proxy, meier)
    assert words[0] != words[1]
    for wrong in ({}, {"X-CSRF-Token": ""}, words[1]):
        answer = proxy.request("DELETE", "/v1/excluded/east", headers=lee | {"Origin": URL} | wrong)
        assert error_of(answer) == (403, "wrong_origin")
        assert answer.json()["error"]["field"] == "X-CSRF-Token"


def test_there_is_nothing_to_sign_in_to(behind):
    _, proxy = behind
    who = {USER: "Lee", OTHERS: "trial", "Origin": URL}
    who |= word_for(proxy, who)
    refused = proxy.post("/v1/session", headers=who, json={"token": APP})
    assert error_of(refused) == (409, "signed_in")
    assert "the proxy says that you are Lee" in refused.json()["error"]["message"]
    assert "Set-Cookie" not in refused.headers
    assert error_of(proxy.delete("/v1/session", headers=who)) == (409, "signed_in")


def test_the_proxys_name_is_a_name_of_the_agent(behind):
    agent, proxy = behind
    who = {USER: "Lee", OTHERS: "staff"}
    assert proxy.get("/v1/state", headers=who).status_code == 200
    refused = proxy.get("/v1/state", headers=who | {"Host": "evil.example"})
    assert error_of(refused) == (421, "wrong_host")
    assert "north.example.org" in refused.json()["error"]["accepted"]
    assert httpx.get(f"{agent.url}/healthz", trust_env=False).status_code == 200


# ---------------------------------------------------------------- somebody else


def test_a_forged_header_is_refused_and_said(behind, caplog):
    """From loopback, where the proxy is not: with and without a token, for every path, whatever the header."""
    agent, _ = behind
    before = agent.rows()
    forged = [(USER, "Lee"), (OTHERS, "trial"), ("x-forwarded-user", "Lee"), ("X-Proxy-Secret", SECRET)]
    with caplog.at_level(logging.WARNING, "fedbandit.agent"), httpx.Client(base_url=agent.url, trust_env=False) as http:
        for header, value in forged:
            for more in ({}, {"Authorization": f"Bearer {APP}"}):
                for path in ("/v1/session", "/v1/state", "/healthz", "/", "/nothing"):
                    answer = http.get(path, headers={header: value} | more)
                    assert error_of(answer) == (403, "untrusted_proxy"), path
                assert error_of(http.post("/v1/arms", json=STOP, headers={header: value} | more))[0] == 403
    said = [line for line in caplog.messages if "untrusted proxy" in line]
    assert len(said) == 1, "few lines, however many such requests"
    assert "127.0.0.1 sent X-Forwarded-User: only the trusted proxy of this agent may say who calls" in said[0]
    assert agent.rows() == before


@pytest.mark.parametrize("tokens", [None, TOKENS])
def test_an_agent_without_a_proxy_believes_nobody(tmp_path, tokens):
    """Not even one without tokens: whoever has set up half of a proxy would let everybody in."""
    with serving(tmp_path, tokens=tokens) as agent:
        answer = httpx.get(f"{agent.url}/v1/state", headers={USER: "Lee"}, trust_env=False)
        assert error_of(answer) == (403, "untrusted_proxy")
        assert "[http.trusted_proxy]" in answer.json()["error"]["message"]


@pytest.mark.parametrize("secret", [None, "", SECRET[:-1], SECRET + "x", SECRET.upper()])
def test_on_loopback_the_proxy_shows_a_secret(on_loopback, secret):
    who = {USER: "Lee", OTHERS: "trial"}
    with httpx.Client(base_url=on_loopback.url, trust_env=False) as http:
        assert http.get("/v1/session", headers=who | {"X-Proxy-Secret": SECRET}).json()["name"] == "Lee"
        forged = who if secret is None else who | {"X-Proxy-Secret": secret}
        assert error_of(http.get("/v1/session", headers=forged)) == (403, "untrusted_proxy")


def test_only_the_configured_address_is_the_proxy(on_loopback):
    """The secret alone does not do, either."""
    transport = httpx.HTTPTransport(local_address="127.0.0.2")
    with httpx.Client(transport=transport, base_url=on_loopback.url, trust_env=False) as http:
        assert http.get("/healthz").status_code == 200
        forged = http.get("/v1/session", headers={USER: "Lee", "X-Proxy-Secret": SECRET})
        assert error_of(forged) == (403, "untrusted_proxy")


@pytest.mark.parametrize("scope", [{"client": None}, {}, {"client": ("", 0)}, {"client": ("127.0.0.1", 5)}])
def test_a_caller_without_an_address_is_not_at_the_socket(tmp_path, scope):
    """The system no longer knows the address of somebody who has hung up, as it knows none of a socket."""
    word = ProxyWord(trusted(tmp_path / "proxy.sock"))
    for extensions in ({}, {CONNECTION: {"over_socket": False}}):
        with pytest.raises(HttpError, match="only the trusted proxy"):
            word.caller({b"x-forwarded-user": b"Lee"}, scope | {"extensions": extensions})
    at_socket = {"extensions": {CONNECTION: {"over_socket": True}}, "client": None}
    assert word.caller({b"x-forwarded-user": b"Lee"}, at_socket).name == "Lee"
    with pytest.raises(HttpError, match="only the trusted proxy"):
        ProxyWord(trusted(ip_address("127.0.0.1"))).caller({b"x-forwarded-user": b"Lee"}, at_socket)


def test_an_address_in_six_bytes_is_the_same():
    word = ProxyWord(trusted(ip_address("127.0.0.1")))
    assert word.caller({b"x-forwarded-user": b"Lee"}, {"client": ("::ffff:127.0.0.1", 5)}).name == "Lee"


# ---------------------------------------------------------------- the socket


def test_the_socket_is_for_its_owner_and_group(tmp_path):
    """One that nobody listens at is replaced, one that is answered is not, and nothing else is removed."""
    path = tmp_path / "proxy.sock"
    first = listening_socket(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    with pytest.raises(OSError, match="in use"):
        listening_socket(path)
    first.close()
    listening_socket(path).close()
    path.unlink()
    path.write_text("precious")
    with pytest.raises(OSError, match="in use"):
        listening_socket(path)
    assert path.read_text() == "precious"


def test_a_folder_in_which_everybody_may_write_is_refused(tmp_path):
    """Somebody else could listen there, and people would sign in to him."""
    tmp_path.chmod(0o777)
    with pytest.raises(PermissionError, match="everybody may write in"):
        listening_socket(tmp_path / "proxy.sock")
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- the configuration

LEAST = """
name = "north"
data = "data"
[federation]
name = "trial"
arms = ["A", "B"]
rewards = [0, 1]
[federation.policy]
epsilon = 1.0
[tokens]
application = "app"
"""
AT_SOCKET = """
[http]
url = "https://north.example.org"
[http.trusted_proxy]
peer = "unix:run/proxy.sock"
[http.trusted_proxy.groups]
staff = ["viewer"]
"the trial, north" = ["operator", "decide"]
"""


@pytest.fixture
def write(tmp_path):
    def wrote(text):
        path = tmp_path / "site.toml"
        path.write_text(LEAST + text)
        return path

    return wrote


def test_the_section_as_documented(write, tmp_path):
    config = read_config(write(AT_SOCKET.replace(', north"', '"')))
    assert config.url == URL
    assert config.proxy == TrustedProxy(
        tmp_path / "run/proxy.sock",
        {"staff": ROLES["viewer"], "the trial": ROLES["operator"] | {"decide"}},
        "X-Forwarded-User",
        "X-Forwarded-Groups",
    )
    assert read_proxy_secret(config) is None
    text = AT_SOCKET.replace('"unix:run/proxy.sock"', '"::1"\nsecret_file = "secret"\nuser_header = "Remote-User"')
    config = read_config(write(text.replace(', north"', '"')))
    assert (config.proxy.peer, config.proxy.user_header) == (ip_address("::1"), "Remote-User")
    (tmp_path / "secret").write_text(SECRET)
    with pytest.raises(ConfigError, match="open to others than its owner"):
        read_proxy_secret(config)
    (tmp_path / "secret").chmod(0o600)
    assert read_proxy_secret(config) == SECRET


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('peer = "unix:run/proxy.sock"', 'peer = "10.0.0.1"', "http.trusted_proxy.peer must be 'unix:PATH'"),
        ('peer = "unix:run/proxy.sock"', 'peer = "localhost"', "http.trusted_proxy.peer must be 'unix:PATH'"),
        ('peer = "unix:run/proxy.sock"', 'peer = "unix:"', "http.trusted_proxy.peer must be 'unix:PATH'"),
        ('peer = "unix:run/proxy.sock"', f'peer = "unix:{"x" * 101}"', "http.trusted_proxy.peer must be 'unix:PATH'"),
        ('peer = "unix:run/proxy.sock"', 'peer = "127.0.0.1"', "'http.trusted_proxy.secret_file' is missing"),
        ('url = "https://north.example.org"', "", "'http.url' is missing"),
        ("https://north.example.org", "http://north.example.org", "http.url must be a URL without a path"),
        ("https://north.example.org", "https://north.example.org/x", "http.url must be a URL without a path"),
        ("https://north.example.org", "https://lee@north.example.org", "http.url must be a URL without a path"),
        ('application = "app"', "", "'tokens.application' is missing"),
        ('"viewer"', '"view", "arm"', "http.trusted_proxy.groups must be a list of roles and rights"),
        ('peer =', 'user_header = "Cookie"\npeer =', "http.trusted_proxy.user_header must be a header of letters"),
        ('peer =', 'user_header = "X_User"\npeer =', "http.trusted_proxy.user_header must be a header of letters"),
        ('peer =', 'user_header = "X-Forwarded-groups"\npeer =', "http.trusted_proxy.groups_header must be different"),
        ('peer =', 'sign_out = "https://elsewhere"\npeer =', "http.trusted_proxy.sign_out must be a path of the proxy"),
        ('peer =', 'header = "X"\npeer =', "unknown key 'http.trusted_proxy.header'"),
        ('"the trial, north"', '"the trial, north"', "http.trusted_proxy.groups must be names without commas"),
    ],
)  # fmt: skip
def test_a_section_that_trusts_too_much_is_refused(write, old, new, said):
    path = write("")
    text = (LEAST + AT_SOCKET).replace(', north"', '"') if old != '"the trial, north"' else LEAST + AT_SOCKET
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(ConfigError) as refused:
        read_config(path)
    assert said in str(refused.value)


def test_a_url_is_as_a_browser_writes_it(write):
    for given, found in (
        ("https://North.example.org:443", "https://north.example.org"),
        ("https://[::1]:8443", "https://[::1]:8443"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
    ):
        assert read_config(write(f'[http]\nurl = "{given}"')).url == found
