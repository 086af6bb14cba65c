"""Parts of a run, joined: bit for bit the whole run, or an error that names what does not fit."""

import json
import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from fedbandit import FedUCB, GossipUCB, InvalidArgument, Problem, Result, load, simulate
from fedbandit.simulation.parts import merge
from fedbandit.world import graph

PROBLEM = Problem.random(4, 3, "path", seed=1, rewards="bernoulli")
REDRAWN = [Problem.random(4, 3, "path", seed=seed, rewards="bernoulli") for seed in range(5)]
README = (Path(__file__).parents[1] / "README.md").read_text()


def run(trials, **changes):
    call = {
        "problem": PROBLEM,
        "policies": [GossipUCB(), FedUCB(1.0)],
        "horizon": 200,
        "seed": 3,
        "checkpoints": [1, 3, 9, 99],
    }
    return simulate(**(call | changes), trials=trials)


def with_attributes(result, **changed):
    return Result(result.dataset.assign_attrs(changed))


def with_versions(result, **changed):
    versions = json.loads(result.dataset.attrs["versions"]) | changed
    return with_attributes(result, versions=json.dumps(versions))


@pytest.fixture(scope="module")
def parts():
    return [run(range(0, 1)), run(range(1, 3)), run(range(3, 5))]


@pytest.mark.parametrize(
    ("problem", "cuts"),
    [
        *((PROBLEM, cuts) for cuts in [(0, 2, 5), (0, 1, 2, 3, 4, 5), (0, 5), (2, 4, 5)]),
        (REDRAWN, (2, 4, 5)),
        ([PROBLEM] * 5, (0, 2, 5)),
    ],
    ids=["in two", "each by itself", "whole", "not from the first", "redrawn", "redrawn, equal"],
)
def test_the_parts_are_the_whole_bit_for_bit(problem, cuts, tmp_path):
    """Arrays, coordinates and attributes, in memory and as read from the files of other machines."""
    whole = run(range(cuts[0], cuts[-1]), problem=problem)
    given = [run(range(*ends), problem=problem) for ends in pairwise(cuts)]
    joined = Result.concat(given)
    xr.testing.assert_identical(joined.dataset, whole.dataset)
    assert joined.dataset.attrs == whole.dataset.attrs
    for name in whole.dataset.variables:
        assert joined.dataset[name].dtype == whole.dataset[name].dtype
        assert joined.dataset[name].values.tobytes() == whole.dataset[name].values.tobytes()

    files = [part.save(tmp_path / f"{position}.nc") for position, part in enumerate(given)]
    again = load(Result.concat(load(file) for file in files).save(tmp_path / "joined.nc"))
    expected = load(whole.save(tmp_path / "whole.nc"))
    xr.testing.assert_identical(again.dataset, expected.dataset)
    merge(files, tmp_path / "merged.nc")  # one part in memory at a time
    merged = load(tmp_path / "merged.nc")
    xr.testing.assert_identical(merged.dataset, expected.dataset)
    xr.testing.assert_identical(load(merged.save(tmp_path / "again.nc")).dataset, expected.dataset)
    assert again.dataset.attrs == expected.dataset.attrs


def test_any_order_and_any_grouping(parts):
    first, second, third = parts
    whole = Result.concat(parts).dataset
    assert whole["trial"].values.tolist() == [0, 1, 2, 3, 4]
    xr.testing.assert_identical(Result.concat([third, first, second]).dataset, whole)
    xr.testing.assert_identical(Result.concat([third, Result.concat((second, first))]).dataset, whole)
    assert not np.array_equal(first.regret.values, second.regret.values[:, :1])  # else the order would not show


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 4}, "parts[1].seed must be 3, as in parts[0], not 4"),
        ({"horizon": 300}, "parts[1].horizon must be 200, as in parts[0], not 300"),
        ({"checkpoints": [7]}, "parts[1].checkpoints must be 5 entries, as in parts[0], not '2 entries'"),
        ({"checkpoints": [1, 2, 9, 99]}, "parts[1].checkpoints[1] must be 3, as in parts[0], not 2"),
        ({"policies": [GossipUCB(), FedUCB(2.0)]}, "parts[1].policies must be ['Gossip_UCB', 'Fed_UCB, eps=1'], as in"),
        (
            {"policies": {"Gossip_UCB": GossipUCB(), "Fed_UCB, eps=1": FedUCB(2.0)}},
            "parts[1].policies['Fed_UCB, eps=1'].epsilon must be 1.0, as in parts[0], not 2.0",
        ),
        ({"policies": [FedUCB(1.0), GossipUCB()]}, "parts[1].policies must be ['Gossip_UCB', 'Fed_UCB, eps=1'], as in"),
        ({"problem": REDRAWN[2]}, "parts[1].problem.means[0][0] must be"),
        ({"problem": REDRAWN}, "parts[1].means must be 'the same in all trials', as in parts[0], not 'drawn for each"),
        (
            {"problem": Problem.bernoulli(PROBLEM.means, graph.ring(4))},
            "parts[1].graph.name must be 'path:4', as in parts[0], not 'ring:4'",
        ),
        (
            {"problem": Problem.bernoulli(PROBLEM.means, graph.path(4), weights=[0.1, 0.2, 0.3, 0.4])},
            "parts[1].problem.weights[0] must be 0.25, as in parts[0], not 0.1",
        ),
        ({"trials": range(2, 4)}, "parts[1].trials must be a range that begins at 1, where parts[0] ends, not range(2"),
        ({"trials": range(0, 2)}, "parts[1].trials must be a range that begins at 1, where parts[0] ends, not range(0"),
    ],
)
def test_parts_that_do_not_belong_together(parts, changes, message):
    """Each differs in one thing, which the error names. The shapes of most would fit."""
    with pytest.raises(InvalidArgument, match=re.escape(message)):
        Result.concat([parts[0], run(**({"trials": range(1, 3)} | changes))])


def test_missing_and_repeated_trials_are_named(parts):
    first, second, third = parts
    with pytest.raises(
        InvalidArgument, match=r"parts\[0\].trials must be .* where parts\[1\] ends.* Trial 1 is missing"
    ):
        Result.concat([third, first])
    with pytest.raises(InvalidArgument, match="Trial 1 is in both"):
        Result.concat([first, second, third, second])
    cut = Result(second.dataset.isel(trial=[0]))
    with pytest.raises(
        InvalidArgument, match=r"parts\[1\].dataset must be all of its trials, range\(1, 3\), not '1 tr"
    ):
        Result.concat([first, cut, third])


def test_files_that_are_no_run_are_not_merged(parts, tmp_path):
    files = [part.save(tmp_path / f"{position}.nc") for position, part in enumerate(parts)]
    with pytest.raises(InvalidArgument, match="Trial 1 is missing"):
        merge([files[0], files[2]], tmp_path / "merged.nc")
    assert sorted(tmp_path.iterdir()) == files


def test_watched_radii_and_formats(parts):
    first, second, _ = parts
    watched = Result(second.dataset.assign(misses=second.regret * 0.0))
    with pytest.raises(InvalidArgument, match=r"parts\[1\].watch_radii must be False, as in parts\[0\], not True"):
        Result.concat([first, watched])
    with pytest.raises(InvalidArgument, match=r"parts\[1\].format must be 2, as in parts\[0\], not 3"):
        Result.concat([first, with_attributes(second, fedbandit_format=3)])


@pytest.mark.parametrize("package", ["fedbandit", "numba"])
def test_parts_by_another_engine_are_refused(parts, package):
    other = with_versions(parts[1], **{package: "0.0.9"})
    with pytest.raises(InvalidArgument, match=rf"parts\[1\].versions.{package} must be .* not '0.0.9'. Other versions"):
        Result.concat([parts[0], other])


def test_other_versions_are_all_recorded(parts):
    joined = Result.concat([parts[0], with_versions(parts[1], python="3.99.0")])
    ours = json.loads(parts[0].dataset.attrs["versions"])
    assert json.loads(joined.dataset.attrs["versions"]) == ours | {"python": f"{ours['python']}, 3.99.0"}


def test_a_policy_that_was_run_later_joins_the_others():
    """Bit for bit the run of all policies, and of trials that were run in parts, too."""
    whole = run(range(0, 5))
    gossip, private = run(range(0, 5), policies=GossipUCB()), run(range(0, 5), policies=FedUCB(1.0))
    xr.testing.assert_identical(Result.concat([gossip, private]).dataset, whole.dataset)
    halves = [run(range(2, 5), policies=FedUCB(1.0)), run(range(0, 2), policies=FedUCB(1.0))]
    joined = Result.concat([gossip, *halves])
    xr.testing.assert_identical(joined.dataset, whole.dataset)
    assert joined.dataset.attrs == whole.dataset.attrs
    assert Result.concat([private, gossip]).policies == ["Fed_UCB, eps=1", "Gossip_UCB"]
    redrawn = [run(range(0, 5), problem=REDRAWN, policies=policy) for policy in (GossipUCB(), FedUCB(1.0))]
    xr.testing.assert_identical(Result.concat(redrawn).dataset, run(range(0, 5), problem=REDRAWN).dataset)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 4}, "parts[1].seed must be 3, as in parts[0], not 4"),
        (
            {"trials": range(0, 2)},
            "parts[1].trials must be range(0, 3), as of the policies of parts[0], not range(0, 2",
        ),
        ({"problem": REDRAWN[2]}, "parts[1].problem.means[0][0] must be"),
        ({"checkpoints": [1, 2, 9, 99]}, "parts[1].checkpoints[1] must be 3, as in parts[0], not 2"),
    ],
)
def test_a_policy_of_another_run_does_not_join(changes, message):
    gossip = run(range(0, 3), policies=GossipUCB())
    with pytest.raises(InvalidArgument, match=re.escape(message)):
        Result.concat([gossip, run(**({"trials": range(0, 3), "policies": FedUCB(1.0)} | changes))])
    redrawn = [run(range(0, 3), problem=given, policies=policy) for given, policy in
               ((REDRAWN, GossipUCB()), (REDRAWN[::-1], FedUCB(1.0)))]  # fmt: skip
    with pytest.raises(InvalidArgument, match=re.escape("parts[1].problem.means[0][0][0] must be")):
        Result.concat(redrawn)


@pytest.mark.parametrize(("given", "message"), [([], "parts must be at least one Result"), (["a.nc"], r"parts\[0\]")])
def test_bad_arguments(given, message):
    with pytest.raises(InvalidArgument, match=message):
        Result.concat(given)


@pytest.mark.docs
def test_the_readmes_example(tmp_path, monkeypatch):
    """Its parts together are the run of its first example."""
    blocks = [block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "Result.concat" in block]
    (example,) = blocks
    monkeypatch.chdir(tmp_path)
    names = {"problem": PROBLEM, "policies": [GossipUCB(), FedUCB(1.0)]}
    exec(example, names)  # noqa: S102
    whole = simulate(**names_of(names), horizon=100_000, trials=20, seed=1)
    xr.testing.assert_identical(names["result"].dataset, load(whole.save("whole.nc")).dataset)


def names_of(names):
    return {name: names[name] for name in ("problem", "policies")}
