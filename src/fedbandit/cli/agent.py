"""The commands of a live site: its agent, its arms, its certificates. Heavy imports happen inside commands."""

import logging
import os
import resource
import shlex
import signal
import sys
import time  # noqa: TID251  # somebody waits for sites
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from fedbandit.checks import FileError, InvalidArgument
from fedbandit.cli.errors import errors_exit_with_2, output_folder
from fedbandit.extras import needs

if TYPE_CHECKING:
    from fedbandit.agent.client import Client
    from fedbandit.agent.core.arms import ChangeKind
    from fedbandit.agent.http.state import ArmChangeBody, ArmsBody, ReceiptBody
    from fedbandit.agent.process.config import SiteConfig
from fedbandit.agent.process.rights import Right

# ---------------------------------------------------------------- the agent

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
    """Run the agent of one site: HTTP for its application, bulletins over mutual TLS, state on disk. SIGTERM stops it.

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
    from fedbandit.agent.process.logs import begin_log

    begin_log(log_format, log_level)
    with _last_words(in_json=log_format == "json"):
        _run(config, insecure)


def _run(config: Path, insecure: bool) -> None:
    import asyncio

    from fedbandit.agent.gossip.tls import read_tls
    from fedbandit.agent.http.snapshot import INSECURE
    from fedbandit.agent.process.config import check_insecure
    from fedbandit.agent.process.runtime import Agent
    from fedbandit.agent.process.serve import serve, try_ports
    from fedbandit.agent.process.tokens import read_proxy_secret, read_tokens

    site = its_config(config)
    check_insecure(site, insecure)
    tls = None if insecure else read_tls(site, datetime.now(UTC))
    tokens, proxy_secret = read_tokens(site), read_proxy_secret(site)
    if insecure:
        logging.getLogger("fedbandit.agent").warning(INSECURE)
    with plain_errors():
        try_ports(site)
        running = Agent(site, tls, tokens)

    async def until_stopped() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await serve(running, tokens, proxy_secret, stop)

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

    from fedbandit.agent.process.check import check
    from fedbandit.agent.process.config import check_insecure

    site = its_config(path)
    check_insecure(site, insecure)
    found = asyncio.run(check(site, insecure, datetime.now(UTC)))
    width = max(len(it.about) for it in found)
    for it in found:
        typer.echo(f"{'not checked' if it.level == 'unknown' else it.level:<11}  {it.about:<{width}}  {it.words}")
    wrong = sum(it.level == "error" for it in found)
    if wrong:
        typer.echo(f"{wrong} of {len(found)} checks failed")
        raise typer.Exit(1)
    typer.echo("ready to start")


Member = Annotated[str, typer.Argument(help="The name of the site.")]

Why = Annotated[str, typer.Option("--reason", help="Why, in at most 200 characters. It is recorded.")]

TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        envvar="FEDBANDIT_TOKEN_FILE",
        help="Holds your own token: what you do is recorded under its name. Default: the one of site.toml that may.",
    ),
]


@live.command(short_help="No longer count a member at this site.")
@errors_exit_with_2
def exclude(
    name: Member,
    reason: Why,
    config: Config = SITE_FILE,
    token_file: TokenFile = None,
) -> None:
    """No longer count a member at this site: one that lies, errs or has left. 'include' undoes it.

    Its new changes of arms are not taken, either; stops that are known stay. What it says is still passed on: every
    site decides for itself. Works also where the agent is not running.
    """
    _tell(config, name, True, checked_reason(reason), token_file)
    typer.echo(f"{name} no longer counts at this site. Tell the others: each decides for itself")


@live.command()
@errors_exit_with_2
def include(name: Member, config: Config = SITE_FILE, reason: Why = "", token_file: TokenFile = None) -> None:
    """Count a member again that was excluded."""
    _tell(config, name, False, checked_reason(reason, required=False), token_file)
    typer.echo(f"{name} counts again at this site")


def _tell(path: Path, name: str, excludes: bool, reason: str, token_file: Path | None) -> None:
    """Tell the running agent; if none runs, write to its state file."""
    from fedbandit.agent.client import Unreachable

    site = its_config(path)
    with plain_errors():
        try:
            with its_client(site, path, "members", token_file) as client:
                if excludes:
                    client.exclude(name, reason)
                else:
                    client.include(name, reason)
        except Unreachable:
            from fedbandit.agent.process.rights import deed_here
            from fedbandit.agent.process.stopped import change_members

            change_members(site, name, excludes, deed_here(reason))


@live.command(short_help="Confirm that the running agent has the latest data folder.")
@errors_exit_with_2
def confirm(reason: Why, config: Config = SITE_FILE, token_file: TokenFile = None) -> None:
    """Confirm that the running agent is the only one of its name, and that its data folder is the latest.

    Releases resume. For a site with no neighbour to ask, or after a second process of its name was stopped. Never for a
    copy that was put back: use restore.
    """
    reason = checked_reason(reason)
    with _agent(config, "restore", ", then confirm", token_file) as (name, client):
        client.confirm(reason)
    typer.echo(f"{name}: confirmed; releases resume unless a neighbour objects ('held' in the state)")


@live.command(short_help="Begin a new incarnation with an old data folder, such as a backup.")
@errors_exit_with_2
def restore(reason: Why, config: Config = SITE_FILE, token_file: TokenFile = None) -> None:
    """Begin a new incarnation with an old data folder: a backup that was put back, a copy, a rolled-back image.

    Rewards that it holds and has not released are dropped: another process may have released them. At a running agent,
    what was decided since its start stays: so start it first, and look at 'held' in its state. At a stopped one, only
    for files that the agent refuses to open.
    """
    from fedbandit.agent.client import Unreachable
    from fedbandit.agent.core.release_guard import Restored
    from fedbandit.agent.process.rights import deed_here
    from fedbandit.agent.process.stopped import restore as restore_stopped

    reason, site = checked_reason(reason), its_config(config)
    with plain_errors():
        try:
            with its_client(site, config, "restore", token_file) as client:
                restored = Restored(**client.restore(reason).model_dump())
        except Unreachable:
            restored = restore_stopped(site, deed_here(reason))
    typer.echo(f"{site.name}: a new incarnation has begun: {restored.in_words()}")


@live.command(short_help="Print the OpenAPI document of an agent's HTTP API.")
@errors_exit_with_2
def openapi() -> None:
    """Print the OpenAPI document of an agent's HTTP API, to generate a client from. A running agent has its own."""
    from importlib.resources import files

    typer.echo(files("fedbandit.agent.http").joinpath("openapi.json").read_text(encoding="utf-8"), nl=False)


# ---------------------------------------------------------------- arms

arm = typer.Typer(help="Show and change the arms of a live federation.", no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(help="The name of the arm.")]

_FIRST = " first: it knows the arms, and signs and spreads changes"


@arm.command("list", short_help="Show the arms, and the changes that wait for consent.")
@errors_exit_with_2
def show(
    config: Config = SITE_FILE,
    history: Annotated[
        bool, typer.Option("--history", help="All changes: who, when, why, and who accepted them here.")
    ] = False,
    token_file: TokenFile = None,
) -> None:
    """Show the arms, which are stopped and by whom, and the changes that wait for this site's consent.

    --history reads the audit trail, which needs the right 'audit'.
    """
    if history:
        _show_history(config, token_file)
        return
    with _agent(config, "view", _FIRST, token_file) as (_, client):
        seen = client.arms()
    typer.echo(f"{_counted(len(seen.arms), 'arm')}, {_counted(seen.version, 'change')}")
    width = max(len(it.name) for it in seen.arms)
    for it in seen.arms:
        typer.echo(
            f"{it.name:<{width}}  {it.status:<9}  {'' if it.last_change is None else _told(it.last_change)}".rstrip()
        )
        for part in it.suspended_for:
            typer.echo(f"{'':<{width}}  {'in part':<9}  {_told(part)}")
    for it in seen.waiting:
        final = " --retire" if it.change == "retire" else ""
        typer.echo(f"waiting: {_told(it)}{_consent(it)}. To accept: fedbandit arm accept {shlex.quote(it.arm)}{final}")


def _consent(it: "ArmChangeBody") -> str:
    """Which other sites have accepted a change."""
    having, missing = ", ".join(it.accepted_by), ", ".join(it.not_accepted_by)
    if not missing:
        return f". Accepted by all other sites: {having}" if having else ""
    return f". Accepted by {having}; not by {missing}" if having else f". Not accepted by {missing} either"


def _show_history(config: Path, token_file: Path | None) -> None:
    """Every change that is known here, oldest first."""
    from fedbandit.agent.core.trail import change_of, history_of
    from fedbandit.cli.audit_log import by_in_words, entries_from, print_rows, time_in_words

    with _agent(config, "audit", _FIRST, token_file) as (_, client):
        changes = history_of(entries_from(client, {"kind": "arm"})[0])
        waiting = {it.id for it in client.arms().waiting}
    rows: list[tuple[str, ...]] = []
    for made, accepted in changes:
        if accepted is None:
            consent = "waits" if change_of(made)[0] in waiting else ""
        else:
            consent = f"{by_in_words(accepted)}, {time_in_words(accepted.at)}"
        who = by_in_words(made) if made.who or made.how else ""
        what = " ".join(filter(None, (made.what, made.subject, change_of(made)[1])))
        rows.append((time_in_words(made.at), what, made.site, who, made.reason, consent))
    print_rows(("UTC", "change", "site", "by", "why", "accepted here by"), rows)


Reason = Annotated[str, typer.Option("--reason", help="Why, in at most 200 characters. Every site shows it.")]

OfStratum = Annotated[
    list[str] | None,
    typer.Option(
        "--stratum",
        metavar="FACTOR=LEVEL",
        help="Only for patients with this level, such as age='over 65'. Several: for those who have all of them.",
    ),
]


@arm.command()
@errors_exit_with_2
def add(name: Name, config: Config = SITE_FILE, reason: Reason = "", token_file: TokenFile = None) -> None:
    """Add an arm: here at once, at other sites when they accept it."""
    _change(config, "add", name, reason, token_file)


@arm.command(short_help="Stop an arm at all sites until 'resume'.")
@errors_exit_with_2
def suspend(
    name: Name,
    reason: Reason,
    config: Config = SITE_FILE,
    stratum: OfStratum = None,
    token_file: TokenFile = None,
) -> None:
    """Stop an arm at all sites: nobody gets it, and its late rewards are accepted. 'resume' undoes it.

    With --stratum only for patients with that level: for all others it is given. Waits two seconds, and says which
    sites have the stop and which have not. Exit code 1 if one has not.
    """
    _change(config, "suspend", name, reason, token_file, stratum)


@arm.command(short_help="Give a suspended arm again.")
@errors_exit_with_2
def resume(
    name: Name,
    reason: Reason,
    config: Config = SITE_FILE,
    stratum: OfStratum = None,
    token_file: TokenFile = None,
) -> None:
    """Give a suspended arm again: here at once, whoever had stopped it; at other sites when they accept it.

    With --stratum only stops that are for patients with that level; without it all of them.
    """
    _change(config, "resume", name, reason, token_file, stratum)


@arm.command()
@errors_exit_with_2
def retire(name: Name, reason: Reason, config: Config = SITE_FILE, token_file: TokenFile = None) -> None:
    """Stop an arm for good. At sites that have not accepted it, it is suspended."""
    _change(config, "retire", name, reason, token_file)


@arm.command(short_help="Accept the changes of an arm that wait.")
@errors_exit_with_2
def accept(
    name: Annotated[str | None, typer.Argument(help="Name of the arm, as 'fedbandit arm list' shows it.")] = None,
    config: Config = SITE_FILE,
    unanimous: Annotated[
        bool, typer.Option("--unanimous", help="Instead of a NAME: whatever all other sites have accepted.")
    ] = False,
    retire: Annotated[bool, typer.Option("--retire", help="Accept a retirement, too: that is final.")] = False,
    reason: Why = "",
    token_file: TokenFile = None,
) -> None:
    """Accept the changes of an arm that other sites have made, and that wait.

    --unanimous is for a site that joins: it gets the arms as all others have them.
    """
    reason = checked_reason(reason, required=False)
    if (name is None) != unanimous:
        raise InvalidArgument("NAME", name, "the name of an arm, or else --unanimous")
    with _agent(config, "arms", _FIRST, token_file) as (_, client):
        found = {name: ""} if name is not None else _accepted_elsewhere(client.arms().waiting, retire)
        for each, by_whom in found.items():
            seen = client.accept_arm(each, retire, reason)
            status = next((it.status for it in seen.arms if it.name == each), "not there")
            typer.echo(f"accepted: {each} is {status}{by_whom}")
        for it in client.arms().waiting if unanimous else ():
            typer.echo(f"waiting: {_told(it)}{_consent(it)}")


def _accepted_elsewhere(waiting: "list[ArmChangeBody]", retire: bool) -> dict[str, str]:
    """The arms of which all that waits has been accepted by every other site, and by which."""
    asked: dict[str, list[ArmChangeBody]] = {}
    for it in waiting:
        if retire or it.change != "retire":
            asked.setdefault(it.arm, []).append(it)
    agreed = {arm: changes for arm, changes in asked.items() if not any(it.not_accepted_by for it in changes)}
    return {
        arm: f", as at {', '.join(sorted({site for it in changes for site in (it.by, *it.accepted_by)}))}"
        for arm, changes in agreed.items()
    }


def _levels(said: list[str] | None) -> dict[str, str] | None:
    if not said:
        return None
    pairs = [it.partition("=") for it in said]
    levels = {factor: level for factor, _, level in pairs}
    if not all(factor and is_pair for factor, is_pair, _ in pairs) or len(levels) < len(pairs):
        raise InvalidArgument("--stratum", ", ".join(said), "FACTOR=LEVEL, each factor once, such as age='over 65'")
    return levels


def _change(
    config: Path,
    change: "ChangeKind",
    name: str,
    reason: str,
    token_file: Path | None,
    stratum: list[str] | None = None,
) -> None:
    from fedbandit.agent.core.trail import needs_reason

    levels = _levels(stratum)
    reason, is_stop = checked_reason(reason, needs_reason(change)), change in ("suspend", "retire")
    with _agent(config, "arms", _FIRST, token_file) as (_, client):
        before = _arms(client) if is_stop else None
        made = client.change_arm(change, name, reason, levels)
        known = before is not None and any(it.id == made.id for it in before.changes)
        stopped = None if before is None else next((it for it in before.arms if it.name == name), None)
        if stopped is not None and stopped.status != "active" and stopped.last_change is not None:
            more = "" if known else ". Your own stop is added: it holds until a site that knows of it resumes the arm"
            typer.echo(f"{name!r} was {stopped.status} already: {_told(stopped.last_change)}{more}")
        if not known:
            typer.echo(f"{_told(made)}. Saved here, and sent")
        if known and reason not in ("", made.reason):
            typer.echo("This reason was not recorded: a stop keeps its first one")
        if is_stop:
            receipts = _receipts(client, made)
            for line in _who_has(receipts, name):
                typer.echo(line)
            if not all(it.has_it for it in receipts or ()):
                raise typer.Exit(1)


def _arms(client: "Client") -> "ArmsBody | None":
    """The arms, if the caller may see them: a stop does not depend on that."""
    from fedbandit.agent.client import AgentError

    try:
        return client.arms()
    except AgentError:
        return None


ANSWERS_WITHIN = 2.0
"""Seconds for which a stop waits until all sites have said that they have it."""


def _receipts(client: "Client", made: "ArmChangeBody") -> "list[ReceiptBody] | None":
    """Who has a change, once all have or nobody should wait longer; None if the caller may not see it."""
    until = time.monotonic() + ANSWERS_WITHIN
    while True:
        arms = _arms(client)
        change = None if arms is None else next((it for it in arms.changes if it.id == made.id), None)
        if change is None:
            return None
        if all(it.has_it for it in change.receipts) or time.monotonic() >= until:
            return change.receipts
        time.sleep(0.1)


def _who_has(receipts: "list[ReceiptBody] | None", name: str) -> Generator[str]:
    if receipts is None:
        return
    having = [it.site for it in receipts if it.has_it]
    missing = [it for it in receipts if not it.has_it]
    if having:
        yield f"{_counted(len(having), 'site')} {'has' if len(having) == 1 else 'have'} it: {', '.join(having)}"
    elif not missing:
        yield "no other site is known here"
    if missing:
        they = "it gives" if len(missing) == 1 else "they give"
        perhaps = "" if all(it.resumed_by is not None for it in missing) else "perhaps "
        yield (
            f"NOT STOPPED EVERYWHERE: {_counted(len(missing), 'site')} {'has' if len(missing) == 1 else 'have'} not "
            f"said so, and {perhaps}{they} {name!r} still. Tell their people by other means:"
        )
        for it in missing:
            yield f"  {it.site}{_why_not(it)}"


def _why_not(it: "ReceiptBody") -> str:
    if it.resumed_by == it.site:
        return " has resumed it, and gives it"
    if it.resumed_by is not None:
        return f" has accepted that {it.resumed_by} has resumed it, and gives it"
    if it.last_heard is None:
        return ": last heard never"
    return f": last heard {datetime.fromtimestamp(it.last_heard, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _told(it: "ArmChangeBody") -> str:
    when = datetime.fromtimestamp(it.at, UTC)
    why = f": {it.reason}" if it.reason else ""
    whom = f" for {it.whom}" if it.whom else ""
    return (
        f"{it.change} {it.arm!r}{whom} by {it.by} on {when:%Y-%m-%d %H:%M} UTC (version {it.version}, {it.id[:8]}){why}"
    )


@contextmanager
def _agent(path: Path, right: "Right", then: str, token_file: Path | None) -> Generator[tuple[str, "Client"]]:
    """The site's name, and a client of its agent; ``then``: what to do once the agent runs."""
    from fedbandit.agent.client import Unreachable

    site = its_config(path)
    with plain_errors():
        try:
            with its_client(site, path, right, token_file) as client:
                yield site.name, client
        except Unreachable as error:
            raise FileError(f"{error}. Start {site.name}'s agent{then}") from None


# ---------------------------------------------------------------- certificates

certs = typer.Typer(
    help="Create a small CA and issue certificates for sites.", no_args_is_help=True, rich_markup_mode=None
)

_Folder = Annotated[Path, typer.Option(help="Folder of the CA, with ca.crt and ca.key.")]
_Days = Annotated[int, typer.Option(help="Lifetime in days; never longer than the CA's.")]
_Output = Annotated[Path | None, typer.Option("-o", "--output", help="Output folder. Default: the CA's.")]


@certs.command()
@errors_exit_with_2
def init(
    folder: _Folder = Path("certs"),
    name: Annotated[str, typer.Option(help="Name of the CA in certificates.")] = "fedbandit CA",
    days: Annotated[int, typer.Option(help="Lifetime in days.")] = 3650,
) -> None:
    """Create a CA. Never replaces an existing one."""
    needs("fedbandit certs init", "agent")
    from fedbandit.agent.process.certificates import init as make

    made = make(folder, name, days, datetime.now(UTC))
    typer.echo(f"wrote {made.certificate}, valid until {made.until:%Y-%m-%d}: every site needs a copy")
    typer.echo(f"wrote {made.key}: anyone who has it can impersonate any site. No site needs it; keep it offline")


@certs.command()
@errors_exit_with_2
def issue(
    name: Annotated[str, typer.Argument(help="The site's name, as in its site.toml.")],
    folder: _Folder = Path("certs"),
    days: _Days = 825,
    output: _Output = None,
    renew: Annotated[bool, typer.Option("--renew", help="Replace an existing certificate and its key.")] = False,
) -> None:
    """Issue a site's certificate and key, signed by the CA."""
    needs("fedbandit certs issue", "agent")
    from fedbandit.agent.process.certificates import CA_CERTIFICATE, CA_KEY
    from fedbandit.agent.process.certificates import issue as make

    made = make(folder, name, days, datetime.now(UTC), output and output_folder(output), renew)
    typer.echo(f"wrote {made.certificate} and {made.key}, valid until {made.until:%Y-%m-%d}")
    typer.echo(
        f"site {name} needs both and {folder / CA_CERTIFICATE}. Copy the key nowhere else, "
        f"and keep {folder / CA_KEY} offline"
    )


@certs.command()
@errors_exit_with_2
def sign(
    request: Annotated[Path, typer.Argument(help="The site's certificate request, in PEM form.")],
    name: Annotated[str, typer.Argument(help="The site's name. The request must be for this name alone.")],
    folder: _Folder = Path("certs"),
    days: _Days = 825,
    output: _Output = None,
    renew: Annotated[bool, typer.Option("--renew", help="Replace an existing certificate.")] = False,
) -> None:
    """Issue a certificate for the key in a site's request. Nothing but the key is taken from the request."""
    needs("fedbandit certs sign", "agent")
    from fedbandit.agent.process.certificates import CA_CERTIFICATE
    from fedbandit.agent.process.certificates import sign as make

    made = make(folder, request, name, days, datetime.now(UTC), output and output_folder(output), renew)
    typer.echo(f"wrote {made.certificate}, valid until {made.until:%Y-%m-%d}")
    typer.echo(f"site {name} needs it and {folder / CA_CERTIFICATE}; it has its key already")


# ---------------------------------------------------------------- what commands share


def its_config(path: Path) -> "SiteConfig":
    """Read a site's file; says how to name another one if there is none in this folder."""
    from fedbandit.agent.process.config import read_config

    if path == SITE_FILE and not path.exists():
        raise FileError(f"{path}: no such file in this folder: use -c FILE, such as -c /etc/fedbandit/site.toml")
    return read_config(path)


def checked_reason(reason: str, required: bool = True) -> str:
    """The reason, or an error that names the option."""
    from fedbandit.agent.core import trail

    try:
        return trail.checked_reason(reason, required)
    except InvalidArgument as error:
        raise InvalidArgument("--reason", error.value, error.accepted) from None


def token_in(path: Path) -> str:
    """The token in a file that only its owner may read."""
    from fedbandit.agent.disk.secret_files import read_secret
    from fedbandit.agent.process.tokens import is_token

    token = read_secret(path).strip()
    if not is_token(token.decode("latin-1")):
        raise FileError(f"{path} holds no token")
    return token.decode("ascii")


@contextmanager
def its_client(site: "SiteConfig", path: Path, right: "Right", token_file: Path | None) -> Generator["Client"]:
    """A client of the site's running agent, with the token in this file, or the one of its file with this right."""
    from fedbandit.agent.client import Client
    from fedbandit.agent.process.tokens import token_with

    token = token_with(site, right) if token_file is None else token_in(token_file)
    # Somebody waits at a terminal, not a web page.
    with Client(f"http://{site.http}", token, timeout=5.0, deadline=15.0) as client:
        its_name = client.state().name
        if its_name != site.name:
            raise FileError(f"{path}: listen.http: the agent of {its_name!r} listens at {site.http}")
        yield client


@contextmanager
def plain_errors(but: tuple[type[Exception], ...] = ()) -> Generator[None]:
    """Report refusals of an agent, its file or its client like the caller's own errors, ``but`` some."""
    from fedbandit.agent.client import AgentError
    from fedbandit.agent.core.records import Refused
    from fedbandit.agent.disk.journal import JournalError

    try:
        yield
    except but:
        raise
    except (AgentError, JournalError, Refused) as error:
        raise FileError(str(error)) from None
