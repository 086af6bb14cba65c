"""``check_policy`` passes what is sound and accuses planted leaks; the tutorial runs as printed, also at live sites.

Can it fail? Each leak below is a bug planted into FedBatch, which passes.
"""

import importlib
import re
import sys
import warnings
from functools import partial
from pathlib import Path

import pytest

import groups
from fedbandit import AdaPUCB, Client, FedBatch, FedUCB, PrivacyWarning, Problem, simulate
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.process.config import ConfigError, read_config
from fedbandit.checks import InvalidArgument
from fedbandit.local.processes import LocalFederation
from fedbandit.policies.registry import WrongPage
from fedbandit.testing import check_policy
from fedbandit.testing.memory_network import MemoryNetwork
from fedbandit.world import graph

TUTORIAL = (Path(__file__).parents[1] / "docs" / "own-policy.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TUTORIAL, re.DOTALL)
MODULES = {found[1]: block for block in BLOCKS if (found := re.match(r"# (\w+)\.py\n", block))}


@pytest.fixture(scope="module")
def tutorial(tmp_path_factory):
    """The folder with the tutorial's modules."""
    folder = tmp_path_factory.mktemp("tutorial")
    for name, text in MODULES.items():
        (folder / f"{name}.py").write_text(text)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    yield folder
    sys.path.remove(str(folder))
    for name in MODULES:
        sys.modules.pop(name, None)


# ---------------------------------------------------------------- the tutorial


@pytest.mark.docs
def test_the_tutorial_runs_as_printed(tutorial, capsys):
    assert list(MODULES) == ["my_policies", "bold_batch", "private_mean", "heard", "by_stratum", "by_features"]
    for text in (MODULES["my_policies"], MODULES["bold_batch"]):
        assert len([line for line in text.splitlines() if line.strip()]) <= 40
    for block in BLOCKS:
        if not block.startswith("# "):
            exec(block, {})  # noqa: S102
    printed = capsys.readouterr().out
    regret = {name: float(re.search(rf"{name}\S*\s+([\d.]+)", printed)[1]) for name in ("EpsilonGreedy", "Gossip_UCB")}
    assert regret["EpsilonGreedy"] < regret["Gossip_UCB"]
    told = printed[printed.rindex("ByFeatures") :]
    linear = {name: float(re.search(rf"{name}\S*\s+([\d.]+)", told)[1]) for name in ("ByFeatures", "UCB1")}
    assert linear["ByFeatures"] < linear["UCB1"] / 2


def test_the_tutorials_draws_are_fed_batchs(tutorial):
    """As wide as FedBatch's they choose the same arms."""
    (tutorial / "bold_as_batch.py").write_text(MODULES["bold_batch"].replace("WIDTH = 0.5", "WIDTH = 1.0"))
    importlib.invalidate_caches()
    as_wide = importlib.import_module("bold_as_batch").BoldBatch(1.0)
    problem = Problem.bernoulli([[0.4, 0.6, 0.5], [0.5, 0.4, 0.6]], "path:2")
    found = simulate(problem, {"FedBatch": FedBatch(1.0), "bold": as_wide}, horizon=2000, trials=2).pulls
    assert (found.sel(policy="bold") == found.sel(policy="FedBatch")).all()


# ---------------------------------------------------------------- built-in policies

PRIVATE = {
    "fed_batch": partial(FedBatch, 2.0),
    "fed_batch, ucb": partial(FedBatch, 2.0, "ucb"),
    "fed_batch, kl": partial(FedBatch, 2.0, "kl"),
    "fed_ucb": partial(FedUCB, 1.0),
    "adap_ucb": partial(AdaPUCB, 1.0),
}


@pytest.mark.parametrize("case", groups.of_pages(PRIVATE, slow={"fed_batch, ucb", "fed_batch, kl"}))
def test_private_policies_keep_their_epsilon(case):
    check_policy(PRIVATE[case](), seeds=[3], horizon=50)


def test_fed_ucb_as_printed_is_accused():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        policy = FedUCB(1.0, paper=True)
    with pytest.raises(WrongPage, match="the page has no interval: nobody can tell"):
        check_policy(policy)


# ---------------------------------------------------------------- planted leaks

LEAKY = """
from dataclasses import dataclass
from math import inf, sqrt
from fedbandit import FedBatch
from fedbandit.policies import fed_batch
from fedbandit.rules import private
from fedbandit.rules.choose import highest

{functions}

@dataclass(frozen=True)
class Leaky:
    epsilon: float = 1.0

    def page(self):
        return FedBatch(self.epsilon).page()._replace({replaced})

    def terms(self, setting):
        terms = FedBatch(self.epsilon, first_batch=4).terms(setting)
        return terms._replace({terms})
"""
LEAKS = {
    "nothing": ("", "", "", ""),
    "raw mean published": (
        "def published(me, terms, arm):\n"
        "    value, weight = fed_batch.published(me, terms, arm)\n"
        "    return value + 0.001 * me.total[arm], weight\n",
        "published=published",
        "",
        r"published uses me\.total, which holds rewards that no noise hides yet",
    ),
    "the last digits of a mean": (
        "def published(me, terms, arm):\n"
        "    value, weight = fed_batch.published(me, terms, arm)\n"
        "    return value + 4e-10 * me.total[arm], weight\n",
        "published=published",
        "",
        r"published uses me\.total, which holds rewards that no noise hides yet",
    ),
    "the last digits, by comparison": (
        "def observe(me, terms, arm, reward, noise):\n"
        "    fed_batch.observe(me, terms, arm, reward, noise)\n"
        "    if reward > 0.5:\n"
        "        me.x_mean[arm] += 1e-12\n",
        "observe=observe",
        "",
        r"observe uses reward outside the rule",
    ),
    "raw sums weigh little in the choice": (
        "def decide(me, terms, seen, now, draws):\n"
        "    arm = fed_batch.decide_by_thompson(me, terms, seen, now, draws)\n"
        "    for k in range(len(me.n)):\n"
        "        me.belief[k] += 0.001 * me.total[k]\n"
        "    return highest(me.belief)\n",
        "decide=decide",
        "",
        r"decide uses me\.total, which holds rewards that no noise hides yet",
    ),
    "raw sums after many pulls": (
        "def decide(me, terms, seen, now, draws):\n"
        "    arm = fed_batch.decide_by_thompson(me, terms, seen, now, draws)\n"
        "    if me.n[arm] > 200 and me.total[arm] > 0.5:\n"
        "        return 0\n"
        "    return arm\n",
        "decide=decide",
        "",
        r"decide uses me\.total, which holds rewards that no noise hides yet",
    ),
    "math of a reward": (
        "def observe(me, terms, arm, reward, noise):\n"
        "    fed_batch.observe(me, terms, arm, reward, noise)\n"
        "    me.x_mean[arm] += 1e-3 * sqrt(reward * reward)\n",
        "observe=observe",
        "",
        r"observe uses reward outside the rule",
    ),
    "only in a federation of five": (
        "def published(me, terms, arm):\n"
        "    value, weight = fed_batch.published(me, terms, arm)\n"
        "    return (me.total[arm] if terms.num_agents == 5 else value), weight\n",
        "published=published",
        "",
        r"published uses me\.total, which holds rewards that no noise hides yet",
    ),
    "batch size by reward": (
        "def observe(me, terms, arm, reward, noise):\n"
        "    if reward > 0.9 and me.n[arm] + 1 < me.batch_end[arm]:\n"
        "        me.batch_end[arm] += 1\n"
        "    fed_batch.observe(me, terms, arm, reward, noise)\n",
        "observe=observe",
        "",
        r"observe must hand its reward and noise to a rule first",
    ),
    "noise on the first arm only": (
        "def noise_due(me, terms, arm):\n    return private.batch_due(me, terms, arm) if arm == 0 else 0\n",
        "noise_due=noise_due",
        "",
        r"noise_due must be private\.batch_due, since observe uses private\.collect",
    ),
    "noise too small": (
        "",
        "",
        "noise_scale=terms.noise_scale / 1.3",
        r"claims epsilon=1, but spends 1\.3 on a reward",
    ),
    "no clamping": (
        "",
        "",
        "low=-inf, high=inf",
        r"spends inf on a reward: rewards are clamped to -inf to inf",
    ),
    "decides by raw sums": (
        "def decide(me, terms, seen, now, draws):\n"
        "    arm = fed_batch.decide_by_thompson(me, terms, seen, now, draws)\n"
        "    return arm if me.total[arm] < 1.0 else (arm + 1) % len(me.n)\n",
        "decide=decide",
        "",
        r"decide uses me\.total, which holds rewards that no noise hides yet",
    ),
    "one draw for all releases": (
        "def noise_due(me, terms, arm):\n    return 1 if me.n[arm] + 1 == me.batch_end[arm] else 0\n",
        "noise_due=noise_due",
        "",
        r"noise_due must be private\.batch_due",
    ),
    "one interval twice": (
        "def interval(me, terms, arm, end):\n    return 1, 0\n",
        "interval=interval",
        "",
        r"interval must be private\.batch_interval",
    ),
    "no noise": ("", "noise_due=None, interval=None", "", r"claims epsilon=1 and asks for no noise"),
}


@pytest.mark.parametrize("leak", LEAKS)
def test_planted_leaks_are_accused(tmp_path, monkeypatch, leak):
    functions, replaced, terms, words = LEAKS[leak]
    name = f"leak_{list(LEAKS).index(leak)}"
    (tmp_path / f"{name}.py").write_text(LEAKY.format(functions=functions, replaced=replaced, terms=terms))
    monkeypatch.syspath_prepend(str(tmp_path))
    policy = importlib.import_module(name).Leaky()
    if leak == "nothing":
        check_policy(policy, seeds=[3], horizon=50)
        return
    world = graph.path(5) if "five" in leak else None
    with pytest.raises(WrongPage, match=words):
        check_policy(policy, seeds=[3], horizon=50, graph=world)


WRAPS = "me.n[arm] * 4611686018427387904 * 2 < 0"  # in compiled code, where whole numbers have 64 bits


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "    u = uniform(draws)",
            f"    arm = 0\n    if {WRAPS}:\n        return 1\n    u = uniform(draws)",
            "decide chooses arm",
        ),
        ("    return (terms", f"    if {WRAPS}:\n        return (-1.0,)\n    return (terms", "published gives other"),
        (
            "    return seen.theta[arm]",
            f"    return -1.0 if {WRAPS} else seen.theta[arm]",
            "estimate returns -1.0 in comp",
        ),
    ],
)
def test_what_compiled_code_does_otherwise_is_accused(tmp_path, monkeypatch, old, new, words):
    assert old in MODULES["my_policies"]
    (tmp_path / "wrapping.py").write_text(MODULES["my_policies"].replace(old, new, 1))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "wrapping", raising=False)
    with pytest.raises(WrongPage, match=words):
        check_policy(importlib.import_module("wrapping").EpsilonGreedy(), seeds=[3])


def test_hidden_state_is_accused(tmp_path, monkeypatch):
    """A counter that hides in an attribute of a function."""
    text = MODULES["my_policies"].replace("def decide(", "def count():\n    return 0\n\ncount.calls = 0\n\ndef decide(")
    counted = "    count.calls += 1\n    if count.calls % 7 == 0:\n        return 0\n    u = uniform(draws)"
    (tmp_path / "hiding.py").write_text(text.replace("    u = uniform(draws)", counted))
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(WrongPage, match=r"decide uses count\.calls, which keeps state between calls"):
        check_policy(importlib.import_module("hiding").EpsilonGreedy())


# ---------------------------------------------------------------- a live site


def policy_of(name):
    module, _, qualname = name.partition(":")
    return getattr(importlib.import_module(module), qualname)


GREEDY, BOLD = "my_policies:EpsilonGreedy", "bold_batch:BoldBatch"


@pytest.mark.parametrize("kind", [GREEDY, BOLD])
def test_live_sites_play_a_trusted_policy(tutorial, kind):
    policy = policy_of(kind)(0.2 if kind == GREEDY else 4.0)
    terms = Federation("f", ("a", "b", "c"), 0.0, 1.0, policy, kind, max_agents=2)
    assert terms.terms()["policy"]["kind"] == kind
    assert re.fullmatch("[0-9a-f]{64}", terms.terms()["policy"]["source"])
    assert "trusted" not in terms.terms()
    network = MemoryNetwork(terms, [("x", "y")])
    chosen = {"x": [], "y": []}
    for _ in range(150):
        for name in chosen:
            decision = network.decide(name)
            network.report(name, decision.id, 0.9 if decision.arm == 1 else 0.1)
            chosen[name].append(decision.arm)
        network.exchange("x", "y")
        network.run()
    for arms in chosen.values():
        assert arms[-60:].count(1) > 30
    network.crash("x")
    network.restart("x")
    assert network.decide("x").arm in (0, 1, 2)


def test_an_untrusted_policy_is_refused_by_name(tutorial):
    with pytest.raises(InvalidArgument, match=r'trust_policy = "my_policies:EpsilonGreedy" at the top of site.toml'):
        Federation("f", ("a", "b"), 0.0, 1.0, policy_of(GREEDY)(), max_agents=2)


def test_sites_with_other_code_have_other_terms(tutorial, tmp_path, monkeypatch):
    here = Federation("f", ("a", "b"), 0.0, 1.0, policy_of(BOLD)(1.0), BOLD, max_agents=2)
    (tmp_path / "bold_batch.py").write_text(MODULES["bold_batch"].replace("WIDTH = 0.5", "WIDTH = 0.6"))
    monkeypatch.delitem(sys.modules, "bold_batch")
    monkeypatch.syspath_prepend(str(tmp_path))
    there = Federation("f", ("a", "b"), 0.0, 1.0, policy_of(BOLD)(1.0), BOLD, max_agents=2)
    assert here.digest() != there.digest()
    assert [line.partition(":")[0] for line in here.difference(there.terms())] == ["policy.source"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('averaged=("theta",)', 'averaged=("mean",)', r"a live site gossips \('theta',\)"),
        ('network="gossip"', 'network="consensus"', "a live site plays pages of the network 'gossip'"),
        ("terms.share * me.x_mean[arm]", "terms.share * me.x_mean[arm] * me.n[arm]", "a live site publishes means"),
        ("explore: float = 0.1", "explore: float = 0.1\n    epsilon: float = 1.0", "asks for no noise"),
        ("n=Count[ARMS]", "n=Count[ARMS].transient", r"knows must have n=Count\[ARMS\]"),
    ],
)
def test_what_a_live_site_cannot_play(tmp_path, monkeypatch, old, new, words):
    text = MODULES["my_policies"]
    changed = (
        text.replace(old, new).replace("seen.theta", "seen.mean")
        if "mean" in new and "av" in new
        else text.replace(old, new)
    )
    (tmp_path / "live_wrong.py").write_text(changed)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("live_wrong", None)
    with pytest.raises(InvalidArgument, match=words):
        Federation(
            "f", ("a", "b"), 0.0, 1.0, policy_of("live_wrong:EpsilonGreedy")(), "live_wrong:EpsilonGreedy", max_agents=2
        )
    sys.modules.pop("live_wrong", None)


def test_a_leak_is_refused_at_the_start_of_a_site(tmp_path, monkeypatch):
    functions, replaced, terms, words = LEAKS["raw mean published"]
    text = LEAKY.format(functions=functions, replaced=f"{replaced}, on_releases=None", terms=terms)
    (tmp_path / "live_leak.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(WrongPage, match=words):
        Federation("f", ("a", "b"), 0.0, 1.0, policy_of("live_leak:Leaky")(), "live_leak:Leaky", max_agents=2)


SITE = """
name = "north"
data = "data"
{trust}

[federation]
name = "f"
max_agents = 2
arms = ["a", "b"]
rewards = [0.0, 1.0]

[federation.policy]
kind = "unread_policy:EpsilonGreedy"
explore = 0.2
"""


def test_a_site_file_loads_nothing_that_it_does_not_trust(tmp_path):
    (tmp_path / "unread_policy.py").write_text(MODULES["my_policies"])
    file = tmp_path / "site.toml"
    file.write_text(SITE.format(trust=""))
    with pytest.raises(ConfigError, match=r"federation.policy.kind must be .* write trust_policy ="):
        read_config(file)
    assert "unread_policy" not in sys.modules
    file.write_text(SITE.format(trust='trust_policy = "unread_policy:EpsilonGreedy"'))
    try:
        assert read_config(file).terms.policy.explore == 0.2
    finally:
        sys.modules.pop("unread_policy", None)
        sys.path.remove(str(tmp_path))


def test_a_real_process_plays_it(tutorial, tmp_path):
    terms = Federation("f", ("a", "b"), 0.0, 1.0, policy_of(GREEDY)(0.2), GREEDY, max_agents=2)
    federation = LocalFederation(tmp_path, terms, [("north", "east")], secure=False)
    for name in federation.names:
        (federation.config(name).parent / "my_policies.py").write_text(MODULES["my_policies"])
    with federation:
        with Client(federation.url("north")) as client:
            for _ in range(5):
                client.reward(client.decide(), 1.0)
            state = client.state()
        assert state.federation.policy == "EpsilonGreedy(explore=0.2)"
        assert any("this site trusts its author" in warning for warning in state.warnings)
