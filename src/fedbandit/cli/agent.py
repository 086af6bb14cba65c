"""The commands ``agent``, ``leave``, ``rejoin``, ``confirm``, ``restore`` and ``openapi`` of a live agent.

Heavy imports happen inside commands.
"""

import logging
import os
import resource
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from fedbandit.checks import FileError, InvalidArgument
from fedbandit.cli.errors import errors_exit_with_2
from fedbandit.extras import needs

if TYPE_CHECKING:
    from fedbandit.agent.client import Client
    from fedbandit.agent.config import SiteConfig
    from fedbandit.agent.rights import Right

__all__ = ["SITE_FILE", "Config", "its_client", "its_config", "live", "plain_errors"]

live = typer.Typer()

SITE_FILE = Path("site.toml")

Config = Annotated[Path, typer.Option("-c", "--config", help="The site's configuration file; see examples/site.toml.")]


@live.command(short_help="Run the agent of one site.")
@errors_exit_with_2
def agent(
    config: Config = SITE_FILE,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Gossip without certificates, on loopback only, for tests.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Say what would not work, and start and change nothing.")
    ] = False,
    log_format: Annotated[
        Literal["text", "json"], typer.Option(help="Lines for people, or a JSON object per line.")
    ] = "text",
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], typer.Option(help="Log nothing below this level.")
    ] = "info",
) -> None:
    """Run the agent of one site: HTTP for its application, gossip over mutual TLS, state on disk. SIGTERM stops it.

    With --check: exit code 0 if all would work, 1 if something would not, 2 if the file itself is wrong.
    """
    needs("fedbandit agent", "agent")
    # An agent does not need NumPy. OpenDP would load an installed NumPy and never use it: 10 MB and a thread.
    sys.modules["numpy"] = cast(ModuleType, None)
    if check:
        _check(config, insecure)
        return
    os.umask(0o077)  # the state holds raw rewards
    # Many systems allow 1,024 descriptors, which a few idle callers use up: then nobody is answered.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    from fedbandit.agent.log_lines import begin_log

    begin_log(log_format, log_level)
    with _last_words(in_json=log_format == "json"):
        _run(config, insecure)


def _run(config: Path, insecure: bool) -> None:
    import asyncio

    from fedbandit.agent.config import check_insecure, read_tokens
    from fedbandit.agent.gossip.tls import read_tls
    from fedbandit.agent.http.snapshot import INSECURE
    from fedbandit.agent.runtime import Agent
    from fedbandit.agent.serve import serve, try_ports

    site = its_config(config)
    check_insecure(site, insecure)
    tls = None if insecure else read_tls(site, datetime.now(UTC))
    tokens = read_tokens(site)
    if insecure:
        logging.getLogger("fedbandit.agent").warning(INSECURE)
    with plain_errors():
        try_ports(site, insecure)
        running = Agent(site, tls)

    async def until_stopped() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await serve(running, tokens, stop)

    with plain_errors():
        asyncio.run(until_stopped())


@contextmanager
def _last_words(in_json: bool) -> Generator[None]:
    """Where the log is JSON, the reason why an agent ends is a line of it, too."""
    try:
        yield
    except Exception as error:
        if not in_json:
            raise
        known = isinstance(error, (InvalidArgument, FileError, OSError))
        logging.getLogger("fedbandit.agent").error("%s", error, exc_info=not known)
        raise typer.Exit(2 if known else 1) from None


def _check(path: Path, insecure: bool) -> None:
    import asyncio

    from fedbandit.agent.check import check
    from fedbandit.agent.config import check_insecure

    site = its_config(path)
    check_insecure(site, insecure)
    found = asyncio.run(check(site, insecure, datetime.now(UTC)))
    width = max(len(it.about) for it in found)
    for it in found:
        typer.echo(f"{'not checked' if it.level == 'unknown' else it.level:<11}  {it.about:<{width}}  {it.words}")
    wrong = sum(it.level == "error" for it in found)
    if wrong:
        typer.echo(f"{wrong} of {len(found)} would not work")
        raise typer.Exit(1)
    typer.echo("nothing stands in the way of a start")


@live.command(short_help="Drop the flow of a neighbour that has left for good.")
@errors_exit_with_2
def leave(
    name: Annotated[str, typer.Argument(help="The neighbour that has left for good.")],
    config: Config = SITE_FILE,
) -> None:
    """Drop the flow of a neighbour that has left for good, so the others converge to the mean of the remaining sites.

    Run it at every neighbour of that site, even where the agent is not running.
    """
    _tell(config, name, comes_back=False)
    typer.echo(f"{name} has left: its flow is dropped. Remove it from [[neighbours]] in {config}")


@live.command()
@errors_exit_with_2
def rejoin(
    name: Annotated[str, typer.Argument(help="The neighbour that had left and has returned.")],
    config: Config = SITE_FILE,
) -> None:
    """Accept a neighbour that had left, with an empty link. Messages from before it left stay refused."""
    _tell(config, name, comes_back=True)
    typer.echo(f"{name} is a neighbour again")


@live.command(short_help="Tell the running agent that it is the one that lives.")
@errors_exit_with_2
def confirm(config: Config = SITE_FILE) -> None:
    """Tell the running agent that it is the one that lives, and that its data folder is the latest: releases go on.

    For a site with no neighbour to ask, or after a second process of its name was stopped. Never for a copy that was
    put back: use restore.
    """
    from fedbandit.agent.client import Unreachable

    site = its_config(config)
    with plain_errors():
        try:
            with its_client(site, config, "lives") as client:
                client.confirm()
        except Unreachable as error:
            raise FileError(f"{error}. Start {site.name}'s agent, then confirm") from None
    typer.echo(f"{site.name}: confirmed; releases go on, unless a neighbour objects ('held' in the state)")


@live.command(short_help="Begin a new life with an old data folder, such as a backup.")
@errors_exit_with_2
def restore(config: Config = SITE_FILE) -> None:
    """Begin a new life with an old data folder: a backup that was put back, a copy, a rolled-back image.

    Rewards that it holds and has not released are dropped: another process may have released them. At a running agent,
    what was decided since its start stays: so start it first, and look at 'held' in its state. At a stopped one, only
    for files that the agent refuses to open.
    """
    from fedbandit.agent.client import Unreachable
    from fedbandit.agent.core.restore import Restored
    from fedbandit.agent.stopped import restore as restore_stopped

    site = its_config(config)
    with plain_errors():
        try:
            with its_client(site, config, "lives") as client:
                restored = Restored(**client.restore().model_dump())
        except Unreachable:
            restored = restore_stopped(site)
    typer.echo(f"{site.name}: a new life has begun: {restored.in_words()}")


@live.command(short_help="Print the OpenAPI document of an agent's HTTP API.")
@errors_exit_with_2
def openapi() -> None:
    """Print the OpenAPI document of an agent's HTTP API, to generate a client from. A running agent has its own."""
    from importlib.resources import files

    typer.echo(files("fedbandit.agent.http").joinpath("openapi.json").read_text(encoding="utf-8"), nl=False)


def _tell(path: Path, name: str, comes_back: bool) -> None:
    """Tell the running agent; if none runs, write to its state file."""
    from fedbandit.agent.client import Unreachable

    site = its_config(path)
    with plain_errors():
        try:
            with its_client(site, path, "neighbours") as client:
                (client.rejoin if comes_back else client.leave)(name)
        except Unreachable:
            from fedbandit.agent.stopped import change_neighbour

            change_neighbour(site, name, comes_back)


def its_config(path: Path) -> "SiteConfig":
    """Read a site's file; says how to name another one if there is none in this folder."""
    from fedbandit.agent.config import read_config

    if path == SITE_FILE and not path.exists():
        raise FileError(f"{path}: no such file in this folder: use -c FILE, such as -c /etc/fedbandit/site.toml")
    return read_config(path)


@contextmanager
def its_client(site: "SiteConfig", path: Path, right: "Right") -> Generator["Client"]:
    """A client of the site's running agent, with this right."""
    from fedbandit.agent.client import Client
    from fedbandit.agent.config import token_with

    # Somebody waits at a terminal, not a web page.
    with Client(f"http://{site.http}", token_with(site, right), timeout=5.0, deadline=15.0) as client:
        its_name = client.state().name
        if its_name != site.name:
            raise FileError(f"{path}: listen.http: the agent of {its_name!r} listens at {site.http}")
        yield client


@contextmanager
def plain_errors() -> Generator[None]:
    """Report refusals of an agent, its file or its client like the caller's own errors."""
    from fedbandit.agent.client import AgentError
    from fedbandit.agent.core.events import Refused
    from fedbandit.agent.disk.journal import JournalError

    try:
        yield
    except (AgentError, JournalError, Refused) as error:
        raise FileError(str(error)) from None
