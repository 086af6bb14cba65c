"""Shares of arms in compiled code: a decision by share, and what an agent knows in a world without the control arm.

The index never chooses the control arm: the page is asked in that world. It is a record with one arm less, filled as
``policies.plain.narrowed`` fills lists: kept fields are copied, byte by byte, and transient ones derived anew.
"""

from typing import Any, NamedTuple

import numpy as np

from fedbandit.engine.compiled import compilable, compile_inner
from fedbandit.engine.streams import draw, uniform
from fedbandit.policies.plain import carried
from fedbandit.policies.protocol import Page
from fedbandit.rules.choose import BY_INDEX, CONTROL, given_by_share
from fedbandit.shares import Shares

compilable(given_by_share)


class Sharing(NamedTuple):
    """The shares, and the agents in a world without the control arm; without one, empty."""

    control: int  # -1: none
    control_share: float
    least_share: float
    few: Any  # [N] records of what each agent knows there; scratch
    few_bytes: Any  # [N, ...]: the same memory
    fresh: Any  # like few_bytes: before the first round
    all_bytes: Any  # [N, ...]: the memory of what agents know of all arms
    places: Any  # [..., 2]: of each byte that is the same in both, its places in few_bytes and in all_bytes
    unobserved: Any  # [N, M - 1]: scratch


def new_sharing(page: Page, agents: Any, dtype_of_few: np.dtype[Any], shares: Shares | None, num_arms: int) -> Sharing:
    """``agents``: records of what each one knows. ``dtype_of_few``: the same with one arm less."""
    control = -1 if shares is None else shares.control_among(num_arms)
    few = np.zeros(len(agents) if control >= 0 else 0, dtype_of_few)
    few_bytes = few.view(np.uint8).reshape(len(few), dtype_of_few.itemsize)
    return Sharing(
        control=control,
        control_share=0.0 if shares is None else shares.control_share,
        least_share=0.0 if shares is None else shares.least_share,
        few=few,
        few_bytes=few_bytes,
        fresh=few_bytes.copy(),
        all_bytes=agents.view(np.uint8).reshape(len(agents), agents.dtype.itemsize),
        places=_places(page, dtype_of_few, agents.dtype, control, num_arms),
        unobserved=np.zeros((len(few), num_arms - 1), np.uint8),
    )


def _places(page: Page, few: np.dtype[Any], whole: np.dtype[Any], control: int, num_arms: int) -> Any:
    """Where the bytes of carried fields, averages and n~ lie in both records."""
    if control < 0:
        return np.zeros((0, 2), np.int64)
    pairs: list[tuple[int, int]] = []
    for name in (*page.averaged, "n_max", *carried(page)):
        size, here, there = few[name].itemsize, _offset(few, name), _offset(whole, name)
        if size == whole[name].itemsize:  # not a row with an entry for each arm
            pairs += [(here + b, there + b) for b in range(size)]
            continue
        each = whole[name].itemsize // num_arms
        for k in range(num_arms - 1):
            arm = k + int(k >= control)
            pairs += [(here + k * each + b, there + arm * each + b) for b in range(each)]
    return np.array(pairs, np.int64)


def _offset(record: np.dtype[Any], name: str) -> int:
    fields: Any = record.fields
    return fields[name][1]


@compile_inner
def keep_fresh(sharing: Any, i: int) -> None:
    """Remember an agent's record as it is, after the page's ``start``."""
    for b in range(sharing.fresh.shape[1]):
        sharing.fresh[i, b] = sharing.few_bytes[i, b]


@compile_inner
def narrow(sharing: Any, i: int) -> None:
    """Fill an agent's record without the control arm; what is transient stays as before the first round."""
    for b in range(sharing.fresh.shape[1]):
        sharing.few_bytes[i, b] = sharing.fresh[i, b]
    for c in range(len(sharing.places)):
        sharing.few_bytes[i, sharing.places[c, 0]] = sharing.all_bytes[i, sharing.places[c, 1]]


@compile_inner
def widen(sharing: Any, i: int) -> None:
    """Put back what a decision may have changed."""
    for c in range(len(sharing.places)):
        sharing.all_bytes[i, sharing.places[c, 1]] = sharing.few_bytes[i, sharing.places[c, 0]]


@compile_inner
def unobserved_others(sharing: Any, i: int, unobserved: Any) -> int:
    """Fill in whether no reward has counted of the arms but the control arm; of how many."""
    count = 0
    for k in range(sharing.unobserved.shape[1]):
        sharing.unobserved[i, k] = unobserved[k + int(k >= sharing.control)]
        count += sharing.unobserved[i, k]
    return count


@compile_inner
def arm_by_share(sharing: Any, streams: Any, tape: Any, i: int, clock: Any, num_arms: int, said: Any) -> Any:
    """The arm of a decision for which the index has ``said`` one."""
    u = tape.shares[clock - 1, i] if tape.on else uniform(draw(streams.shares, np.uint64(clock)))
    others = num_arms - 1 if sharing.control >= 0 else num_arms
    given = given_by_share(u, sharing.control_share, sharing.least_share, others)
    if given == CONTROL:
        return np.uint64(sharing.control)
    if given == BY_INDEX:
        return said
    return np.uint64(given + int(0 <= sharing.control <= given))
