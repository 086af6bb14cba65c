"""Counts failed TLS handshakes by reading what gRPC's core writes to standard error: it reports them nowhere else.

A missing, foreign or expired certificate, plain text: gRPC refuses them before any of our code runs, and its core logs
a line on file descriptor 2. So this file replaces the descriptor by a pipe: a thread reads it, reports the lines about
failed handshakes and passes all others on. The core does not say which end began a handshake, so those that this
process began are counted, too.
"""

import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

__all__ = ["watch_handshakes"]

_MARKS = (b"Handshake failed", b"No match found for server name")

# What OpenSSL says, and what we call it.
_REASONS = (
    (b"certificate has expired", "certificate expired"),
    (b"certificate is not yet valid", "certificate not yet valid"),
    (b"PEER_DID_NOT_RETURN_A_CERTIFICATE", "no certificate"),
    (b"CERTIFICATE_VERIFY_FAILED", "certificate of another CA"),
    (b"certificate signature failure", "certificate of another CA"),  # one that bears the name of ours
    (b"WRONG_VERSION_NUMBER", "not TLS"),
    (b"HTTP_REQUEST", "not TLS"),
    (b"No match found for server name", "meant for another site"),  # by its address we are somebody else
)


def watch_handshakes(failed: Callable[[str, str], None]) -> None:
    """Call ``failed(reason, line)``, in another thread, for every handshake that fails in this process from now on.

    Once per process. Python's own ``sys.stderr``, and a log that goes there, write on to where they did: nothing of
    them is lost when the process ends, and a line about a handshake in our log is not taken for one of the core's.
    """
    outside, before = os.dup(2), sys.stderr
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace")
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is before:  # pyright: ignore[reportUnknownMemberType]
            handler.setStream(sys.stderr)
    reading, writing = os.pipe()
    os.dup2(writing, 2)
    os.close(writing)
    threading.Thread(target=_watch, args=(reading, outside, failed), name="handshakes", daemon=True).start()


def _watch(reading: int, outside: int, failed: Callable[[str, str], None]) -> None:
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            if any(mark in line for mark in _MARKS):
                failed(_reason(line), line.decode(errors="replace").strip())
            else:
                with suppress(OSError):
                    os.write(outside, line)


def _reason(line: bytes) -> str:
    return next((reason for mark, reason in _REASONS if mark in line), "handshake")
