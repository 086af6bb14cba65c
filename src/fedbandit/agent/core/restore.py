"""Begins a new life with a file that is, or may be, old: a snapshot that was put back, a copy, a rolled-back image.

What the file's rewards were released in since it was copied, nobody can tell. So rewards that it holds and that are in
none of its own releases are dropped, and never released again: those of open batches, those that wait for their window,
and those of decisions that are still open. What it has released stays the site's own, as others know it. What was
decided after the start of the present process, or since it found that another has a copy of its file, stays as it is.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.records import Forgotten, Known, Life, Link, Record, Released, Renewed, Stored
from fedbandit.policies import FedBatch
from fedbandit.policies.plain import NO_ARM
from fedbandit.rules import flow

__all__ = ["Restored", "records_of_new_life"]


@dataclass(frozen=True)
class Restored:
    """What a new life has dropped.

    * ``rewards``: that were acknowledged and are in no release of the file
    * ``decisions``: that were open, and whose reward can no longer be reported
    * ``kept``: decisions that no other process knows, whose rewards will count
    """

    rewards: int
    decisions: int
    kept: int

    def in_words(self) -> str:
        """For the log and the operator."""
        return (
            f"{self.rewards} rewards that may have been released are dropped, {self.decisions} open decisions "
            f"forgotten; {self.kept} decisions that only this process knows stay"
        )


def records_of_new_life(
    stored: Stored, terms: Federation, epoch: int, first: int, lives: Mapping[str, int]
) -> tuple[tuple[Record, ...], Restored]:
    """The records that begin it, and what they drop; decisions up to the number ``first`` are not this process's.

    ``lives``: the next life on each link, which may be later than the site's: what one neighbour says of it moves no
    other link.
    """
    unplayed = [it for it in stored.decisions.values() if it.is_open]
    doubtful = [it for it in unplayed if it.number <= first]
    known = dict(_known_by_releases(stored, terms))
    collected = sum(fields["n"] for arm, fields in stored.known.items() if arm != NO_ARM)
    dropped = collected - sum(fields["n"] for arm, fields in known.items() if arm != NO_ARM)
    records: list[Record] = [
        Renewed(),
        Life(epoch, stored.life.decisions),
        *(Forgotten(it.id) for it in doubtful),
        *(Known(arm, fields) for arm, fields in known.items()),
        *(Released(arm, level, last) for (arm, level), last in stored.released.items() if arm in known),
        *(_without_flow(link, lives[link.neighbour]) for link in stored.links.values()),
    ]
    rewarded = sum(it.reward is not None for it in doubtful)
    kept = len(unplayed) - len(doubtful)
    return tuple(records), Restored(dropped + rewarded, len(doubtful) - rewarded, kept)


def _known_by_releases(stored: Stored, terms: Federation) -> Iterator[tuple[int, dict[str, Any]]]:
    """What the page knows by what was released alone.

    FedBatch: all but the open batch. A tree's later intervals would hold rewards of earlier ones again, and what pages
    of other authors keep is not known here: they begin anew. Where nothing is private, nothing is dropped.
    """
    if terms.page.noise_due is None:
        yield from stored.known.items()
    elif isinstance(terms.policy, FedBatch):
        for arm, fields in stored.known.items():
            yield arm, fields if arm == NO_ARM else {**fields, "n": fields["released"], "total": 0}


def _without_flow(link: Link, own_epoch: int) -> Link:
    """The neighbour brings the flow back, as after a lost disk."""
    return Link(link.neighbour, link.epoch, flow.empty(len(link.register[0]) // 2), link.left, own_epoch, link.told)
