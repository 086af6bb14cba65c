"""The commands ``certs init``, ``certs issue`` and ``certs sign``. Heavy imports happen inside commands."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from fedbandit.cli.errors import errors_exit_with_2
from fedbandit.extras import needs

__all__ = ["certs"]

certs = typer.Typer(
    help="Create a small CA and issue certificates for sites.", no_args_is_help=True, rich_markup_mode=None
)

_Folder = Annotated[Path, typer.Option(help="Folder of the CA, with ca.crt and ca.key.")]


@certs.command()
@errors_exit_with_2
def init(
    folder: _Folder = Path("certs"),
    name: Annotated[str, typer.Option(help="Name of the CA in certificates.")] = "fedbandit CA",
    days: Annotated[int, typer.Option(help="Lifetime in days.")] = 3650,
) -> None:
    """Create a CA. Never replaces an existing one."""
    needs("fedbandit certs init", "agent")
    from fedbandit.agent.gossip.certificates import init as make

    made = make(folder, name, days, datetime.now(UTC))
    typer.echo(f"wrote {made.certificate}, valid until {made.until:%Y-%m-%d}: every site needs a copy")
    typer.echo(f"wrote {made.key}: anyone who has it can impersonate any site. No site needs it; keep it offline")


@certs.command()
@errors_exit_with_2
def issue(
    name: Annotated[str, typer.Argument(help="The site's name, as in its site.toml.")],
    folder: _Folder = Path("certs"),
    days: Annotated[int, typer.Option(help="Lifetime in days; never longer than the CA's.")] = 825,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Output folder. Default: the CA's.")] = None,
    renew: Annotated[bool, typer.Option("--renew", help="Replace an existing certificate and its key.")] = False,
) -> None:
    """Issue a site's certificate and key, signed by the CA."""
    needs("fedbandit certs issue", "agent")
    from fedbandit.agent.gossip.certificates import CA_CERTIFICATE, CA_KEY
    from fedbandit.agent.gossip.certificates import issue as make

    made = make(folder, name, days, datetime.now(UTC), output, renew)
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
    days: Annotated[int, typer.Option(help="Lifetime in days; never longer than the CA's.")] = 825,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Output folder. Default: the CA's.")] = None,
    renew: Annotated[bool, typer.Option("--renew", help="Replace an existing certificate.")] = False,
) -> None:
    """Issue a certificate for the key in a site's request. Nothing but the key is taken from the request."""
    needs("fedbandit certs sign", "agent")
    from fedbandit.agent.gossip.certificates import CA_CERTIFICATE
    from fedbandit.agent.gossip.certificates import sign as make

    made = make(folder, request, name, days, datetime.now(UTC), output, renew)
    typer.echo(f"wrote {made.certificate}, valid until {made.until:%Y-%m-%d}")
    typer.echo(f"site {name} needs it and {folder / CA_CERTIFICATE}; it has its key already")
