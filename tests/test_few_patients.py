"""Few patients: the first batch follows from the expected decisions, and too few for epsilon are told in words."""

import asyncio
import logging
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbandit import FedBatch, FewPatientsWarning, InvalidArgument, LocalUCB, Problem, simulate
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import Numbering, Stored
from fedbandit.agent.core.site import Site
from fedbandit.agent.process import runtime
from fedbandit.agent.process.config import read_config
from fedbandit.experiments.experiment import read_sweep
from fedbandit.local.processes import LocalFederation
from fedbandit.policies.fed_batch import too_few_patients
from fedbandit.privacy.mechanism import setting_in_steps
from fedbandit.rules.batch import (
    LEAST_FIRST_BATCH,
    break_even_decisions,
    break_even_epsilon,
    default_first_batch,
    first_size,
)

FEW = FedBatch(0.1, expected_decisions=400)
TERMS = Federation("trial", ("a", "b"), 0.0, 1.0, FedBatch(1.0), max_agents=3)


def bernoulli(num_agents, num_arms, gap):
    means = np.full((num_agents, num_arms), 0.5 - gap / 2)
    means[:, 0] += gap
    return Problem.bernoulli(means, f"ring:{num_agents}", edges_per_round="matching")


# ---------------------------------------------------------------- the first batch


@pytest.mark.parametrize(
    ("decisions", "epsilon", "arms", "size"),
    [
        (None, 0.1, 5, 120),
        (500, 0.1, 5, 25),  # a quarter of the decisions for all first batches
        (501, 0.1, 5, 26),
        (2400, 0.1, 5, 120),
        (10**12, 0.1, 5, 120),
        (100, 1.0, 2, 12),
        (90, 1.0, 2, 12),
        (80, 1.0, 2, 10),
        (1, 0.1, 5, LEAST_FIRST_BATCH),
        (1, 4.0, 5, 3),  # the default is smaller still
        (1, math.inf, 5, 1),
    ],
)
def test_the_first_batch_follows_from_the_expected_decisions(decisions, epsilon, arms, size):
    assert first_size(decisions, epsilon, arms, 10) == size


def test_few_decisions_weigh_more_than_few_sites():
    assert first_size(None, 1.0, 5, 1) == 38
    assert first_size(500, 1.0, 5, 1) == first_size(500, 0.1, 5, 10) == 25


@given(st.integers(1, 10**7), st.floats(0.01, 50.0), st.integers(2, 50), st.integers(1, 50))
def test_a_first_batch_stays_within_its_bounds(decisions, epsilon, arms, agents):
    size, default = first_size(decisions, epsilon, arms, agents), default_first_batch(epsilon, agents)
    assert min(LEAST_FIRST_BATCH, default) <= size <= default
    assert size <= max(LEAST_FIRST_BATCH, math.ceil(0.25 * decisions / arms))


@pytest.mark.parametrize("index", ["thompson", "ucb", "kl"])
def test_it_plays_as_with_that_first_batch(index):
    """A page sees nothing of a policy but its terms."""
    setting = setting_in_steps(3, 3, 0.0, 1.0)
    told, sized = FedBatch(1.0, index=index, expected_decisions=84), FedBatch(1.0, index=index, first_batch=7)
    assert told.page() == sized.page()
    assert told.terms(setting) == sized.terms(setting)
    assert told.terms(setting).first_batch == 7 != FedBatch(1.0, index=index).terms(setting).first_batch


def test_a_live_site_begins_with_it():
    terms = replace(TERMS, policy=replace(FEW, epsilon=0.2))
    assert terms.first_batch == terms.mechanism().terms.first_batch == 50
    assert replace(terms, policy=FedBatch(0.2), max_agents=None).first_batch == 60


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"expected_decisions": 0}, "expected_decisions must be a whole number from 1"),
        ({"expected_decisions": 10.5}, "expected_decisions must be a whole number from 1"),
        ({"expected_decisions": 100, "first_batch": 4}, "first_batch must be left out: it follows from expected_dec"),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(InvalidArgument, match=message):
        FedBatch(1.0, **parameters)


def test_a_whole_number_may_be_written_as_a_float():
    assert FedBatch(1.0, expected_decisions=1e3) == FedBatch(1.0, expected_decisions=1000)


# ---------------------------------------------------------------- the break-even


def test_the_break_even_is_what_was_measured():
    """docs/few-patients.md: 80 sqrt(M) / (N eps^1.5)."""
    assert break_even_decisions(0.25, 4, 9) == pytest.approx(80 * 3 / (4 * 0.125))
    assert break_even_decisions(math.inf, 3, 2) == 0.0


@given(st.floats(0.01, 10.0), st.integers(1, 100), st.integers(2, 50))
def test_epsilon_and_decisions_name_the_same_break_even(epsilon, agents, arms):
    decisions = break_even_decisions(epsilon, agents, arms)
    assert break_even_decisions(break_even_epsilon(1000, agents, arms), agents, arms) == pytest.approx(1000)
    assert break_even_decisions(2 * epsilon, agents, arms) < decisions
    assert break_even_decisions(epsilon, 2 * agents, arms) == pytest.approx(decisions / 2)


@given(st.integers(1, 10**5), st.floats(0.01, 10.0), st.integers(2, 100), st.integers(2, 50))
def test_what_the_words_name_would_do_and_hardly_less_would(decisions, epsilon, agents, arms):
    said = too_few_patients(decisions, epsilon, agents, arms)
    assert (said is None) == (decisions >= break_even_decisions(epsilon, agents, arms))
    if said is None:
        return
    named = re.search(r"About ([\d,]+) decisions at each site would do, or an epsilon of (\S+) ", said)
    enough, weaker = int(named[1].replace(",", "")), float(named[2])
    assert too_few_patients(enough, epsilon, agents, arms) is None
    assert too_few_patients(decisions, weaker, agents, arms) is None
    assert enough <= 2 or too_few_patients(int(0.9 * enough) - 1, epsilon, agents, arms)
    assert too_few_patients(decisions, 0.9 * weaker, agents, arms)


def test_nothing_is_said_where_nothing_is_expected_or_nobody_else_is_there():
    assert too_few_patients(None, 0.01, 3, 2) is None
    assert too_few_patients(1, 0.01, 1, 2) is None


# ---------------------------------------------------------------- who is told


def checked(problem, policies):
    """A call of ``simulate`` that is refused after all checks: nothing compiles, nothing runs."""
    with pytest.raises(InvalidArgument, match="engine must be"):
        simulate(problem, policies, 10, 1, engine="none")


def test_the_caller_of_simulate_is_warned():
    problem = bernoulli(3, 5, 0.2)
    with pytest.warns(FewPatientsWarning) as caught:
        checked(problem, FEW)
    assert len(caught) == 1
    assert caught[0].filename == __file__, "the warning points at the caller"
    assert str(caught[0].message) == (
        "400 decisions at each of 3 sites are too few for epsilon 0.1 and 5 arms: noise outweighs what the sites learn "
        "from each other, and a site that plays UCB1 alone is expected to do better. About 1,900 decisions at each "
        "site would do, or an epsilon of 0.29 (docs/few-patients.md)."
    )
    checked(problem, {"enough": FedBatch(0.1, expected_decisions=1900), "weaker": replace(FEW, epsilon=0.29)})
    checked(problem, FedBatch(0.1))


def test_the_operator_is_warned():
    few = Site("north", replace(TERMS, policy=FEW), Stored(Numbering(1, 0)))
    few.link(["east", "west"])
    (said,) = few.warnings()
    assert said == too_few_patients(400, 0.1, 3, 2)
    assert Site("north", replace(TERMS, policy=replace(FEW, epsilon=1.0)), Stored(Numbering(1, 0))).warnings() == ()
    assert Site("north", TERMS, Stored(Numbering(1, 0))).warnings() == ()


@pytest.mark.parametrize("policy", [FEW, FedBatch(1.0, expected_decisions=400)], ids=["few", "enough"])
def test_the_log_and_the_state_say_so_at_the_start(tmp_path, caplog, policy):
    terms = replace(TERMS, policy=policy)
    federation = LocalFederation(tmp_path, terms, [("north", "east"), ("east", "west")], secure=False)
    config = read_config(federation.config("north"))
    assert config.terms == terms, "the file carries the term"

    async def scenario():
        agent = runtime.Agent(config, None)
        await agent.start()
        warnings = (await agent.state()).warnings
        await agent.stop()
        return warnings

    with caplog.at_level(logging.WARNING):
        warnings = asyncio.run(scenario())
    logged = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert any("are too few for epsilon" in line for line in warnings) == (policy is FEW)
    assert sum("are too few for epsilon" in line for line in logged) == (policy is FEW)


# ---------------------------------------------------------------- the terms and the files


def test_expected_decisions_are_a_term():
    told = replace(TERMS, policy=FedBatch(1.0, expected_decisions=400))
    assert told.terms()["policy"]["expected_decisions"] == 400
    assert told.digest() != TERMS.digest()
    assert told.difference(TERMS.terms()) == ["policy.expected_decisions: 400 here, absent there"]


def test_an_experiment_file_takes_them(tmp_path):
    path = tmp_path / "few.toml"
    path.write_text(
        'graph = "path:3"\nhorizon = 100\ntrials = 2\n[problem]\nrewards = "bernoulli"\nnum_arms = 2\n'
        '[[policies]]\nkind = "fed_batch"\nepsilon = 1.0\nexpected_decisions = [100, 400]\n'
    )
    (experiment,) = read_sweep(path)
    assert [policy.expected_decisions for policy in experiment.policies.values()] == [100, 400]


# ---------------------------------------------------------------- it pays


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fedbandit.FewPatientsWarning")
def test_told_sites_lose_less_and_the_break_even_lies_where_it_is_said():
    """Ten sites, five arms, gap 0.2, epsilon 0.1; docs/few-patients.md has regret over that of uniform play.

    Told, untold and alone: 0.93, 1.00, 0.84 at T = 100; 0.69, 1.00, 0.67 at 500; 0.43, 0.60, 0.55 at 1,000. One trial
    has a standard deviation of 0.19, 0.18 and 0.14: each margin is more than seven standard errors wide, so that
    another seed fails less often than once in a million times.
    """
    problem, uniform = bernoulli(10, 5, 0.2), 0.16
    losses = {}
    for horizon, trials in ((100, 400), (500, 100), (1000, 100)):
        policies = {"told": FedBatch(0.1, expected_decisions=horizon), "untold": FedBatch(0.1), "alone": LocalUCB()}
        regret = simulate(problem, policies, horizon, trials, seed=2).regret[:, :, :, -1].mean(["trial", "agent"])
        losses[horizon] = dict(zip(policies, regret.values / (uniform * horizon), strict=True))
    assert losses[500]["told"] < losses[500]["untold"] - 0.15
    assert losses[100]["told"] > losses[100]["alone"], "below the break-even of 570"
    assert losses[1000]["told"] < losses[1000]["alone"], "above it"
