"""The command ``report``: a page and tables for a steering committee."""

import time  # noqa: TID251  # the report says when it was made
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedbandit.checks import InvalidArgument
from fedbandit.cli.agent import SITE_FILE, Config, TokenFile, its_client, its_config, plain_errors
from fedbandit.cli.errors import errors_exit_with_2, output_folder
from fedbandit.extras import needs

if TYPE_CHECKING:
    from fedbandit.agent.process.config import SiteConfig
    from fedbandit.agent.process.rights import Right
    from fedbandit.report import Facts

reporter = typer.Typer()

PAGE = "report.html"


@reporter.command(short_help="Write a report for people: a page to print, and tables.")
@errors_exit_with_2
def report(
    config: Config = SITE_FILE,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Output folder; it is created. Files in it are replaced.")
    ] = Path("report"),
    reference: Annotated[
        str | None,
        typer.Option(help="The arm with which others are compared. Default: control, or the leading.", metavar="ARM"),
    ] = None,
    token_file: TokenFile = None,
) -> None:
    """Write what a site knows of its federation: report.html, which stands alone and prints on A4, and CSV files.

    From the running agent, or from the data folder if it has stopped. No raw reward is in it.
    """
    needs("fedbandit report", "agent")
    from fedbandit.agent.disk.secret_files import READABLE, write_together
    from fedbandit.report import page_of, tables_of

    folder = output_folder(output)
    facts = _facts(config, reference, token_file)
    pages = {PAGE: page_of(facts), **tables_of(facts)}
    write_together({folder / name: (text.encode(), READABLE) for name, text in pages.items()}, replace=True)
    typer.echo(f"wrote {folder / PAGE}, and {', '.join(name for name in pages if name != PAGE)} beside it")


def _right(site: "SiteConfig") -> "Right":
    """Of the token that is used: with the audit trail, if one has that, the report tells persons."""
    from fedbandit.agent.process.config import ConfigError
    from fedbandit.agent.process.tokens import read_tokens, token_with

    tokens = read_tokens(site) or {}
    try:
        token = token_with(site, "audit")
    except ConfigError:
        return "view"
    return "audit" if token is None or "view" in tokens[token].rights else "view"


def _facts(path: Path, reference: str | None, token_file: Path | None) -> "Facts":
    from fedbandit.agent.client import Unreachable
    from fedbandit.report import of_agent, of_folder

    site, now = its_config(path), time.time()
    with plain_errors():
        try:
            with its_client(site, path, _right(site), token_file) as client:
                return of_agent(client, reference, now)
        except Unreachable:
            try:
                return of_folder(site, reference, now)
            except InvalidArgument as error:
                raise InvalidArgument("--reference", error.value, error.accepted, error.hint) from None
