"""Raw rewards stay where they belong: nobody reads one back over HTTP, and those that count leave the disk."""

import json
import sqlite3
import struct
from contextlib import closing
from dataclasses import replace
from random import Random

import httpx
import pytest
from typer.testing import CliRunner

from fedbandit import Client, FedBatch, FedUCB
from fedbandit.agent.client import Forbidden, Unauthorised
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import Known
from fedbandit.agent.core.site import Site, SiteDraws
from fedbandit.agent.disk.journal import SqliteJournal
from fedbandit.agent.disk.rows import BLOCK
from fedbandit.agent.http.access import RIGHT_FOR
from fedbandit.agent.http.api import make_app
from fedbandit.agent.process.rights import ROLES
from fedbandit.agent.process.runtime import EXPIRY_EVERY
from fedbandit.cli.agent import live
from live import TERMS, bulletin_of, serving
from processes import wait_until

TOKENS = {f"token-of-the-{role}": rights for role, rights in ROLES.items()}

ARMS = 12
MANY = Federation("many", tuple(f"arm{k}" for k in range(ARMS)), 0.0, 1.0, FedBatch(1.0, first_batch=3), max_agents=2)
NEVER = 10**9


def bearer(role):
    return {"Authorization": f"Bearer token-of-the-{role}"}


# ---------------------------------------------------------------- over HTTP


@pytest.fixture
def served(tmp_path):
    with serving(tmp_path, tokens=TOKENS) as agent:
        yield agent


@pytest.fixture
def http(served):
    with httpx.Client(base_url=served.url, trust_env=False) as client:
        yield client


def told(http, count, seed=1):
    """Decisions of an application, and the rewards that it has reported."""
    random = Random(seed)  # noqa: S311  # rewards from an explicit seed
    rewards = {}
    for _ in range(count):
        name = http.post("/v1/decisions", headers=bearer("application")).json()["id"]
        rewards[name] = random.choice([0.0, 0.25, 0.5, 0.75, 1.0])
        answer = http.put(f"/v1/decisions/{name}/reward", json={"value": rewards[name]}, headers=bearer("application"))
        assert answer.status_code == 204
    return rewards


def read_back(http, names, role):
    """Try every value on every decision: the answers to each, which should not differ."""
    answers = {}
    for name in names:
        tried = [
            http.put(f"/v1/decisions/{name}/reward", json={"value": value}, headers=bearer(role))
            for value in (0.0, 0.25, 0.5, 0.75, 1.0)
        ]
        answers[name] = {(it.status_code, it.text) for it in tried}
    return answers


def test_no_reward_is_read_back_with_the_viewers_token(served, http):
    """With the ids themselves: the viewer may not report, and is told so whatever it tries."""
    rewards = told(http, 20)
    before = served.rows()
    answers = read_back(http, rewards, "viewer")
    assert {status for said in answers.values() for status, _ in said} == {403}
    assert all(len(said) == 1 for said in answers.values())
    assert served.rows() == before


def test_no_reward_is_read_back_by_guessed_ids(served, http):
    """With the application's token, and all that a viewer sees: incarnation and counts. Every guess is unknown."""
    told(http, 20)
    state = http.get("/v1/state", headers=bearer("viewer")).json()
    numbers = range(1, state["decisions"]["handed_out"] + 1)
    guesses = (
        [f"{state['incarnation']:x}-{n}" for n in numbers]
        + [str(n) for n in numbers]
        + [f"{n}-{0:032x}" for n in numbers]
    )
    before = served.rows()
    answers = read_back(http, guesses, "application")
    assert {status for said in answers.values() for status, _ in said} == {404}
    assert served.rows() == before


def test_no_reward_is_read_back_by_who_knows_the_ids(served, http):
    """Not even with the application's token: every repetition is answered alike, and the first report counts."""
    rewards = told(http, 20)
    before = served.rows()
    answers = read_back(http, rewards, "application")
    assert all(said == {(204, "")} for said in answers.values())
    assert served.rows() == before
    assert served.rewards() == rewards


def test_no_reward_that_waits_is_read_back(tmp_path):
    """Within its window the value is still on the disk; the answers are the same."""
    with (
        serving(tmp_path, tokens=TOKENS, terms=replace(TERMS, reward_window=1000.0)) as agent,
        httpx.Client(base_url=agent.url, trust_env=False) as http,
    ):
        rewards = told(http, 10)
        assert all(said == {(204, "")} for said in read_back(http, rewards, "application").values())
        assert agent.call(lambda driver: driver.state()).decisions.waiting == 10


def test_ids_are_told_to_the_application_alone(tmp_path):
    """Neither state nor metrics name one: not even the warning about a decision that holds up others."""
    with (
        serving(tmp_path, tokens=TOKENS) as agent,
        httpx.Client(base_url=agent.url, trust_env=False) as http,
    ):
        first, *others = [http.post("/v1/decisions", headers=bearer("application")).json() for _ in range(30)]
        for decision in others:
            http.put(f"/v1/decisions/{decision['id']}/reward", json={"value": 0.7}, headers=bearer("application"))
        seen = [http.get(path, headers=bearer("viewer")).text for path in ("/v1/state", "/metrics")]
    assert any("wait for that of the decision of" in warning for warning in json.loads(seen[0])["warnings"])
    for name in (first["id"], *(it["id"] for it in others)):
        tag = name.split("-")[1]
        assert not any(tag in text for text in seen)


# ---------------------------------------------------------------- rights

CALLS = {
    "decide": ("POST", "/v1/decisions"),
    "reward": ("PUT", "/v1/decisions/1-1/reward"),
    "log": ("GET", "/v1/log"),
    "exclude": ("PUT", "/v1/excluded/east"),
    "include": ("DELETE", "/v1/excluded/east"),
    "state": ("GET", "/v1/state"),
    "metrics": ("GET", "/metrics"),
}
MAY = {
    "application": {"decide", "reward", "state", "metrics"},
    "viewer": {"state", "metrics"},
    "operator": {"state", "metrics", "log", "exclude", "include"},
}


@pytest.mark.parametrize("role", MAY)
def test_a_role_may_do_this_and_nothing_else(served, http, role):
    served.hear(bulletin_of("east"))
    for operation, (method, path) in CALLS.items():
        before = served.rows()
        body = {"reward": {"value": 0.5}, "exclude": {"reason": "wrong"}}.get(operation)
        answer = http.request(method, path, headers=bearer(role), json=body)
        if operation in MAY[role]:
            assert answer.status_code in ((404,) if operation == "reward" else (200, 201, 204)), (role, operation)
            continue
        error = answer.json()["error"]
        right = RIGHT_FOR[operation]
        assert (answer.status_code, error["code"], error["field"]) == (403, "forbidden", "Authorization")
        assert error["message"] == f"this token lacks the right {right!r}"
        assert repr(right) in error["accepted"]
        assert served.rows() == before


def test_without_a_valid_token_nobody_learns_which_right_is_missing(http):
    for method, path in CALLS.values():
        for headers in ({}, {"Authorization": "Bearer token-of-the-visitor"}):
            answer = http.request(method, path, headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthorised")
            assert "right" not in answer.text


def test_every_operation_has_a_right_and_the_document_says_which(served):
    document = make_app(served.driver, TOKENS).openapi()
    found = {}
    for operations in document["paths"].values():
        for operation in operations.values():
            (security,) = operation.get("security", [{"token": [None]}])
            (found[operation["operationId"]],) = security["token"] or [None]
    unlisted = ("openapi", "page", "page_file")  # the document does not describe itself, nor what a browser loads
    assert found | dict.fromkeys(unlisted) == RIGHT_FOR


def test_an_operation_without_a_right_cannot_be_added(served):
    app = make_app(served.driver, TOKENS)
    with pytest.raises(KeyError):
        app.get("/v1/everything", operation_id="everything")(lambda request: None)


def test_the_client_names_the_missing_right(served):
    with Client(served.url, token="token-of-the-viewer") as viewer:  # noqa: S106
        assert viewer.state().name == "north"
        with pytest.raises(Forbidden, match="lacks the right 'decide'") as refused:
            viewer.decide()
        assert refused.value.code == "forbidden"
        with pytest.raises(Forbidden, match="lacks the right 'report'"):
            viewer.reward("1-1", 0.5)
    with Client(served.url) as nobody, pytest.raises(Unauthorised):
        nobody.decide()


def test_the_command_line_uses_the_operators_token(served, tmp_path):
    """``fedbandit exclude`` has the right to exclude a member, and no right to decide."""
    served.hear(bulletin_of("east"))
    folder = tmp_path / "config"
    folder.mkdir()
    for role in MAY:
        (folder / role).write_text(f"token-of-the-{role}")
        (folder / role).chmod(0o600)
    terms = f"name = 'trial'\nmax_agents = 3\narms = {list(TERMS.arms)}\nrewards = [0, 1]\npolicy.epsilon = 1.0\n"
    listen = f"http = '127.0.0.1:{served.port}'\ngossip = '127.0.0.1:1'\n"
    tokens = "".join(f"{role} = '{role}'\n" for role in MAY)
    text = f"name = 'north'\ndata = 'none'\n[federation]\n{terms}[listen]\n{listen}[tokens]\n{tokens}"
    (folder / "site.toml").write_text(text)
    told = CliRunner().invoke(live, ["exclude", "east", "--reason", "wrong", "-c", str(folder / "site.toml")])
    assert (told.exit_code, told.output[:21]) == (0, "east no longer counts"), told.output
    assert [it.excluded for it in served.call(lambda driver: driver.state()).members if it.name == "east"] == [True]


# ---------------------------------------------------------------- on the disk


def forms(value):
    """How a reward could stand in a file: as a double in either byte order, or as text."""
    return struct.pack("<d", value), struct.pack(">d", value), repr(value).encode(), json.dumps(value).encode()


def content(folder):
    """All bytes of all files: database, log, shared memory, rollback journal, whatever is there."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def found(folder, values):
    """Those of the values that are in the files."""
    raw = content(folder)
    return {value for value in values if any(form in raw for form in forms(value))}


def sums(folder):
    """Sums of unreleased rewards in the files, as text, wherever they stand."""
    return {int(piece.split(b",")[0].split(b"}")[0]) for piece in content(folder).split(b'"total": ')[1:]}


class Load:
    """A site on a real file with many arms and rewards that can be recognised."""

    def __init__(self, folder, terms=MANY, seed=0):
        self.folder, self.terms, self.random = folder, terms, Random(seed)  # noqa: S311  # rewards from an explicit seed
        self.journal = SqliteJournal(folder / "state.sqlite", "a", terms, 1)
        self.journal._file.execute("PRAGMA synchronous=OFF")  # it is about what is written, not when
        self.site = Site("a", terms, self.journal.load())
        self.now, self.open, self.rewards = 0.0, [], {}

    def do(self, step):
        self.journal.commit(step.records)
        return step.result

    def decide(self):
        self.now += 1.0
        draws = SiteDraws(tuple(self.random.gauss(0.0, 1.0) for _ in self.terms.arms), 0.5)
        self.open.append(self.do(self.site.decide(self.now, draws)).id)

    def report(self):
        name = self.open.pop(self.random.randrange(len(self.open)))
        value = self.random.random()
        if self.do(self.site.report(name, value)):
            self.rewards[name] = value

    def run(self, decisions, waiting):
        for number in range(decisions):
            self.decide()
            while len(self.open) > self.random.randrange(1, waiting):
                self.report()
            while self.site.is_due(self.now):
                self.do(self.site.settle(self.now))
            if number % 50 == 0:
                self.do(self.site.expire(self.now - 300.0, NEVER))

    def of(self, which):
        """Values of the rewards that wait, or of those that do not."""
        known = self.site.stored.decisions
        waits = {name for name in self.rewards if name in known and known[name].reward is not None}
        return {value for name, value in self.rewards.items() if (name in waits) == (which == "waiting")}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("window", [0.0, 40.0])
def test_rewards_leave_the_files_once_they_count(tmp_path, window, seed):
    """Hundreds of rewards, reported in any order, settled, expired: none is left, but those that wait are."""
    load = Load(tmp_path, replace(MANY, reward_window=window), seed)
    with closing(load.journal):
        load.run(800, waiting=60)
        load.journal.erase()
        assert len(load.of("gone")) > 500
        assert found(tmp_path, load.of("gone")) == set()
        assert found(tmp_path, load.of("waiting")) == load.of("waiting"), "the search works"
        assert len(load.of("waiting")) > 5
        assert load.journal.load() == load.site.stored
        assert sums(tmp_path) == {fields["total"] for arm, fields in load.site.stored.known.items() if arm >= 0}
        assert (tmp_path / "state.sqlite-wal").stat().st_size == 0


def test_the_search_finds_what_an_ordinary_file_leaves(tmp_path):
    """Planted: rewards in rows that are deleted, and move."""
    raw = sqlite3.connect(tmp_path / "moving.sqlite", isolation_level=None)
    random, kept, gone = Random(3), {}, set()  # noqa: S311
    with closing(raw):
        for pragma in ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=OFF", "secure_delete=OFF"):
            raw.execute(f"PRAGMA {pragma}")
        raw.execute("CREATE TABLE decision (id TEXT PRIMARY KEY, reward REAL)")
        for _ in range(2000):
            name, value = random.randbytes(16).hex(), random.random()
            kept[name] = value
            raw.execute("INSERT INTO decision VALUES (?, ?)", (name, value))
            if len(kept) > 50:
                name = random.choice([*kept])
                gone.add(kept.pop(name))
                raw.execute("DELETE FROM decision WHERE id = ?", (name,))
        raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert found(tmp_path, gone)


def test_a_released_sum_leaves_the_files(tmp_path):
    """The sum of a batch is on the disk until its release; after that only what all may see."""
    terms = Federation("one", ("a", "b"), 0.0, 1.0, FedBatch(1.0, first_batch=3, growth=1.2), max_agents=2)
    load = Load(tmp_path, terms)
    with closing(load.journal):
        seen = set()
        while max(load.site.releases) < 5:
            load.decide()
            load.report()
            seen |= {fields["total"] for arm, fields in load.site.stored.known.items() if arm >= 0}
        load.journal.erase()
        held = {fields["total"] for arm, fields in load.site.stored.known.items() if arm >= 0}
        assert len(seen) > 10
        assert sums(tmp_path) == held
        assert found(tmp_path, load.of("gone")) == set()


def test_a_row_that_outgrows_its_place_leaves_no_copy(tmp_path):
    """It moves, and others with it: the file is written anew, also if the process dies before that."""
    terms = Federation("tree", MANY.arms, 0.0, 1.0, FedUCB(1.0, horizon=10**9), max_agents=2)
    load = Load(tmp_path, terms)
    with closing(load.journal):
        for _ in range(60):
            load.decide()
            load.report()
        load.journal.erase()
        arm = max(load.site.stored.known)  # whichever the urn has given
        known = load.site.stored.known[arm]
        load.journal.commit([Known(arm, known | {"filler": [0] * BLOCK})])
        assert load.journal._rows.agent.is_stale
        assert not load.journal._rows._known.write(arm, known), "it keeps its place: it does not shrink"
        load.journal.commit([Known(arm, known)])
    with closing(SqliteJournal(tmp_path / "state.sqlite", "a", terms, 1)) as again:
        again.erase()
        assert again._file.execute("SELECT is_stale FROM agent").fetchone() == (0,)
        assert again.load() == load.site.stored
        assert sums(tmp_path) == {fields["total"] for arm, fields in load.site.stored.known.items() if arm >= 0}


def test_a_running_agent_erases_by_itself(tmp_path):
    """Within two rounds of its housekeeping, and at the latest when it stops."""
    values = [0.7310585786300049, 0.6224593312018546, 0.8807970779778823, 0.5744425168116590, 0.9525741268224334]
    with serving(tmp_path) as agent, httpx.Client(base_url=agent.url, trust_env=False) as http:
        for value in values:
            name = http.post("/v1/decisions").json()["id"]
            assert http.put(f"/v1/decisions/{name}/reward", json={"value": value}).status_code == 204
        held = agent.call(lambda driver: {f["total"] for k, f in driver.site.in_memory.stored.known.items() if k >= 0})
        # Not that the log is empty: a bulletin may be written to it at any time.
        wait_until(lambda: found(tmp_path, values) == set() and sums(tmp_path) == held, 4 * EXPIRY_EVERY + 5.0)
        name = http.post("/v1/decisions").json()["id"]
        http.put(f"/v1/decisions/{name}/reward", json={"value": values[0]})
    assert found(tmp_path, values) == set()
    assert len(sums(tmp_path)) <= len(TERMS.arms)


def test_bulletins_alone_truncate_no_log(tmp_path):
    """Only what is raw is worth the disk's time."""
    load = Load(tmp_path)
    with closing(load.journal):
        load.decide()
        load.report()
        load.journal.erase()
        load.do(load.site.link(["b"]))
        load.decide()
        load.journal.erase()
        assert (tmp_path / "state.sqlite-wal").stat().st_size > 0
