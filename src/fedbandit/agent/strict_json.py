"""Parses JSON in which no object has a key twice: two readers could take different ones of the two values."""

import json
from typing import Any

__all__ = ["DuplicateKey", "parse"]


class DuplicateKey(ValueError):
    """An object has this key more than once."""

    def __init__(self, key: str) -> None:
        """Name the key."""
        self.key = key
        super().__init__(f"the key {key!r} stands there twice")


def parse(text: str | bytes) -> Any:
    """The value; raises ``DuplicateKey``, or another ``ValueError`` or ``RecursionError`` as ``json.loads`` does."""
    return json.loads(text, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise DuplicateKey(key)
        found[key] = value
    return found
