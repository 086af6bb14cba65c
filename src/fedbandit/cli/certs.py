"""The commands ``fedbandit certs init`` and ``issue``. Heavy imports happen inside commands."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from fedbandit.cli.errors import errors_exit_with_2

__all__ = ["certs"]

certs = typer.Typer(help="A small CA, and certificates for sites.", no_args_is_help=True)

_Folder = Annotated[Path, typer.Option(help="The CA's folder, with ca.crt and ca.key.")]


@certs.command()
@errors_exit_with_2
def init(
    folder: _Folder = Path("certs"),
    name: Annotated[str, typer.Option(help="How the CA is called in certificates.")] = "fedbandit CA",
    days: Annotated[int, typer.Option(help="How long it is valid.")] = 3650,
) -> None:
    """Make a CA. It never replaces one."""
    from fedbandit.agent.gossip.certificates import init as make

    made = make(folder, name, days, datetime.now(UTC))
    typer.echo(f"wrote {made.certificate}, valid until {made.until:%Y-%m-%d}: every site needs a copy")
    typer.echo(
        f"wrote {made.key}: whoever has it can make a certificate for any site. No site needs it; keep it offline"
    )


@certs.command()
@errors_exit_with_2
def issue(
    name: Annotated[str, typer.Argument(help="The site's name, as in its site.toml.")],
    folder: _Folder = Path("certs"),
    days: Annotated[int, typer.Option(help="How long it is valid; never longer than the CA.")] = 825,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Folder. Default: the CA's.")] = None,
    renew: Annotated[bool, typer.Option("--renew", help="Replace an older certificate and its key.")] = False,
) -> None:
    """Make a site's certificate and key, signed by the CA."""
    from fedbandit.agent.gossip.certificates import CA_CERTIFICATE, CA_KEY
    from fedbandit.agent.gossip.certificates import issue as make

    made = make(folder, name, days, datetime.now(UTC), output, renew)
    typer.echo(f"wrote {made.certificate} and {made.key}, valid until {made.until:%Y-%m-%d}")
    typer.echo(
        f"site {name} needs both and {folder / CA_CERTIFICATE}. The key belongs nowhere else, {folder / CA_KEY} offline"
    )
