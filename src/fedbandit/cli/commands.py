"""The commands for experiments, graphs, theory and audits, and the application that combines all commands.

Heavy imports happen inside commands: help, the version and a mistyped command need none of them, not even Rich.
"""

import sys
import warnings
from pathlib import Path
from textwrap import fill
from typing import Annotated, Any

import typer

from fedbandit.cli.agent import arm, certs, live
from fedbandit.cli.audit_log import auditor
from fedbandit.cli.errors import errors_exit_with_2, output_folder, quietly
from fedbandit.cli.evaluate import evaluator
from fedbandit.cli.plan import planner
from fedbandit.cli.report import reporter
from fedbandit.cli.status import teller
from fedbandit.cli.up import show_live, upper
from fedbandit.extras import EXTRAS, missing, needs

_ENGINES = ("auto", "cpu", "cuda", "ray")

app = typer.Typer(
    help="Federated bandits by gossip: run experiments, show results, compute bounds, run a site's agent.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # help without Rich, whose Markdown takes longer to import than all the rest
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(certs, name="certs")
app.add_typer(live)
app.add_typer(teller)
app.add_typer(reporter)
app.add_typer(arm, name="arm")
app.add_typer(upper)
app.add_typer(planner)
app.add_typer(evaluator)
app.add_typer(auditor)


def main() -> None:
    """Run the command line."""
    quietly(app)


def _say_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"fedbandit {version('fedbandit')}")
        raise typer.Exit


@app.callback()
def before_any_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of all commands: only --version."""


@app.command(short_help="Run an experiment file, or a sweep; write result and figure.")
@errors_exit_with_2
def run(
    experiment: Annotated[Path, typer.Argument(help="An experiment file (TOML).")],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Folder for result, figure and a copy of the file. Default: out/NAME."),
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Overrides the file.")] = None,
    horizon: Annotated[float | None, typer.Option(help="Overrides the file, e.g. 1e5.")] = None,
    seed: Annotated[int | None, typer.Option(help="Overrides the file.")] = None,
    engine: Annotated[
        str,
        typer.Option(
            help="cpu: the cores of this machine; cuda: its GPU; auto: its GPU if it has one; ray: a Ray cluster."
        ),
    ] = "cpu",
    address: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT of the Ray cluster's head node. Default: RAY_ADDRESS, else Ray starts on this machine."
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print nothing but warnings and errors.")] = False,
) -> None:
    """Run an experiment file; print a table, and write the result, a figure and a copy of the file to a folder.

    A file with lists is a sweep: all combinations run. Lists within [[policies]] are variants of a policy, in one
    result. Repeat the command to resume a run that was stopped.
    """
    if engine not in _ENGINES:
        raise _invalid("--engine", engine, f"one of {', '.join(_ENGINES)}")
    if address is not None and engine != "ray":
        raise _invalid("--address", address, "left out unless --engine is ray")
    if engine in EXTRAS:
        needs(f"fedbandit run --engine {engine}", engine, "sim")
    needs("fedbandit run", "sim")
    from fedbandit.cli.tables import print_summary, print_sweep
    from fedbandit.experiments import run_folder
    from fedbandit.experiments.experiment import read_sweep
    from fedbandit.experiments.sweep import run_files
    from fedbandit.progress import progress_bar
    from fedbandit.simulation.result import read_result
    from fedbandit.simulation.run import chosen_engine

    folder = output_folder(output or Path("out") / experiment.stem)
    changes: dict[str, Any] = {"trials": trials, "seed": seed}
    changes["horizon"] = None if horizon is None else _whole_steps("--horizon", horizon)
    given = {name: value for name, value in changes.items() if value is not None}
    plans = read_sweep(experiment, given)
    chosen = chosen_engine(engine)
    with progress_bar(shown=not quiet and sys.stderr.isatty()) as show:
        files = run_files(plans, folder / run_folder.RUNS, show, chosen, address)
    options = "".join(f" --{name} {value}" for name, value in given.items())
    heading = f"# Run with{options} instead of the values below.\n" if given else ""
    (folder / run_folder.EXPERIMENT).write_text(heading + plans[0].text, encoding="utf-8")
    if len(plans) == 1:
        result = read_result(files[0])
        run_folder.keep_result(plans[0], result, folder)
        if not quiet:
            print_summary(result, plans[0].name)
    else:
        table = run_folder.keep_sweep(plans, map(read_result, files), folder, chosen)
        if not quiet:
            print_sweep(table)
    if not quiet:
        typer.echo(f"result, figure and experiment are in {folder}")


@app.command()
@errors_exit_with_2
def show(folder: Annotated[Path, typer.Argument(help="A folder that 'fedbandit run' wrote.")]) -> None:
    """Print the summary of a result, or of a sweep."""
    needs("fedbandit show", "sim")
    from fedbandit.cli.tables import print_summary, print_sweep
    from fedbandit.experiments import run_folder

    sweep = run_folder.load_sweep(folder)
    if sweep is not None:
        print_sweep(sweep)
        return
    result = run_folder.load_result(folder)
    print_summary(result, run_folder.title_of(folder))
    about = result.experiment
    rewards, (first, last) = about["problem"]["rewards"], about["trials"]
    typer.echo(
        f"graph {about['graph']['name']}, {rewards} rewards, horizon {about['horizon']}, "
        f"trials {first} to {last - 1}, seed {about['seed']}"
    )


@app.command(short_help="Draw the regret of a result, or of a sweep.")
@errors_exit_with_2
def plot(
    folder: Annotated[Path, typer.Argument(help="A folder that 'fedbandit run' wrote.")],
    band: Annotated[
        str | None,
        typer.Option(
            help="Over trials: minmax (the default, as in the paper), quantiles, 'standard error' (the default of a "
            "sweep), confidence (95 %) or none."
        ),
    ] = None,
    scale: Annotated[str | None, typer.Option(help="Time axis: linear, log or both (the default).")] = None,
    regret: Annotated[
        str | None,
        typer.Option(help="Regret axis: linear, log or auto (the default: log if policies end 100 times apart)."),
    ] = None,
    title: Annotated[str | None, typer.Option(help="A line above the figure.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File; .png, .pdf or .svg. Default: FOLDER/regret.png.")
    ] = None,
) -> None:
    """Draw the regret of a result over time, or of a sweep against the swept values."""
    needs("fedbandit plot", "sim")
    from fedbandit.experiments import run_folder

    sweep = run_folder.load_sweep(folder)
    target = output or folder / (run_folder.FIGURE if sweep is None else run_folder.SWEEP_FIGURE)
    if target.suffix not in (".png", ".pdf", ".svg"):
        raise _invalid("--output", str(target), "a file that ends in .png, .pdf or .svg")
    if not target.parent.is_dir():
        raise _invalid("--output", str(target), "a file in a folder that exists")
    given: dict[str, Any] = {"band": band and band.replace("-", " "), "scale": scale, "regret": regret, "title": title}
    options = {name: value for name, value in given.items() if value is not None}
    if sweep is None:
        figure = run_folder.load_result(folder).plot(**options)
    else:
        from fedbandit.figures.sweep import sweep_figure

        for name in {"scale", "regret"} & set(options):
            raise _invalid(f"--{name}", options[name], "left out for a sweep")
        figure = sweep_figure(sweep, **options)
    figure.savefig(target)
    typer.echo(f"wrote {target}")


@app.command(short_help="Reproduce the paper's Figure 2; write a report.")
@errors_exit_with_2
def reproduce(
    figures: Annotated[list[str] | None, typer.Argument(help="2a, 2b, 2c or all (the default).")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="20 trials of 100,000 rounds instead of 100 of a million.")
    ] = False,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for report.html.")] = Path("out"),
) -> None:
    """Reproduce the paper's Figure 2, and write a report that compares its claims with the numbers.

    Repeat the command to resume a run that was stopped or killed.
    """
    needs("fedbandit reproduce", "sim")
    from fedbandit.cli.tables import print_table
    from fedbandit.experiments.reproduce import FIGURES, run_figures, write_report
    from fedbandit.progress import progress_bar

    chosen = list(FIGURES) if not figures or "all" in figures else list(dict.fromkeys(figures))
    warnings.simplefilter("ignore")  # the report says the same
    with progress_bar(shown=sys.stderr.isatty()) as show:
        found = run_figures(chosen, output_folder(output) / "reproduce", quick, show)
    folder = [] if output == Path("out") else ["-o", str(output)]
    command = " ".join(["fedbandit reproduce", *(figures or ["all"]), *(["--quick"] if quick else []), *folder])
    report = write_report(found, output / "report.html", command)
    for outcome in found:
        rows = [
            [c.subject, c.paper, c.measured, {True: "holds", False: "does not hold", None: ""}[c.holds]]
            for c in outcome.claims
        ]
        print_table(outcome.experiment.name, ["", "the paper says", "we measured", ""], rows, wrap=True)
        typer.echo(fill(outcome.conclusion, 100) + "\n")
    typer.echo(f"report: {report}")


@app.command(short_help="Compare five policies, then run three real agents.")
@errors_exit_with_2
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the figure and the result.")] = Path(
        "out/demo"
    ),
) -> None:
    """Compare five policies on the paper's setting (a): three agents, five arms, complete graph.

    Then run three real agents with simulated patients on this machine for 20 seconds.
    """
    needs("fedbandit demo", "sim")
    from fedbandit.cli.tables import print_summary
    from fedbandit.experiments import run_folder
    from fedbandit.local import demo as setting
    from fedbandit.simulation.run import simulate

    output_folder(output).mkdir(parents=True, exist_ok=True)
    typer.echo(setting.INTRODUCTION)
    warnings.simplefilter("ignore")  # the introduction says the same
    result = simulate(
        setting.problem(), setting.policies(), setting.HORIZON, setting.TRIALS, progress=sys.stderr.isatty()
    )
    result.save(output / run_folder.RESULT)
    result.plot(title=setting.TITLE).savefig(output / run_folder.FIGURE)
    print_summary(result, setting.TITLE)
    typer.echo(setting.reading(result))
    typer.echo(f"figure: {output / run_folder.FIGURE}")
    if missing("agent"):
        typer.echo("A live federation would follow here. It needs the extra agent: pip install 'fedbandit[agent,sim]'")
        return
    typer.echo(setting.LIVE_INTRODUCTION)
    show_live(setting.live_setting(), setting.LIVE_SECONDS, output)


@app.command(short_help="Attack the code that protects rewards; measure the leak.")
@errors_exit_with_2
def audit(
    policy: Annotated[str | None, typer.Option(help="fed_batch or fed_ucb. Default: both.")] = None,
    epsilon: Annotated[float, typer.Option(help="The claimed privacy of one reward.")] = 1.0,
    samples: Annotated[int, typer.Option(help="Runs of a mechanism in each of the two worlds.")] = 4_000,
    paper: Annotated[bool, typer.Option("--paper", help="Attack fed_ucb as printed, which breaks its claim.")] = False,
    minutes: Annotated[
        float, typer.Option(help="How long it takes on two cores; the more, the more scripts are played.")
    ] = 1.4,  # less than 90 seconds with the start
    site: Annotated[
        Path | None, typer.Option(help="A site's configuration: audit the terms and the policy of its federation.")
    ] = None,
) -> None:
    """Attack the code that protects rewards, and compare the measured leak with the claim.

    Exit code 0: no claim is refuted; 1: one is; 3: of one it could not tell.
    """
    needs("fedbandit audit", "agent", "sim")
    from fedbandit.audit.measure import LARGEST_CLAIM
    from fedbandit.audit.suite import AUDITED, jobs_on, of_site, proofs_on, run_jobs
    from fedbandit.checks import InvalidArgument, number_between
    from fedbandit.cli.tables import print_audit
    from fedbandit.progress import progress_bar

    number_between("--epsilon", epsilon, 0.0, LARGEST_CLAIM)
    number_between("--minutes", minutes, 0.0, 10_000.0)
    if site is None:
        chosen = [policy] if policy else ["fed_ucb"] if paper else list(AUDITED)
        jobs = jobs_on(chosen, epsilon, paper, samples)
        proofs = [] if paper else proofs_on(chosen, epsilon)
    else:
        if policy is not None or paper:
            raise InvalidArgument("--policy", policy or "--paper", "left out with --site, whose terms name one")
        kind, claimed = of_site(site)
        measured = kind in AUDITED and claimed <= LARGEST_CLAIM
        jobs = jobs_on([kind], claimed, samples=samples) if measured else []
        proofs = proofs_on([kind], claimed, site)
    with progress_bar(shown=sys.stderr.isatty(), doing="attacking", unit="CPU seconds") as show:
        rows = run_jobs(jobs, proofs, minutes, show)
    print_audit(rows)
    if any(row.refuted for row in rows):
        raise typer.Exit(1)
    if any(row.is_unclear for row in rows):
        raise typer.Exit(3)


@app.command()
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
    from fedbandit import theory
    from fedbandit.checks import InvalidArgument
    from fedbandit.cli.tables import print_table
    from fedbandit.world.graph import MAX_DENSE, parse

    described = parse(spec)
    n, is_small = described.num_agents, described.num_agents <= MAX_DENSE
    try:
        lambda2: float | None = described.lambda2
    except InvalidArgument:
        lambda2 = None  # of a large graph that mixes too slowly
    horizon = "not found" if lambda2 is None else "the theorem needs 3 agents"
    if lambda2 is not None and n >= 3:
        horizon = f"{theory.mixing_horizon(lambda2, n)}"
    shown = "not found: the graph mixes too slowly"
    if lambda2 is not None:
        shown = f"{lambda2:.5f}" if is_small else f"1 - {1.0 - lambda2:.3g}"
    print_table(
        described.name,
        ["", ""],
        [
            ["agents", f"{n}"],
            ["edges", f"{described.num_edges}"],
            ["neighbours per agent", f"{described.degrees.min()} to {described.degrees.max()}"],
            ["diameter", f"{described.diameter}" if is_small else f"not computed beyond {MAX_DENSE:,} agents"],
            ["lambda_2", shown],
            ["mixing horizon L", horizon],
        ],
    )


@app.command("theory", short_help="Print the paper's constants and bounds for a setting.")
@errors_exit_with_2
def theory_command(
    graph: Annotated[str, typer.Option(help="Such as path:10.")],
    arms: Annotated[int, typer.Option(help="M.")],
    horizon: Annotated[float, typer.Option(help="T, e.g. 1e6.")],
    epsilon: Annotated[float, typer.Option(help="Privacy of one reward, for Fed_UCB.")] = float("inf"),
    gap: Annotated[float, typer.Option(help="Gap between the best arm and every other arm.")] = 0.1,
) -> None:
    """Print the paper's constants and bounds for a setting (L, the alphas, radii, Theorems 1 and 2), and ours."""
    needs("fedbandit theory", "sim")
    from fedbandit import theory
    from fedbandit.checks import number_above, number_between, whole_number
    from fedbandit.cli.tables import print_theory
    from fedbandit.world.graph import parse

    number_above("--epsilon", epsilon, 0.0, allow_inf=True)
    g = parse(graph)
    m, steps = whole_number("--arms", arms, 2, 10**4), _whole_steps("--horizon", horizon)
    gaps = [0.0] + [number_between("--gap", gap, 0.0, 1.0)] * (m - 1)
    print_theory(g, m, steps, epsilon, gaps)
    said = theory.conclusion(gaps, g.num_agents, m, steps, g.lambda2, epsilon)
    spread = theory.rounds_to_spread(g.num_agents, len(g.edges))
    typer.echo(fill(f"{said} {theory.proved_conclusion(gaps, g.num_agents, m, steps, spread, epsilon)}", 100))


def _invalid(argument: str, value: object, accepted: str) -> Exception:
    from fedbandit.checks import InvalidArgument

    return InvalidArgument(argument, value, accepted)


def _whole_steps(argument: str, value: float) -> int:
    """A number of rounds, also as 1e6."""
    from fedbandit.checks import whole_number
    from fedbandit.policies import MAX_HORIZON

    return whole_number(argument, value, 1, MAX_HORIZON)
