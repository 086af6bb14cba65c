"""Turns the caller's mistakes into a plain message and exit code 2, instead of a traceback.

Every command imports this file, so it imports nothing heavy.
"""

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

import typer

from fedbandit.checks import FileError, InvalidArgument
from fedbandit.extras import MissingExtra, extra_of

__all__ = ["errors_exit_with_2"]


def errors_exit_with_2(command: Callable[..., None]) -> Callable[..., None]:
    """Turn the caller's mistakes into one plain message and exit code 2, and warnings into plain lines."""

    @wraps(command)
    def wrapped(*args: Any, **options: Any) -> None:
        warnings.showwarning = _warn_plainly
        try:
            command(*args, **options)
        except (InvalidArgument, FileError, MissingExtra, OSError) as error:
            _say(f"error: {error}")
            raise typer.Exit(2) from None
        except ImportError as error:
            extra = extra_of(error.name or "")
            if extra is None:
                raise
            _say(f"error: this needs {error.name}, which is not installed: pip install 'fedbandit[{extra}]'")
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            _say("stopped")
            raise typer.Exit(130) from None

    return wrapped


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _warn_plainly(message: object, *_: object, **__: object) -> None:
    _say(f"warning: {message}")
