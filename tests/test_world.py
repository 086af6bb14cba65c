"""Graphs and problems: what they are, and what they refuse."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbandit import InvalidArgument, Problem
from fedbandit.world import graph


@given(st.integers(4, 30), st.integers(0, 1000))
def test_any_connected_graph(num_agents, seed):
    tree = nx.random_labeled_tree(num_agents, seed=seed)
    built = graph.from_networkx(tree)
    assert built.num_agents == num_agents
    assert len(built.edges) == num_agents - 1
    assert built.diameter == nx.diameter(tree)
    assert all(i in built.neighbours[j] for i in range(num_agents) for j in built.neighbours[i])
    np.testing.assert_array_equal(built.distances, built.distances.T)
    np.testing.assert_allclose(built.gossip_matrix.sum(axis=0), 1)


@pytest.mark.parametrize(
    ("built", "agents", "edges", "diameter"),
    [
        (graph.path(10), 10, 9, 9),
        (graph.ring(10), 10, 10, 5),
        (graph.complete(5), 5, 10, 1),
        (graph.star(6), 6, 5, 2),
        (graph.grid(3, 4), 12, 17, 5),
        (graph.random_regular(10, 3, seed=1), 10, 15, None),
        (graph.erdos_renyi(20, 0.3, seed=7), 20, None, None),
    ],
)
def test_topologies(built, agents, edges, diameter):
    assert built.num_agents == agents
    assert edges is None or len(built.edges) == edges
    assert diameter is None or built.diameter == diameter
    assert graph.parse(built.name) == built


def test_random_graphs_depend_on_their_seed():
    assert graph.erdos_renyi(20, 0.3, seed=1) == graph.erdos_renyi(20, 0.3, seed=1)
    assert graph.erdos_renyi(20, 0.3, seed=1).edges != graph.erdos_renyi(20, 0.3, seed=2).edges


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: graph.path(0), "num_agents must be a whole number from 1"),
        (lambda: graph.from_edges([]), "num_agents must be a whole number from 1"),
        (lambda: graph.from_edges([(0, 1), (1, 1), (1, 2)]), "no loops"),
        (lambda: graph.from_edges([(0, 1), (1, 2), (1, 0)]), "no parallel edges"),
        (lambda: graph.from_edges([(0, 1), (2, 3)]), "connected graph, not .*agent 2 is cut off"),
        (lambda: graph.from_edges([(0, 1), (1, 2)], num_agents=4), "agent 3 is cut off"),
        (lambda: graph.from_edges([(0, 1), (1, 5)], num_agents=3), "pairs of agents from 0 to 2"),
        (lambda: graph.from_edges([(0, 1, 2)]), "pairs of agents"),
        (lambda: graph.from_networkx(nx.DiGraph([(0, 1), (1, 2)])), "undirected"),
        (lambda: graph.from_networkx(nx.MultiGraph([(0, 1), (1, 2), (1, 2)])), "no parallel edges"),
        (lambda: graph.erdos_renyi(50, 0.001), "probability must be larger"),
        (lambda: graph.random_regular(5, 3), "degree must be even"),
        (lambda: graph.parse("pth:10"), "graph must be one of .* Did you mean 'path'"),
        (lambda: graph.parse("path"), "graph must be path:N"),
        (lambda: graph.parse("path:ten"), "graph must be path:N"),
        *((lambda it=it: graph.parse(f"ring:{it}"), "graph must be ring:N") for it in ("\u0663", "1_0")),
        (lambda: graph.parse("erdos_renyi:9:0.\u0663"), "graph must be erdos_renyi:N:P"),
        (lambda: graph.parse("grid:3"), "graph must be grid:RxC"),
    ],
)
def test_bad_graphs(build, message):
    with pytest.raises(InvalidArgument, match=message):
        build()


def test_what_a_problem_is_about():
    problem = Problem.gaussian([[1.0, 0.0], [0.0, 0.4], [0.2, 0.5]], graph.path(3))
    np.testing.assert_allclose(problem.arm_means, [0.4, 0.3])
    np.testing.assert_allclose(problem.gaps, [0.0, 0.1])
    assert problem.best_arm == 0


def test_random_means_are_the_papers():
    problem = Problem.random(10, 10, "path", seed=3)
    assert problem.graph == graph.path(10)
    assert (problem.means >= 0).all()
    assert (problem.means <= 1).all()
    assert 0.4 < problem.means.mean() < 0.6  # 100 uniforms: sd 0.029
    np.testing.assert_array_equal(problem.means, Problem.random(10, 10, graph.ring(10), seed=3).means)


OK = [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Problem.gaussian([[0.1, np.nan], [0, 0], [0, 0]], "path:3"), r"means\[0, 1\] must be finite, not nan"),
        (lambda: Problem.gaussian([0.1, 0.2], "path:3"), "means must be a matrix"),
        (lambda: Problem.gaussian([["a"]], "path:3"), "means must be a matrix of numbers"),
        (lambda: Problem.gaussian(OK, "path:4"), "one row for each of the graph's 4 agents, not '3 rows'"),
        (lambda: Problem.gaussian([[1], [1], [1]], "path:3"), "num_arms .* must be a whole number from 2"),
        (lambda: Problem.gaussian(OK, "path:3", sigma=-1), "sigma must be"),
        (lambda: Problem.gaussian(OK, "path:3", reward_range=(1, 0)), "reward_range must be"),
        (lambda: Problem.gaussian(OK, "path:3", reward_range=3), "reward_range must be"),
        (lambda: Problem.gaussian(OK, 3), "graph must be"),
        (lambda: Problem.bernoulli([[0.1, 1.2], [0, 0], [0, 0]], "path:3"), r"means\[0, 1\] must be between 0 and 1"),
        (lambda: Problem.beta([[0.1, 1.0], [0, 0], [0, 0]], "path:3"), "strictly between 0 and 1"),
        (lambda: Problem.beta(OK, "path:3", concentration=0), "concentration must be"),
        (lambda: Problem.bernoulli(OK, "path:3", weights=[1, 2, 3]), "weights must be .* sum 6"),
        (lambda: Problem.bernoulli(OK, "path:3", weights=[1.5, -0.5, 0]), "weights must be"),
        (lambda: Problem.bernoulli(OK, "path:3", edges_per_round="some"), "edges_per_round must be 'one', 'matching'"),
        (lambda: Problem.bernoulli(OK, "path:3", edges_per_round=1.5), "edges_per_round must be"),
        (lambda: Problem.random(4, 2, "path:3"), "num_agents must be that of the graph"),
        (lambda: Problem.random(4, 2, "path", rewards="poisson"), "rewards must be one of"),
    ],
)
def test_bad_problems(build, message):
    with pytest.raises(InvalidArgument, match=message):
        build()
