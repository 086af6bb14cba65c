import numpy as np
import pytest

from fedbandit import CentralUCB, GossipUCB, InvalidArgument, LocalUCB, Problem, simulate


@pytest.fixture(scope="module")
def result():
    problem = Problem.random(3, 2, "complete", rewards="bernoulli")
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


def test_axes(result):
    both = result.plot()
    assert [axes.get_xscale() for axes in both.axes] == ["linear", "log"]
    assert [axes.get_xscale() for axes in result.plot(scale="log").axes] == ["log"]
    assert "regret" in both.axes[0].get_ylabel()
    assert "round" in both.axes[0].get_xlabel()


def test_curves_can_be_told_apart_without_colour(result):
    lines = result.plot().axes[0].lines
    assert len({(str(line.get_linestyle()), line.get_marker()) for line in lines}) == 3
    assert len({line.get_marker() for line in lines}) == 3


def test_bad_choices(result):
    with pytest.raises(InvalidArgument, match="band must be one of minmax, quantiles, none"):
        result.plot(band="sd")
    with pytest.raises(InvalidArgument, match="scale must be one of"):
        result.plot(scale="cubic")
