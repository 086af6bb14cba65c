"""Prints tables on the terminal."""

from math import inf
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    import xarray as xr

    from fedbandit.audit.suite import AuditRow
    from fedbandit.simulation.result import Result
    from fedbandit.world.graph import Graph


def print_sweep(table: "xr.Dataset") -> None:
    """A row per combination, a column per policy; transposed if there are more policies than combinations."""
    swept = [str(name) for name in table.attrs["swept"].split()]
    trials = table.sizes["trial"]
    mean = table["regret"].mean("trial")
    error = table["regret"].std("trial", ddof=1) / trials**0.5 if trials > 1 else None
    rows = [
        [
            *(str(table[name].values[run]) for name in swept),
            *(
                f"{mean[run, k]:,.0f}" + ("" if error is None else f" ± {error[run, k]:,.0f}")
                for k in range(table.sizes["policy"])
            ),
        ]
        for run in range(table.sizes["run"])
    ]
    headings = [*swept, *map(str, table["policy"].values)]
    if len(headings) - len(swept) > len(rows):
        turned = list(zip(headings, *rows, strict=True))
        names, rows = turned[: len(swept)], [list(row) for row in turned[len(swept) :]]
        runs = [", ".join(f"{name[0]}={name[run + 1]}" for name in names) for run in range(table.sizes["run"])]
        headings = ["policy", *runs]
    print_table(
        f"{table.attrs['name']}: final regret per agent" + (", mean ± standard error" if trials > 1 else ""),
        headings,
        rows,
    )


def print_summary(result: "Result", title: str) -> None:
    """A row per policy."""
    table = result.summary()
    headings = ["policy", "regret", "± s.e.", "min", "max", "worst agent", "best arm", "catching up", "estimates sent"]
    rows = [
        [
            str(label),
            f"{row['regret']:,.0f}",
            f"{row['std_error']:,.0f}",
            f"{row['min']:,.0f}",
            f"{row['max']:,.0f}",
            f"{row['worst_agent']:,.0f}",
            f"{100 * row['best_arm_share']:.1f} %",
            f"{100 * row['lagging']:.1f} %",
            f"{row['messages']:,.0f}",
        ]
        for label, row in table.iterrows()
    ]
    if "misses" in table:
        headings.append("beyond radius")
        for row, share in zip(rows, table["misses"], strict=True):
            row.append(f"{1e6 * share:,.1f} / 10^6")
    last, trials = int(result.dataset["time"][-1]), result.dataset.sizes["trial"]
    print_table(f"{title}: per agent after {last:,} rounds, {trials} trials", headings, rows)
    if result.has_agents and result.experiment["problem"].get("rates") is not None:
        _print_rates(result)


def _print_rates(result: "Result") -> None:
    """Who pays when agents' rates differ: a row per policy, a column per rate."""
    table = result.by_agent().reset_index()
    table = table.groupby(["policy", "rate"], sort=False)[["regret", "pulls"]].sum().reset_index()
    rates = sorted(set(table["rate"]), reverse=True)
    rows: list[list[str]] = []
    for label in result.policies:
        of = table[table["policy"] == label].set_index("rate")
        rows.append([label, *(f"{of['regret'][rate] / of['pulls'][rate]:.5f}" for rate in rates)])
    print_table("Regret per own pull, agents of a rate together", ["policy", *(f"rate {r:g}" for r in rates)], rows)


def print_audit(rows: "list[AuditRow]") -> None:
    """A row per attack, with the bound that its verdict compares with the claim."""
    from fedbandit.audit.suite import shown_bound

    print_table(
        "What one reward costs",
        ["attack on", "claimed", "at least", "verdict", "samples", "seconds"],
        [
            [row.label, f"{row.claimed:g}", shown_bound(row), row.verdict, f"{row.size:,}", f"{row.seconds:.1f}"]
            for row in rows
        ],
    )
    console = Console(emoji=False)
    for row in rows:
        if row.label.startswith("one run"):
            console.print(f"{row.label}: {row.words}", soft_wrap=True, highlight=False)
        if row.reason:
            console.print(f"{row.label}: {row.reason}", soft_wrap=True)
        for line in row.script:
            console.print(f"    {line}", soft_wrap=True, highlight=False, markup=False)
    console.print(
        "at least: a one-sided lower bound on epsilon. An audit of true claims shows a bound above the claim with a\n"
        "          probability of at most one in a million; -: nothing is measured\n"
        "REFUTED: the bound exceeds the claim, the noise fails a test, or a change of one reward is not hidden\n"
        "not refuted: this attack does not contradict the claim, nor does it prove it; proofs are in docs/privacy.md\n"
        "could not tell: the site failed, or no pair was played\n"
        "the proof: samples are pairs of random scripts that differ in one reward; all that others see must be equal\n"
        "its noise: samples are runs with eight releases\n"
        "one run: samples are guesses of coins, each of which set one reward of the same run\n"
        "seconds: of the processor",
        soft_wrap=True,
    )


def print_theory(graph: "Graph", num_arms: int, horizon: int, epsilon: float, gaps: list[float]) -> None:
    """The paper's constants and bounds for a setting, those of Fed_UCB if ``epsilon`` is finite; and the proved one."""
    from fedbandit import theory

    n, lambda2 = graph.num_agents, graph.lambda2
    theory.alpha1(n)  # refuses fewer than three agents before anything else
    each = max(1.0, horizon / num_arms)  # pulls of an arm in uniform play
    rows = [
        ["lambda_2", f"{lambda2:.5f}"],
        ["L, rounds until gossip has mixed (Lemma 4)", f"{theory.mixing_horizon(lambda2, n):,}"],
        ["alpha_1", f"{theory.alpha1(n):.3g}"],
        ["alpha_2", f"{theory.alpha2(n, num_arms, lambda2):,.1f}"],
        ["alpha_3", f"{theory.alpha3(n, num_arms, lambda2):,.1f}"],
        ["p_0 at n = T / M (Lemma 4)", f"{theory.p0(each, lambda2):.3g}"],
        ["C at t = T, n = T / M (Theorem 1)", f"{theory.clean_radius(each, horizon, n):.4f}"],
        [
            "Gossip_UCB regret per agent (Theorem 1)",
            _bound(theory.gossip_bound(gaps, n, num_arms, horizon, lambda2), gaps, horizon),
        ],
    ]
    if epsilon != inf:
        rows += [
            ["C~ at t = T, n = T / M (Lemma 6)", f"{theory.private_radius(each, horizon, n, horizon, epsilon):.4f}"],
            ["rounds of uniform play until C~ falls to 1", _rounds_above_1(n, num_arms, horizon, epsilon)],
            ["p_1 at n = T / M (Lemma 6)", f"{theory.p1(each, n, lambda2):.3g}"],
            [
                "Fed_UCB regret per agent (Theorem 2)",
                _bound(theory.fed_bound(gaps, n, num_arms, horizon, lambda2, epsilon), gaps, horizon),
            ],
        ]
    spread = theory.rounds_to_spread(n, len(graph.edges))
    rows += [
        ["rounds until a release is on all boards, at most", f"{spread:,.0f}"],
        [
            "FedBatch regret per agent (docs/theorem.md)",
            _bound(theory.proved_bound(gaps, n, num_arms, horizon, spread, epsilon), gaps, horizon),
        ],
    ]
    privacy = "" if epsilon == inf else f", epsilon {epsilon:g}"
    title = f"{graph.name}, {num_arms} arms, T = {horizon:,}{privacy}, every gap {max(gaps):g}"
    print_table(title, ["", ""], rows)


def _rounds_above_1(num_agents: int, num_arms: int, horizon: int, epsilon: float) -> str:
    from fedbandit.checks import InvalidArgument
    from fedbandit.theory import rounds_above

    try:
        return f"{rounds_above(1.0, num_agents, num_arms, horizon, epsilon):,}"
    except InvalidArgument:
        return "more than 10^18"


def _bound(bound: float, gaps: list[float], horizon: int) -> str:
    from fedbandit.theory import is_vacuous

    return f"{bound:,.0f}" + (
        f"  vacuous: above gap * T = {max(gaps) * horizon:,.0f}" if is_vacuous(bound, gaps, horizon) else ""
    )


def made_table(title: str, headings: list[str], rows: list[list[str]], wrap: bool = False) -> Table:
    """A titled table with aligned columns; ``wrap`` for columns of text."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, show_header=any(headings), title_style="bold")
    for position, heading in enumerate(headings):
        is_text = position == 0 or (wrap and not all(_is_number(row[position]) for row in rows))
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=not wrap)
    for row in rows:
        table.add_row(*row)
    return table


def _is_number(cell: str) -> bool:
    return cell == "-" or cell.replace(",", "").replace(".", "", 1).isdigit()


def fitting_table(width: int, title: str, headings: list[str], rows: list[list[str]]) -> Table:
    """A table, transposed if it is wider than ``width`` and becomes narrower."""
    wide, console = made_table(title, headings, rows), Console(emoji=False, width=10_000)
    turned = [list(line) for line in zip((heading.replace("\n", " ") for heading in headings), *rows, strict=True)]
    narrow = made_table(title, turned[0], turned[1:])
    needed = console.measure(wide).maximum
    return narrow if needed > max(width, console.measure(narrow).maximum) else wide


def print_table(title: str, headings: list[str], rows: list[list[str]], wrap: bool = False) -> None:
    """Print a table from ``made_table``."""
    table_console().print(made_table(title, headings, rows, wrap))


def table_console() -> Console:
    """Where tables are printed: a pipe has no width, and never truncates one."""
    console = Console(emoji=False)
    return console if console.is_terminal else Console(emoji=False, width=160)
