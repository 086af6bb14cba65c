"""Every page plays the same in plain Python, compiled, and at a live site: the same arms on the same tape.

``plain_engine.py`` reads the contract in ``policies.protocol`` a second time, without the simulator.

Can it fail? Bugs that were planted, and what noticed:

| bug | noticed by |
|---|---|
| the simulator adds before - after to the averages | theta of round 0, compiled, on every tape |
| FedBatch releases while n < batch_end, without the noise that is due | theta of round 1, compiled: nothing was due |
| a live site's clock is one decision ahead | the margin of round 0, live |

A mistake in a page that all three make alike shows in the tests against the literal versions.
"""

import warnings
from dataclasses import MISSING, fields, replace
from functools import partial
from itertools import product
from math import inf
from typing import get_args

import numpy as np
import pytest

import groups
from fedbandit import (
    GSE,
    AdaPUCB,
    CentralUCB,
    CoopUCB2,
    DistUCB,
    Fed1UCB,
    FedBatch,
    FedUCB,
    GossipUCB,
    InvalidArgument,
    LocalUCB,
    PrivacyWarning,
    Problem,
    Tape,
    replay,
)
from fedbandit.agent.process.terms_file import POLICY_KINDS
from fedbandit.engine.layout import setting_of
from fedbandit.policies import POLICIES
from fedbandit.policies.protocol import INDICES, Network, Page, page_on
from fedbandit.rules.batch import largest_reward_variance
from fedbandit.world import graph
from plain_engine import PlainEngine
from sites_on_tape import SitesOnTape, tape_on_the_grid

HORIZON = 300

Thompson, Kl = partial(FedBatch, index="thompson"), partial(FedBatch, index="kl")
Ucb = partial(FedBatch, index="ucb")
SMALL = {"noise_constant": 0.01, "sampling_constant": 0.2}  # so that C~ does not hide the estimates

# The number of arms (few: each is compiled), and policies with one page. Made in the test, since some of them warn.
CASES = {
    "gossip_ucb": (3, [GossipUCB, partial(FedUCB, inf, sampling_constant=0.2)]),
    "fed_ucb": (3, [partial(FedUCB, 1.0), partial(FedUCB, 4.0, horizon=500, assume_sensitivity=1.0, **SMALL)]),
    "fed_ucb as printed": (3, [partial(FedUCB, 1.0, paper=True), partial(FedUCB, 8.0, paper=True, **SMALL)]),
    "fed_batch": (
        3,
        [
            partial(FedBatch, 1.0),
            partial(Thompson, inf, first_batch=2),
            partial(Thompson, 2.0, sigma=0.5, growth=1.5),
            partial(Thompson, 4.0, first_batch=3, assume_sensitivity=2.0),
        ],
    ),
    "fed_batch, ucb": (3, [partial(Ucb, 1.0), partial(Ucb, 8.0, sigma=0.5, first_batch=1)]),
    "fed_batch, kl": (3, [partial(Kl, 1.0), partial(Kl, inf, first_batch=2)]),
    "fed_batch, catching up": (3, [partial(Thompson, 8.0, catches_up=True)]),
    "fed_batch, ucb, catching up": (2, [partial(Ucb, 8.0, catches_up=True)]),
    "fed_batch, kl, catching up": (2, [partial(Kl, 8.0, catches_up=True)]),
    "local_ucb": (3, [LocalUCB]),
    "central_ucb": (3, [CentralUCB, partial(CentralUCB, alpha=0.7, learns_variance=True)]),
    "central_ucb, thompson": (2, [partial(CentralUCB, index="thompson")]),
    "central_ucb, kl": (3, [partial(CentralUCB, index="kl")]),
    "dist_ucb": (3, [DistUCB]),
    "coop_ucb2": (2, [CoopUCB2]),
    "fed1_ucb": (3, [Fed1UCB]),
    "adap_ucb": (3, [partial(AdaPUCB, 1.0), partial(AdaPUCB, inf)]),
    "gse": (3, [GSE]),
}

# Those that live sites play, by the case with the same page.
LIVE = {
    "gossip_ucb": [GossipUCB()],
    "fed_ucb": [FedUCB(1.0, horizon=HORIZON), FedUCB(8.0, horizon=HORIZON, **SMALL)],
    "fed_batch": [FedBatch(1.0), Thompson(8.0, sigma=0.5, first_batch=2)],
    "fed_batch, ucb": [Ucb(1.0)],
    "fed_batch, kl": [Kl(1.0)],
}


# Further indices of pages that another case plays: each compiles for several seconds.
MORE = {
    "fed_batch, ucb, catching up",
    "fed_batch, kl, catching up",
    "central_ucb, thompson",
    "central_ucb, kl",
}


def made(policy):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return policy()


def tapes(num_arms):
    """Continuous rewards on three graphs and ranges, one of them none; and rewards of 0 and 1."""

    def tape(world, seed, reward_range, gap=1.0):
        means = gap * np.random.default_rng(seed).random((world.num_agents, num_arms))
        return Tape.random(world, num_arms, HORIZON, seed, means, reward_range)

    binary = tape(graph.path(3), 4, (0.0, 1.0))
    return {
        "path, [0, 1]": tape(graph.path(4), 1, (0.0, 1.0)),
        "star, [-1, 3]": tape(graph.star(4), 2, (-1.0, 3.0), gap=3.0),
        "complete, any": tape(graph.complete(3), 3, None, gap=2.0),
        "path, 0 or 1": replace(binary, rewards=(binary.rewards > 0.5).astype(float)),
    }


def engine_on(tape, policy, page=None, bounded=False, **options):
    """The plain engine in the world of ``replay``; ``bounded``: in that of a live site, which knows the range only."""
    problem = Problem.gaussian(np.zeros(tape.rewards.shape[1:]), tape.graph, reward_range=tape.reward_range)
    settings = [setting_of(problem, tape.horizon, i) for i in range(problem.num_agents)]
    if bounded:
        low, high = tape.reward_range
        variance = largest_reward_variance(low, high)
        settings = [s._replace(bounded=True, scale=high - low, reward_variance=variance) for s in settings]
    policy.check(settings[0])
    rule = policy.links(settings[0]) if hasattr(policy, "links") else None
    return PlainEngine(tape, page or policy.page(), [policy.terms(s) for s in settings], rule, **options)


def engines_on(tapes, policy, **options):
    """By tape, where the policy accepts its rewards."""
    for name, tape in tapes.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PrivacyWarning)
                yield name, engine_on(tape, policy, **options)
        except InvalidArgument:
            assert policy.label.startswith(("FedBatch", "Fed_UCB", "AdaP", "Central KL")), "others accept all rewards"


def assert_same(where, what, expected, actual, most=1e-9):
    """Equal up to ``most``, or an error that names the first agent and arm that differ."""
    expected, actual = np.array(expected, float), np.array(actual, float)
    assert expected.shape == actual.shape, f"{where}: {what} of shape {actual.shape}, not {expected.shape}"
    off = ~np.isclose(actual, expected, rtol=0.0, atol=most, equal_nan=True)
    if off.any():
        at = tuple(np.argwhere(off)[0].tolist())
        raise AssertionError(f"{where}: {what}{list(at)} is {actual[at]}, in plain Python {expected[at]}")


# ---------------------------------------------------------------- plain Python and compiled


@pytest.mark.filterwarnings("ignore::fedbandit.PrivacyWarning")
@pytest.mark.parametrize("case", groups.of_pages(CASES, slow=MORE))
def test_a_page_plays_the_same_compiled(case):
    """The same arms; estimates, own means and averages to 1e-9; n~ exactly."""
    num_arms, policies = CASES[case]
    all_tapes, engines = tapes(num_arms), []
    for policy in map(made, policies):
        for name, engine in engines_on(all_tapes, policy):
            compare_with_compiled(f"{policy.label} on {name}", policy, engine)
            engines.append(engine)
    assert_much_was_compared(engines)


def compare_with_compiled(where, policy, engine):
    trace, page = replay(engine.tape, policy), engine.page
    columns = trace.gossiped.shape[2]
    for t, plain in enumerate(engine.rounds()):
        now = f"{where}, round {t}"
        if t > 0:
            assert_same(now, "arm", plain.arms, trace.arms[t - 1], 0)
        assert_same(now, "theta", plain.theta, trace.theta[t])
        assert_same(now, "x_mean", plain.x_mean, trace.x_mean[t])
        assert_same(now, "averages", [row[:columns] for row in plain.averages], trace.gossiped[t])
        if page.announced is not None:
            assert_same(now, "n~", plain.n_max, trace.n_max[t + 1], 0)


def assert_much_was_compared(engines):
    """Several tapes, every arm often; and what a page has: the consistency rule, releases, dropped arms."""
    agents = [me for engine in engines for me in engine.me]
    assert len(engines) >= 2
    assert all(max(me.tried[k] for me in agents) > 10 for k in engines[0].arms)
    if engines[0].page.announced is not None:
        assert sum(me.caught_up for me in agents) > 10
    for name, enough in (("releases", lambda me: min(me.releases) > 0), ("num_live", lambda me: me.num_live == 1)):
        assert name not in engines[0].page.knows or any(map(enough, agents)), name


# ---------------------------------------------------------------- at live sites


UNIT, OTHER = (graph.path(4), 0.0, 1.0), (graph.star(4), -1.0, 3.0)


@pytest.mark.parametrize("case", groups.of_pages(LIVE))
def test_a_page_plays_the_same_at_live_sites(case):
    """P9: on the same tape, with releases, the same arms, also compiled; estimates and margins to 1e-9; n~ exactly.

    Live n~ is in bulletins: it travels with them, over any number of hops, and as often as an exchange. In the
    simulator, as in the paper, it comes from neighbours in every round. Where an arm lags by that, only the plain
    engine can do as live sites do.
    """
    compiled, lagged = 0, 0
    for policy in LIVE[case]:
        tape, noise = live_tape(policy, *UNIT)
        page = page_on(policy.page(), "releases")
        engine = engine_on(tape, policy, page, bounded=True, n_max_by_exchange=True)
        compare_with_live(f"{policy.label} on [0, 1]", engine, SitesOnTape(tape, noise, policy))
        lags = sum(me.caught_up for me in engine.me) > 0
        if not lags:
            simulated = engine_on(tape, policy, page)
            assert simulated.terms == engine.terms, "a tape on [0, 1] is the world of a live site"
            compare_with_compiled(f"{policy.label} as live", policy, simulated)
            assert [me.tried for me in simulated.me] == [me.tried for me in engine.me]
        compiled, lagged = compiled + (not lags), lagged + lags
        if case != "fed_batch, kl":  # whose divergence is for [0, 1]
            tape, noise = live_tape(policy, *OTHER)
            engine = engine_on(tape, policy, page, bounded=True, n_max_by_exchange=True)
            compare_with_live(f"{policy.label} on [-1, 3]", engine, SitesOnTape(tape, noise, policy))
    assert compiled > 0, "always an arm lagged"
    assert lagged > 0 or case != "fed_ucb", "never an arm lagged"


def live_tape(policy, world, low, high):
    """On the grid: a tape, and its noise in steps."""
    problem = Problem.gaussian(np.zeros((world.num_agents, 3)), world, reward_range=(low, high))
    epsilon = getattr(policy.terms(setting_of(problem, HORIZON)), "epsilon_per_release", 1.0)
    return tape_on_the_grid(world, 3, HORIZON, 5, low, high, epsilon)


def compare_with_live(where, engine, live):
    for t, plain in enumerate(engine.rounds()):
        now = f"{where}, round {t}"
        if t > 0:
            assert_same(now, "live arm", plain.arms, [*live.play(t).values()], 0)
        known = np.array(plain.margin, float) * 0.0  # NaN where an arm is unknown
        assert_same(now, "live theta", plain.theta + known, [site.theta for site in live.sites])
        assert_same(now, "live margin", plain.margin, [site.radius for site in live.sites])
        if engine.page.announced is not None:
            assert_same(now, "live n~", plain.n_max, [site.n_max for site in live.sites], 0)


# ---------------------------------------------------------------- nothing is left out


def test_every_policy_has_a_case_with_default_parameters():
    policies = [made(policy) for _, several in CASES.values() for policy in several]
    for kind, policy in POLICIES.items():
        it = policy(*(1.0 for parameter in fields(policy) if parameter.default is MISSING))
        assert it in policies or it.page().context == "features", f"{kind} has no case in CASES"  # test_fed_linear.py
    pages = [policy.page() for policy in policies]
    for index, catches_up in product(INDICES, (False, True)):
        assert FedBatch(1.0, index, catches_up=catches_up).page() in pages
    assert all(CentralUCB(index=index).page() in pages for index in INDICES)
    assert {type(policy) for several in LIVE.values() for policy in several} == {
        POLICIES[kind] for kind in POLICY_KINDS
    }


@pytest.mark.filterwarnings("ignore::fedbandit.PrivacyWarning")
def test_the_plain_engine_plays_all_of_the_contract():
    """It calls every function of every page, and there is a page on every kind of network."""
    used, networks = set(), set()
    for case, (num_arms, policies) in CASES.items():
        policy, tape = made(policies[0]), tapes(num_arms)["path, [0, 1]"]
        page, called = counted(policy.page())
        for _ in engine_on(tape, policy, page).rounds():
            pass
        has = {name for name in FUNCTIONS if getattr(page, name) is not None}
        assert has - called <= ({"radius"} if page.margin else set()), f"{case}: not played"
        used |= called
        networks.add(page.network)
    assert used == FUNCTIONS
    assert networks == {*get_args(Network)}


FUNCTIONS = (
    {*Page._fields}
    - {"knows", "averaged", "columns", "network", "one_record"}
    - {"recount", "take_back", "chance"}  # for live sites
    - {"on_releases", "combine"}  # for gossip of releases: test_releases.py
    - {"context", "without_context", "records", "receive", "noise"}  # test_strata_policy.py, test_fed_linear.py
)


def counted(page):
    """The page, and the names of its functions that have been called."""
    called = set()

    def noting(name, function):
        return lambda *arguments: called.add(name) or function(*arguments)

    given = {name: getattr(page, name) for name in FUNCTIONS}
    return page._replace(**{name: noting(name, f) for name, f in given.items() if f is not None}), called
