"""Shares of arms, as terms of a federation and of a simulation: a control arm, and the least for every other arm.

Formulas are in ``rules.choose``, the reasons in docs/shares.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fedbandit.checks import InvalidArgument, closest, finite_number, whole_number
from fedbandit.rules.choose import sum_of_floors


@dataclass(frozen=True)
class Shares:
    """How likely each arm is given at least: p = floor + (1 - sum of floors) * what the index says.

    * ``control``: the control arm: its number, at a live site its name; None: there is none
    * ``control_share``: its probability, always
    * ``least_share``: the floor of every other arm that is eligible
    """

    control: int | str | None = None
    control_share: float = 0.0
    least_share: float = 0.0

    def __post_init__(self) -> None:
        """Check each share by itself; ``control_among`` checks them together."""
        for name in ("control_share", "least_share"):
            share = finite_number(name, getattr(self, name))
            if not 0.0 <= share < 1.0:
                raise InvalidArgument(name, share, "a probability, from 0 up to 1 (exclusive)")
            object.__setattr__(self, name, share)
        if self.control is None and self.control_share > 0.0:
            raise InvalidArgument("control", None, "an arm, where control_share is given")
        if self.control is not None and self.control_share == 0.0:
            raise InvalidArgument("control_share", 0.0, "above 0, where control is given")
        if self.control is None and self.least_share == 0.0:
            raise InvalidArgument("least_share", 0.0, "above 0, where control is left out")

    def control_among(self, arms: Sequence[str] | int) -> int:
        """The number of the control arm, -1 if there is none; refused unless the floors of all arms leave room.

        ``arms``: their names, or how many there are.
        """
        num_arms = arms if isinstance(arms, int) else len(arms)
        num_others = num_arms if self.control is None else num_arms - 1
        floors = sum_of_floors(self.control_share, self.least_share, num_others)
        if floors >= 1.0:
            if self.least_share == 0.0:
                raise InvalidArgument("control_share", self.control_share, "below 1")
            most = (1.0 - self.control_share) / num_others
            hint = f"The floors of {num_arms} arms sum to {floors:g}, and leave the index nothing."
            raise InvalidArgument("least_share", self.least_share, f"below {most:g} for {num_arms} arms", hint)
        if self.control is None:
            return -1
        if isinstance(arms, int):
            return whole_number("control", self.control, 0, arms - 1)
        if self.control not in arms:
            accepted = f"one of the arms: {', '.join(arms)}"
            raise InvalidArgument("control", self.control, accepted, closest(str(self.control), arms))
        return arms.index(self.control)
