"""Shares of arms: p = floor + (1 - sum of floors) * what the index says.

The floor of the control arm is its share, and the index chooses among the others: so the control arm's probability is
its share exactly. The floor of every other eligible arm is the least share. Arms that are not eligible have none, and
what theirs would be goes to the index.
"""

__all__ = ["BY_INDEX", "CONTROL", "floor_of_others", "given_by_share", "shared_chance", "sum_of_floors"]

BY_INDEX, CONTROL = -1, -2
"""What ``given_by_share`` returns instead of a position."""


def floor_of_others(control_share: float, least_share: float, num_others: int) -> float:
    """The least share; or an equal part of all that is left, where so many arms were added that there is no more."""
    return min(least_share, (1.0 - control_share) / num_others)


def sum_of_floors(control_share: float, least_share: float, num_others: int) -> float:
    """Of the control arm, 0 where it is not eligible, and of the other eligible arms."""
    return control_share + num_others * least_share


def given_by_share(u: float, control_share: float, least_share: float, num_others: int) -> int:
    """Whom a uniform draw in [0, 1) gives a decision: the control arm, one of the others by position, or the index."""
    if u < control_share:
        return CONTROL
    if u < sum_of_floors(control_share, least_share, num_others):
        return min(int((u - control_share) / least_share), num_others - 1)
    return BY_INDEX


def shared_chance(chance: float, floor: float, floors: float) -> float:
    """The p of an arm: ``chance`` is what the index says, ``floors`` the sum of all floors."""
    return floor + (1.0 - floors) * chance
