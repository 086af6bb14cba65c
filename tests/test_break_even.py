"""From how many patients features pay: the point itself, the worlds that it is measured in, and the command line."""

from math import inf

import numpy as np
import pytest
from typer.testing import CliRunner

from fedbandit.checks import InvalidArgument
from fedbandit.cli.commands import app
from fedbandit.planning.break_even import FeaturesPay, features_pay, world_with_features
from fedbandit.world.features import MOST_EFFECT


def curves(told, untold):
    return FeaturesPay(2, 0.3, np.array([10.0, 20.0, 40.0]), np.array(told, float), np.array(untold, float))


def test_they_pay_from_where_less_is_lost_for_good():
    """By hand: 5 more, 3 more, 7 fewer: on a line from 20 to 40, after 6 of 20 patients."""
    found = curves([[10, 12, 13]] * 2, [[5, 9, 20]] * 2)
    assert found.from_patients == 26.0
    assert found.interval == (26.0, 26.0)
    assert curves([[1, 12, 13]] * 2, [[5, 9, 13]] * 2).from_patients == 40.0  # they paid once, but not for good
    assert curves([[1, 2, 3]] * 2, [[5, 9, 20]] * 2).from_patients == 10.0
    assert curves([[1, 2, 23]] * 2, [[5, 9, 20]] * 2).from_patients == inf


def test_the_worst_trial_stands_beside_the_mean():
    found = curves([[0, 0, 10], [0, 0, 30]], [[0, 0, 40], [0, 0, 100]])
    assert found.at(40.0) == (20.0, 30.0, 70.0, 100.0)
    low, high = curves([[9, 12, 10], [5, 9, 0]], [[5, 9, 20]] * 2).interval
    assert low <= found.from_patients < high


@pytest.mark.parametrize("features", [1, 4, 20])
def test_chances_of_success_are_chances(features):
    """With the largest effect as well; the features of a world move means by up to the effect and a twelfth."""
    for seed in range(20):
        world = world_with_features(5, 3, features, 0.99 * MOST_EFFECT, "path:5", (0, seed))
        low, high = world.features.extremes(world.theta)
        assert 0.0 <= low.min() < high.max() <= 1.0
        assert 0.9 * MOST_EFFECT < (high - low).max() / 2.0 <= MOST_EFFECT * 13.0 / 12.0


@pytest.mark.slow
def test_large_effects_pay_and_tiny_ones_do_not():
    asked = {"epsilon": 5.0, "sites": 3, "arms": 2, "trials": 4}
    large = features_pay(1, 0.3, patients=3000, **asked)
    assert large.from_patients < 1500
    assert large.ratio[-1] < 0.6
    tiny = features_pay(4, 0.001, patients=1000, **asked)
    assert tiny.from_patients == inf
    assert "has not paid after 1,000 patients per site" in tiny.words
    assert f"{large.at(3000)[0]:,.0f} successes per site" in large.words


def test_bad_numbers_are_refused():
    for given, name in (((0, 0.3, 1.0), "features"), ((2, 0.4, 1.0), "effect"), ((2, 0.3, 0.0), "epsilon")):
        with pytest.raises(InvalidArgument, match=name):
            features_pay(*given)


@pytest.mark.parametrize(("given", "lacking"), [(["--features", "3"], "--effect"), (["--effect", ".2"], "--features")])
def test_features_and_their_effect_are_asked_together(given, lacking):
    asked = ["plan", "--sites", "3", "--arms", "2", "--gap", ".2", "--epsilon", "1"]
    result = CliRunner().invoke(app, [*asked, *given])
    assert result.exit_code == 2
    assert lacking in result.output


@pytest.mark.slow
def test_a_plan_answers_it(tmp_path):
    asked = [
        "plan",
        "--sites",
        "3",
        "--arms",
        "2",
        "--gap",
        ".3",
        "--epsilon",
        "5",
        "--patients",
        "2000",
        "--quick",
        "--features",
        "2",
        "--effect",
        ".3",
    ]
    result = CliRunner().invoke(app, [*asked, "-o", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "With 2 features that move an arm's chance of success by up to 0.3" in " ".join(result.output.split())
