"""Counts failed TLS handshakes by reading gRPC's standard error: gRPC reports them nowhere else.

gRPC refuses a missing, foreign or expired certificate and plain text before any of our code runs, and its core logs
a line to file descriptor 2. So this file replaces the descriptor with a pipe: a thread reads it, reports lines about
failed handshakes and passes on all others. The core does not say which end began a handshake, so handshakes that this
process began count, too.
"""

import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

__all__ = ["watch_handshakes"]

_MARKS = (b"Handshake failed", b"No match found for server name")

# OpenSSL's words, and ours.
_REASONS = (
    (b"certificate has expired", "certificate expired"),
    (b"certificate is not yet valid", "certificate not yet valid"),
    (b"PEER_DID_NOT_RETURN_A_CERTIFICATE", "no certificate"),
    (b"CERTIFICATE_VERIFY_FAILED", "certificate of another CA"),
    (b"certificate signature failure", "certificate of another CA"),  # a CA with the name of ours
    (b"WRONG_VERSION_NUMBER", "not TLS"),
    (b"HTTP_REQUEST", "not TLS"),
    (b"No match found for server name", "meant for another site"),  # the caller expected another site at this address
)


def watch_handshakes(failed: Callable[[str, str], None]) -> None:
    """Call ``failed(reason, line)``, in another thread, for every handshake that fails in this process from now on.

    Call it once per process. Python's own ``sys.stderr``, and a log to it, keep their target: none of their output
    is lost when the process ends, and our own log lines about handshakes are not mistaken for the core's.
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
