"""Plans with strata: worlds, shares, what ignoring strata costs, the command."""

import numpy as np
import pytest
from typer.testing import CliRunner

from fedbandit import InvalidArgument
from fedbandit.cli.commands import app
from fedbandit.planning import strata as planned
from fedbandit.planning.question import Question
from fedbandit.planning.strata import World, forecast_of_strata, shares_from


def question(sites=3, arms=2, gap=0.5, epsilon=8.0, **given):
    return Question.checked(sites, arms, gap, epsilon, 10, "ring", None, given.pop("bias", 0.05), 0, **given)


@pytest.mark.parametrize(
    ("said", "shares"), [("2", (0.5, 0.5)), ("60,25,10,5", (0.6, 0.25, 0.1, 0.05)), ("70, 30", (0.7, 0.3))]
)
def test_shares_are_a_number_or_percentages(said, shares):
    assert shares_from(said) == pytest.approx(shares)


@pytest.mark.parametrize("said", ["1", "13", "2.5", "60,30", "60,40,0", "-10,110", "a", "", "nan,nan", "100"])
def test_others_are_refused(said):
    with pytest.raises(InvalidArgument, match="strata must be a number of strata from 2 to 12, or percentages"):
        shares_from(said)


def test_each_stratum_has_its_best_arm_by_the_gap():
    asked = question(arms=3, bias=0.1, gap=0.2)
    means = planned._means(asked, World("", (2, 1, 0)), 5).mean(axis=1)
    for s, best in enumerate((2, 1, 0)):
        np.testing.assert_allclose(means[:, s, best], 0.6)
        np.testing.assert_allclose(np.delete(means[:, s], best, axis=1), 0.4)


@pytest.fixture(scope="module")
def forecast():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planned, "QUICK_TRIALS", 8)
        patch.setattr(planned, "WORK", 20_000)
        return forecast_of_strata(question(), shares_from("75,25"), True, lambda _: None)


@pytest.mark.slow
def test_told_of_strata_it_finds_what_ignoring_them_never_does(forecast):
    """A gap of 0.5 and hardly any noise: 833 patients at each of three sites are far more than it takes."""
    differ, alike = forecast.curves.values()
    assert all(it.reached < 600 for it in differ["told of strata"].kept)
    assert differ["one arm for all"].kept[1].reached == float("inf"), "the rarer stratum gets the other's arm"
    last = differ["told of strata"].last
    assert differ["told of strata"].worse_at(last) < 0.5 * differ["one arm for all"].worse_at(last)
    assert alike["one arm for all"].kept[0].reached < 600
    for ways in forecast.curves.values():
        for curve in ways.values():
            assert (np.diff(curve.worse) >= -1e-9).all()
            assert curve.worse[-1] < curve.last


@pytest.mark.slow
def test_it_says_so_in_words_and_tables(forecast):
    assert "is another one for each of 2 strata, 3 sites that are told of them, with epsilon 8," in forecast.words
    assert "with one arm for all it would be" in forecast.words
    first, second = forecast.tables
    assert [row[0] for row in first.rows] == ["told of strata", "", "one arm for all", "", "each stratum by itself", ""]
    assert [row[1] for row in first.rows[:2]] == ["1 (75 %)", "2 (25 %)"]
    assert second.title == "The same arm is best for everybody"


@pytest.mark.slow
def test_the_command(monkeypatch, tmp_path):
    monkeypatch.setattr(planned, "QUICK_TRIALS", 4)
    monkeypatch.setattr(planned, "WORK", 3_000)
    usual = ["plan", "--sites", "3", "--arms", "2", "--gap", "0.5", "--epsilon", "8", "--quick", "-o", str(tmp_path)]
    done = CliRunner().invoke(app, [*usual, "--strata", "2"])
    assert done.exit_code == 0, done.output
    assert "Each stratum has its own best arm" in done.output
    assert "one arm for all" in done.output
    for more, says in ((["--strata", "1"], "--strata"), (["--strata", "2", "--patients", "100"], "--patients")):
        done = CliRunner().invoke(app, [*usual, *more])
        assert done.exit_code == 2, done.output
        assert says in done.output
