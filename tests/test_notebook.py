"""Manners in a notebook, and of what is typed at a prompt: pictures, tables, progress, names, words for mistakes."""

import importlib
import io
import re
import sys
import types
from contextlib import suppress
from html.parser import HTMLParser
from importlib.metadata import version

import h5py
import networkx as nx
import numpy as np
import pytest
import xarray as xr
from matplotlib.backends.backend_agg import FigureCanvasAgg
from typer.testing import CliRunner

import fedbandit
from fedbandit import (
    CentralUCB,
    FedBatch,
    GossipUCB,
    Graph,
    InvalidArgument,
    LocalUCB,
    Problem,
    Result,
    Shares,
    Sweep,
    load,
    progress,
    simulate,
)
from fedbandit.cli import app
from fedbandit.experiments.experiment import read_sweep
from fedbandit.experiments.sweep import sweep_table
from fedbandit.figures.regret import agents_figure
from fedbandit.policies import POLICIES
from fedbandit.world import delays, graph, hospital

FILE = """
name = "<b>of & graphs</b>"
graph = ["path:4", "complete:4"]
horizon = 300
trials = 3
[problem]
rewards = "bernoulli"
num_arms = 3
[[policies]]
kind = "gossip_ucb"
[[policies]]
kind = "fed_batch"
epsilon = [0.5, 4.0]
[[policies]]
kind = "central_ucb"
[[policies]]
kind = "local_ucb"
"""
PROBLEM = Problem.random(4, 3, "path:4", rewards="bernoulli")


@pytest.fixture(scope="module")
def result():
    return simulate(PROBLEM, {"<i>mine</i>": GossipUCB(), "Local & alone": LocalUCB()}, 200, 3)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A sweep as a dataset, without processes."""
    path = tmp_path_factory.mktemp("sweep") / "sweep.toml"
    path.write_text(FILE)
    plans = read_sweep(path)
    return sweep_table(plans, [simulate(e.played, e.policies, e.horizon, e.trials, e.seed) for e in plans])


# ---------------------------------------------------------------- pictures


def test_figures_show_themselves(result, swept):
    """A notebook asks the last value of a cell for ``_repr_png_``; figures of matplotlib alone have none."""
    for figure in (result.plot(), agents_figure(result), Sweep(swept).plot()):
        picture, shown = figure._repr_png_()
        assert picture.startswith(b"\x89PNG")
        width, height = int.from_bytes(picture[16:20], "big"), int.from_bytes(picture[20:24], "big")
        assert (width, height) == pytest.approx((2 * shown["width"], 2 * shown["height"]), abs=3)
        assert shown["width"] < 1000
        assert figure._repr_html_() is None


def reference_lines(axes):
    return [line for line in axes.lines if set(line.get_xdata()) == {0, 1} and len(set(line.get_ydata())) == 1]


def test_policies_without_gossip_are_reference_lines(swept):
    """Pooled and alone do not depend on the graph, nor on epsilon: one labelled line each, at their regret."""
    figure = Sweep(swept).plot()
    assert len(figure.axes) == 2, "lambda_2 and epsilon"
    for axes in figure.axes:
        lines = {line.get_label(): line.get_ydata()[0] for line in reference_lines(axes)}
        assert list(lines) == ["Central UCB (everything pooled)", "Local UCB1 (each alone)"]
        expected = swept["regret"].isel(run=0).mean("trial").sel(policy=["Central UCB", "Local UCB1"]).values
        np.testing.assert_allclose(list(lines.values()), expected)
        assert axes.get_legend() is None
    curves = {text.get_text() for text in figure.legends[0].get_texts()} - set(lines)
    assert not any("Central" in label or "Local" in label for label in curves)


def test_policies_that_depend_on_what_is_swept_stay_curves(swept):
    """Regret of "Central UCB" is changed in one run, as it would be in a sweep over the number of agents."""
    other = swept.copy(deep=True)
    other["regret"].loc[{"policy": "Central UCB", "run": 1}] *= 2.0
    figure = Sweep(other).plot()
    assert [line.get_label() for line in reference_lines(figure.axes[0])] == ["Local UCB1 (each alone)"]
    assert "Central UCB" in {text.get_text() for text in figure.legends[0].get_texts()}


def test_graphs_of_a_sweep_have_their_names(swept):
    """At their lambda_2, which the tick tells, too."""
    (axes, _) = Sweep(swept).plot().axes
    at = dict(zip(swept["graph"].values.tolist(), swept["lambda2"].values.tolist(), strict=True))
    shown = {label.get_text(): tick for tick, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)}
    assert shown == {f"{graph} ({lambda2:.2g})": lambda2 for graph, lambda2 in at.items()}
    assert list(at) == ["path:4", "complete:4"]
    assert axes.get_xlabel().startswith("graph, by its $\\lambda_2$")


def renamed(swept, graphs, lambda2, agents):
    """The same runs, as often as there are graphs."""
    many = swept.isel(run=[0] * len(graphs))
    return many.assign_coords(graph=("run", graphs), lambda2=("run", lambda2), num_agents=("run", agents))


def test_graphs_that_lie_together_share_a_tick_and_many_have_none(swept):
    three = renamed(swept, ["ring", "star", "path"], [0.9, 0.901, 0.97], [4, 4, 4])
    axes = Sweep(three).plot().axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["ring, star (0.9)", "path (0.97)"]
    sizes = renamed(swept, ["ring", "ring"], [0.9, 0.97], [6, 12])
    axes = Sweep(sizes).plot().axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["ring:6 (0.9)", "ring:12 (0.97)"]
    many = renamed(swept, [f"geometric:{n}:0.3" for n in range(7)], np.linspace(0.9, 0.99, 7), [4] * 7)
    assert Sweep(many).plot().axes[0].get_xlabel().startswith("$\\lambda_2$ of the graph")


def styles(axes):
    """How each label is drawn."""
    handles, labels = axes.get_legend_handles_labels()
    lines = [handle.lines[0] if hasattr(handle, "lines") else handle for handle in handles]
    return {
        label: (it.get_color(), it.get_marker(), it.get_linestyle()) for label, it in zip(labels, lines, strict=True)
    }


def test_what_looks_alike_in_two_panels_is_the_same(swept):
    """Then one legend serves the figure."""
    figure = Sweep(swept).plot()
    left, right = (styles(axes) for axes in figure.axes)
    both = left | right
    assert {label: both[label] for label in left} == left
    curves = [look for label, look in both.items() if "pooled" not in label and "alone" not in label]
    assert len(set(curves)) == len(curves) == 5
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(both)


def test_many_curves_have_a_legend_in_each_panel_below_its_axis(swept, monkeypatch):
    monkeypatch.setattr("fedbandit.figures.sweep._MOST_IN_ONE", 5)
    figure = Sweep(swept).plot()
    FigureCanvasAgg(figure).draw()
    assert figure.legends == []
    for axes in figure.axes:
        legend = axes.get_legend().get_window_extent()
        assert legend.y0 > 0
        assert legend.y1 < axes.xaxis.label.get_window_extent().y0 + 2


def test_bars_of_a_sweep(swept):
    assert "bars: standard error of the mean of 3 trials" in Sweep(swept).plot().get_suptitle()
    titled = Sweep(swept).plot(band="confidence", title="mine").get_suptitle()
    assert titled == "mine\nbars: 95 % confidence interval of the mean of 3 trials"
    with pytest.raises(InvalidArgument, match=r"band must be one of .* Did you mean 'quantiles'\?"):
        Sweep(swept).plot(band="quantile")


# ---------------------------------------------------------------- representations


class Seen(HTMLParser):
    """The text of a page, and whether every tag is closed."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.text = [], set(), ""
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        if tag != "line":
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += f"{data}|"


def test_html_is_small_escaped_and_without_colours(result, swept):
    named = Graph(3, [(0, 1), (1, 2)], "<script>'\"&")
    shown = [result, Sweep(swept), PROBLEM, PROBLEM.graph, named, Problem.bernoulli(np.eye(3), named)]
    shown += [kind(1.0) if "epsilon" in kind.__dataclass_fields__ else kind() for kind in POLICIES.values()]
    for thing in shown:
        page = thing._repr_html_()
        assert len(page) < 6000
        assert Seen(page).tags <= {
            *("div", "b", "small", "table", "thead", "tbody", "tr", "th", "td"),
            *("svg", "g", "line", "circle", "title"),
        }
        assert not re.search(r"#[0-9a-f]{3}|rgb|background|black|white", page), "readable in light and dark"
        assert "\n" not in repr(thing) or isinstance(thing, Result)
        assert len(repr(thing)) < 400


def test_what_html_says(result, swept):
    said = Seen(result._repr_html_()).text
    assert "<i>mine</i>|" in said
    assert "Result: 4 agents, 3 arms, 200 rounds, 3 trials|" in said
    assert f"{result.summary()['regret'].iloc[0]:.1f} ±" in said
    assert "Best on average: arm" in Seen(PROBLEM._repr_html_()).text
    assert f"average|{'|'.join(f'{mean:.4g}' for mean in PROBLEM.arm_means)}|" in Seen(PROBLEM._repr_html_()).text
    assert "agents|4|edges|3|neighbours per agent|1 to 2|diameter|3|lambda_2|" in Seen(PROBLEM.graph._repr_html_()).text
    assert PROBLEM.graph._repr_html_().count("<line ") == 3
    policy = Seen(FedBatch(0.5, index="kl")._repr_html_()).text
    assert policy.startswith("FedBatch KL, eps=0.5|epsilon|0.5|index|'kl'|radius|'calibrated' (default)|")
    assert "<b>of & graphs</b>" in Seen(Sweep(swept)._repr_html_()).text


def test_large_things_stay_small():
    large = graph.ring(200_000)
    assert len(large._repr_html_()) < 1000
    problem = Problem.random(300, 40, "ring:300")
    assert len(problem._repr_html_()) < 20_000
    assert "The table is cut." in problem._repr_html_()
    assert repr(problem) == "Problem(300 agents, 40 arms, gaussian rewards, ring:300)"


def test_text_of_a_result(result):
    lines = repr(result).splitlines()
    assert lines[0] == "Result: 4 agents, 3 arms, 200 rounds, 3 trials; regret per agent:"
    assert lines[1].startswith("  <i>mine</i>: ")
    assert "worst" not in lines[1], "of 3 trials"
    assert "aggregates over agents" in repr(simulate(PROBLEM, GossipUCB(), 50, 2, keep="aggregates"))
    assert "±" not in repr(simulate(PROBLEM, GossipUCB(), 50, 1)), "one trial has no standard error"


# ---------------------------------------------------------------- progress


class Display:
    """What IPython offers to code in a notebook, as far as it is used here; keeps what was shown."""

    def __init__(self):
        self.shown, self.updates = [], []

    def display(self, thing, *, display_id):
        assert display_id is True
        self.shown.append(thing)
        return self

    def update(self, thing):
        self.updates.append(thing)


@pytest.fixture
def notebook(monkeypatch):
    """A stand-in for IPython in a kernel; a real one was used to compare it with."""
    display = Display()
    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell, display=display))
    return display


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass as a test says."""
    now = types.SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(progress, "monotonic", lambda: now.seconds)
    return now


def test_a_bar_in_a_notebook(notebook, clock, capsys):
    """One output, replaced four times a second at most, and gone at the end, also after an error."""
    with pytest.raises(ZeroDivisionError), progress.progress_bar() as show:  # noqa: PT012
        show(0, 1000)
        assert "compiling" in notebook.shown[0]._repr_html_()
        clock.seconds += 60.0  # compiling, which does not count
        for done in range(1, 1001):
            clock.seconds += 0.01
            show(done, 1000)
        raise ZeroDivisionError
    assert len(notebook.shown) == 1
    assert 30 <= len(notebook.updates) <= 42
    assert "value=" in notebook.updates[5]._repr_html_()
    assert repr(notebook.updates[20]).endswith("100 pulls/s, 5 s left")
    assert notebook.updates[-1]._repr_html_() == repr(notebook.updates[-1]) == ""
    assert capsys.readouterr() == ("", "")


def test_lines_where_there_is_no_terminal(clock, capsys):
    """On standard error, every ten seconds."""
    with progress.progress_bar(doing="attacking", unit="attacks") as show:
        for done in range(241):
            show(done, 240)
            clock.seconds += 0.125
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0] == "attacking: 33 %, 8 attacks/s, 20 s left"
    assert len(err.splitlines()) == 3


def test_several_runs_in_a_row(clock, capsys):
    """Each has its name, and its own speed: what is left is that of the run."""
    with progress.progress_bar() as show:
        for run, speed in (("run 1: pooled", 10), ("run 2: together", 40)):
            for step in range(1, 17):
                clock.seconds += 1.0
                show(step * speed, 20 * speed, run)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "run 1: pooled: 50 %, 10 s left of this run",
        "run 2: together: 20 %, 16 s left of this run",
        "run 2: together: 70 %, 6 s left of this run",
    ]


def test_a_short_run_says_nothing(capsys):
    simulate(PROBLEM, GossipUCB(), 50, 2, progress=True)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_has_a_bar(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress.progress_bar() as show:
        show(0, 10)
        show(5, 10)
    assert "simulating" in terminal.getvalue()
    assert "50 %" in terminal.getvalue()
    with progress.progress_bar() as show:
        show(1, 100, "run 1: pooled, 3,200 patients per site")
    assert "run 1: pooled, 3,200 patients per site" in terminal.getvalue()


# ---------------------------------------------------------------- names


def test_the_version():
    assert fedbandit.__version__ == version("fedbandit")


@pytest.mark.parametrize(
    "name",
    [
        *(
            "audit",
            "audit.measure",
            "checks",
            "world.delays",
            "world.graph",
            "world.hospital",
            "policies",
            "policies.protocol",
            "privacy",
        ),
        *("privacy.ledger", "privacy.mechanism", "privacy.noise", "testing", "theory"),
    ],
)
def test_dir_has_no_imported_names(name):
    module = importlib.import_module(f"fedbandit.{name}")
    assert dir(module) == sorted(module.__all__)


# ---------------------------------------------------------------- what runs have left


def test_a_sweep_is_loaded(swept, tmp_path):
    swept.to_netcdf(tmp_path / "sweep.nc", engine="h5netcdf")
    for place in (tmp_path / "sweep.nc", str(tmp_path)):
        found = load(place)
        assert isinstance(found, Sweep)
        xr.testing.assert_identical(found.dataset, swept)
    assert found.swept == ["graph"]
    table = found.table
    assert len(table) == 2 * 5
    assert list(table.columns[:4]) == ["run", "graph", "policy", "epsilon"]
    row = table[(table["graph"] == "complete:4") & (table["policy"] == "Gossip_UCB")].iloc[0]
    values = swept["regret"].sel(policy="Gossip_UCB").isel(run=1).values
    assert row["regret"] == pytest.approx(values.mean())
    assert row["std_error"] == pytest.approx(values.std(ddof=1) / np.sqrt(3))


def test_parts_from_folders_of_the_command_line(tmp_path):
    """Seeds and trials of a file are those of ``simulate``: a folder is a part like any other."""
    file = tmp_path / "small.toml"
    file.write_text(FILE.replace('["path:4", "complete:4"]', '"path:4"'))
    ran = CliRunner().invoke(app, ["run", str(file), "-o", str(tmp_path / "out"), "-q"])
    assert ran.exit_code == 0, ran.output
    (plan,) = read_sweep(file)
    rest = simulate(plan.played, plan.policies, plan.horizon, range(3, 5), plan.seed)
    whole = simulate(plan.played, plan.policies, plan.horizon, 5, plan.seed)
    joined = Result.concat([rest, load(tmp_path / "out")])
    xr.testing.assert_identical(joined.dataset, whole.dataset)


def test_parts_that_keep_different_things():
    aggregates = simulate(PROBLEM, GossipUCB(), 50, range(2), keep="aggregates")
    agents = simulate(PROBLEM, GossipUCB(), 50, range(2, 4))
    for parts, ours, theirs in (
        ([agents, aggregates], "agents", "aggregates"),
        ([aggregates, agents], "aggregates", "agents"),
    ):
        with pytest.raises(InvalidArgument) as refused:
            Result.concat(parts)
        assert str(refused.value) == f"parts[1].keep must be '{ours}', as in parts[0], not '{theirs}'"


def test_seeds_can_be_swept(tmp_path):
    file = tmp_path / "seeds.toml"
    file.write_text(
        FILE.replace('["path:4", "complete:4"]', '"path:4"\nseed = [1, 2, 3]').replace(
            "[problem]", "[problem]\nseed = [7, 8]"
        )
    )
    plans = read_sweep(file)
    assert [(e.seed, e.swept) for e in plans[:3]] == [
        (1, {"seed": 1, "problem.seed": 7}),
        (1, {"seed": 1, "problem.seed": 8}),
        (2, {"seed": 2, "problem.seed": 7}),
    ]
    assert len(plans) == 6
    table = sweep_table(plans, [simulate(e.played, e.policies, e.horizon, e.trials, e.seed) for e in plans])
    assert table["seed"].values.tolist() == [1, 1, 2, 2, 3, 3]
    assert table["problem_seed"].values.tolist() == [7, 8] * 3
    figure = Sweep(table).plot()
    assert [axes.get_xlabel() for axes in figure.axes[:2]] == ["seed of the trials", "seed of the means"]
    assert figure.axes[0].lines[0].get_linestyle() == "None", "seeds are names: no line joins them"
    assert all(tick == int(tick) for tick in figure.axes[0].get_xticks()), "there is no seed 1.5"
    assert len(read_sweep(file, {"seed": 5})) == 2, "--seed replaces the list"


# ---------------------------------------------------------------- words for mistakes


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: simulate(PROBLEM, FedBatch, 10, 1), "FedBatch is a class: write FedBatch(...)."),
        (lambda: simulate(PROBLEM, [GossipUCB(), CentralUCB], 10, 1), "CentralUCB is a class: write CentralUCB(...)."),
        (lambda: simulate(PROBLEM, {"a": LocalUCB}, 10, 1), "LocalUCB is a class: write LocalUCB(...)."),
        (lambda: simulate(Problem, GossipUCB(), 10, 1), "Problem is a class: write Problem(...)."),
        (lambda: simulate(PROBLEM, GossipUCB(), 10, 1, shares=Shares), "Shares is a class: write Shares(...)."),
        (lambda: simulate(PROBLEM, "fed_batch", 10, 1), "not 'fed_batch'"),
        (lambda: Problem.bernoulli(np.eye(3), graph.ring), "ring is a function: write ring(...)."),
        (lambda: Problem.bernoulli(np.eye(3), "ring:3", delays=delays.fixed), "fixed is a function: write fixed(...)."),
        (lambda: Problem.bernoulli(np.eye(3), nx.path_graph(3)), "write graph.from_networkx(...)"),
        (lambda: Problem.random(3, 2, nx.path_graph(3)), "write graph.from_networkx(...)"),
        (lambda: graph.from_edges(nx.path_graph(10_000)), "write graph.from_networkx(...)"),
        (lambda: Graph(10_000, nx.path_graph(10_000)), "write graph.from_networkx(...)"),
        (lambda: graph.from_edges([("a", "b")]), "pairs of whole numbers from 0 to 1000000, not ('a', 'b')"),
        (lambda: graph.from_edges([(0, 2.5)]), "pairs of whole numbers from 0 to 1000000, not (0, 2.5)"),
        (lambda: graph.from_edges(["ab"]), "edges must be pairs of agents, not 'ab'"),
        (lambda: graph.from_edges(7), "edges must be pairs of agents, not 7"),
        (lambda: load("missing.nc"), "path must be a file or folder that exists, not 'missing.nc'"),
        (lambda: load("/"), "path must be a folder with a result.nc or sweep.nc that 'fedbandit run' wrote, not '/'"),
        (lambda: load(__file__), "path must be a file written by Result.save"),
        (lambda: load(3), "path must be a path, not 3"),
        (lambda: hospital.load("missing.zip"), "path must be a file that exists, not 'missing.zip'"),
        (
            lambda: graph.contacts("missing.csv"),
            "a readable CSV file in UTF-8, not 'missing.csv'. No such file or directory.",
        ),
        (lambda: Result.concat(["part.nc"]), "parts[0] must be a Result, not 'part.nc'. Read files with load(...)."),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(InvalidArgument, match=re.escape(message)):
        call()


def test_a_damaged_file_is_named(tmp_path):
    path = simulate(PROBLEM, FedBatch(1.0), 10, 1).save(tmp_path / "result.nc")
    whole = path.read_bytes()
    for start in range(0, len(whole), 4500):
        path.write_bytes(whole[:start] + bytes(255 - it for it in whole[start : start + 500]) + whole[start + 500 :])
        with suppress(InvalidArgument):  # some bytes hold nothing that matters
            load(path)
    path.write_bytes(b"")
    with pytest.raises(InvalidArgument, match=r"a file written by Result\.save"):
        load(path)


def test_a_file_that_claims_more_than_it_holds_is_not_read(tmp_path):
    """A few damaged bytes made it ask for 4 GB."""
    path = simulate(PROBLEM, FedBatch(1.0), 10, 1).save(tmp_path / "result.nc")
    assert load(path).dataset.nbytes < 100_000
    with h5py.File(path, "a") as file:
        file.create_dataset("more", shape=(10**13,), dtype="f8", chunks=(1000,))
    with pytest.raises(InvalidArgument, match="more numbers than its bytes can hold"):
        load(path)


def test_the_text_of_many_trials_says_how_bad_the_worst_are():
    """The mean over the worst 1 % of trials: of 20 the worst one, of 250 the two worst."""
    result = simulate(PROBLEM, GossipUCB(), 30, 250)
    final = np.sort(result.mean_regret.isel(time=-1).values[0])
    assert result.summary()["worst_percent"].item() == pytest.approx(final[-2:].mean())
    assert repr(result).splitlines()[1].endswith(f", worst 1 %: {final[-2:].mean():.1f}")
    few = Result(result.dataset.isel(trial=slice(20)))
    assert repr(few).endswith(f", worst 1 %: {few.mean_regret.isel(time=-1).values.max():.1f}")


def test_a_text_that_is_longer_than_the_file_is_not_read(tmp_path):
    """HDF5 filled up to 4 GB with zeros before it looked for the text. Lengths elsewhere are under its checksums."""
    path = simulate(PROBLEM, [FedBatch(1.0), GossipUCB()], 10, 1).save(tmp_path / "result.nc")
    with h5py.File(path) as file:
        starts = [file["policy"].id.get_offset() + 16 * k for k in range(2)]
    whole = path.read_bytes()
    for start in starts:
        assert int.from_bytes(whole[start : start + 4], "little") < 40, "it must find the length of a label"
        for place in range(1, 4):
            damaged = bytearray(whole)
            damaged[start + place] ^= 0xFF
            path.write_bytes(damaged)
            with pytest.raises(InvalidArgument, match="a text that is longer than the file"):
                load(path)


def test_large_graphs_of_networkx():
    for given in (nx.path_graph(10_000), nx.grid_2d_graph(100, 100), nx.barabasi_albert_graph(20_000, 2, seed=1)):
        taken = graph.from_networkx(given)
        assert (taken.num_agents, taken.num_edges) == (given.number_of_nodes(), given.number_of_edges())
