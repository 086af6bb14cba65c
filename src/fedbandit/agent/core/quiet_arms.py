"""Remembers since when nobody has released anything of an arm: only then are numbers that jump suspicious.

A site that was silent for a while has not averaged what others released meanwhile. When it is back, that moves numbers
though nobody releases anything: for such arms the time of quiet begins anew. It begins only if the arm was released
since, or shortly before, the silence began: so whoever is silent on purpose, or slow, cannot put it off for ever.
"""

__all__ = ["MIXED", "QuietArms"]

MIXED = 50
"""Exchanges of this site, times N, after which releases have spread: on a path of 20, all but e^-6 of them."""


class QuietArms:
    """Times are exchanges of this site."""

    def __init__(self, num_arms: int) -> None:
        """Nothing was released yet."""
        self.since = [0] * num_arms
        """The exchange since which nothing should move what is gossiped of an arm, but mixing."""
        self._released = [0] * num_arms

    def grow(self, num_arms: int, now: int) -> None:
        """There are so many arms now."""
        for row in (self.since, self._released):
            row += [now] * (num_arms - len(row))

    def release(self, arm: int, now: int) -> None:
        """Somebody has released the arm."""
        self.since[arm] = self._released[arm] = now

    def disturb(self, now: int) -> None:
        """A site has come, gone or changed its weight: all that is gossiped may move."""
        self.since = [now] * len(self.since)
        self._released = [now] * len(self.since)

    def come_back(self, silent_since: int, num_agents: int, now: int) -> None:
        """A site was heard of again that had been silent."""
        for arm, released in enumerate(self._released):
            if released > silent_since - MIXED * num_agents:
                self.since[arm] = now
