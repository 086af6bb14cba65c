"""``fedbandit plan``: how many patients per site, in a few sentences, tables and a figure."""

from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated

import typer

from fedbandit.checks import InvalidArgument, InvalidArguments
from fedbandit.cli.errors import errors_exit_with_2, output_folder
from fedbandit.extras import needs

if TYPE_CHECKING:
    from fedbandit.planning.forecast import Forecast
    from fedbandit.planning.question import Question

FIGURE = "plan.png"
_WIDTH = 100  # of the words

planner = typer.Typer()


@planner.command(short_help="Tell how many patients a federation needs.")
@errors_exit_with_2
def plan(
    sites: Annotated[int, typer.Option(help="Sites that take part.")],
    arms: Annotated[int, typer.Option(help="Treatments to choose from.")],
    gap: Annotated[
        float, typer.Option(help="By how much the best arm's chance of success, over all sites, exceeds the others'.")
    ],
    epsilon: Annotated[float, typer.Option(help="Privacy of one reward; inf: none.")],
    patients_per_day: Annotated[float, typer.Option(help="Patients per day at each site.")] = 1.0,
    graph: Annotated[str, typer.Option(help="Which sites gossip: ring, path, star, complete, grid:3x4, ...")] = "ring",
    patients: Annotated[float | None, typer.Option(help="Also tell what so many patients per site would give.")] = None,
    bias: Annotated[
        float | None,
        typer.Option(help="How far an arm's mean at a site may lie from its mean over all sites. Default: the gap."),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(help="Chance of success of every arm but the best, over all sites. Default: 0.5 - gap / 2."),
    ] = None,
    reward_window: Annotated[float, typer.Option(help="Days until a reward counts. Default: it counts at once.")] = 0.0,
    features: Annotated[
        int | None, typer.Option(help="Also tell from how many patients it pays to choose by so many features.")
    ] = None,
    effect: Annotated[
        float | None, typer.Option(help="With --features: by how much they move the chance of success of an arm.")
    ] = None,
    strata: Annotated[
        str | None,
        typer.Option(
            help="Patients until the best arm of each stratum leads, beside ignoring strata. So many strata, or how "
            "often each comes in per cent, such as 60,25,10,5; the gap is that of each stratum.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the simulation.")] = 0,
    quick: Annotated[
        bool, typer.Option("--quick", help="A quarter of the trials: sooner, with intervals about twice as wide.")
    ] = False,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the figure.")] = Path("out/plan"),
) -> None:
    """Tell how many patients per site it takes until the best arm leads, until sites know it, and who gets a worse one.

    Simulates sites that gossip with FedBatch, a site alone, and all rewards in one place, and prints what theory says
    beside it. It says beforehand about how long that takes: seconds, or some minutes with many sites and arms; work is
    limited, and then the answer is "more than". What is assumed, and how to read it: docs/planning.md.
    """
    needs("fedbandit plan", "sim")
    from fedbandit.planning.break_even import features_pay
    from fedbandit.planning.forecast import forecast_of
    from fedbandit.planning.question import Question

    if (features is None) != (effect is None):
        lacking, given = ("--effect", "--features") if effect is None else ("--features", "--effect")
        raise InvalidArgument(lacking, None, f"given with {given}")
    figure = output_folder(output) / FIGURE
    if figure.is_dir():
        raise InvalidArgument("--output", str(output), "a folder that this user can write to", f"{figure} is a folder.")
    try:
        asked = sites, arms, gap, epsilon, patients_per_day, graph, patients, bias, seed, rate, reward_window
        question = Question.checked(*asked)
        if strata is not None:
            if features is not None:
                raise InvalidArgument("features", features, "left out with --strata")
            _plan_strata(question, strata, quick)
            return
        typer.echo(_how_long(question, quick), err=True)
        pays = None
        if features is not None:
            last, trials = question.patients or 20_000, 6 if quick else 12
            numbers = features, effect, question.epsilon, question.sites, question.arms, question.graph, last
            pays = features_pay(*numbers, trials=trials, seed=seed)  # pyright: ignore[reportArgumentType]  # both given
        forecast = forecast_of(question, progress=True, quick=quick)
    except InvalidArguments as several:
        raise InvalidArguments([_of_option(error) for error in several.errors]) from None
    except InvalidArgument as error:
        raise _of_option(error) from None
    _print(forecast)  # before the figure: a full disk must not take the answer with it
    output.mkdir(parents=True, exist_ok=True)
    forecast.plot().savefig(figure)
    typer.echo(f"figure: {figure}")
    if pays is not None:
        typer.echo("\n" + fill(pays.words, _WIDTH))


def _plan_strata(question: "Question", strata: str, quick: bool) -> None:
    from fedbandit.cli.tables import print_table
    from fedbandit.planning.strata import forecast_of_strata, shares_from

    for name, value in (("patients", question.patients), ("reward_window", question.reward_window or None)):
        if value is not None:
            raise InvalidArgument(name, value, "left out with --strata")
    shares = shares_from(strata)
    typer.echo("This takes some minutes. --quick plays a quarter of the trials.", err=True)
    forecast = forecast_of_strata(question, shares, quick, lambda run: typer.echo(f"  {run}", err=True))
    typer.echo(fill(forecast.words, _WIDTH) + "\n")
    for table in forecast.tables:
        print_table(table.title, table.headings, table.rows)
        typer.echo(f"{table.note}\n")
    typer.echo(
        f"Simulated: {question.sites} sites, {question.arms} arms, gap {question.gap:g} in each stratum, bias "
        f"{question.bias:g}, {question.graph.name}; seed {question.seed}.\nWhat is assumed: docs/planning.md"
    )


def _of_option(error: InvalidArgument) -> InvalidArgument:
    """The error, with the name as it is typed."""
    option = "--" + error.argument.replace("_", "-")
    return InvalidArgument(option, error.value, error.accepted, error.hint)


def _how_long(question: "Question", quick: bool) -> str:
    """About how long it takes, before it begins; and what takes less."""
    from fedbandit.engine.cpu import usable_cores
    from fedbandit.planning.forecast import expected_seconds

    cores = usable_cores()
    usual, less = (_rounded(expected_seconds(question, is_quick, cores)) for is_quick in (False, True))
    here = f"on {cores} core{'s' * (cores != 1)}, and longer when code is compiled for the first time"
    if quick:
        return f"This takes about {less} {here}."
    return f"This takes about {usual} {here}. --quick takes about {less}; intervals are then twice as wide."


def _rounded(seconds: float) -> str:
    if seconds < 55.0:
        return f"{10 * max(1, round(seconds / 10.0))} seconds"
    minutes = max(1, round(seconds / 60.0))
    return f"{minutes} minute{'s' * (minutes != 1)}"


def _print(forecast: "Forecast") -> None:
    from fedbandit.cli.tables import print_table

    typer.echo(fill(forecast.words, _WIDTH) + "\n")
    for table in forecast.tables:
        print_table(table.title, table.headings, table.rows)
        typer.echo(f"{table.note}\n")
    question = forecast.question
    trials = ", ".join(f"{curve.trials} {name.partition(',')[0]}" for name, curve in forecast.ways.items())
    rates = f"rates {question.lowest_mean:g} and {question.highest_mean:g}"
    typer.echo(
        f"Simulated: {question.sites} sites, {question.arms} arms, gap {question.gap:g}, bias {question.bias:g}, "
        f"{rates}, {question.graph.name}; trials: {trials}; seed {question.seed}.\nWhat is assumed: docs/planning.md"
    )
