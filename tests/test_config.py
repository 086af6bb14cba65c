"""A site's file: what it means, and every mistake in words."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedbandit import FedBatch, FedLinear, FedUCB, GossipUCB, LinTS, LinUCB, TreeLinUCB
from fedbandit.agent.core.arms import remarks_on_names
from fedbandit.agent.core.federation import NO_FEATURES, Federation
from fedbandit.agent.disk.secret_files import read_secret
from fedbandit.agent.process.addresses import Address, address, listening_address, site_name
from fedbandit.agent.process.config import DIRECT, ConfigError, Neighbour, Tls, check_insecure, read_config
from fedbandit.agent.process.rights import ALL_RIGHTS, Caller
from fedbandit.agent.process.tokens import read_tokens, token_with
from fedbandit.checks import FileError, InvalidArgument

EXAMPLE = Path(__file__).parents[1] / "examples" / "site.toml"
LISTEN_AT = "host:port with a port from 0 to 65535 (0: any free one), an IPv6 host in brackets"
DIAL = "host:port with a port from 1 to 65535, an IPv6 host in brackets"
PROXY = "a URL such as 'http://proxy.example.org:3128', or 'none'"
NAME = "a DNS name of lower-case letters, digits and hyphens, 63 at most between dots, not ending in .NUMBER"

LEAST = """
name = "north"
data = "data"

[federation]
name = "diabetes"
max_agents = 3
arms = ["insulin", "metformin"]
rewards = [0, 1]
policy.epsilon = 1.0
"""


@pytest.fixture
def write(tmp_path):
    def written(text):
        path = tmp_path / "site.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return written


def mistakes(path, call=read_config):
    """The lines of the error, without the file's name, which each must have."""
    with pytest.raises(ConfigError) as error:
        call(path)
    lines = str(error.value).split("\n")
    assert all(line.startswith(f"{path}: ") for line in lines)
    return [line.removeprefix(f"{path}: ") for line in lines]


def test_the_example():
    config = read_config(EXAMPLE)
    folder = EXAMPLE.parent
    assert config.name == "north"
    assert config.data == folder / "data"
    assert not config.data.exists(), "reading makes no folder"
    arms, window = ("insulin", "metformin", "no drug"), 35 * 86_400.0
    assert config.terms == Federation("diabetes", arms, 0, 1, FedBatch(1.0), reward_window=window, default_reward=0)
    assert config.tls == Tls(folder / "certs/north.crt", folder / "certs/north.key", folder / "certs/ca.crt")
    assert config.http == Address("127.0.0.1", 8400)
    assert config.gossip == Address("0.0.0.0", 8500)  # noqa: S104
    assert config.token_file is None
    assert config.expire_after == 30 * 24 * 3600
    assert config.keep == 20_000
    assert config.neighbours == (
        Neighbour("east", Address("east.example", 8500)),
        Neighbour("south", None),
    )
    assert config.path == EXAMPLE
    check_insecure(config, insecure=False)


def test_the_examples_token(tmp_path):
    """Its command makes a file that the agent accepts, also where new files are open to others."""
    (command,) = re.findall(r"\(umask .*\)", EXAMPLE.read_text())
    subprocess.run(["/bin/sh", "-c", f"umask 022; {command}"], cwd=tmp_path, check=True, capture_output=True)
    path = tmp_path / "site.toml"
    path.write_text(EXAMPLE.read_text().replace("# token_file", "token_file"))
    ((token, caller),) = read_tokens(read_config(path)).items()
    assert re.fullmatch("[0-9a-f]{64}", token)
    assert caller == Caller("token_file", ALL_RIGHTS)


def test_what_may_be_left_out_has_the_defaults_of_the_example(write):
    config, example = read_config(write(LEAST)), read_config(EXAMPLE)
    assert (config.http, config.expire_after, config.keep) == (example.http, example.expire_after, example.keep)
    assert config.terms.policy == example.terms.policy
    assert (config.gossip, config.tls, config.token_file, config.neighbours) == (None, None, None, ())


def test_a_policy_has_its_fields(write):
    config = read_config(write(LEAST + 'policy.index = "ucb"\npolicy.first_batch = 7\n'))
    assert config.terms.policy == FedBatch(1.0, index="ucb", first_batch=7)


@pytest.mark.parametrize(
    ("table", "policy"),
    [('policy.kind = "gossip_ucb"', GossipUCB()), ('policy.kind = "fed_ucb"\npolicy.epsilon = 2', FedUCB(2.0))],
)
def test_the_federation_judges_other_kinds_of_policies(write, table, policy):
    """The file must say the same as the call, be it accepted or not."""
    path = write(LEAST.replace("policy.epsilon = 1.0", table))
    assert outcome(lambda: read_config(path).terms).removeprefix(f"{path}: federation.") == outcome(
        lambda: Federation("diabetes", ("insulin", "metformin"), 0, 1, policy, max_agents=3)
    )


@pytest.mark.parametrize(
    "table",
    ["[federation.features]\nage = [18, 100]", "[[federation.features]]", 'features = ["age"]', "features.x = 1"],
)
@pytest.mark.parametrize("other", ["", "\n[listen]\nhtp = 1\n"])
def test_features_in_the_terms_are_refused_in_words(write, table, other):
    """Also beside other mistakes; and no other key is suggested."""
    told, *further = mistakes(write(LEAST + table + "\n" + other))
    assert told == f"'federation.features' must be left out. {NO_FEATURES}"
    assert len(further) == bool(other)
    assert "unknown key 'federation" not in "".join(further)


@pytest.mark.parametrize("kind", ["fed_linear", "FedLinear", "lin_ucb", "LinTS", "tree_lin_ucb"])
def test_a_policy_that_takes_features_is_refused_in_words(write, kind):
    (told,) = mistakes(write(LEAST + f'policy.kind = "{kind}"'))
    assert told.startswith("federation.policy.kind must be one of fed_batch")
    assert told.endswith(NO_FEATURES)
    built_in = [FedLinear(1.0), LinUCB(), LinTS(), TreeLinUCB(1.0)]
    for policy in built_in:
        with pytest.raises(InvalidArgument, match="policy must be one that takes no features") as error:
            Federation("diabetes", ("insulin", "metformin"), 0, 1, policy, max_agents=3)
        assert str(error.value).endswith(NO_FEATURES)


def test_an_own_policy_that_takes_features_is_refused_in_words(write):
    kind = f"{__name__}:OwnLinear"
    path = write(f'trust_policy = "{kind}"\n' + LEAST.replace("policy.epsilon = 1.0", f'policy.kind = "{kind}"'))
    (told,) = mistakes(path)
    assert told == f"{kind}: its page has context='features'. {NO_FEATURES}"


@dataclass(frozen=True)
class OwnLinear:
    """LinUCB by another name."""

    def page(self):
        return LinUCB().page()

    def terms(self, setting):
        return LinUCB().terms(setting)


@pytest.mark.parametrize("check", [["--check"], []])
def test_a_site_with_features_neither_checks_nor_starts(write, check):
    path = write(LEAST + "[federation.features]\nage = [18, 100]\n")
    agent = [sys.executable, "-m", "fedbandit", "agent", *check, "-c", path]  # in a process: an agent sets its umask
    ran = subprocess.run(agent, capture_output=True, text=True)
    assert ran.returncode == 2
    assert " ".join(NO_FEATURES.split()[:4]) in " ".join(ran.stderr.split())
    assert not (path.parent / "data").exists()


def outcome(call):
    try:
        return repr(call())
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        # Keys: unknown, missing, of another type.
        (
            "max_agents",
            "max_agent",
            [
                "unknown key 'federation.max_agent'. Did you mean 'max_agents'? "
                "Known: name, max_agents, arms, rewards, reward_window, default_reward, counts, "
                "max_decisions_per_day, largest_share, shares, guardrails, context, evaluation, words, plan, policy",
            ],
        ),
        ('name = "north"\n', "", "'name' is missing"),
        ('data = "data"\n', "", "'data' is missing"),
        ("max_agents = 3", 'max_agents = "3"', "federation.max_agents must be a valid integer, not '3'"),
        ("max_agents = 3", "max_agents = 3.0", "federation.max_agents must be a valid integer, not 3.0"),
        ("max_agents = 3", "max_agents = true", "federation.max_agents must be a valid integer, not True"),
        ('"metformin"]', "7]", "federation.arms[1] must be a valid string, not 7"),
        ('data = "data"', 'data = ""', "data must be a file or folder, not ''"),
        # The site's name.
        ('"north"', '"North"', f"name must be {NAME}, not 'North'"),
        ('"north"', '"10.0.0.1"', f"name must be {NAME}, not '10.0.0.1'"),
        # The federation's own checks, with their place.
        ("max_agents = 3", "max_agents = 0", "federation.max_agents must be a whole number from 1 to 1000000, not 0"),
        (
            '["insulin", "metformin"]',
            '["insulin"]',
            "federation.arms must be two or more different names, not ('insulin',)",
        ),
        (
            "[0, 1]",
            "[1, 0]",
            "federation.rewards must be two numbers, the lowest and the highest reward, not [1.0, 0.0]",
        ),
        ("[0, 1]", "[0]", "federation.rewards must be two numbers, the lowest and the highest reward, not [0.0]"),
        (
            "[0, 1]",
            "[0, nan]",
            "federation.rewards must be two numbers, the lowest and the highest reward, not [0.0, nan]",
        ),
        ("[0, 1]", "[0, inf]", "federation.rewards[1] must be a finite number, not inf"),
        ("[0, 1]", "[-1e13, 1]", "federation.rewards[0] must be at most 1e+12 in size, not -10000000000000.0"),
        ("epsilon = 1.0", "epsilon = 0", "federation.policy.epsilon must be a number above 0 (inf allowed), not 0"),
        ("epsilon = 1.0", 'epsilon = "1"', "federation.policy.epsilon must be a number above 0 (inf allowed), not '1'"),
        ("epsilon = 1.0", "epsilon = [1.0, 2.0]", "federation.policy.epsilon must be one value, not [1.0, 2.0]"),
        (
            "epsilon = 1.0",
            "epsilon = 1.0\npolicy.index = ['ucb']",
            "federation.policy.index must be one value, not ['ucb']",
        ),
        (
            "epsilon = 1.0",
            "epsilon = 1.0\npolicy.catches_up = true",
            "federation.policy.catches_up must be False: live sites do not act in step, not True",
        ),
        (
            "policy.epsilon = 1.0",
            "",
            "federation.policy (fed_batch) must be given epsilon, not {'kind': 'fed_batch'}",
        ),
        (
            "policy.epsilon",
            "policy.epsilom",
            "a key of federation.policy (fed_batch) must be one of kind, epsilon, index, radius, first_batch, growth, "
            "sigma, catches_up, assume_sensitivity, expected_decisions, context, not 'epsilom'. Did you mean "
            "'epsilon'?",
        ),
        (
            "epsilon = 1.0",
            'kind = "fed_bach"',
            "federation.policy.kind must be one of fed_batch, fed_ucb, gossip_ucb, or module:Class, not 'fed_bach'. "
            "Did you mean 'fed_batch'?",
        ),
        (
            "epsilon = 1.0",
            'kind = "central_ucb"',
            "federation.policy.kind must be one of fed_batch, fed_ucb, gossip_ucb, or module:Class, not 'central_ucb'",
        ),
    ],
)
def test_a_mistake_is_named(write, before, after, message):
    assert before in LEAST
    found = mistakes(write(LEAST.replace(before, after, 1)))
    assert found == ([message] if isinstance(message, str) else message)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("[tls]\ncertificate = 'a'\nkey = 'b'", "'tls.ca' is missing"),
        ("[listen]\nhttp = 8400", "listen.http must be a text, not 8400"),
        ("[listen]\nhttp = '127.0.0.1'", f"listen.http must be {LISTEN_AT}, not '127.0.0.1'"),
        (
            "[listen]\nhttp = '0.0.0.0:8400'",
            "listen.http must be a loopback address unless listen.token_file or tokens.application is given, "
            "not '0.0.0.0:8400'",
        ),
        (
            "[listen]\ngossip = '127.0.0.1:8400'",
            "listen.gossip must be different from listen.http, not '127.0.0.1:8400'",
        ),
        (
            "[decisions]\nexpire_after_hours = 0",
            "decisions.expire_after_hours must be a number above 0 and at most 1e+06, not 0.0",
        ),
        (
            "[decisions]\nexpire_after_hours = nan",
            "decisions.expire_after_hours must be a number above 0 and at most 1e+06, not nan",
        ),
        ("[decisions]\nkeep = 0", "decisions.keep must be a whole number from 1 to 100000000, not 0"),
        ("[[neighbours]]\nname = 'a b'\naddress = 'a:1'", f"neighbours[0].name must be {NAME}, not 'a b'"),
        ("[[neighbours]]\nname = 'east'\naddress = 'a:0'", f"neighbours[0].address must be {DIAL}, not 'a:0'"),
        (
            "[[neighbours]]\nname = 'east'\naddress = 'a:1'\nproxy = 'proxy:3128'",
            f"neighbours[0].proxy must be {PROXY}, not 'proxy:3128'",
        ),
        (
            "[[neighbours]]\nname = 'east'\naddress = 'a:1'\nproxy = 'http://proxy:0'",
            f"neighbours[0].proxy must be {PROXY}, not 'http://proxy:0'",
        ),
        (
            "[listen]\ngossip = ':1'\n[[neighbours]]\nname = 'east'\nproxy = 'none'".replace("':1'", "'a:1'"),
            "'neighbours[0].address' is missing: only a link that this site dials can go through a proxy",
        ),
        ("[members]\nrefuse = ['north']", "members.refuse must be other sites than this one, not ['north']"),
        ("[members]\nrefuse = ['No name']", f"members.refuse must be {NAME}, not 'No name'"),
        (
            "[[neighbours]]\nname = 'east'\nadress = 'a:1'",
            "unknown key 'neighbours[0].adress'. Did you mean 'address'? Known: name, address, proxy",
        ),
        (
            "[[neighbours]]\nname = 'north'\naddress = 'a:1'",
            "neighbours[0].name must be different from the site's own, not 'north'",
        ),
        (
            "[[neighbours]]\nname = 'east'\naddress = 'a:1'\n[[neighbours]]\nname = 'east'\naddress = 'b:1'",
            "neighbours[1].name must be different from the others', not 'east'",
        ),
        (
            "[[neighbours]]\nname = 'east'",
            "'neighbours[0].address' is missing: without listen.gossip nobody can dial this site",
        ),
        (
            "[[neighbors]]\nname = 'east'",
            "unknown key 'neighbors'. Did you mean 'neighbours'? "
            "Known: name, data, witness, trust_policy, federation, tls, listen, http, tokens, decisions, arms, "
            "members, history, neighbours",
        ),
    ],
)
def test_a_mistake_in_another_section_is_named(write, more, message):
    assert mistakes(write(LEAST + more)) == [message]


def test_several_mistakes_at_once(write):
    text = LEAST.replace('"north"', '"North"').replace("max_agents = 3", "max_agents = '3'")
    more = "[listen]\ngossip = ':1'\nhtpp = 'localhost:1'\n[[neighbours]]\nname = 'x'\n[[neighbours]]\nname = 'Y'\n"
    assert mistakes(write(text + more)) == [
        f"name must be {NAME}, not 'North'",
        "federation.max_agents must be a valid integer, not '3'",
        f"listen.gossip must be {LISTEN_AT}, not ':1'",
        "unknown key 'listen.htpp'. Did you mean 'http'? Known: http, gossip, token_file",
        f"neighbours[1].name must be {NAME}, not 'Y'",
    ]


def test_several_contradictions_at_once(write):
    more = "[listen]\nhttp = '[::]:80'\n[[neighbours]]\nname = 'north'\n"
    assert mistakes(write(LEAST.replace("epsilon = 1.0", "epsilon = inf") + more)) == [
        "federation.policy.epsilon must be finite, not inf. The policy without privacy is gossip_ucb.",
        "listen.http must be a loopback address unless listen.token_file or tokens.application is given, not '[::]:80'",
        "neighbours[0].name must be different from the site's own, not 'north'",
        "'neighbours[0].address' is missing: without listen.gossip nobody can dial this site",
    ]


def test_files_that_are_none(write, tmp_path):
    assert mistakes(tmp_path / "missing.toml") == ["no such file"]
    assert mistakes(write("name = ")) == ["Invalid value (at end of document)"]
    path = tmp_path / "latin.toml"
    path.write_bytes(b'name = "caf\xe9"')
    assert "can't decode" in mistakes(path)[0]
    with pytest.raises(ConfigError, match="is not a regular file, but a folder"):
        read_config(tmp_path)


def test_names():
    for good in ("north", "a", "n-1.example.org", "1a", "a" * 63, ".".join(["a" * 49] * 5)):
        assert site_name(good) == good
    bad = (
        "",
        "North",
        "a_b",
        "-a",
        "a-",
        "a..b",
        ".a",
        "a.",
        "a" * 64,
        "é",
        "a b",
        "a\n",
        "*.a",
        "7",
        "10.0.0.1",
        "a.1",
    )
    for name in (*bad, ".".join(["a" * 50] * 5)):
        with pytest.raises(InvalidArgument):
            site_name(name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:8400", Address("127.0.0.1", 8400)),
        ("East.example:65535", Address("East.example", 65535)),
        ("site_1:1", Address("site_1", 1)),
        ("[::1]:80", Address("::1", 80)),
        ("[2001:db8::7]:443", Address("2001:db8::7", 443)),
    ],
)
def test_addresses(text, expected):
    assert address(text) == listening_address(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize(
    "text",
    [
        "a",
        ":80",
        "a:",
        "a:x",
        "a:-1",
        "a:+1",
        "a:65536",
        "a:080000",
        "a:1.0",
        "::1:80",
        "[::1]",
        "[::1]80",
        "[a]:80",
        "[127.0.0.1]:80",
        "[]:80",
        "256.0.0.1:80",
        "1.2.3:80",
        "http://a:80",
        "a/b:80",
        "-a:80",
        "a..b:80",
        "[fe80::1%eth0]:80",
        "[[::1]]:80",
        "a:٣",
        "a b:80",
        "a:80\n",
        " a:80",
        "",
    ],
)
def test_what_is_no_address(text):
    for parse in (address, listening_address):
        with pytest.raises(InvalidArgument, match="must be host:port"):
            parse(text)


def test_port_0_is_for_listening_only():
    assert listening_address("localhost:0") == Address("localhost", 0)
    with pytest.raises(InvalidArgument, match="from 1 to 65535"):
        address("localhost:0")


def test_both_doors_may_leave_their_port_to_the_system(write):
    config = read_config(write(LEAST + "[listen]\nhttp = '127.0.0.1:0'\ngossip = '127.0.0.1:0'"))
    assert config.http == config.gossip == Address("127.0.0.1", 0)


def test_loopback():
    for host in ("127.0.0.1", "127.8.9.10", "::1", "localhost", "LocalHost"):
        assert Address(host, 1).is_loopback
    for host in ("0.0.0.0", "10.0.0.1", "128.0.0.1", "::", "2001:db8::1", "localhost.example", "east"):  # noqa: S104
        assert not Address(host, 1).is_loopback


def test_insecure_is_for_one_machine(write):
    more = "[listen]\nhttp = '0.0.0.0:0'\ngossip = '[::]:0'\ntoken_file = 't'\n"
    more += "[[neighbours]]\nname = 'a'\naddress = 'localhost:1'\n[[neighbours]]\nname = 'b'\n"
    more += "[[neighbours]]\nname = 'c'\naddress = 'c.example:1'"
    config = read_config(write(LEAST + more))
    accepted = "a loopback address (127.0.0.1, [::1], localhost) with --insecure"
    assert mistakes(config.path, lambda _: check_insecure(config, insecure=True)) == [
        f"listen.http must be {accepted}, not '0.0.0.0:0'",
        f"listen.gossip must be {accepted}, not '[::]:0'",
        f"neighbours[2].address must be {accepted}, not 'c.example:1'",
    ]


def test_certificates_are_the_rule(write):
    config = read_config(write(LEAST))
    check_insecure(config, insecure=True)
    assert mistakes(config.path, lambda _: check_insecure(config, insecure=False)) == [
        "'tls' is missing: certificate, key and ca. Without them a site runs with --insecure only, on one machine, "
        "for tests"
    ]


@pytest.fixture
def with_token(write, tmp_path):
    def written(content, mode=0o600):
        path = tmp_path / "token"
        path.write_bytes(content)
        path.chmod(mode)
        return read_config(write(LEAST + "[listen]\ntoken_file = 'token'\nhttp = '0.0.0.0:8400'"))

    return written


def test_a_token(write, with_token):
    assert read_tokens(read_config(write(LEAST))) is None
    assert read_tokens(with_token(b"0123456789abcdef\n")) == {"0123456789abcdef": Caller("token_file", ALL_RIGHTS)}
    assert read_tokens(with_token(b"0123456789abcdef", 0o400)) == {"0123456789abcdef": Caller("token_file", ALL_RIGHTS)}


def write_token(path, content):
    path.write_bytes(content)
    path.chmod(0o600)


def test_tokens_of_roles(write, tmp_path):
    """Each file gives the rights of its role; the one with all rights may stand beside them."""
    sections = "[listen]\ntoken_file = 'all'\n[tokens]\n"
    for role in ("application", "viewer", "operator"):
        write_token(tmp_path / role, f"token-of-the-{role}".encode())
        sections += f"{role} = '{role}'\n"
    write_token(tmp_path / "all", b"token-of-everybody")
    config = read_config(write(LEAST + sections))
    assert {token: it.rights for token, it in read_tokens(config).items()} == {
        "token-of-everybody": ALL_RIGHTS,
        "token-of-the-application": {"decide", "report", "view"},
        "token-of-the-viewer": {"view"},
        "token-of-the-operator": {"view", "members", "restore", "arms", "log", "audit"},
    }
    assert token_with(config, "members") == "token-of-the-operator", "not one that could decide, too"
    assert token_with(config, "view") == "token-of-the-viewer"
    assert token_with(read_config(write(LEAST)), "view") is None
    write_token(tmp_path / "viewer", b"token-of-the-application")
    assert mistakes(config.path, lambda _: read_tokens(config)) == [
        f"tokens.viewer: {tmp_path / 'viewer'} holds the token of another: each needs its own"
    ]
    alone = read_config(write(LEAST + "[listen]\nhttp = '0.0.0.0:80'\n[tokens]\napplication = 'application'\n"))
    assert mistakes(alone.path, lambda _: token_with(alone, "members")) == [
        "no token has the right 'members': see [tokens] in examples/site.toml"
    ]


def test_tokens_with_which_nobody_could_decide(write):
    assert mistakes(write(LEAST + "[tokens]\nviewer = 'viewer'\n")) == [
        "'tokens.application' is missing: with the tokens given nobody could ask for an arm"
    ]


@pytest.mark.parametrize(
    "content",
    [b"", b"0123456789abcde\n", b"0123456789abcdef\nmore\n", b"0123456789 abcdef", b"0123456789abcdef\xc3\xa9"],
)
def test_a_bad_token_is_refused_and_not_told(with_token, content):
    config = with_token(content)
    assert mistakes(config.path, lambda _: read_tokens(config)) == [
        f"listen.token_file: {config.token_file} must be one line of at least 16 letters, digits or ._~+/-: "
        f"openssl rand -hex 32 > {config.token_file}"
    ]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_a_token_that_others_can_read_is_refused(with_token, mode):
    config = with_token(b"0123456789abcdef\n", mode)
    assert mistakes(config.path, lambda _: read_tokens(config)) == [
        f"listen.token_file: {config.token_file} has mode {mode:04o}, open to others than its owner: "
        f"chmod 600 {config.token_file}"
    ]


def test_a_token_that_is_missing(with_token):
    config = with_token(b"")
    config.token_file.unlink()
    assert mistakes(config.path, lambda _: read_tokens(config)) == [
        f"listen.token_file: {config.token_file}: no such file"
    ]


def test_reading_a_file_is_light():
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from fedbandit.agent.process.config import read_config\n"
        f"read_config(Path({str(EXAMPLE)!r}))\n"
        "print(*sorted({'numba', 'numpy', 'opendp', 'networkx', 'typer', 'fedbandit.simulation'} & set(sys.modules)))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert ran.stdout.strip() == ""


@pytest.mark.parametrize(
    ("text", "seconds"),
    [('"30 days"', 2_592_000.0), ('"1 day"', 86_400.0), ('"12 hours"', 43_200.0), ('"90 s"', 90.0), ("0", 0.0)],
)
def test_a_reward_window_has_a_unit(text, seconds, tmp_path):
    path = tmp_path / "site.toml"
    path.write_text(LEAST.replace("max_agents = 3", f"max_agents = 3\nreward_window = {text}\ndefault_reward = 0.5"))
    terms = read_config(path).terms
    assert (terms.reward_window, terms.default_reward) == (seconds, 0.5)


def test_a_number_of_thousands_of_digits_and_a_value_in_place_of_a_table(write):
    assert mistakes(write(LEAST + "max_agents = " + "9" * 5000)) == ["a number has too many digits"]
    said = mistakes(write('name = "north"\ndata = "data"\nfederation = 3'))
    assert said == ["federation must be a table, [federation], not 3"]


def test_mistakes_in_the_terms_are_told_with_those_of_other_sections(write):
    path = write(
        LEAST.replace("rewards = [0, 1]", "rewards = [1, 0]").replace("epsilon = 1.0", "epsilon = -1.0")
        + "[listen]\nhttp = 'localhost'\n"
    )
    fields = [said.split()[0] for said in mistakes(path)]
    assert fields == ["listen.http", "federation.rewards", "federation.policy.epsilon"]


WORDS = """[federation.words]
arm = "treatment"
failure = "failure"
[federation.plan]
question = "Which?"
starts = 2026-03-02
patients = 4000
stops = "never"
"""


def test_words_and_plans_are_terms(write):
    """All sites agree on them; who says nothing has the terms of before."""
    plain, told = read_config(write(LEAST)).terms, read_config(write(LEAST + WORDS)).terms
    assert (told.words.arm, told.words.reward, told.words.failure) == ("treatment", "reward", "failure")
    assert (told.plan.starts, told.plan.patients) == ("2026-03-02", 4000)
    assert told.digest() != plain.digest()
    assert not {"words", "plan"} & plain.terms().keys()
    assert told.terms()["words"] == {"arm": "treatment", "failure": "failure"}
    assert any(line.startswith("plan.patients: 4000 here, absent there") for line in told.difference(plain.terms()))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('"treatment"', '""', "federation.words.arm must be a noun in the singular, of at most 40 letters, not ''"),
        ('"treatment"', f'"{41 * "a"}"', "federation.words.arm must be a noun in the singular"),
        ("2026-03-02", '"soon"', "federation.plan.starts must be a day such as 2026-03-02, not 'soon'"),
        ("4000", "0", "federation.plan.patients must be"),
        ('"never"', '"a\\nb"', "federation.plan.stops must be a text of at most 1000 printable characters"),
    ],
)
def test_wrong_words_and_plans_are_named(write, before, after, said):
    (line,) = mistakes(write(LEAST + WORDS.replace(before, after)))
    assert line.startswith(said)


@pytest.mark.parametrize("text", ['"30"', "30", "false", '"-1 s"', '"5 weeks"', '"99999999 days"'])
def test_a_wrong_reward_window_is_named(text, tmp_path):
    path = tmp_path / "site.toml"
    path.write_text(LEAST.replace("max_agents = 3", f"max_agents = 3\nreward_window = {text}"))
    with pytest.raises(ConfigError, match=r"federation\.reward_window must be"):
        read_config(path)


def test_only_regular_files_are_read(tmp_path):
    """A pipe in their place must not make a running agent wait, nor a device give it content without end."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    huge = tmp_path / "huge"
    with huge.open("wb") as file:
        file.truncate(2**40)
    huge.chmod(0o600)
    for path, told in ((pipe, "a named pipe"), (tmp_path, "a folder"), (Path("/dev/null"), "a device")):
        with pytest.raises(ConfigError, match=f"{path} is not a regular file, but {told}"):
            read_config(path)
        with pytest.raises(FileError, match=f"{path} is not a regular file, but {told}"):
            read_secret(path)
    for read in (read_config, read_secret):
        with pytest.raises(FileError, match="has 1099511627776 bytes; at most"):
            read(huge)


@pytest.mark.parametrize(
    ("given", "accepts"),
    [("", frozenset()), ("accept = []", frozenset()), ("accept = ['north', 'east']", {"north", "east"})],
)
def test_whose_changes_of_the_arms_are_accepted(write, given, accepts):
    assert read_config(write(f"{LEAST}[arms]\n{given}\n")).accepts == accepts
    assert read_config(write(LEAST + "[arms]\naccept = 'anyone'\n")).accepts == "anyone"


@pytest.mark.parametrize("given", ["'somebody'", "3", "[3]", "['Not a name!']"])
def test_a_mistake_in_whom_to_accept_is_named(write, given):
    path = write(f"{LEAST}[arms]\naccept = {given}\n")
    assert "arms.accept" in mistakes(path)[0]


def test_brackets_without_end(write):
    assert mistakes(write(f"x = {'[' * 3000}")) == ["brackets are nested too deeply"]
    first = mistakes(write(f"name{'.a' * 3000} = 1"))[0]
    assert first.startswith("name must be a valid string")
    assert len(first) < 300


def test_members_to_refuse_revoked_certificates_and_proxies(write, tmp_path):
    config = read_config(write(LEAST))
    assert config.refuse == frozenset()
    more = "[members]\nrefuse = ['west', 'south']\n[tls]\ncertificate = 'a'\nkey = 'b'\nca = 'c'\ncrl = 'd'\n"
    for name, proxy in (("a", "proxy = 'http://user:word@proxy.example:3128'"), ("b", "proxy = 'none'"), ("c", "")):
        more += f"[[neighbours]]\nname = '{name}'\naddress = 'a:1'\n{proxy}\n"
    config = read_config(write(LEAST + more))
    assert config.refuse == {"west", "south"}
    assert config.tls is not None
    assert config.tls.crl == tmp_path / "d"
    proxies = [it.proxy for it in config.neighbours]
    assert proxies == ["http://user:word@proxy.example:3128", DIRECT, None]


def test_a_neighbour_that_is_refused_is_not_linked(write):
    """Whoever refuses a neighbour in a hurry need not edit a second section; the mistakes of that one still count."""
    links = "[[neighbours]]\nname = 'east'\naddress = 'a:1'\n[[neighbours]]\nname = 'west'\naddress = 'b:1'\n"
    config = read_config(write(f"{LEAST}[members]\nrefuse = ['east', 'south']\n{links}"))
    assert [it.name for it in config.neighbours] == ["west"]
    assert (config.refuse, config.not_linked) == ({"east", "south"}, ("east",))


def test_the_largest_share_is_a_term(write):
    config = read_config(write(LEAST))
    assert config.terms.largest_share == 0.5
    other = read_config(write(LEAST.replace('name = "diabetes"', 'name = "diabetes"\nlargest_share = 0.25')))
    assert other.terms.largest_share == 0.25
    assert other.terms.digest() != config.terms.digest()
    said = mistakes(write(LEAST.replace('name = "diabetes"', 'name = "diabetes"\nlargest_share = 0.0')))
    assert "federation.largest_share must be" in said[0]


@pytest.mark.parametrize("name", ["\u3164", " ", "a\u2800", "a" + 9 * "\u0301", "a\u200bb", "a\u202eb", "\ufeff"])
def test_arms_whose_names_cannot_be_read(write, tmp_path, name):
    path = write(LEAST.replace('"metformin"', f'"{name}"'))
    (said,) = mistakes(path)
    assert said.startswith("federation.arms[1] must be a name that can be read")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "state.sqlite").touch()  # it has begun with that name
    assert read_config(path).terms.arms == ("insulin", name)


def test_a_data_folder_that_this_user_may_not_look_into_hides_nothing(write, monkeypatch):
    """An agent makes its folder for its own user: another one's ``fedbandit status`` reads the same file."""
    look = Path.stat

    def refuse(path, **named):
        if path.name == "state.sqlite":
            raise PermissionError(13, "Permission denied", str(path))
        return look(path, **named)

    path = write(LEAST)
    monkeypatch.setattr(Path, "stat", refuse)
    assert read_config(path).terms.arms == ("insulin", "metformin")


@pytest.mark.parametrize("name", ["Insulin", "insulin ", "\uff49nsulin", "\u0456nsulin", "INSULI\u039d"])
def test_arms_that_look_alike_may_be_terms(write, name):
    """Nobody can rename an arm of the terms: a site that has lost its disk, or joins, begins with them."""
    path = write(LEAST.replace('"metformin"', f'"{name}"'))
    assert read_config(path).terms.arms == ("insulin", name)
    assert "cannot tell the arms 'insulin'" in remarks_on_names(("insulin", name))[0]
    (said,) = mistakes(write(LEAST.replace('"metformin"', '"insulin"')))
    assert "federation.arms" in said
