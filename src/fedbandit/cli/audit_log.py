"""The command ``audit-log``: who did what at a site, when and why; it shows, exports and verifies the audit trail."""

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, astuple
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fedbandit.checks import FileError, InvalidArgument
from fedbandit.cli.agent import SITE_FILE, Config, TokenFile, its_client, its_config, plain_errors
from fedbandit.cli.errors import errors_exit_with_2
from fedbandit.extras import needs

if TYPE_CHECKING:
    from fedbandit.agent.client import Client
    from fedbandit.agent.core.trail import Entry, Head
    from fedbandit.agent.process.config import SiteConfig

auditor = typer.Typer()

_Time = "A date such as 2026-01-31, or a time such as 2026-01-31T14:00Z."


@auditor.command("audit-log", short_help="Show, export or verify who did what at a site.")
@errors_exit_with_2
def audit_log(
    config: Config = SITE_FILE,
    since: Annotated[str | None, typer.Option(help=f"Not what was done before. {_Time}", metavar="TIME")] = None,
    until: Annotated[str | None, typer.Option(help="Not what was done later. The same.", metavar="TIME")] = None,
    person: Annotated[str | None, typer.Option(help="Only what this person did, or this role.")] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            help="Only one of arm, member, terms, rights, release, history, restore, confirm, start, stop, login."
        ),
    ] = None,
    arm: Annotated[str | None, typer.Option(help="Only what concerns this arm.")] = None,
    last: Annotated[int, typer.Option(help="Only so many of the newest; 0: all.", min=0)] = 0,
    form: Annotated[
        Literal["table", "jsonl", "csv"], typer.Option("--format", help="A table for people, or for programs.")
    ] = "table",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write to this file, which must be new.")
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Say whether the trail is as it was written.")] = False,
    head: Annotated[
        str | None,
        typer.Option(help="With --verify: what an earlier --verify has printed.", metavar="NUMBER:HASH"),
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="With --verify: an export of the whole trail as JSON lines, not the site's own.")
    ] = None,
    token_file: TokenFile = None,
) -> None:
    """Show who did what, when and why: arms, members, rights, releases, restores, starts, stops and logins.

    Works also where the agent is not running. With --verify: exit code 0 if the trail is as it was written, 1 if an
    entry was changed, removed, added or moved, or the end is missing. Write down what it prints, elsewhere.
    """
    needs("fedbandit audit-log", "agent")
    from fedbandit.agent.core.trail import filter_from, head_from

    said = {"since": since, "until": until, "person": person, "kind": kind, "arm": arm, "last": str(last or "")}
    given = {name: value for name, value in said.items() if value}
    wanted = filter_from(given)
    if verify:
        if given or output is not None or form != "table":
            option = f"--{next(iter(given))}" if given else "--output" if output is not None else "--format"
            raise InvalidArgument(option, "given", "left out with --verify: it looks at the whole trail")
        _verify(config, None if head is None else head_from(head), file, token_file)
        return
    for option, value in (("--head", head), ("--file", file)):
        if value is not None:
            raise InvalidArgument(option, str(value), "left out without --verify")
    site = its_config(config)
    with plain_errors():
        found = _from_agent(site, config, token_file, given)
        if found is None:
            from fedbandit.agent.disk.journal import entries_of

            entries = entries_of(_state_file(site), wanted)
        else:
            entries, _ = found
    if form == "table" and output is None:
        _print(entries)
        return
    lines = _json_lines(entries) if form == "jsonl" else _table_lines(entries)
    with ExitStack() as stack:
        try:
            target = sys.stdout if output is None else stack.enter_context(output.open("x", encoding="utf-8"))
        except OSError as error:
            raise FileError(f"{output}: {error.strerror}") from None
        target.writelines(lines)
    if output is not None:
        typer.echo(f"wrote {output}: {len(entries)} entries")


# ---------------------------------------------------------------- where entries come from


def _state_file(site: "SiteConfig") -> Path:
    from fedbandit.agent.disk.journal import STATE_FILE, holder_of

    path = site.data / STATE_FILE
    if not path.exists():
        raise FileError(f"{path}: {site.name} has no state yet, and its agent is not running")
    if (process := holder_of(path)) is not None:
        raise FileError(f"{path}: process {process} has it open, and does not answer at {site.http}")
    return path


def _from_agent(
    site: "SiteConfig", config: Path, token_file: Path | None, wanted: dict[str, str]
) -> "tuple[list[Entry], Head] | None":
    """Entries of a running agent, and the head of its trail; None if none runs."""
    from fedbandit.agent.client import Unreachable

    try:
        with its_client(site, config, "audit", token_file) as client:
            return entries_from(client, wanted)
    except Unreachable:
        return None


def entries_from(client: "Client", wanted: dict[str, str]) -> "tuple[list[Entry], Head]":
    """Entries of the agent that a client calls, and the head of its trail."""
    from fedbandit.agent.core.trail import MOST_SHOWN, Entry, Head

    found: list[Entry] = []
    last = int(wanted.get("last", "0"))
    asked = wanted if last <= MOST_SHOWN else {name: it for name, it in wanted.items() if name != "last"}
    while True:
        page = client.audit_log(**asked, after=found[-1].number if found else 0)
        found += [Entry(**it.model_dump()) for it in page.entries]
        if len(page.entries) < MOST_SHOWN or "last" in asked:
            return found[-last:], Head(page.number, page.hash)


# ---------------------------------------------------------------- verification


def _verify(config: Path, head: "Head | None", export: Path | None, token_file: Path | None) -> None:
    from fedbandit.agent.core.trail import Head, fault_of

    heads = [] if head is None else [head]
    if export is not None:
        entries, fault = _exported(export)
        fault = fault_of(entries, heads) or fault
    else:
        site = its_config(config)
        entries, fault = _of_site(site, config, token_file, heads)
    if fault is not None:
        typer.echo(f"NOT AS IT WAS WRITTEN: {fault}", err=True)
        raise typer.Exit(1)
    last = Head(entries[-1].number, entries[-1].hash) if entries else Head(0, "0" * 64)
    typer.echo(f"{last.number} entries are as they were written. Write down elsewhere: {last.in_words()}")


def _of_site(
    site: "SiteConfig", config: Path, token_file: Path | None, heads: "list[Head]"
) -> "tuple[list[Entry], str | None]":
    """The trail of a site, running or not, and what is wrong with it."""
    from fedbandit.agent.client import Unavailable
    from fedbandit.agent.core.trail import fault_of
    from fedbandit.agent.disk.journal import JournalError, check_closed, entries_of

    try:
        with plain_errors(but=(Unavailable,)):
            found = _from_agent(site, config, token_file, {})
    except Unavailable as error:
        return [], str(error)
    if found is not None:
        entries, head = found
        return entries, fault_of(entries, [*heads, head])
    path = _state_file(site)
    try:
        entries = entries_of(path)
        if (fault := fault_of(entries, heads)) is None:
            check_closed(path, site.name, site.terms)
    except JournalError as error:
        return [], str(error)
    return entries, fault


def _exported(path: Path) -> "tuple[list[Entry], str | None]":
    """The entries of an export, up to a line that is none, and what is wrong with that."""
    from fedbandit.agent.core.trail import Entry

    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return [], f"{path} is no text"
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}") from None
    entries: list[Entry] = []
    for number, line in enumerate(lines, 1):
        try:
            entries.append(Entry(**json.loads(line)))
        except (ValueError, TypeError, RecursionError):
            return entries, f"line {number} of {path} is not an entry"
    return entries, None if entries else f"{path} has no entries"


# ---------------------------------------------------------------- what is shown


def time_in_words(at: int) -> str:
    """Of milliseconds since 1970, in UTC."""
    return f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def _json_lines(entries: "Iterable[Entry]") -> Iterator[str]:
    return (json.dumps(asdict(it)) + "\n" for it in entries)


def _table_lines(entries: "Iterable[Entry]") -> Iterator[str]:
    """Comma-separated values, with the time in words before all else."""
    from fedbandit.agent.core.trail import COLUMNS
    from fedbandit.agent.http.evidence import plain_cell

    text = StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["time", *COLUMNS])
    for it in entries:
        cells = [plain_cell(value) if isinstance(value, str) else value for value in astuple(it)]
        table.writerow([f"{time_in_words(it.at)}Z", *cells])
    yield text.getvalue()


def _print(entries: "Sequence[Entry]") -> None:
    rows = [(str(it.number), time_in_words(it.at), done_in_words(it), by_in_words(it), it.reason) for it in entries]
    print_rows(("", "UTC", "what", "by", "why"), rows)


def print_rows(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table for people; texts stay what they are."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not rows:
        typer.echo("no entries")
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        side = "left" if heading else "right"
        table.add_column(heading, justify=side, no_wrap=heading in ("", "UTC"), overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(emoji=False, highlight=False, width=None if sys.stdout.isatty() else 10_000)
    with console.capture() as shown:
        console.print(table)
    typer.echo("\n".join(line.rstrip() for line in shown.get().splitlines() if line.strip()))


def done_in_words(it: "Entry") -> str:
    """What was done, to what."""
    from fedbandit.agent.core.trail import change_of

    whose = f" of {it.site}" if it.kind == "arm" and it.what == "accept" else ""
    detail = it.detail
    if it.kind == "arm":
        name, whom = change_of(it)
        detail = ", ".join(filter(None, (whom, name[:8])))
    about = {"arm": "arm ", "member": "member ", "rights": "rights of "}.get(it.kind, "")
    if it.what == "release":
        return f"release {it.detail} of arm {it.subject}"
    return " ".join(filter(None, (it.what, f"{about}{it.subject}" if it.subject else "", whose.strip(), _in(detail))))


def _in(detail: str) -> str:
    return f"({detail})" if detail else ""


def by_in_words(it: "Entry") -> str:
    """Who did it, and how that is known."""
    who = it.who or (f"site {it.site}" if it.site and not it.how else "")
    return f"{who} ({it.how})" if who and it.how else who or it.how
