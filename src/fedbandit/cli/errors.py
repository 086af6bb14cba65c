"""Turns the caller's mistakes into a plain message and exit code 2, instead of a traceback.

Every command imports this file, so it imports nothing heavy.
"""

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

import typer

from fedbandit.checks import FileError, InvalidArgument

__all__ = ["errors_exit_with_2"]

AGENT = frozenset(
    {"cryptography", "fastapi", "google", "grpc", "httpcore", "httptools", "prometheus_client", "uvicorn"}
)
"""Packages of the extra ``agent``, by import name."""


def errors_exit_with_2(command: Callable[..., None]) -> Callable[..., None]:
    """Turn the caller's mistakes into one plain message and exit code 2, and warnings into plain lines."""

    @wraps(command)
    def wrapped(*args: Any, **options: Any) -> None:
        warnings.showwarning = _warn_plainly
        try:
            command(*args, **options)
        except (InvalidArgument, FileError, OSError) as error:
            _say(f"error: {error}")
            raise typer.Exit(2) from None
        except ImportError as error:
            if (error.name or "").partition(".")[0] not in AGENT:
                raise
            _say(f"error: this needs {error.name}, which is not installed: pip install 'fedbandit[agent]'")
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            _say("stopped")
            raise typer.Exit(130) from None

    return wrapped


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _warn_plainly(message: object, *_: object, **__: object) -> None:
    _say(f"warning: {message}")
