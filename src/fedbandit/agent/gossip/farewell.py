"""Tells a refused caller why, in the words of gRPC, without gRPC: its first call is answered with PERMISSION_DENIED.

A connection that is closed without an answer would leave the other end's operator in the dark, and its gRPC would
try again at once.
"""

from urllib.parse import quote

__all__ = ["Farewell"]

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # RFC 9113, 3.4
_HEADERS, _SETTINGS, _GOAWAY = 1, 4, 7
_LONGEST = 120  # longer texts need longer lengths, RFC 7541, 5.1
_HEAD = 9


class Farewell:
    """Reads a client's HTTP/2 up to its first call, and answers that."""

    GREETING = bytes((0, 0, 0, _SETTINGS, 0, 0, 0, 0, 0))
    """What a server says first."""

    def __init__(self, told: str) -> None:
        """``told``: the reason."""
        self._told, self._received, self._skip = told, b"", len(_PREFACE)

    def answer(self, data: bytes) -> bytes:
        """Take bytes of the client; the answer to its call when that has begun, else nothing."""
        self._received += data
        while True:
            skipped = min(self._skip, len(self._received))
            self._received, self._skip = self._received[skipped:], self._skip - skipped
            if self._skip or len(self._received) < _HEAD:
                return b""
            if self._received[3] == _HEADERS:
                return self._refusal(int.from_bytes(self._received[5:9], "big") & 0x7FFFFFFF)
            self._skip = _HEAD + int.from_bytes(self._received[:3], "big")

    def _refusal(self, stream: int) -> bytes:
        fields = (
            b"\x88"
            + b"".join(  # :status 200
                b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value
                for name, value in (
                    (b"content-type", b"application/grpc"),
                    (b"grpc-status", b"7"),
                    (b"grpc-message", quote(self._told, safe=" ,:;'()[]").encode()[:_LONGEST]),
                )
            )
        )
        return _frame(_HEADERS, 5, stream, fields) + _frame(_GOAWAY, 0, 0, stream.to_bytes(4, "big") + bytes(4))


def _frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return len(content).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + content
