"""The command ``up`` and its live display, also used by ``demo``. Heavy imports happen inside commands."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedbandit.cli.errors import errors_exit_with_2, output_folder
from fedbandit.extras import needs

if TYPE_CHECKING:
    from fedbandit.local.up import LocalSetting, Run

FIGURE, NUMBERS = "live.png", "result.json"
LINE_EVERY = 5.0
"""Seconds between lines if there is no terminal to draw on."""

LONGEST = 30 * 86_400.0

upper = typer.Typer()


@upper.command(short_help="Run a whole federation on this machine.")
@errors_exit_with_2
def up(
    agents: Annotated[
        int | None, typer.Option(help="Number of sites, 3 to 64. Default: the graph's size, or 3.")
    ] = None,
    graph: Annotated[
        str, typer.Option(help="Links between sites: ring, path, complete, star; or with a size: grid:2x3, ring:5, ...")
    ] = "complete",
    problem: Annotated[
        str, typer.Option(help="hospital (the diabetes counts) or bernoulli (random means in [0, 1]).")
    ] = "hospital",
    arms: Annotated[int | None, typer.Option(help="Number of arms of the bernoulli problem. Default: 5.")] = None,
    speed: Annotated[float, typer.Option(help="Patients per second at each site, on average.")] = 20.0,
    duration: Annotated[str | None, typer.Option("--for", help="Such as 30s, 2m or 1h. Default: until Ctrl-C.")] = None,
    epsilon: Annotated[float, typer.Option(help="The privacy of one reward.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of means, patients and outcomes. Agents' draws have no seed.")] = 0,
    port: Annotated[int, typer.Option(help="Port of the page with all sites side by side. Default: a free one.")] = 0,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder for result.json, live.png and the sites' files.")
    ] = Path("out/up"),
) -> None:
    """Run a whole federation on this machine: real agents with real certificates, and simulated patients.

    Open the first address that it prints in a browser: all sites side by side, with the true means. Every run starts
    afresh, in its own folder of the output. Ctrl-C ends it with a table; exit code 1 if an agent dies.
    """
    needs("fedbandit up", "agent", "sim")
    from fedbandit.local.up import graph_of, setting_of

    seconds = None if duration is None else _seconds(duration)
    setting = setting_of(problem, graph_of(graph, agents), arms, epsilon, speed, seed)
    show_live(setting, seconds, output_folder(output), port)


def show_live(setting: "LocalSetting", seconds: float | None, output: Path, port: int = 0) -> None:
    """Run a setting, show it during and after the run; exit code 1 if an agent dies."""
    from fedbandit.cli.tables import fitting_table, table_console
    from fedbandit.local.processes import AgentDied
    from fedbandit.local.report import final_table, note, reading, shown, up_figure, write_numbers
    from fedbandit.local.up import Killed, new_folder, page_listener, run

    try:
        with page_listener(port) as listener:  # before anything is made
            folder = new_folder(output)
            sites, graph = len(setting.names), setting.problem.graph.name
            typer.echo(f"starting {sites} agents, {graph}; their files are in {folder}")
            with _Screen(seconds) as screen:
                done = run(setting, folder, seconds, screen.began, screen.show, (listener, shown))
    except AgentDied as error:
        typer.echo(f"error: an agent died, so all were stopped. {error}", err=True)
        raise typer.Exit(1) from None
    except Killed:
        typer.echo("killed", err=True)
        raise typer.Exit(130) from None
    if done.seconds == 0.0:
        typer.echo("stopped before the agents served", err=True)
        return
    console = table_console()
    console.print(fitting_table(console.width, *final_table(done)))
    typer.echo(note(done))
    typer.echo()
    typer.echo(reading(done))
    write_numbers(done, output / NUMBERS)
    up_figure(done).savefig(output / FIGURE)
    typer.echo(f"figure: {output / FIGURE}, numbers: {output / NUMBERS}, logs: {folder}/*/agent.log")


class _Screen:
    """A table updated in place on a terminal, a line every few seconds elsewhere; both to stderr."""

    def __init__(self, seconds: float | None) -> None:
        from rich.console import Console
        from rich.live import Live

        self._seconds, self._next_line = seconds, LINE_EVERY
        self._live = Live(console=Console(emoji=False, stderr=True), transient=True, auto_refresh=False)
        self._drawn = sys.stderr.isatty()

    def __enter__(self) -> "_Screen":
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def began(self, run: "Run") -> None:
        """Print the addresses of the pages: of the whole federation, then of each agent."""
        typer.echo(f"  the whole federation: {run.page}")
        for name in run.setting.names:
            typer.echo(f"  {name}: {run.federation.url(name)}/")
        typer.echo("running until Ctrl-C" + ("" if self._seconds is None else f", at most {self._seconds:g} s"))
        if self._drawn:
            self._live.start()

    def show(self, run: "Run") -> None:
        """Show the current state."""
        from fedbandit.cli.tables import fitting_table
        from fedbandit.local.report import live_table

        if self._drawn:
            self._live.update(fitting_table(self._live.console.width, *live_table(run)), refresh=True)
        elif run.seconds >= self._next_line:
            self._next_line += LINE_EVERY
            sites = ", ".join(f"{name} {patients} ({share})" for name, patients, _, share, *_ in live_table(run)[2])
            typer.echo(f"{run.seconds:4.0f} s, patients (best arm lately): {sites}", err=True)


def _seconds(text: str) -> float:
    from fedbandit.checks import InvalidArgument

    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([smh]?)", text.strip())
    value = float(found[1]) * {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}[found[2]] if found else 0.0
    if not 0.0 < value <= LONGEST:
        raise InvalidArgument("--for", text, "seconds, or a number with s, m or h, such as 30s, 2m, 1h; at most 720h")
    return value
