"""Reads JSON that everybody reads alike: no key twice, nothing but UTF-8, no half of a character."""

import json
from typing import Any

__all__ = ["DuplicateKey", "parse_json"]


class DuplicateKey(ValueError):
    """An object has this key more than once."""

    def __init__(self, key: str) -> None:
        """Name the key."""
        self.key = key
        super().__init__(f"the key {key!r} appears twice")


def parse_json(text: str | bytes) -> Any:
    """The value, in which no object has a key twice: two readers could take different ones of the two values.

    Raises ``DuplicateKey``, or another ``ValueError`` or ``RecursionError`` as ``json.loads`` does.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8")  # json would take other encodings, too
    value = json.loads(text, object_pairs_hook=_once)
    if "\\ud" in text or "\\uD" in text:
        _check_text(json.dumps(value, ensure_ascii=False))
    return value


def _check_text(text: str) -> None:
    """Refuse half of a character, which no answer or file could hold."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("a text has half of a character") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if not key.isascii():
            _check_text(key)
        if key in found:
            raise DuplicateKey(key)
        found[key] = value
    return found
