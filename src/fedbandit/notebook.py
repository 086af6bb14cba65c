"""How results, problems, graphs and policies look: a line of text, and a small HTML table in a notebook.

The functions are methods of what they show; these classes have more to say than how they look.
Colours are the page's own, so that they can be read in light and dark; every text is escaped.
"""

from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields
from html import escape
from math import cos, isfinite, nan, pi, sin
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedbandit.planning.forecast import Forecast
    from fedbandit.simulation.result import Result, Sweep
    from fedbandit.world.graph import Graph
    from fedbandit.world.problem import Problem

MOST_ROWS, MOST_COLUMNS = 12, 10
"""Larger tables are cut."""

_FEW_TRIALS = 20
"""With fewer of them, nothing is said of the worst."""

_DRAWN = 40
"""Up to so many agents a graph is drawn, and lambda_2 is computed for it."""


def _table(heading: str, headings: Sequence[str], rows: Iterable[Sequence[str]], note: str = "") -> str:
    """Cells are escaped here. The first column has texts, the others numbers."""
    left, right = (f'style="text-align:{side};padding:.1em .6em"' for side in ("left", "right"))

    def line(tag: str, cells: Sequence[str]) -> str:
        shown = (f"<{tag} {right if k else left}>{escape(cell)}</{tag}>" for k, cell in enumerate(cells))
        return f"<tr>{''.join(shown)}</tr>"

    head = f"<thead>{line('th', headings)}</thead>" if any(headings) else ""
    body = "".join(line("td", row) for row in rows)
    below = f"<div><small>{escape(note)}</small></div>" if note else ""
    table = f'<table style="color:inherit;font:inherit">{head}<tbody>{body}</tbody></table>'
    return f"<div><div><b>{escape(heading)}</b></div>{table}{below}</div>"


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _with_error(value: float, error: float = nan) -> str:
    digits = 0 if value >= 100 else 1  # beyond that, regret is a rough number
    return f"{value:,.{digits}f}" + (f" ± {error:,.{digits}f}" if isfinite(error) else "")


# ---------------------------------------------------------------- results


def _extent(result: "Result") -> str:
    sizes = result.dataset.sizes
    agents = f"{_counted(sizes['agent'], 'agent')}, " if result.has_agents else "aggregates over agents, "
    trials = _counted(sizes["trial"], "trial")
    return f"{agents}{_counted(sizes['arm'], 'arm')}, {int(result.dataset['time'][-1]):,} rounds, {trials}"


def result_text(self: "Result") -> str:
    """A line about the run and one per policy: its regret with the standard error, and that of the worst trials."""
    rows = [
        f"  {label}: {_with_error(row['regret'], row['std_error'])}"
        + (f", worst 1 %: {_with_error(row['worst_percent'])}" if self.dataset.sizes["trial"] >= _FEW_TRIALS else "")
        for label, row in self.summary().iterrows()
    ]
    return "\n".join([f"Result: {_extent(self)}; regret per agent:", *rows])


def result_html(result: "Result") -> str:
    """The summary as a table."""
    rows = [
        [
            str(label),
            _with_error(row["regret"], row["std_error"]),
            *(_with_error(row[name]) for name in ("min", "max", "worst_agent")),
            f"{100 * row['best_arm_share']:.1f} %",
            f"{row['messages']:,.0f}",
        ]
        for label, row in result.summary().iterrows()
    ]
    about = result.experiment
    note = (
        f"{about['graph']['name']}, {about['problem']['rewards']} rewards, seed {about['seed']}. Regret is per agent."
    )
    headings = ["policy", "regret ± s.e.", "min", "max", "worst agent", "best arm", "estimates sent"]
    return _table(f"Result: {_extent(result)}", headings, rows, note)


def sweep_text(self: "Sweep") -> str:
    """A line: what was swept, and how often."""
    sizes = self.dataset.sizes
    extent = f"{_counted(sizes['run'], 'run')}, {_counted(sizes['policy'], 'policy').replace('policys', 'policies')}"
    return f"Sweep({self.dataset.attrs['name']!r} over {', '.join(self.swept)}: {extent}, {sizes['trial']:,} trials)"


def sweep_html(sweep: "Sweep") -> str:
    """A row per run, a column per policy: final regret per agent."""
    labels = sweep.policies
    rows: list[list[str]] = []
    for _, run in sweep.table.groupby("run", sort=False):
        values = run.set_index("policy")
        found = [_with_error(values["regret"][label], values["std_error"][label]) for label in labels]
        rows.append([", ".join(str(run[name].iloc[0]) for name in sweep.swept), *found])
    cut = len(rows) - MOST_ROWS
    note = "Final regret per agent, mean ± standard error over trials." + (f" {cut:,} rows more." if cut > 0 else "")
    return _table(sweep_text(sweep), [", ".join(sweep.swept), *labels], rows[:MOST_ROWS], note)


def forecast_html(forecast: "Forecast") -> str:
    """The answer in words, then the tables of the command."""
    tables = (_table(*table) for table in forecast.tables)
    return f"<div><p>{escape(forecast.words)}</p>{''.join(tables)}</div>"


# ---------------------------------------------------------------- the world


def problem_text(self: "Problem") -> str:
    """A line: its size, rewards and graph."""
    size = f"{_counted(self.num_agents, 'agent')}, {_counted(self.num_arms, 'arm')}"
    if self.num_strata:
        size += f", {self.num_strata} {'stratum' if self.num_strata == 1 else 'strata'}"
    if self.features is not None:
        size += f", features {self.features.name}"
    return f"Problem({size}, {self.family} rewards, {self.graph.name})"


def problem_html(problem: "Problem") -> str:
    """Local means with a row per agent, their average, and the best arm."""
    agents, arms = problem.num_agents, problem.num_arms
    agent_names = problem.agent_names or [f"agent {i}" for i in range(min(agents, MOST_ROWS))]
    arm_names = problem.arm_names or [f"arm {k}" for k in range(arms)]
    if problem.strata is None:
        rows = [
            [agent_names[i], *(f"{value:.4g}" for value in problem.means[i, :MOST_COLUMNS])]
            for i in range(min(agents, MOST_ROWS))
        ]
        rows.append(["average", *(f"{value:.4g}" for value in problem.arm_means[:MOST_COLUMNS])])
    else:
        rows = [
            [f"average of stratum {s}", *(f"{value:.4g}" for value in means[:MOST_COLUMNS])]
            for s, means in enumerate(problem.arm_means)
        ]
    cut = (agents > MOST_ROWS and problem.strata is None) or arms > MOST_COLUMNS
    options = [f"Edges per round: {getattr(problem.edges_per_round, '__name__', problem.edges_per_round)}"]
    options += ["links pass on releases"] if problem.gossip == "releases" else []
    options += ["agents act at their own rates"] if problem.rates is not None else []
    options += [f"means change {len(problem.changes)} times; these are the first"] if problem.changes else []
    options += ["rewards come late"] if problem.is_late else []
    best = ", ".join(arm_names[arm] for arm in problem.best_arms)
    note = f"Best on average: {best}. {'; '.join(options)}.{' The table is cut.' * cut}"
    headings = ["means", *arm_names[:MOST_COLUMNS]]
    return _table(problem_text(problem), headings, rows, note)


def graph_html(graph: "Graph") -> str:
    """Its size, and a drawing if it is small."""
    fewest, most = int(graph.degrees.min()), int(graph.degrees.max())
    rows = [
        ["agents", f"{graph.num_agents:,}"],
        ["edges", f"{graph.num_edges:,}"],
        ["neighbours per agent", f"{fewest}" if fewest == most else f"{fewest} to {most}"],
    ]
    drawn = graph.num_agents <= _DRAWN
    if drawn:
        rows += [["diameter", f"{graph.diameter}"], ["lambda_2", f"{graph.lambda2:.5f}"]]
    return _table(f"Graph {graph.name}", [], rows) + (_drawing(graph) if drawn and graph.num_agents > 1 else "")


def _drawing(graph: "Graph") -> str:
    """Agents on a circle, in order."""
    n = graph.num_agents
    places = [(80 + 68 * sin(2 * pi * i / n), 80 - 68 * cos(2 * pi * i / n)) for i in range(n)]
    lines = "".join(
        f'<line x1="{places[i][0]:.1f}" y1="{places[i][1]:.1f}" x2="{places[j][0]:.1f}" y2="{places[j][1]:.1f}"/>'
        for i, j in graph.edges
    )
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4"><title>agent {i}</title></circle>' for i, (x, y) in enumerate(places)
    )
    return (
        f'<svg width="160" height="160" role="img" aria-label="{escape(graph.name)}">'
        f'<g stroke="currentColor" stroke-opacity="0.5">{lines}</g><g fill="currentColor">{dots}</g></svg>'
    )


# ---------------------------------------------------------------- policies


def policy_html(policy: Any) -> str:
    """Its label, what it is, and its parameters; those that are not the default come first."""
    given: list[list[str]] = []
    default: list[list[str]] = []
    for parameter in fields(policy):
        value = getattr(policy, parameter.name)
        is_default = parameter.default is not MISSING and value == parameter.default
        (default if is_default else given).append([parameter.name, f"{value!r}{' (default)' if is_default else ''}"])
    about = (type(policy).__doc__ or "").strip().partition("\n")[0]
    return _table(policy.label, [], [*given, *default], about)
