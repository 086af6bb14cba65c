"""TLS handshakes that failed: counted from what gRPC's core writes to the standard error, for it tells nobody else.

Here belongs that one work-around. No certificate, one of another CA, an expired one, plain text: gRPC refuses them
before any of our code runs, and its core says so in a line on file descriptor 2. So the descriptor is turned into a
pipe: a thread reads it, reports the lines of failed handshakes, and passes all others on to where they went before.
"""

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

__all__ = ["watch_handshakes"]

_MARK = b"Handshake failed"

# What OpenSSL says, and what we call it.
_REASONS = (
    (b"certificate has expired", "certificate expired"),
    (b"certificate is not yet valid", "certificate not yet valid"),
    (b"PEER_DID_NOT_RETURN_A_CERTIFICATE", "no certificate"),
    (b"CERTIFICATE_VERIFY_FAILED", "certificate of another CA"),
    (b"WRONG_VERSION_NUMBER", "not TLS"),
    (b"HTTP_REQUEST", "not TLS"),
)


def watch_handshakes(failed: Callable[[str, str], None]) -> None:
    """Call ``failed(reason, line)``, in another thread, for every handshake that fails in this process from now on.

    Once per process. Python's own ``sys.stderr`` goes on writing to where it did, so that no traceback is lost.
    """
    outside = os.dup(2)
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace")
    reading, writing = os.pipe()
    os.dup2(writing, 2)
    os.close(writing)
    threading.Thread(target=_watch, args=(reading, outside, failed), name="handshakes", daemon=True).start()


def _watch(reading: int, outside: int, failed: Callable[[str, str], None]) -> None:
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            if _MARK in line:
                failed(_reason(line), line.decode(errors="replace").strip())
            else:
                with suppress(OSError):
                    os.write(outside, line)


def _reason(line: bytes) -> str:
    return next((reason for mark, reason in _REASONS if mark in line), "handshake")
