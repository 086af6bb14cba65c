"""Which names of arms people can read, and tell from each other."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from unicodedata import category, decomposition, name, normalize

from fedbandit.checks import InvalidArgument, shortened

__all__ = [
    "MAX_ARM_NAME",
    "arm_name",
    "new_arm_name",
    "remarks_on_names",
    "same_to_readers",
    "unclear_names",
]

MAX_ARM_NAME = 64
"""The most characters in the name of an arm that is added."""

_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
"""Characters that count as printable and show nothing."""

_HIDDEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""What fonts show nothing for: Unicode's Default_Ignorable_Code_Point, which Python does not know, and a blank."""

_SELECTOR = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Variation selectors, marks that choose how the character before them is drawn."""

_MARKS = 4
"""The most combining marks in a row: more than any script needs."""

_CYRILLIC = "АВЕЅІЈКМНОРСТУХԚԜаеѕіјорсухԛԝһԁӏ", "ABESIJKMHOPCTYXQWaesijopcyxqwhdl"
_GREEK = "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧον", "ABEZHIKMNOPTYXov"
_AS_LATIN = str.maketrans(_CYRILLIC[0] + _GREEK[0], _CYRILLIC[1] + _GREEK[1])
"""Letters that most fonts draw like a Latin one."""

_PUNCTUATION = str.maketrans(
    "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u2018\u2019\u02bc\u201c\u201d", "-------'''\"\""
)
"""Hyphens, dashes and quotation marks, which programs put in for those of the keyboard."""

_ANOTHER_LOOK = frozenset({"<super>", "<sub>", "<circle>", "<fraction>", "<square>"})
"""Forms of a character that people tell from it: 10² is not 102. Others are a matter of width and font."""

MOST_REMARKS = 5
"""So many remarks on names are made: somebody may add a hundred arms."""


def arm_name(name: object) -> str:
    """The name of an arm that can be added, or an error."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_ARM_NAME or not name.isprintable() or name != name.strip():
        raise InvalidArgument("arm", name, f"a name of 1 to {MAX_ARM_NAME} printable characters")
    return name


def _can_be_read(name: str) -> bool:
    """Whether people see a name as it is: no character shows nothing, or moves others, and marks do not pile up."""
    marks = "".join("m" if category(letter).startswith("M") else "." for letter in name)
    is_seen = not set(name) & _BLANK and name.isprintable() and name.strip() != ""
    return is_seen and not marks.startswith("m") and "m" * (_MARKS + 1) not in marks


def _is_plain(name: str) -> bool:
    """Whether a name has no variation selector but of a symbol: those have a form as text and one as emoji."""
    found = (it.start() for it in _SELECTOR.finditer(name))
    return all(name[k] in "\ufe0e\ufe0f" and k > 0 and category(name[k - 1]).startswith("S") for k in found)


def new_arm_name(name: object) -> str:
    """The name of an arm that is to be added, in Unicode's normal form C; others have added whatever they liked."""
    found = normalize("NFC", arm_name(name))
    if not _can_be_read(found) or not _is_plain(found):
        raise InvalidArgument("arm", name, f"a name without invisible characters and at most {_MARKS} marks in a row")
    return found


def same_to_readers(names: Sequence[str]) -> tuple[int, int] | None:
    """The first two names that people take for one."""
    return next(_same(names), None)


def _same(names: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Each name that people take for one before it: it differs in upper case, blanks, or characters that look alike."""
    seen: dict[tuple[int, str], int] = {}
    for k, it in enumerate(names):
        first = min([seen.setdefault(key, k) for key in enumerate(_as_read(it))])
        if first != k:
            yield first, k


def unclear_names(argument: str, names: Sequence[str]) -> Iterator[InvalidArgument]:
    """Names of a new federation that cannot be read. Its terms refuse equal ones.

    Similar ones are remarked on, not refused: the sites that share the terms cannot rename an arm, and may
    begin with an empty disk.
    """
    accepted = "a name that can be read: no invisible characters, few marks in a row"
    for k, it in enumerate(names):
        if not _can_be_read(it):
            yield InvalidArgument(f"{argument}[{k}]", it, accepted)


def _as_read(it: str) -> tuple[str, str]:
    """Two keys of a name; whoever has either in common looks the same.

    Capitals of a script look like others than its small letters do: so letters are translated after the case is
    folded, and before.
    """
    shown = _HIDDEN.sub("", normalize("NFC", it)).translate(_PUNCTUATION)
    forms = (c if decomposition(c).split(" ")[0] in _ANOTHER_LOOK else normalize("NFKC", c) for c in shown)
    text = " ".join(normalize("NFC", "".join(forms)).split())
    return text.casefold().translate(_AS_LATIN), text.translate(_AS_LATIN).casefold()


@lru_cache(8)
def remarks_on_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """What people may overlook in the names of the arms."""
    said = [
        f"people cannot tell the arms {shortened(names[first])!r} and {shortened(names[second])!r} apart."
        for first, second in _same(names)
    ]
    said += [
        f"the name of the arm {shortened(it)!a} holds characters that nobody sees: whoever types it leaves them out."
        for it in names
        if not _is_plain(it)
    ]
    said += [
        f"in the name of the arm {shortened(it)!r}, {letter!r} is the letter {name(letter).lower()} among Latin ones, "
        f"which it looks like: whoever types the name may get another."
        for it in names
        if (letter := _disguised(it)) is not None
    ]
    more = len(said) - MOST_REMARKS
    rest = [f"and {more} more remarks on the names of arms."] if more > 0 else []
    return (*said[:MOST_REMARKS], *rest)


def _disguised(it: str) -> str | None:
    """A letter that looks like a Latin one, and stands in a word with Latin ones."""
    words = "".join(letter if letter.isalpha() else " " for letter in it).split()
    for word in words:
        found = [letter for letter in word if ord(letter) in _AS_LATIN]
        if found and any(name(letter, "").startswith("LATIN") for letter in word):
            return found[0]
    return None
