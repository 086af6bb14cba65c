"""What the records of an event tell the audit trail.

Entries are made of the records themselves, in the transaction that writes them: so no event can forget to tell, and
none is told that did not happen. Nothing here depends on a reward: of a release it says only that there was one, which
this site's next bulletin tells everybody.
"""

from collections.abc import Iterator, Mapping, Sequence

from fedbandit.agent.core.context import Factors
from fedbandit.agent.core.records import (
    ArmChanged,
    EvaluationReleased,
    Excluded,
    HistoryEntered,
    Included,
    Neighbour,
    Record,
    Released,
    Renewed,
    Unlinked,
)
from fedbandit.agent.core.trail import Act

__all__ = ["acts_of", "tells"]

_TELLING = frozenset(
    {Act, ArmChanged, EvaluationReleased, Excluded, HistoryEntered, Included, Neighbour, Released, Renewed, Unlinked}
)


def tells(records: Sequence[Record]) -> bool:
    """Whether there is anything to tell; of most events there is not."""
    return not _TELLING.isdisjoint(map(type, records))


def acts_of(
    records: Sequence[Record],
    own: str,
    known: dict[str, bool],
    names: Sequence[str],
    releases: Mapping[str, int],
    factors: Factors | None = None,
) -> Iterator[Act]:
    """What was done, in the order of the records.

    * ``own``: the site; ``names``: of its arms
    * ``known``: the changes of arms of which the trail tells, by id, and whether also of their acceptance; adds to them
    * ``releases``: how often something was released of each arm of which the event may have released something
    """
    is_new_incarnation, said = any(isinstance(it, Renewed) for it in records), set[int]()
    for it in records:
        match it:
            case Act():
                yield it
            case ArmChanged(change, accepted):
                if change.id not in known:
                    whom = f" for {change.whom(factors)}" if change.strata else ""
                    yield Act("arm", change.kind, change.arm, change.by, f"{change.id}{whom}", change.reason)
                if accepted and change.by != own and not known.get(change.id):
                    yield Act("arm", "accept", change.arm, change.by, change.id)
                known[change.id] = accepted > 0
            case Excluded(name):
                yield Act("member", "exclude", name)
            case Included(name):
                yield Act("member", "include", name)
            case Neighbour(name, False):
                yield Act("member", "link", name)
            case Unlinked(name):
                yield Act("member", "unlink", name)
            case HistoryEntered(arm, rewards):
                yield Act("history", "enter", names[arm], detail=f"{rewards} rewards")
            case Released(arm) if not is_new_incarnation and arm not in said and names[arm] in releases:
                said.add(arm)
                yield Act("release", "release", names[arm], detail=str(releases[names[arm]]))
            case EvaluationReleased(last) if not is_new_incarnation:
                yield Act("release", "evaluate", "other policies", detail=f"decisions up to {last}")
            case _:
                pass
