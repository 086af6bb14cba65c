"""What one agent knows, and what the network shows it, as plain lists: a live site and tests play pages on these.

Needs no NumPy. A sum of whole numbers stays a whole number, of any size.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from types import SimpleNamespace
from typing import Any, cast

from fedbandit.checks import InvalidArgument, finite_number, whole_number
from fedbandit.policies.protocol import ARMS, FEATURES, STRATA, Field, Page

NO_ARM = -1
"""The arm number under which single numbers are stored."""

ENGINE_COUNTS = ("tried", "tried_in", "caught_up")
"""What is counted of decisions, which no page keeps."""

MAX_COUNT = 2**62


class Me(SimpleNamespace):
    """What one agent knows: an attribute for each field that its page declares."""


class Seen(SimpleNamespace):
    """What the network shows an agent: a row for each name that its page averages, and ``n_max``."""


def new_me(page: Page, terms: Any, num_arms: int, num_strata: int = 0, num_features: int = 0) -> Me:
    """What an agent knows before its first reward."""
    lengths: dict[str | int, int] = {ARMS: num_arms, STRATA: max(num_strata, 1), FEATURES: max(num_features, 1)}
    me = Me(**{name: _zeros([int(lengths.get(n, n)) for n in f.shape]) for name, f in page.knows.items()})
    if page.start is not None:
        page.start(me, terms)
    return me


def new_seen(page: Page, num_arms: int) -> Seen:
    """A network that has shown nothing yet; with ``n_max`` of 0 no arm lags."""
    return Seen(**{name: [0.0] * num_arms for name in page.averaged}, n_max=[0] * num_arms)


def _zeros(shape: Sequence[int]) -> Any:
    return [_zeros(shape[1:]) for _ in range(shape[0])] if shape else 0


# ---------------------------------------------------------------- what is kept on disk


def _kept_fields(page: Page, arm: int) -> dict[str, Field]:
    """Those with an entry for each arm, or with ``NO_ARM`` the others."""
    return {name: f for name, f in page.knows.items() if f.is_kept and _is_row(f) == (arm != NO_ARM)}


def kept_names(page: Page, arm: int) -> tuple[str, ...]:
    """What must survive of an arm, the same for all; with ``NO_ARM``, which single numbers."""
    return tuple(_kept_fields(page, arm))


def kept(names: Sequence[str], me: Me, arm: int) -> dict[str, Any]:
    """A copy of what has these names, of one arm, or with ``NO_ARM`` of the single numbers."""
    values = vars(me)
    row = {name: values[name] for name in names} if arm == NO_ARM else {name: values[name][arm] for name in names}
    for name, value in row.items():
        if isinstance(value, list):  # as of a tree; numbers need no copy, which takes long to make
            row[name] = deepcopy(cast(list[Any], value))
    return row


def restore(page: Page, me: Me, arm: int, fields: Mapping[str, Any]) -> None:
    """Put back what ``kept`` gave. Refuses names that are missing or unknown, and values that a page cannot have."""
    known = _kept_fields(page, arm)
    differ = [f"{name} is missing" for name in known if name not in fields]
    differ += [f"{name} is unknown" for name in fields if name not in known]
    if differ:
        raise InvalidArgument(f"fields of arm {arm}", sorted(fields), ", ".join(known), ", ".join(differ))
    values = vars(me)
    for name, field in known.items():
        like = values[name] if arm == NO_ARM else values[name][arm]
        value = _checked(f"{name} of arm {arm}", field, like, fields[name])
        if arm == NO_ARM:
            values[name] = value
        else:
            values[name][arm] = value


def _checked(name: str, field: Field, like: Any, value: Any) -> Any:
    """The value, if it has the shape of what is there."""
    if isinstance(like, list):
        parts = cast(list[Any], like)
        if len(_row(value)) != len(parts):
            raise InvalidArgument(name, value, f"a list of {len(parts)}")
        return [_checked(name, field, part, x) for part, x in zip(parts, _row(value), strict=True)]
    if field.kind == "number":
        as_float = finite_number(name, value)
        return value if isinstance(value, int) else as_float
    return whole_number(name, value, 0, 1 if field.kind == "flag" else MAX_COUNT)


def _row(value: Any) -> list[Any]:
    return cast(list[Any], value) if isinstance(value, list) else []


# ---------------------------------------------------------------- a choice among some of the arms


def narrowed(
    page: Page, terms: Any, me: Me, seen: Seen, arms: Sequence[int], num_strata: int = 0, num_features: int = 0
) -> tuple[Me, Seen]:
    """Copies in which only these arms exist: what ``page.decide`` says of them is a position in ``arms``.

    As after a restart in a world of these arms: kept fields are those of ``me``, transient ones are derived anew. So
    nothing counts, or points at, an arm that is not there.
    """
    few, shown = new_me(page, terms, len(arms), num_strata, num_features), new_seen(page, len(arms))
    carry(page, me, seen, few, shown, arms)
    if page.believe is not None:
        for position in range(len(arms)):
            page.believe(few, terms, shown, position)
    return few, shown


def carry(page: Page, me: Me, seen: Seen, few: Me, shown: Seen, arms: Sequence[int]) -> None:
    """Bring narrowed copies up to date, but for what is derived: for as long as no reward and no exchange came."""
    known = vars(me)
    for name in carried(page):
        vars(few)[name] = [known[name][k] for k in arms] if _is_row(page.knows[name]) else deepcopy(known[name])
    for name, row in vars(seen).items():
        vars(shown)[name] = [row[k] for k in arms]


def widen(page: Page, me: Me, few: Me, arms: Sequence[int]) -> None:
    """Put back what ``page.decide`` may have changed of a narrowed copy, but for what is derived."""
    known, changed = vars(me), vars(few)
    for name in carried(page):
        if _is_row(page.knows[name]):
            for position, k in enumerate(arms):
                known[name][k] = changed[name][position]
        else:
            known[name] = changed[name]


def carried(page: Page) -> Iterator[str]:
    """Fields that mean the same whichever arms there are, and what engines count of decisions."""
    return (name for name, field in page.knows.items() if field.is_carried or name in ENGINE_COUNTS)


def _is_row(field: Field) -> bool:
    return ARMS in field.shape[:1]
