"""Turns the caller's mistakes into a plain message and exit code 2, instead of a traceback.

Every command imports this file, so it imports nothing heavy.
"""

import os
import select
import sys
import warnings
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import typer

from fedbandit.checks import FileError, InvalidArgument
from fedbandit.extras import MissingExtra, extra_of

READER_GONE = 141
"""What a shell sees of a command that SIGPIPE has ended: 128 + 13."""


def errors_exit_with_2(command: Callable[..., None]) -> Callable[..., None]:
    """Turn the caller's mistakes into one plain message and exit code 2, and warnings into plain lines."""

    @wraps(command)
    def wrapped(*args: Any, **options: Any) -> None:
        warnings.showwarning = _warn_plainly
        try:
            command(*args, **options)
        except (InvalidArgument, FileError, MissingExtra, OSError) as error:
            if isinstance(error, BrokenPipeError) and _nobody_reads():
                raise typer.Exit(1) from None  # ``quietly`` says it better
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


def output_folder(output: Path) -> Path:
    """A folder that the command will create and write into; refused before the work, not after it."""
    there = next(it for it in (output, *output.parents) if os.path.lexists(it))
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise InvalidArgument("--output", str(output), "a folder that this user can write to")
    return output


def quietly(command: Callable[[], None]) -> None:
    """Run the command line; if the reader of its output goes away, as ``head`` does, end without a word, and as usual.

    Python ignores SIGPIPE, and a live agent must, since its neighbours may go at any time. Typer and Rich turn the
    error into exit code 1. What stands in the buffer would fail later, while Python ends.
    """
    output = _place_of_output()
    try:
        try:
            command()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        _leave()
    except SystemExit as end:
        if end.code == 1 and (_nobody_reads() or _place_of_output() != output):  # Rich replaces an output that is gone
            _leave()
        raise


def _place_of_output() -> tuple[int, int] | None:
    try:
        seen = os.fstat(1)
    except OSError:
        return None
    return seen.st_dev, seen.st_ino


def _nobody_reads() -> bool:
    """Whether standard output is a pipe whose other end is closed."""
    poll = select.poll()
    poll.register(1, 0)  # errors are always reported
    return any(what & select.POLLERR for _, what in poll.poll(0))


def _leave() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing fails while Python ends
    sys.exit(READER_GONE)


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _warn_plainly(message: object, *_: object, **__: object) -> None:
    _say(f"warning: {message}")
