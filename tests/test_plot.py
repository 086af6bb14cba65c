import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure

from fedbandit import CentralUCB, FedBatch, FedUCB, GossipUCB, InvalidArgument, LocalUCB, Problem, Result, simulate
from fedbandit.figures.regret import agents_figure


@pytest.fixture(scope="module")
def result():
    problem = Problem.random(3, 3, "complete", rewards="bernoulli")
    return simulate(problem, [GossipUCB(), LocalUCB(), CentralUCB()], 3000, 6)


def test_the_curve_is_the_mean_and_the_band_is_what_it_says(result):
    for band, low, high in (("minmax", 0.0, 1.0), ("quantiles", 0.1, 0.9)):
        axes = result.plot(band=band, scale="linear").axes[0]
        per_trial = result.regret.isel(policy=0).mean("agent").values
        np.testing.assert_allclose(axes.lines[0].get_ydata(), per_trial.mean(axis=0))
        (vertices,) = axes.collections[0].get_paths()
        assert vertices.vertices[:, 1].max() == pytest.approx(np.quantile(per_trial, high, axis=0).max())
        at_end = vertices.vertices[vertices.vertices[:, 0] == 3000][:, 1]
        assert at_end.min() == pytest.approx(np.quantile(per_trial[:, -1], low))


def test_the_band_is_named(result):
    assert "smallest to largest of 6 trials" in result.plot().get_suptitle()
    assert "10 % to 90 % of 6 trials" in result.plot(band="quantiles", title="mine").get_suptitle()


def test_bands_of_the_mean(result):
    """Six trials: Student's quantile with five degrees of freedom is 2.5706, that of a normal one would be 1.96."""
    per_trial = result.regret.isel(policy=0).mean("agent").values[:, -1]
    error = per_trial.std(ddof=1) / np.sqrt(6)
    for band, errors, words in (
        ("standard error", 1.0, "band: standard error of the mean of 6 trials"),
        ("confidence", 2.5706, "band: 95 % confidence interval of the mean of 6 trials"),
    ):
        figure = result.plot(band=band, scale="linear")
        (drawn,) = figure.axes[0].collections[0].get_paths()
        at_end = drawn.vertices[drawn.vertices[:, 0] == 3000][:, 1]
        expected = per_trial.mean() + errors * error * np.array([-1.0, 1.0])
        np.testing.assert_allclose([at_end.min(), at_end.max()], expected, rtol=1e-4)
        assert words in figure.get_suptitle()


def test_one_trial_has_no_band(result):
    one = Result(result.dataset.isel(trial=[0]))
    for band in ("minmax", "standard error", "confidence"):
        figure = one.plot(band=band)
        assert not figure.axes[0].collections
        assert "one trial, no band" in figure.get_suptitle()


def test_axes(result):
    both = result.plot()
    assert [axes.get_xscale() for axes in both.axes] == ["linear", "log"]
    assert [axes.get_xscale() for axes in result.plot(scale="log").axes] == ["log"]
    assert "regret" in both.axes[0].get_ylabel()
    assert "round" in both.axes[0].get_xlabel()


def test_figures_are_drawn_into_axes_of_the_caller(result):
    """One panel into one axes, in the caller's figure: heading and legend stay inside them."""
    mine, (left, right) = plt.subplots(1, 2)
    assert result.plot(ax=left, title="mine") is mine
    assert len(left.lines) == 3
    assert not right.lines
    assert left.get_xscale() == "linear"
    assert left.get_title().startswith("mine\nband: smallest")
    assert [text.get_text() for text in left.get_legend().get_texts()] == result.policies
    assert mine.get_suptitle() == ""
    assert mine.legends == []
    result.plot(ax=right, scale="log")
    assert right.get_xscale() == "log"
    others, both = plt.subplots(1, 2)
    result.plot(ax=both)
    assert [axes.get_xscale() for axes in others.axes] == ["linear", "log"]
    (subfigure,) = plt.figure().subfigures(1, 1, squeeze=False)[0]
    assert result.plot(ax=subfigure.subplots()) is subfigure.figure
    agents_figure(result, ax=plt.figure().subplots())
    plt.close("all")


def test_what_is_no_axes_is_refused(result):
    figure = Figure()
    for wrong in (figure, [figure.subplots()], "left", [1, 2]):
        with pytest.raises(InvalidArgument, match=r"ax must be a list of 2 axes of matplotlib, one for each panel"):
            result.plot(ax=wrong)
    with pytest.raises(InvalidArgument, match=r"ax must be axes of matplotlib, not"):
        agents_figure(result, ax=figure)


def test_curves_can_be_told_apart_without_colour(result):
    lines = result.plot().axes[0].lines
    assert len({(str(line.get_linestyle()), line.get_marker()) for line in lines}) == 3
    assert len({line.get_marker() for line in lines}) == 3


def test_bad_choices(result):
    with pytest.raises(
        InvalidArgument, match="band must be one of minmax, quantiles, standard error, confidence, none"
    ):
        result.plot(band="sd")
    with pytest.raises(InvalidArgument, match="scale must be one of"):
        result.plot(scale="cubic")
    with pytest.raises(InvalidArgument, match="regret must be one of linear, log, auto"):
        result.plot(regret="cubic")


@pytest.mark.slow
def test_far_apart_policies_share_a_log_axis(result):
    """One panel, both axes logarithmic, if the largest final regret is more than a hundred times the smallest."""
    assert {axes.get_yscale() for axes in result.plot().axes} == {"linear"}
    far = simulate(Problem.random(8, 5, "path", rewards="bernoulli"), [FedUCB(1.0), CentralUCB()], 80_000, 2)
    final = far.summary()["regret"]
    assert final.iloc[0] > 100 * final.iloc[1]
    (axes,) = far.plot().axes
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert [axes.get_yscale() for axes in far.plot(regret="linear").axes] == ["linear", "linear"]


def test_the_agents_figure_shows_who_pays():
    rates = [0.1, 1.0, 1.0]
    problem = Problem.random(3, 3, "path", rewards="bernoulli", rates=rates)
    result = simulate(problem, [FedBatch(1.0), GossipUCB()], 5000, 5)
    figure = agents_figure(result, "mine")
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == [
        "agent 1\nrate 1",
        "agent 2\nrate 1",
        "agent 0\nrate 0.1",
    ]
    shown = axes.lines[0].get_ydata()
    table = result.by_agent().loc["FedBatch Thompson, eps=1"]["regret_per_pull"]
    np.testing.assert_allclose(shown, table.to_numpy()[[1, 2, 0]])
    assert "10 % to 90 % of 5 trials" in figure.get_suptitle()


def test_an_agent_that_never_acted_is_no_trouble():
    problem = Problem.random(3, 3, "path", rewards="bernoulli", rates=[1.0, 1.0, 1e-9])
    assert agents_figure(simulate(problem, FedBatch(1.0), 500, 2)).axes
