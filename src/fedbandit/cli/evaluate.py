"""``fedbandit evaluate``: what another policy would have gained, from a site's log."""

from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated

import typer

from fedbandit.checks import InvalidArgument
from fedbandit.cli.errors import errors_exit_with_2

if TYPE_CHECKING:
    from fedbandit.evaluation import Estimate, Evaluation
    from fedbandit.evaluation.log import Context

_WIDTH = 100  # of the words

_NAMES = {
    "ips": "inverse propensity (ips)",
    "snips": "self-normalised (snips)",
    "dr": "doubly robust (dr)",
}

evaluator = typer.Typer()


@evaluator.command(short_help="Tell from a log how well another policy would have done.")
@errors_exit_with_2
def evaluate(
    log: Annotated[Path, typer.Argument(help="JSON lines as GET /v1/log gives them, with rewards.")],
    policy: Annotated[
        list[str],
        typer.Option(help="'always ARM', 'uniform', or a TOML file with the share of each arm. May be repeated."),
    ],
    level: Annotated[float, typer.Option(help="Probability with which an interval holds the truth.")] = 0.95,
    low: Annotated[float, typer.Option(help="Lowest reward that there can be.")] = 0.0,
    high: Annotated[float, typer.Option(help="Highest reward that there can be.")] = 1.0,
    default_reward: Annotated[
        float | None,
        typer.Option(help="Reward of decisions that counted without one. Default: they are left out."),
    ] = None,
    obp: Annotated[
        Path | None, typer.Option(help="Also write the decisions to this .npz file for Open Bandit Pipeline.")
    ] = None,
    vw: Annotated[Path | None, typer.Option(help="Also write them to this file for vw --cb.")] = None,
) -> None:
    """Tell how well another policy would have done: three estimates, their intervals, and what to beware of.

    The log's propensities say how likely each arm was. What is assumed, and how to read it: docs/evaluate.md.
    """
    from fedbandit.evaluation import by_stratum, read_log, target
    from fedbandit.evaluation import evaluate as evaluated
    from fedbandit.evaluation.estimates import usable
    from fedbandit.evaluation.exports import bandit_feedback, write_obp, write_vowpal_wabbit

    for option, file in (("--obp", obp), ("--vw", vw)):
        if file is not None and len(policy) > 1:
            raise InvalidArgument(option, str(file), "left out with several policies: each uses other decisions")
    read = read_log(log)
    try:
        targets = [target(it, read.arms, read.factors) for it in policy]
        found = [evaluated(read, it, level, (low, high), default_reward) for it in targets]
    except InvalidArgument as error:
        raise InvalidArgument(_OPTIONS.get(error.argument, error.argument), *_rest(error)) from None
    _print(found, level, len(read.decisions))
    if read.factors:
        given = level, (low, high), default_reward
        _print_strata([(it.name, by_stratum(read, it, *given)) for it in targets], level)
    if obp is not None:
        write_obp(obp, bandit_feedback(read, targets[0], (low, high), default_reward))
        typer.echo(f"wrote {obp}")
    if vw is not None:
        write_vowpal_wabbit(vw, usable(read, targets[0], default_reward))
        typer.echo(f"wrote {vw}")


_OPTIONS = {"policy": "--policy", "level": "--level", "reward_range": "--low and --high"}


def _rest(error: InvalidArgument) -> tuple[object, str, str]:
    return error.value, error.accepted, error.hint


def _print(found: "list[Evaluation]", level: float, num_decisions: int) -> None:
    from fedbandit.cli.tables import print_table

    rows: list[list[str]] = []
    for it in found:
        rows += [[it.policy, _NAMES[each.name], *_numbers(each)] for each in it.estimates]
        if len({other.logged for other in found}) > 1 or it is found[-1]:
            rows.append(["as logged", "mean of the same decisions", *_numbers(it.logged)])
    print_table(
        f"Reward per decision, from {num_decisions:,} decisions",
        ["", "", "estimate", f"{100 * level:g} % interval", ""],
        rows,
    )
    print_table(
        "How much of the log bears on it",
        ["", "used", "effective", "mean weight", "largest weight", "least propensity"],
        [
            [
                it.policy,
                f"{it.decisions:,}",
                f"{it.effective:,.0f}",
                f"{it.mean_weight:.3f}",
                f"{it.largest_weight:.3g}",
                f"{it.least_propensity:.3g}",
            ]
            for it in found
        ],
    )
    for it in found:
        for warning in it.warnings:
            typer.echo(fill(f"{it.policy}: {warning}", _WIDTH))


def _print_strata(found: "list[tuple[str, dict[Context, Evaluation]]]", level: float) -> None:
    """The doubly robust estimate in each stratum, beside what was gained there."""
    from fedbandit.cli.tables import print_table
    from fedbandit.evaluation.estimates import FEW

    rows: list[list[str]] = []
    for name, strata in found:
        for context, it in strata.items():
            label = ", ".join(f"{factor} {value}" for factor, value in context) or "nothing known"
            few = "few" if it.effective < FEW else ""
            value, interval, _ = _numbers(it["dr"])
            sizes = f"{it.decisions:,}", f"{it.effective:,.0f}"
            rows.append([name, label, value, interval, *sizes, f"{it.logged.value:.4f}", few])
    headings = ["", "stratum", "doubly robust", f"{100 * level:g} % interval", "used", "effective", "as logged", ""]
    print_table("In each stratum by itself", headings, rows)


def _numbers(it: "Estimate") -> list[str]:
    return [f"{it.value:.4f}", f"{it.low:.4f} to {it.high:.4f}", it.interval]
