"""Checks a policy of your own: its code, the epsilon it claims, and the same arms in plain Python and compiled.

``check_policy`` plays the policy on random tapes and says in words what is wrong. Use it in your own tests.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import sqrt
from typing import Any

import numpy as np

from fedbandit.checks import Gossip, InvalidArgument, instance, whole_number
from fedbandit.engine.layout import setting_of
from fedbandit.policies import Policy
from fedbandit.policies.registry import WrongPage, check_kind, kind_of, label_of
from fedbandit.simulation.replay import Tape, Trace, replay
from fedbandit.testing.admission import admit, check_epsilon
from fedbandit.testing.dry_run import DryRun, Script, Shown
from fedbandit.world.graph import Graph, path
from fedbandit.world.problem import Problem

__all__ = ["check_policy"]

_CLOSE = 1e-9
STRATA = 2
"""On the tapes of a policy that takes strata."""

FEATURES = 3
"""On the tapes of a policy that takes features, the constant among them."""


def check_policy(
    policy: Policy,
    *,
    graph: Graph | None = None,
    num_arms: int = 3,
    horizon: int = 60,
    seeds: Sequence[int] = (0, 1),
    reward_range: tuple[float, float] = (0.0, 1.0),
) -> None:
    """Raise ``WrongPage`` with a sentence if the policy is not sound.

    * Its functions must keep nothing outside ``me``, and use numbers, ``math``, the rules and each other only.
    * If it has a finite ``epsilon``, it claims privacy. Then its rewards must go to a rule of ``rules.private`` and
      nowhere else, and the noise must be wide enough for epsilon (``testing.page_code``).
    * On every seed's tape, it must choose the same arms in plain Python and in compiled code; if it has a page of its
      own for releases, where they spread, too.

    ``reward_range``: the declared range; rewards on the tapes also lie outside, and a private policy must clamp them.
    """
    check_kind("policy", policy)
    world = path(3) if graph is None else graph
    instance("graph", world, Graph, "a Graph")
    whole_number("horizon", horizon, 1, 10**5)
    page = policy.page()
    if page.combine is None:
        _check_on(policy, world, num_arms, horizon, seeds, reward_range, "averages")
    if page.on_releases is not None or page.combine is not None:
        _check_on(policy, world, num_arms, horizon, seeds, reward_range, "releases")


def _check_on(
    policy: Policy,
    world: Graph,
    num_arms: int,
    horizon: int,
    seeds: Sequence[int],
    reward_range: tuple[float, float],
    gossip: Gossip,
) -> None:
    strata = STRATA if policy.page().context == "strata" else 0
    features = FEATURES if policy.page().context == "features" else 0
    means = np.zeros((world.num_agents, strata, num_arms) if strata else (world.num_agents, num_arms))
    if policy.page().records and policy.page().network == "gossip":
        gossip = "releases"
    problem = Problem.gaussian(means, world, reward_range=reward_range, gossip=gossip)
    settings = [setting_of(problem, horizon, i) for i in range(world.num_agents)]
    settings = [setting._replace(num_features=features, norm=sqrt(max(features, 1))) for setting in settings]
    if (check := getattr(policy, "check", None)) is not None:
        check(settings[0])
    page, kind = admit(policy, *settings).page, kind_of(policy)
    check_epsilon(policy, settings[0])
    terms = [policy.terms(setting) for setting in settings]
    bring_links = getattr(policy, "links", None)
    if bring_links is not None and bring_links(settings[0]).presence < 1.0:
        raise InvalidArgument("policy", label_of(policy), "one whose links are present in every round of a test")
    for seed in seeds:
        tape = replace(_tape(world, num_arms, horizon, seed, reward_range, strata, features), gossip=gossip)
        trace = replay(tape, policy)
        if tape.features is not None:
            longest = float(np.linalg.norm(tape.features, axis=-1).max())
            terms = [policy.terms(setting._replace(norm=longest)) for setting in settings]
        hear = partial(_hear_as_compiled, tape, trace, bring_links is not None or page.network == "pooled")
        run = DryRun(kind, page, terms, num_arms, world.edges, _script(tape), hear, strata, features)
        plain = run.play(horizon)
        _check_compiled(kind, trace, plain)
        if page.network in ("gossip", "consensus", "alone") and gossip == "averages" and not page.records:
            _check_published(kind, trace, plain)


def _hear_as_compiled(tape: Tape, trace: Trace, all_mix: bool, run: DryRun, t: int) -> None:
    """What the network shows each agent is what it has shown it in compiled code; the page's own part is computed."""
    if run.page.records:
        run.pass_on(() if t == 0 else run.edges if all_mix else [tape.edges[t - 1].tolist()])
        return
    if run.page.announced is not None:
        run.announced()
    if run.page.network != "server" or t == 0:
        for i, row in enumerate(run.rows):
            for name, values in zip(run.page.averaged, trace.gossiped[t, i].reshape(-1, len(run.arms)), strict=True):
                row[name][:] = values.tolist()
            row["n_max"][:] = trace.n_max[t + 1, i].tolist()
    if t > 0 and run.page.network not in ("alone", "server"):
        run.mixed |= set(run.agents if all_mix else tape.edges[t - 1].tolist())


def _tape(
    world: Graph,
    num_arms: int,
    horizon: int,
    seed: int,
    reward_range: tuple[float, float],
    strata: int,
    features: int,
) -> Tape:
    """Rewards around means in the range, with a third of its width: some lie outside."""
    low, high = reward_range
    means = np.linspace(0.0, 3.0, num_arms) + np.zeros((world.num_agents, 1))
    tape = Tape.random(world, num_arms, horizon, seed, means, reward_range, strata, features)
    return replace(tape, rewards=low + (high - low) * tape.rewards / 3.0)


def _script(tape: Tape) -> Script:
    rewards, picks = tape.rewards.tolist(), tape.picks.tolist()
    noise: Any = np.asarray(tape.noise).tolist()
    normals: Any = np.asarray(tape.normals).tolist()
    return Script(
        reward=lambda t, i, k: rewards[t][i][k],
        pick=lambda t, i: picks[t - 1][i],
        normals=lambda t, i: normals[t - 1][i],
        noise=lambda end, i, k: noise[end][i][k],
        stratum=lambda d, i: 0 if tape.strata is None else int(tape.strata[d, i]),
        features=lambda d, i: () if tape.features is None else tuple(tape.features[d, i].tolist()),
        average=() if tape.features is None else tuple(tape.features.mean(axis=(0, 1)).tolist()),
    )


def _check_compiled(kind: str, trace: Trace, plain: list[Shown]) -> None:
    for t, shown in enumerate(plain):
        for i, row in enumerate(shown.theta):
            if t > 0 and int(trace.arms[t - 1, i]) != shown.arms[i]:
                raise WrongPage(
                    kind,
                    f"decide chooses arm {trace.arms[t - 1, i]} in compiled code and arm {shown.arms[i]} in plain "
                    f"Python (round {t}, agent {i}): does it rely on whole numbers that never overflow, or on division "
                    "of whole numbers?",
                )
            for k, theta in enumerate(row):
                compiled = float(trace.theta[t, i, k])
                if not abs(compiled - theta) <= _CLOSE * (1.0 + abs(theta)) and compiled != theta:
                    raise WrongPage(
                        kind,
                        f"estimate returns {compiled!r} in compiled code and {theta!r} in plain Python (round {t}, "
                        f"agent {i}, arm {k})",
                    )


def _check_published(kind: str, trace: Trace, plain: list[Shown]) -> None:
    """Links move averages and never change their sum, which is that of what all agents publish."""
    for t, shown in enumerate(plain):
        published = np.array(shown.published)  # [agent, arm, name]
        totals, room = published.sum(axis=0).T.ravel(), _CLOSE * (1.0 + np.abs(published).sum(axis=0).T.ravel())
        for column in np.flatnonzero(np.abs(trace.gossiped[t].sum(axis=0) - totals) > room):
            arm = int(column) % published.shape[1]
            words = f"published gives other numbers in compiled code than in plain Python (arm {arm}, by round {t})"
            raise WrongPage(kind, words)


def __dir__() -> list[str]:
    return __all__
