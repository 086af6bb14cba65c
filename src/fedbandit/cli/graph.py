"""The commands ``graph`` and ``theory``: numbers of a graph, and the paper's bounds on it.

Heavy imports happen inside commands.
"""

from typing import Annotated, Any

import typer

from fedbandit.cli.errors import errors_exit_with_2
from fedbandit.extras import needs

__all__ = ["describer", "whole_steps"]

describer = typer.Typer()


def _mixing_horizon(graph: Any) -> str:
    from fedbandit import theory

    if graph.num_agents < 3:
        return "the theorem needs 3 agents"
    lambda2 = _lambda2(graph)
    return "not found" if lambda2 is None else f"{theory.mixing_horizon(lambda2, graph.num_agents)}"


def _lambda2(graph: Any) -> float | None:
    """``None`` for a large graph that mixes so slowly that it cannot be found."""
    from fedbandit.checks import InvalidArgument

    try:
        return graph.lambda2
    except InvalidArgument:
        return None


def _said(lambda2: float | None, is_small: bool) -> str:
    if lambda2 is None:
        return "not found: the graph mixes too slowly"
    return f"{lambda2:.5f}" if is_small else f"1 - {1.0 - lambda2:.3g}"


@describer.command()
@errors_exit_with_2
def graph(
    spec: Annotated[
        str,
        typer.Argument(
            help="Such as path:10, ring:20, complete:3, star:5, grid:3x4, erdos_renyi:20:0.3:7, random_regular:20:3:7, "
            "small_world:20:4:0.1, geometric:20:0.4, scale_free:20:2."
        ),
    ],
) -> None:
    """Describe a graph: its size, diameter and lambda_2."""
    needs("fedbandit graph", "sim")
    from fedbandit.cli.tables import print_table
    from fedbandit.graph import parse
    from fedbandit.topology import MAX_DENSE

    described = parse(spec)
    is_small = described.num_agents <= MAX_DENSE
    print_table(
        described.name,
        ["", ""],
        [
            ["agents", f"{described.num_agents}"],
            ["edges", f"{described.num_edges}"],
            ["neighbours per agent", f"{described.degrees.min()} to {described.degrees.max()}"],
            ["diameter", f"{described.diameter}" if is_small else f"not computed beyond {MAX_DENSE:,} agents"],
            ["lambda_2", _said(_lambda2(described), is_small)],
            ["mixing horizon L", _mixing_horizon(described)],
        ],
    )


@describer.command("theory", short_help="Print the paper's constants and bounds for a setting.")
@errors_exit_with_2
def theory_command(
    graph: Annotated[str, typer.Option(help="Such as path:10.")],
    arms: Annotated[int, typer.Option(help="M.")],
    horizon: Annotated[float, typer.Option(help="T, e.g. 1e6.")],
    epsilon: Annotated[float, typer.Option(help="Privacy of one reward, for Fed_UCB.")] = float("inf"),
    gap: Annotated[float, typer.Option(help="Gap between the best arm and every other arm.")] = 0.1,
) -> None:
    """Print the paper's constants and bounds for a setting: L, the alphas, radii, Theorems 1 and 2."""
    needs("fedbandit theory", "sim")
    from fedbandit.checks import number_above, number_between, whole_number
    from fedbandit.cli.tables import print_theory
    from fedbandit.graph import parse

    number_above("--epsilon", epsilon, 0.0, allow_inf=True)
    g = parse(graph)
    m, steps = whole_number("--arms", arms, 2, 10**4), whole_steps("--horizon", horizon)
    gaps = [0.0] + [number_between("--gap", gap, 0.0, 1.0)] * (m - 1)
    print_theory(g, m, steps, epsilon, gaps)


def whole_steps(argument: str, value: float) -> int:
    """A number of rounds, also as 1e6."""
    from fedbandit.checks import whole_number
    from fedbandit.policies import MAX_HORIZON

    return whole_number(argument, value, 1, MAX_HORIZON)
