"""Puts the rows of a neighbour's message into this site's order of arms.

Both ends know the arms of the terms; of those that were added, each may know some that the other does not, in another
order. An arm that one end does not know has no flow on their link and is not averaged there: what the sender says of
arms that are unknown here is left out, and where it says nothing of an arm that is known here, the flow is 0 and it
gossips the same as this site does without the link, so that averaging moves nothing.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from fedbandit.agent.core.messages import Message, Offer
from fedbandit.agent.core.standings import Standing
from fedbandit.checks import InvalidArgument
from fedbandit.rules.flow import Register

__all__ = ["aligned", "check_lengths", "widened"]

_M = TypeVar("_M", bound=Message)


def aligned(message: _M, num_initial: int, added: Sequence[str], rest: Sequence[float]) -> _M:
    """The message as it would be if its sender knew the arms that are known here, in the same order.

    ``added``: the names of those that are not in the terms; ``rest``: what this site gossips without the link.
    """
    if message.arms == tuple(added):
        return message
    place = {name: num_initial + k for k, name in enumerate(message.arms)}
    here = [*range(num_initial), *(place.get(name, -1) for name in added)]
    zeros = (0.0,) * len(rest)
    rows = {"flow": _row(message.flow, here, zeros)}
    if isinstance(message, Offer):
        rows["gossiped"] = _row(message.gossiped, here, rest)
    return replace(
        message,
        **rows,
        n_max=_picked(message.n_max, here) if message.n_max else (),
        standings=tuple(_standing(it, num_initial + len(message.arms), here) for it in message.standings),
        arms=tuple(added),
    )


def widened(register: Register, num_arms: int) -> Register:
    """A register from when there were fewer arms: nothing has flowed of the others."""
    flow, stamp = register
    more = num_arms - len(flow) // 2
    if more == 0:
        return register
    if more < 0 or len(flow) % 2:
        raise InvalidArgument("flow", f"{len(flow)} columns", f"at most {2 * num_arms} columns")
    half, zeros = len(flow) // 2, (0.0,) * more
    return (*flow[:half], *zeros, *flow[half:], *zeros), stamp


def check_lengths(message: Message, num_initial: int) -> None:
    """Refuse rows that have not one value and one weight, or one count, for each arm that the sender knows."""
    num_arms = num_initial + len(message.arms)
    rows = (
        {"flow": message.flow, "gossiped": message.gossiped} if isinstance(message, Offer) else {"flow": message.flow}
    )
    for name, row in rows.items():
        if len(row) != 2 * num_arms:
            raise InvalidArgument(name, f"{len(row)} columns", f"{2 * num_arms} columns")
    if len(message.n_max) not in (0, num_arms):
        raise InvalidArgument("n_max", f"{len(message.n_max)} counts", f"{num_arms} counts")


def _row(row: Sequence[float], here: Sequence[int], absent: Sequence[float]) -> tuple[float, ...]:
    """Values, then weights; ``here``: the place of each arm in the sender's order, -1: none."""
    half, ours = len(row) // 2, len(here)
    values = (row[k] if k >= 0 else absent[c] for c, k in enumerate(here))
    weights = (row[half + k] if k >= 0 else absent[ours + c] for c, k in enumerate(here))
    return *values, *weights


def _picked(counts: Sequence[int], here: Sequence[int]) -> tuple[int, ...]:
    return tuple(counts[k] if k >= 0 else 0 for k in here)


def _standing(it: Standing, num_arms: int, here: Sequence[int]) -> Standing:
    """One of another length stays as it is, and is not heard."""
    return it if len(it.released) != num_arms else replace(it, released=_picked(it.released, here))
