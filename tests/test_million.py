"""Up to a million agents: large graphs, matchings in no order of agents, threads that share a trial, aggregates."""

import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest

from fedbandit import GossipUCB, InvalidArgument, LocalUCB, Problem, Result, load, simulate
from fedbandit.engine import cpu
from fedbandit.engine.compiled import compile_driver
from fedbandit.engine.layout import new_population, no_tape, setting_of, settings_of, with_own_scratch, world_of
from fedbandit.engine.streams import EDGES, draw, stream
from fedbandit.experiments import sweep
from fedbandit.simulation.run import compiled_policy
from fedbandit.world import graph
from fedbandit.world.edge_arrays import components, geometric_edges, independent_edges, smallest_mode

# ---------------------------------------------------------------- graphs


@pytest.mark.parametrize(
    ("text", "edges"),
    [
        ("random_regular:20000:4", 40_000),
        ("small_world:20000:6:0.1", 60_000),
        ("scale_free:20000:3", 59_991),
        ("geometric:6000:0.03", None),
        ("erdos_renyi:6000:0.002", None),
        ("grid:100x100", 19_800),
        ("ring:100000", 100_000),
    ],
)
def test_large_graphs(text, edges):
    built = graph.parse(text)
    assert edges is None or built.num_edges == edges
    assert not components(built.edge_array, built.num_agents).any()
    assert graph.parse(built.name) == built
    if text.startswith("random_regular"):
        assert (built.degrees == 4).all()
        assert graph.parse(text + ":1") != built


@pytest.mark.parametrize("text", ["small_world:300:6:0.2:5", "geometric:300:0.15:5", "scale_free:1500:2:5"])
def test_new_kinds_of_graphs_are_what_they_say(text):
    built = graph.parse(text)
    kind = text.partition(":")[0]
    if kind == "small_world":  # a fifth of 900 edges moves: 180, sd 12; the rest joins agents at most 3 apart
        apart = np.diff(built.edge_array.astype(int), axis=1).ravel()
        assert 100 < (np.minimum(apart, 300 - apart) > 3).sum() < 260
    elif kind == "geometric":
        places = np.random.RandomState(5).random_sample((300, 2))
        near = (np.linalg.norm(places[:, None] - places[None], axis=2) <= 0.15).sum() - 300
        assert built.num_edges == near // 2
    else:  # hubs: the largest degree grows like sqrt(N), about 2 sqrt(1500) = 77; independent links have 15 at most
        assert built.degrees.min() >= 1
        assert built.degrees.max() > 30


def test_pairs_are_independent_with_the_given_probability():
    """19,900 pairs of 200 agents with probability 0.1: 1,990 edges, sd 42; both ends of the order appear."""
    edges = independent_edges(200, 0.1, np.random.RandomState(1))
    assert 1_990 - 250 < len(edges) < 1_990 + 250
    assert (edges[:, 0] < edges[:, 1]).all()
    assert len(np.unique(edges, axis=0)) == len(edges)
    assert edges.max() == 199
    complete = independent_edges(30, 1.0, np.random.RandomState(1))
    assert {tuple(edge) for edge in complete.tolist()} == set(graph.complete(30).edges)


def test_cells_find_every_close_pair():
    edges = geometric_edges(400, 0.07, np.random.RandomState(3))
    places = np.random.RandomState(3).random_sample((400, 2))
    near = np.linalg.norm(places[:, None] - places[None], axis=2) <= 0.07
    assert {tuple(sorted(edge)) for edge in edges.tolist()} == set(zip(*np.nonzero(np.triu(near, 1)), strict=True))


@pytest.mark.parametrize("seed", range(5))
def test_components_are_those_of_networkx(seed):
    edges = np.random.RandomState(seed).randint(0, 60, (40, 2))
    whole = nx.Graph(edges.tolist())
    whole.add_nodes_from(range(60))
    expected = {agent: min(part) for part in nx.connected_components(whole) for agent in part}
    assert components(edges, 60).tolist() == [expected[i] for i in range(60)]


@pytest.mark.parametrize(
    "text", ["random_regular:400:4", "small_world:400:6:0.1", "scale_free:400:2", "ring:60", "star:50"]
)
def test_the_slowest_mode_without_a_matrix(text):
    built = graph.parse(text)
    expected = (1.0 - built.lambda2) * 2 * built.num_edges
    assert smallest_mode(*built.adjacency) == pytest.approx(expected, rel=1e-5)


def test_a_large_graph_of_networkx():
    """It was refused: "edges must be a whole number from 0 to 5000"."""
    source = nx.cycle_graph(10_000)
    assert graph.from_networkx(source).edges == graph.ring(10_000).edges


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: graph.ring(6_000).gossip_matrix, "at most 5,000 agents, for gossip_matrix"),
        (lambda: graph.ring(6_000).diameter, "at most 5,000 agents, for distances and the diameter"),
        (lambda: graph.complete(5_001), "num_agents must be a whole number from 1 to 5000"),
        (lambda: graph.ring(1_000_001), "num_agents must be a whole number from 1 to 1000000"),
        (lambda: graph.grid(2_000, 2_000), "rows times columns must be"),
        (lambda: graph.random_regular(10_000, 9_000), "degree must be a whole number from 2 to 1000"),
        (lambda: graph.small_world(100, 5, 0.1), "degree must be even"),
        (lambda: graph.geometric(10_000, 0.001), "radius must be larger .* connected at a radius of about 0.018"),
        (lambda: graph.geometric(1_000_000, 0.1), "radius must be at most"),
        (lambda: graph.erdos_renyi(1_000_000, 0.1), "probability must be at most"),
        (lambda: graph.scale_free(10, 10), "links must be a whole number from 1 to 9"),
        (lambda: graph.parse("small_world:20"), "graph must be small_world:N:DEGREE:P"),
        (lambda: graph.from_edges(np.array([[0, 1], [1, -2]])), r"edges must be pairs .* not \(1, -2\)"),
        (lambda: graph.from_edges([(0, 1), (1, True)]), "edges must be pairs of whole numbers"),
        (lambda: setattr(graph.ring(3), "name", "x"), "never changes"),
    ],
)
def test_bad_large_graphs(build, message):
    with pytest.raises((InvalidArgument, AttributeError), match=message):
        build()


def test_agents_that_know_the_same_share_a_setting():
    weights = np.array([1, 1, 2, 2, 1, 1]) / 8
    problem = Problem.bernoulli(np.full((6, 2), 0.5), "star:6", weights=weights)
    settings, which = settings_of(problem, 100)
    assert len(settings) == 3  # the centre; leaves of two weights
    assert [settings[s] for s in which] == [setting_of(problem, 100, i) for i in range(6)]


# ---------------------------------------------------------------- matchings and threads


def world(text="random_regular:60:4", **options):
    on = graph.parse(text)
    return Problem.random(on.num_agents, 3, on, 2, "bernoulli", edges_per_round="matching", **options)


def greedy(on, t, seed=0, trial=0):
    """Agents that a matching reaches, edge after edge in the order of priorities."""
    with np.errstate(over="ignore"):
        bits = np.uint64(draw(stream(seed, trial, EDGES, 0, 0), t))
        priority = {(i, j): draw(bits, np.uint64(i << 32 | j)) for i, j in on.edges}
    met = set()
    for i, j in sorted(on.edges, key=priority.__getitem__, reverse=True):
        if i not in met and j not in met:
            met |= {i, j}
    return met


@pytest.mark.parametrize("text", ["random_regular:60:4", "star:20", "path:31"])
def test_a_matching_is_the_greedy_one(text):
    problem = world(text)
    plan = compiled_policy(GossipUCB(), problem, 10)
    links, population = with_own_scratch(plan.links[0][1]), new_population(plan.page, plan.terms, 3)
    rest = (world_of(problem), links, no_tape(), np.zeros((problem.num_agents, 3)), problem.arm_means)
    before = np.zeros(problem.num_agents, int)
    for t in range(6):
        plan.play_rounds(t, t, np.uint64(0), np.uint64(0), population, *rest, np.zeros(problem.num_agents))
        now = population.steps["messages"].copy()
        assert set(np.flatnonzero(now - before)) == (greedy(problem.graph, t) if t else set())
        before = now


@pytest.mark.filterwarnings("ignore:60 agents, one edge per round")
@pytest.mark.parametrize("links", ["matching", "one", 0.5])
@pytest.mark.parametrize("rates", [None, np.linspace(0.02, 1.0, 60)])
def test_any_number_of_threads_computes_the_same(monkeypatch, links, rates):
    problem = Problem.random(60, 3, "random_regular:60:4", 2, "bernoulli", edges_per_round=links, rates=rates)
    alone = simulate(problem, GossipUCB(), 60, trials=1, threads=1, checkpoints=4)
    monkeypatch.setattr(cpu, "_LEAST_AGENTS_PER_THREAD", 10)
    for threads in (2, 5):
        assert simulate(problem, GossipUCB(), 60, trials=1, threads=threads, checkpoints=4).dataset.equals(
            alone.dataset
        )


@pytest.mark.parametrize("rates", [pytest.param(None, marks=pytest.mark.slow), np.linspace(0.02, 0.4, 60)])
def test_many_agents_are_played_as_few_are(monkeypatch, rates):
    """With many, n~ lies apart and is heard where it changed, and an agent acts as soon as it has learnt."""
    few = simulate(world(rates=rates), GossipUCB(), 3000, trials=1, checkpoints=4)
    monkeypatch.setattr(cpu, "MANY", 1)
    monkeypatch.setattr(cpu, "_LEAST_AGENTS_PER_THREAD", 10)
    for threads in (1, 3):
        many = simulate(world(rates=rates), GossipUCB(), 3000, trials=1, threads=threads, checkpoints=4)
        assert many.dataset.equals(few.dataset)
    assert (few.dataset["lagging"].max() > 0) == (rates is not None)


def test_many_agents_hear_a_new_neighbour(monkeypatch):
    """Where links change, what has not changed lately is news to a new neighbour."""
    apart = [(i, i + 1) for i in (*range(5), *range(6, 11))]  # those who decide often, and those who seldom do
    links = graph.schedule([(0, apart), (2501, [*apart, (5, 6)])])
    problem = Problem.random(12, 3, links, 0, "bernoulli", rates=[0.1] * 6 + [0.02] * 6, edges_per_round="matching")
    few = simulate(problem, GossipUCB(), 4000, trials=2, checkpoints=60)
    monkeypatch.setattr(cpu, "MANY", 1)
    assert simulate(problem, GossipUCB(), 4000, trials=2, checkpoints=60).dataset.equals(few.dataset)
    assert few.dataset["lagging"].max() > 0


def test_a_thread_that_fails_stops_the_others():
    plan = compiled_policy(GossipUCB(), world(), 10)
    links, population = with_own_scratch(plan.links[0][1]), new_population(plan.page, plan.terms, 3)
    problem = world()

    def play(*arguments):
        if arguments[6].team.part == 1:
            plan.play_rounds(arguments[0], 2, *arguments[2:])
            raise RuntimeError("of the second")  # while the first waits for it in the third round
        plan.play_rounds(*arguments)

    zero, none = np.uint64(0), np.zeros(60)
    with pytest.raises(RuntimeError, match="of the second"):
        cpu._play_together(
            play, 2, 0, 9, zero, zero, population, world_of(problem), links, no_tape(), np.zeros((60, 3)),
            problem.arm_means, none,
        )  # fmt: skip


# ---------------------------------------------------------------- aggregates


@pytest.fixture(scope="module")
def both():
    problem = world(rates=np.linspace(0.1, 1.0, 60))
    options = {"horizon": 40, "trials": 3, "checkpoints": 4, "watch_radii": True}
    policies = [GossipUCB(), LocalUCB()]
    return simulate(problem, policies, **options), simulate(problem, policies, **options, keep="aggregates")


def test_aggregates_are_those_of_all_agents(both):
    whole, aggregated = both
    assert not aggregated.has_agents
    for name in ("regret", "pulls", "messages", "lagging", "theta_error", "misses"):
        for ending, over in {"": "mean", "_min": "min", "_max": "max", "_std": "std"}.items():
            expected = getattr(whole.dataset[name], over)("agent")
            np.testing.assert_allclose(aggregated.dataset[name + ending], expected, rtol=1e-12, atol=1e-12)
    assert (aggregated.dataset["disagreement"] > 0).all()
    first, second = whole.summary(), aggregated.summary()
    columns = [name for name in first if name not in ("worst_agent", "best_arm_share")]
    np.testing.assert_allclose(first[columns], second[columns], rtol=1e-12)
    assert (second["worst_agent"] >= first["worst_agent"]).all()


def test_aggregates_are_saved_joined_drawn_and_tabulated(both, tmp_path):
    _, aggregated = both
    assert load(aggregated.save(tmp_path / "a.nc")).dataset.identical(aggregated.dataset)
    assert len(aggregated.to_pandas()) == aggregated.regret.size
    aggregated.plot().savefig(tmp_path / "a.png")
    with pytest.raises(InvalidArgument, match="keep must be 'agents', for by_agent"):
        aggregated.by_agent()
    parts = [simulate(world(), LocalUCB(), 5, trials=range(r, r + 1), keep="aggregates") for r in (0, 1)]
    whole = simulate(world(), LocalUCB(), 5, trials=2, keep="aggregates")
    assert Result.concat(parts).dataset.identical(whole.dataset)
    with pytest.raises(InvalidArgument):
        Result.concat([parts[0], simulate(world(), LocalUCB(), 5, trials=range(1, 2))])


def test_what_is_kept_is_checked():
    with pytest.raises(InvalidArgument, match="keep must be 'agents' or 'aggregates', not 'all'"):
        simulate(world(), LocalUCB(), 5, trials=1, keep="all")
    large = Problem.random(200_000, 10, "ring:200000", same_means=True, edges_per_round="matching")
    with pytest.raises(InvalidArgument, match='GiB; or run fewer trials at a time, or keep="aggregates"'):
        simulate(large, LocalUCB(), 1000, trials=100)


def test_a_large_problem_is_described_by_digests():
    """Not by text: of a million agents and ten arms that has 200 MB."""
    large = Problem.random(100_001, 3, "ring:100001", edges_per_round="matching")
    result = simulate(large, LocalUCB(), 2, trials=1, keep="aggregates")
    assert len(result.dataset.attrs["experiment"]) < 4_000_000
    about = json.loads(result.dataset.attrs["experiment"])
    assert about["problem"]["means"]["shape"] == [100_001, 3]
    assert about["graph"]["edges"]["shape"] == [100_001, 2]
    other = simulate(Problem.random(100_001, 3, "ring:100001", seed=1, edges_per_round="matching"), LocalUCB(), 2,
                     trials=range(1, 2), keep="aggregates")  # fmt: skip
    with pytest.raises(InvalidArgument, match=r"parts\[1\].problem.means.sha256"):
        Result.concat([result, other])


# ---------------------------------------------------------------- found by attack


def test_a_graph_travels_without_what_is_derived():
    """Its hash is another one in every process, and matrices are large."""
    there = graph.ring(10)
    assert [hash(there), there.distances, there.gossip_matrix]  # which it keeps
    here = pickle.loads(pickle.dumps(there))  # noqa: S301  # our own
    assert set(here.__dict__) == {"num_agents", "edge_array", "name"}
    assert here == there
    assert not here.edge_array.flags.writeable


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: graph.geometric(100, 25), "radius must be at most 1.41.*, not 25"),
        (lambda: graph.small_world(4, 2, 0.1), "num_agents must be a whole number from 5"),
    ],
)
def test_graphs_that_cannot_be_are_refused(make, words):
    with pytest.raises(InvalidArgument, match=words):
        make()


def test_a_thread_that_cannot_start_stops_the_others(monkeypatch):
    """Otherwise those that have started would wait for it for ever."""

    class Full(ThreadPoolExecutor):
        def submit(self, function, *arguments):
            if arguments and getattr(arguments[0], "part", 0) == 2:
                raise RuntimeError("can't start new thread")
            return super().submit(function, *arguments)

    monkeypatch.setattr(cpu, "_LEAST_AGENTS_PER_THREAD", 10)
    monkeypatch.setattr(cpu, "ThreadPoolExecutor", Full)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        simulate(world(), GossipUCB(), 60, trials=1, threads=3, checkpoints=4)


def test_a_slow_graph_has_a_row_in_a_table(monkeypatch):
    """Where lambda_2 cannot be found, a sweep must not fail after all its work."""
    monkeypatch.setattr(graph.Graph, "lambda2", property(lambda self: topology_refuses()))
    assert np.isnan(sweep._lambda2(SimpleNamespace(problem=world())))


def topology_refuses():
    raise InvalidArgument("graph", "ring", "one that mixes faster")


def test_every_compiled_loop_has_a_file_of_its_own():
    """Numba numbers the code in a file without a lock: two processes could hand one loop the code of the other."""

    def times(factor):
        @compile_driver
        def multiplied(x):
            return factor * x

        return multiplied

    loops = [times(2.0), times(3.0)]
    assert [loop(1.0) for loop in loops] == [2.0, 3.0]
    assert loops[0]._cache._cache_file._index_path != loops[1]._cache._cache_file._index_path
