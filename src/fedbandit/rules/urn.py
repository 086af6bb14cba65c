"""Draws among arms that an agent cannot judge yet: an urn that keeps their counts near each other and their order open.

Each unknown arm has balls in the urn: 16 if no other has had fewer decisions at this agent, and half as many for each
decision that it is ahead of that one; never less than one. An arm that waits, because what it has been given suffices
for now, has one. Where something is known, what is known has ``KNOWN_BALLS`` more, which give the decision to the
index. Every ball is as likely as any other.

**Nobody can predict an arm.** Whatever was given before, every unknown arm has a ball, and of two or more in the urn
none has all: with m arms its chance is at least 1 / (16 m - 15), and at most 16 / (15 + m). A single unknown arm beside
known ones is given in 16 of 20 decisions.

**Counts stay near each other.** Up to a lead of ``LARGEST_LEAD``, of two arms of which one is d decisions ahead of the
other the next one goes to that with probability 1 / (1 + 2^d), whatever the other arms do: 1/3, 1/5, 1/9, 1/17. From
there on every further step costs a factor of 16. In 1,000 decisions no two arms are ever further apart than
``MOST_APART``, but with a probability below 10^-9. No design has both with certainty: at the largest difference that it
allows the arm that is ahead would have no chance, and whoever counts would know it.
"""

from collections.abc import Sequence

from fedbandit.rules.choose import fewest_pulls

__all__ = [
    "KNOWN",
    "KNOWN_BALLS",
    "LARGEST_LEAD",
    "MOST_APART",
    "MOST_BALLS",
    "any_chance",
    "any_drawn",
    "chance",
    "drawn",
    "rest_of",
]

KNOWN = -1
"""What ``drawn`` returns instead of an arm where the index is to say it."""

MOST_BALLS, LARGEST_LEAD = 16, 4  # 16 >> 4 is the one ball that every unknown arm has

KNOWN_BALLS = 4
"""So a fifth of decisions goes by the index where one arm is unknown: to give it all would tell which comes next."""

MOST_APART = 12
"""How far counts of two unknown arms are ever apart in 1,000 decisions, but with a probability below 10^-9."""


def rest_of(num_unknown: int, num_arms: int) -> int:
    """The balls of what is known."""
    return KNOWN_BALLS if num_unknown < num_arms else 0


def drawn(n: Sequence[int], unknown: Sequence[bool], enough: Sequence[int], waits: bool, rest: int, u: float) -> int:
    """The unknown arm that a uniform draw in [0, 1) gives a decision, or ``KNOWN``.

    ``n`` are the agent's own decisions for each arm; ``rest`` the balls of what is known. If arms may wait, one does
    that has had ``enough`` decisions. Balls lie in the order of arms, from the first with the fewest decisions on.
    """
    first, left, arm = fewest_pulls(n, unknown), 0, KNOWN
    for k in range(len(n)):
        if unknown[k]:
            left += _balls(n[k], n[first], enough[k], waits)
    left = int(u * (left + rest))
    for j in range(len(n)):
        k = first + j if first + j < len(n) else first + j - len(n)
        if unknown[k]:
            arm = k
            left -= _balls(n[k], n[first], enough[k], waits)
            if left < 0:
                return arm
    return KNOWN if rest > 0 else arm


def chance(n: Sequence[int], unknown: Sequence[bool], enough: Sequence[int], waits: bool, rest: int, arm: int) -> float:
    """How likely ``drawn`` gives this arm, or ``KNOWN``."""
    least = n[fewest_pulls(n, unknown)]
    balls = [_balls(n[k], least, enough[k], waits) if unknown[k] else 0 for k in range(len(n))]
    return (rest if arm == KNOWN else balls[arm]) / (sum(balls) + rest)


def any_drawn(n: Sequence[int], unknown: Sequence[bool], u: float) -> int:
    """The same for a policy that takes every arm for known: until each is, an arm that is has one ball."""
    first, left, arm = fewest_pulls(n, unknown), 0, KNOWN
    for k in range(len(n)):
        left += _balls(n[k], n[first], 0, False) if unknown[k] else 1
    left = int(u * left)
    for j in range(len(n)):
        arm = first + j if first + j < len(n) else first + j - len(n)
        left -= _balls(n[arm], n[first], 0, False) if unknown[arm] else 1
        if left < 0:
            return arm
    return arm


def any_chance(n: Sequence[int], unknown: Sequence[bool], arm: int) -> float:
    """How likely ``any_drawn`` gives this arm."""
    least = n[fewest_pulls(n, unknown)]
    balls = [_balls(n[k], least, 0, False) if unknown[k] else 1 for k in range(len(n))]
    return balls[arm] / sum(balls)


def _balls(count: int, least: int, enough: int, waits: bool) -> int:
    """Of an unknown arm."""
    if waits and count >= enough:
        return 1
    return MOST_BALLS >> min(count - least, LARGEST_LEAD)
