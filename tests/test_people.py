"""People have names, and say why: tokens of people, and reasons that travel with what they do."""

import logging
import re

import httpx
import pytest
from typer.testing import CliRunner

from fedbandit.agent.core.trail import checked_reason
from fedbandit.agent.process.config import read_config
from fedbandit.agent.process.rights import ALL_RIGHTS, ROLES, Caller, rights_from
from fedbandit.agent.process.tokens import read_tokens, token_with
from fedbandit.checks import InvalidArgument
from fedbandit.cli import app
from live import bulletin_of, serving

MEIER, LEE = "the-token-of-dr-meier", "the-token-of-lee"
PEOPLE = {
    MEIER: Caller("Dr. A. Meier", ROLES["operator"]),
    LEE: Caller("Lee", frozenset({"view", "arms"})),
    "the-token-of-the-app": Caller("application", ROLES["application"]),
}
WITHOUT = [
    ("POST", "/v1/arms", {"change": "suspend", "arm": "metformin"}),
    ("POST", "/v1/arms", {"change": "resume", "arm": "metformin"}),
    ("POST", "/v1/arms", {"change": "retire", "arm": "metformin"}),
    ("PUT", "/v1/excluded/east", {}),
    ("POST", "/v1/confirm", {}),
    ("POST", "/v1/restore", {}),
]


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


# ---------------------------------------------------------------- reasons


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("agent")) as agent:
        agent.hear(bulletin_of("east"))
        yield agent


@pytest.mark.parametrize(("method", "path", "body"), WITHOUT)
@pytest.mark.parametrize("reason", [None, "", "  ", "x" * 201, "two\nlines", 7])
def test_without_a_reason_nothing_is_done(served, method, path, body, reason):
    before = served.rows()
    said = body if reason is None else body | {"reason": reason}
    answer = httpx.request(method, f"{served.url}{path}", json=said, trust_env=False)
    error = answer.json()["error"]
    assert (answer.status_code, error["field"]) == (422, "reason")
    assert error["accepted"] == "a text of 1 to 200 printable characters that says why"
    assert served.rows() == before


@pytest.mark.parametrize(("path"), ["/v1/confirm", "/v1/restore"])
def test_without_a_body_nothing_is_done(served, path):
    before = served.rows()
    answer = httpx.post(f"{served.url}{path}", trust_env=False)
    assert answer.status_code == 415, "no body has no type"
    assert '{"reason": ' in httpx.post(f"{served.url}{path}", json=[], trust_env=False).json()["error"]["accepted"]
    assert served.rows() == before


@pytest.mark.parametrize(
    "command",
    ["arm suspend A", "arm resume A", "arm retire A", "exclude east", "confirm", "restore"],
)
def test_a_command_asks_for_the_reason_before_anything_else(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for more in ([], ["--reason", " "], ["--reason", "x" * 201]):
        ran = CliRunner().invoke(app, [*command.split(), *more])
        assert ran.exit_code == 2
        assert "--reason" in ran.output
        assert "site.toml" not in ran.output


def test_a_reason_is_a_line_for_people():
    assert checked_reason("  recalled by the maker ") == "recalled by the maker"
    assert checked_reason("", required=False) == ""
    with pytest.raises(InvalidArgument, match="or left out"):
        checked_reason("a\tb", required=False)


# ---------------------------------------------------------------- names


def test_a_person_is_known_by_the_token(tmp_path, caplog):
    """Who has done it stands in the log; each token has its own rights."""
    with serving(tmp_path, tokens=PEOPLE) as agent, httpx.Client(base_url=agent.url, trust_env=False) as http:
        agent.hear(bulletin_of("east"))
        known = http.get("/v1/session", headers=bearer(LEE)).json()
        assert (known["name"], known["rights"], known["way"]) == ("Lee", ["arms", "view"], "token")
        assert known["csrf"] is None, "no browser adds a token by itself"
        stop = {"change": "suspend", "arm": "metformin", "reason": "recalled"}
        with caplog.at_level(logging.WARNING, "fedbandit.agent"):
            assert http.post("/v1/arms", headers=bearer(LEE), json=stop).status_code == 201
            wrong = http.put("/v1/excluded/east", headers=bearer(LEE), json={"reason": "wrong"})
            assert (wrong.status_code, wrong.json()["error"]["code"]) == (403, "forbidden")
            right = http.put("/v1/excluded/east", headers=bearer(MEIER), json={"reason": "its data are wrong"})
            assert right.status_code == 204
        assert any(re.search(r"north suspends the arm 'metformin'.*recalled; by Lee", it) for it in caplog.messages)
        assert "east is excluded by Dr. A. Meier: its data are wrong" in caplog.messages
        assert not any(token in line for token in PEOPLE for line in caplog.messages)


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
NAMED = '[[tokens.named]]\nname = "{}"\nfile = "{}"\nrights = {}\n'


@pytest.fixture
def write(tmp_path):
    def wrote(text):
        path = tmp_path / "site.toml"
        path.write_text(text)
        return path

    for name in ("app", "meier", "lee", "operator"):
        (tmp_path / name).write_text(f"{name}-0123456789abcdef\n")
        (tmp_path / name).chmod(0o600)
    return wrote


def test_named_tokens_have_rights_of_roles_or_their_own(write):
    config = read_config(
        write(
            LEAST
            + NAMED.format("Dr. A. Meier", "meier", '["operator"]')
            + NAMED.format("Lee", "lee", '["view", "arms"]')
        )
    )
    found = {it.name: it.rights for it in read_tokens(config).values()}
    assert found == {
        "application": ROLES["application"],
        "Dr. A. Meier": ROLES["operator"],
        "Lee": {"view", "arms"},
    }
    assert rights_from(["viewer", "decide"]) == {"view", "decide"}
    assert rights_from([*ROLES]) == ALL_RIGHTS


@pytest.mark.parametrize(
    ("section", "said"),
    [
        (
            NAMED.format("Lee", "lee", '["arm"]'),
            r"tokens.named\[0\].rights must be a list of roles and rights: .*'arm'",
        ),
        (NAMED.format("Lee", "lee", "[]"), r"tokens.named\[0\].rights must be a list of roles and rights"),
        (NAMED.format(" ", "lee", '["view"]'), r"tokens.named\[0\].name must be a name of 1 to 64 printable"),
        (NAMED.format("operator", "lee", '["view"]'), r"tokens.named\[0\].name must be different from the others'"),
        (2 * NAMED.format("Lee", "lee", '["view"]'), r"tokens.named\[1\].name must be different from the others'"),
    ],
)
def test_a_named_token_that_is_none(write, section, said):
    with pytest.raises(Exception, match=said):
        read_config(write(LEAST + section))


def test_a_name_alone_may_let_ask_for_arms(write):
    text = LEAST.replace('application = "app"', "") + NAMED.format("shop", "app", '["{}"]')
    assert len(read_tokens(read_config(write(text.format("decide"))))) == 1
    with pytest.raises(Exception, match=r"'tokens\.application' is missing"):
        read_config(write(text.format("view")))


def test_nobody_acts_in_the_name_of_another_by_default(write):
    """The operator's own token, or the only one; of several people each says who he is."""
    both = NAMED.format("Meier", "meier", '["operator"]') + NAMED.format("Lee", "lee", '["view", "arms"]')
    config = read_config(write(LEAST + both))
    with pytest.raises(Exception, match="say who you are with --token-file FILE: 'arms' is a right of Meier, Lee"):
        token_with(config, "arms")
    assert token_with(config, "members").startswith("meier"), "the only one"
    assert token_with(config, "view").startswith("app"), "to look is nobody's deed"
    config = read_config(write(LEAST + 'operator = "operator"\n' + both))
    assert token_with(config, "arms").startswith("operator")


def test_the_command_line_acts_in_the_name_of_a_token_file(write, tmp_path, caplog):
    """By option or by environment; a file that others can read is refused."""
    (tmp_path / "lee").write_text(f"{LEE}\n")
    with serving(tmp_path / "agent", tokens=PEOPLE) as agent:
        text = LEAST.replace("epsilon = 1.0", "epsilon = 1.0\nfirst_batch = 4")
        config = write(f'{text}\n[listen]\nhttp = "127.0.0.1:{agent.port}"\n')
        stop = ["arm", "suspend", "metformin", "--reason", "recalled", "-c", str(config)]
        assert "no token has the right 'arms'" in CliRunner().invoke(app, stop).output
        with caplog.at_level(logging.WARNING, "fedbandit.agent"):
            ran = CliRunner().invoke(app, [*stop, "--token-file", str(tmp_path / "lee")])
            assert "Saved here, and sent" in ran.output, ran.output
            stop[2] = "glipizide"
            ran = CliRunner().invoke(app, stop, env={"FEDBANDIT_TOKEN_FILE": str(tmp_path / "lee")})
            assert "Saved here, and sent" in ran.output, ran.output
        assert [line.rpartition("; ")[2] for line in caplog.messages if "suspends the arm" in line] == [
            "by Lee: recalled",
            "by Lee: recalled",
        ]
        (tmp_path / "lee").chmod(0o644)
        ran = CliRunner().invoke(app, [*stop, "--token-file", str(tmp_path / "lee")])
        assert (ran.exit_code, "chmod 600" in ran.output) == (2, True)
