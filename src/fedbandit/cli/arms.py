"""The commands ``arm list``, ``add``, ``suspend``, ``resume``, ``retire`` and ``accept`` of a live agent."""

import shlex
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fedbandit.checks import FileError
from fedbandit.cli.agent import SITE_FILE, Config, its_client, its_config, plain_errors
from fedbandit.cli.errors import errors_exit_with_2

if TYPE_CHECKING:
    from fedbandit.agent.client import Client
    from fedbandit.agent.http.state import ArmChangeBody, ArmsBody
    from fedbandit.agent.rights import Right

__all__ = ["arm"]

arm = typer.Typer(help="Show and change the arms of a live federation.", no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(help="The name of the arm.")]


@arm.command("list", short_help="Show the arms, and the changes that wait for consent.")
@errors_exit_with_2
def show(config: Config = SITE_FILE) -> None:
    """Show the arms, which are stopped and by whom, and the changes that wait for this site's consent."""
    with _agent(config, "view") as client:
        seen = client.arms()
    typer.echo(f"{_counted(len(seen.arms), 'arm')}, {_counted(seen.version, 'change')}")
    width = max(len(it.name) for it in seen.arms)
    for it in seen.arms:
        typer.echo(
            f"{it.name:<{width}}  {it.status:<9}  {'' if it.last_change is None else _told(it.last_change)}".rstrip()
        )
    for it in seen.waiting:
        final = " --retire" if it.change == "retire" else ""
        typer.echo(f"waiting: {_told(it)}. To accept: fedbandit arm accept {shlex.quote(it.arm)}{final}")


@arm.command()
@errors_exit_with_2
def add(name: Name, config: Config = SITE_FILE) -> None:
    """Add an arm: here at once, at other sites when they accept it."""
    _change(config, "add", name)


@arm.command(short_help="Stop an arm at all sites until 'resume'.")
@errors_exit_with_2
def suspend(name: Name, config: Config = SITE_FILE) -> None:
    """Stop an arm at all sites: it is given to nobody, and its late rewards are taken. 'resume' lifts that."""
    _change(config, "suspend", name)


@arm.command(short_help="Give a suspended arm again.")
@errors_exit_with_2
def resume(name: Name, config: Config = SITE_FILE) -> None:
    """Give a suspended arm again: here at once, whoever had stopped it; at other sites when they accept it."""
    _change(config, "resume", name)


@arm.command()
@errors_exit_with_2
def retire(name: Name, config: Config = SITE_FILE) -> None:
    """Stop an arm for good. At sites that have not accepted it, it is suspended."""
    _change(config, "retire", name)


@arm.command(short_help="Accept the changes of an arm that wait.")
@errors_exit_with_2
def accept(
    name: Name,
    config: Config = SITE_FILE,
    retire: Annotated[bool, typer.Option("--retire", help="Accept a retirement, too: that is final.")] = False,
) -> None:
    """Accept the changes of an arm that other sites have made, and that wait."""
    with _agent(config, "arms") as client:
        seen = client.accept_arm(name, retire)
    status = next((it.status for it in seen.arms if it.name == name), "not there")
    typer.echo(f"accepted: {name} is {status}")


def _change(config: Path, change: Literal["add", "suspend", "resume", "retire"], name: str) -> None:
    is_stop = change in ("suspend", "retire")
    with _agent(config, "arms") as client:
        before = _arms(client) if is_stop else None
        made = client.change_arm(change, name)
        known = before is not None and any(it.id == made.id for it in before.changes)
        stopped = None if before is None else next((it for it in before.arms if it.name == name), None)
        if stopped is not None and stopped.status != "active" and stopped.last_change is not None:
            more = "" if known else ". Your own stop comes on top: a resume elsewhere that does not know it leaves it"
            typer.echo(f"{name!r} was {stopped.status} already: {_told(stopped.last_change)}{more}")
        if not known:
            typer.echo(f"{_told(made)}. On disk here; neighbours in reach are told at once")
        silent = _out_of_reach(client)
    if silent:
        typer.echo(_not_told(silent, name, is_stop))


def _arms(client: "Client") -> "ArmsBody | None":
    """The arms, if the caller may see them: a stop does not depend on that."""
    from fedbandit.agent.client import AgentError

    try:
        return client.arms()
    except AgentError:
        return None


def _out_of_reach(client: "Client") -> list[str]:
    """Neighbours that cannot be reached now, if the caller may see them: the change is made, whatever this answers."""
    from fedbandit.agent.client import AgentError

    try:
        return [it.name for it in client.state().neighbours if not it.reachable and not it.left]
    except AgentError:
        return []


def _not_told(silent: list[str], name: str, is_stop: bool) -> str:
    names = " and ".join(filter(None, (", ".join(silent[:-1]), silent[-1])))
    they, are = ("it", "is") if len(silent) == 1 else ("they", "are")
    if not is_stop:
        return f"Not in reach now: {names}. {they.capitalize()} will hear of it when {they} {are} back"
    give, them = ("gives", "it") if len(silent) == 1 else ("give", "them")
    return (
        f"NOT STOPPED EVERYWHERE: {names} cannot be reached now. {they.capitalize()} still {give} {name!r} until "
        f"{they} {are} back, and so do the sites behind {them}. Tell them by other means"
    )


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _told(it: "ArmChangeBody") -> str:
    when = datetime.fromtimestamp(it.at, UTC)
    return f"{it.change} {it.arm!r} by {it.by} on {when:%Y-%m-%d %H:%M} UTC (version {it.version}, {it.id[:8]})"


@contextmanager
def _agent(path: Path, right: "Right") -> Generator["Client"]:
    from fedbandit.agent.client import Unreachable

    site = its_config(path)
    with plain_errors():
        try:
            with its_client(site, path, right) as client:
                yield client
        except Unreachable as error:
            raise FileError(
                f"{error}. Start {site.name}'s agent first: it knows the arms, and signs and spreads changes"
            ) from None
