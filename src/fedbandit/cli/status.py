"""The command ``status``: what an agent's page shows, in a terminal."""

import sys
import time  # noqa: TID251  # somebody watches
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedbandit.checks import FileError, InvalidArgument
from fedbandit.cli.agent import SITE_FILE, token_in
from fedbandit.cli.errors import errors_exit_with_2
from fedbandit.extras import needs

if TYPE_CHECKING:
    from rich.console import Console

    from fedbandit.cli.status_view import AgentStatus

teller = typer.Typer()

DEFAULT = "http://127.0.0.1:8400"

EVERY = 2.0
"""Seconds between two looks of ``--watch``."""


@teller.command(short_help="Show what live agents know, and what needs a person.")
@errors_exit_with_2
def status(
    urls: Annotated[
        list[str] | None, typer.Argument(metavar="[URL]...", help="Addresses of agents, such as http://127.0.0.1:8400.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("-c", "--config", help="The configuration of the agent's site. Default: site.toml.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="Holds a token that may view. Default: that of the site.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again and again, until Ctrl-C.")] = False,
    sites: Annotated[
        bool, typer.Option("--sites", help="Also what each site has released of each arm, beside the average.")
    ] = False,
    reference: Annotated[
        str | None,
        typer.Option("--reference", help="The same as differences from this arm.", metavar="ARM"),
    ] = None,
    stratum: Annotated[
        str | None,
        typer.Option("--stratum", help="The same of one stratum, by its label, such as 'over 65, impaired'."),
    ] = None,
) -> None:
    """Show what live agents know, as their page does: answer, arms, neighbours, decisions, privacy and warnings.

    Without URL: the agent of the site's configuration, or http://127.0.0.1:8400. Exit code 1 if something needs a
    person: an agent that does not answer or serve, an unreachable neighbour, releases that are held, changes of arms
    that wait, and warnings, except notes and those that follow from the terms and stay.
    """
    needs("fedbandit status", "agent")
    from fedbandit.cli.status_view import seen_at

    agents = _agents(urls or [], config, token_file)

    def look() -> "list[AgentStatus]":
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(16, len(agents))) as threads:
            has_sites = sites or reference is not None or stratum is not None
            look_at = partial(seen_at, sites=has_sites, reference=reference, stratum=stratum)
            return list(threads.map(look_at, [url for url, _ in agents], [token for _, token in agents]))

    needed = _watch(look) if watch else _show(look(), _console())
    if needed:
        raise typer.Exit(1)


def _agents(urls: list[str], config: Path | None, token_file: Path | None) -> list[tuple[str, str | None]]:
    """Addresses, each with its token; mistakes are found before anybody is called."""
    from fedbandit.agent.client import Client

    if urls and config is not None:
        raise InvalidArgument("--config", str(config), "left out where addresses are given")
    token = None if token_file is None else token_in(token_file)
    if not urls and config is None and not SITE_FILE.exists():
        urls = [DEFAULT]
    if not urls:
        from fedbandit.agent.process.config import read_config
        from fedbandit.agent.process.tokens import token_with

        site = read_config(config or SITE_FILE)
        if site.http.port == 0:
            raise FileError(f"{site.path}: listen.http: port 0 is any free one: give the address that the log names")
        return [(f"http://{site.http}", token if token_file is not None else token_with(site, "view"))]
    for url in urls:
        Client(url, token).close()
    return [(url, token) for url in urls]


def _console() -> "Console":
    from rich.console import Console

    from fedbandit.cli.status_view import NARROWEST

    # A pipe has no width: nothing is cut off, or wrapped where a program reads lines.
    console = Console(emoji=False, highlight=False, width=None if sys.stdout.isatty() else 10_000)
    if console.width < NARROWEST:
        console.width = NARROWEST
    return console


def _show(seen: "list[AgentStatus]", console: "Console") -> bool:
    from fedbandit.cli.status_view import printed, view

    for part in printed(view(seen, console.width), console):
        typer.echo(part)
    return any(it.needs for it in seen)


def _watch(look: "Callable[[], list[AgentStatus]]") -> bool:
    """Until Ctrl-C; whether something needed a person at last."""
    from rich.live import Live

    from fedbandit.cli.status_view import fitted

    console, needed = _console(), False
    try:
        with Live(console=console, auto_refresh=False, screen=False) if console.is_terminal else nullcontext() as live:
            while True:
                seen = look()
                needed = any(it.needs for it in seen)
                if live is not None:
                    live.update(fitted(seen, console), refresh=True)
                else:
                    _show(seen, console)
                    typer.echo()
                time.sleep(EVERY)
    except KeyboardInterrupt:
        return needed
