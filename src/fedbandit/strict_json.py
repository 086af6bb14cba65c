"""Reads JSON that everybody reads alike: no key twice, nothing but UTF-8, no half of a character, not deep.

What is nested to just below Python's limit can be read, and breaks whatever walks through it afterwards.
"""

import json
import re
from typing import Any

__all__ = ["MAX_DEPTH", "DuplicateKey", "TooDeep", "check_depth", "parse_json"]

MAX_DEPTH = 8
"""The most lists and objects within each other; what sites and callers send has half of that."""

_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


class DuplicateKey(ValueError):
    """An object has this key more than once."""

    def __init__(self, key: str) -> None:
        """Name the key."""
        self.key = key
        super().__init__(f"the key {key!r} appears twice")


class TooDeep(ValueError):
    """Lists and objects are nested deeper than ``MAX_DEPTH``."""

    def __init__(self) -> None:
        """Say how deep it may be."""
        super().__init__(f"lists and objects are more than {MAX_DEPTH} deep")


def check_depth(text: bytes) -> None:
    """Raise ``TooDeep``, before anything reads the text; also for brackets that are never closed."""
    brackets = _STRINGS.sub(b"", text).translate(None, _NO_BRACKETS)
    for _ in range(MAX_DEPTH):  # each time the innermost ones go
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    if b"[]" in brackets or b"{}" in brackets or len(brackets) > MAX_DEPTH:  # what is left else is no JSON, and short
        raise TooDeep


def parse_json(text: str | bytes) -> Any:
    """The value, in which no object has a key twice: two readers could take different ones of the two values.

    Raises ``DuplicateKey``, ``TooDeep``, or another ``ValueError`` as ``json.loads`` does.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8")  # json would take other encodings, too
    check_depth(text.encode("utf-8", "replace"))
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
