"""Whether this process may release, and what is left of a file that may be old.

A snapshot that is put back, a copied folder, an image that is rolled back: an old file would release its rewards a
second time, with other noise. So after a start, and after a pause, nothing is released until every neighbour has said
what it has and shown which bulletin of this site it holds, and none knows better; or the operator has confirmed the
file (``Presence``). All of this is in memory alone: a process that starts again asks again, unless a witness that no
disk carries has seen the file's last commit (``Mark``).

An own bulletin is on disk before it is sent. So one with a place above the newest in the file as it was opened, which
this process has not made, proves that another process has used the file, or a copy. Nobody else can sign one.

With a file that is old a site can begin a new incarnation (``records_of_new_incarnation``). Nobody can tell in what its
rewards were released since it was copied. So rewards that it holds and that are in none of its own releases are
dropped, and never released again: those of open batches, those that wait for their window, and those of decisions that
are still open. What it has released stays the site's own, as others know it. What was decided after the start of the
present process, or since it found that another has a copy of its file, stays as it is.

A process that was cut off does not know whether a copy of its file was confirmed elsewhere meanwhile. So when a
neighbour claims to have a bulletin of this site that this process has not made, none of its own is shown to anybody
until the neighbour has shown it. If it is another process's, what this one has released alone stays withheld.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fedbandit.agent.core.board import Version
from fedbandit.agent.core.bulletin import MAX_TIME, NOWHERE, ArmEntry, Bulletin, Place
from fedbandit.agent.core.evaluator import evaluation_renewed
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.player import taken_back
from fedbandit.agent.core.records import Forgotten, Known, Numbering, Record, Refused, Released, Renewed, Stored
from fedbandit.checks import InvalidArgument
from fedbandit.policies.plain import NO_ARM

HISTORY = 1000
"""Own bulletins that a process remembers to have made. A neighbour that names an older one is asked to show it."""


class FileIsOld(Refused):
    """Refused: the file is proven to be old, and confirming it would release rewards a second time."""


class FileIsCurrent(Refused):
    """Refused: nothing says that the file is old."""


@dataclass(frozen=True)
class Doubt:
    """Why nothing is released now.

    * ``unconfirmed``: not every neighbour has answered since the start, or since a pause
    * ``old``: a bulletin of this site shows what its file does not know
    * ``split-brain``: another process of this name has spoken since this one started

    ``by`` is the neighbour that has shown it; ``proof`` says in words what. Where a process was sure until a neighbour
    claimed to have what it has not made, ``unconfirmed`` is by that neighbour.
    """

    why: Literal["unconfirmed", "old", "split-brain"]
    by: str = ""
    proof: str = ""


_RANK = {"unconfirmed": 0, "split-brain": 1, "old": 2}


@dataclass(frozen=True)
class Mark:
    """How far a file was: its identity, the process that opened it last, and its commits.

    A witness holds that of a process that may release, after its last commit, where a disk that is put back cannot
    carry it: in memory that lives as long as the machine runs. The process behind a mark has sent nothing that is not
    in the file's first ``commits`` commits.
    """

    identity: bytes
    run: int
    commits: int

    def vouches_for(self, file: "Mark") -> bool:
        """Whether a file holds all that was sent from it.

        It may be ahead: the process died after a commit, before it had told its witness, or anybody else. Another
        process has opened it if its run differs: it may be ahead, and lack what was sent all the same.
        """
        return (file.identity, file.run) == (self.identity, self.run) and file.commits >= self.commits


class Presence:
    """What a process knows of itself. ``run`` is a random number; 0: nobody asks, as in a simulation without faults."""

    def __init__(self, run: int = 0, is_vouched: bool = False) -> None:
        """A process that starts; ``is_vouched``: a witness knows its file as the latest."""
        self.run, self.is_vouched = run, is_vouched
        self.doubt: Doubt | None = Doubt("unconfirmed") if run else None
        self.first: int | None = None
        """Decisions up to this number may be in another process's file, too, and released by it."""
        self.opened = NOWHERE
        """The newest own place in the file when this process opened it."""
        self.highest = NOWHERE
        """The highest own place that is known here, whoever made it."""
        self.answers = NOWHERE
        """The operator answers for all own conflicts up to this place."""
        self._incarnation = 0  # of this file's bulletins
        self.drawn_twice: dict[str, str] = {}
        """What shows that this process has drawn again what a neighbour had seen, by neighbour."""
        self._runs = {run}
        self._is_fresh = True  # it has been in doubt since its start
        self._before: tuple[int, Doubt | None] = 0, None  # the last new incarnation, and the doubt that it ended
        self._has_spoken = False
        self._answered: set[str] = set()
        self._was_answered = False  # by anybody, since it started
        self._confirmed_by: set[str] = set()
        self._claimed: dict[str, bytes] = {}  # which own bulletin a neighbour has, if it is yet to be seen here
        self._disbelieved: set[str] = set()  # the operator has confirmed this process against their claims
        self._made: dict[Place, bytes] = {}  # the latest of this process, oldest first
        self.rival: Bulletin | None = None
        """The newest bulletin of another process, while it holds this one."""
        self._in_doubt: set[bytes] = set()  # digests of what this process has made while it was in doubt
        self._opened_releases: Mapping[str, int] = {}

    def begin(self, stored: Stored, own: Bulletin | None, releases: Mapping[str, int], has_conflict: bool) -> None:
        """Look at the file when it is opened first; the process remembers the rest when it has to open it again.

        ``own``: the newest own bulletin in it; ``releases``: of each arm; ``has_conflict``: two have one place.
        """
        if own is not None:
            self.answers, self.highest = max(self.answers, own.answers), max(self.highest, own.place)
        if self.first is not None:
            incarnation, doubt = self._before
            if stored.numbering.incarnation < incarnation:  # a new incarnation that could not be written has not begun
                self.doubt, self._before = doubt, (0, None)
            return
        self.first, self._has_spoken = stored.numbering.decisions, any(stored.neighbours.values())
        self._open(stored.numbering.incarnation, releases)
        doubtful = stored.doubtful
        if doubtful is not None:
            self._in_doubt.add(doubtful.signed.digest)
        if self.run and doubtful is not None and doubtful.doubt == "old":
            self.doubt = Doubt("old", "its file", "an earlier process has found that")
        elif self.run and (has_conflict or (doubtful is not None and doubtful.doubt == "split-brain")):
            self.doubt = Doubt("split-brain", "its file")
        elif self.first == 0 or self.is_vouched:  # nothing in it can have been released; or all of it is there
            self._trust()

    def _open(self, incarnation: int, releases: Mapping[str, int]) -> None:
        self.opened, self._opened_releases = max(self.highest, (incarnation, 0)), dict(releases)
        self.highest, self._incarnation = self.opened, self.opened[0]

    def _trust(self) -> None:
        self.doubt, self._is_fresh, self.rival = None, False, None
        self._in_doubt.clear()

    # ---------------------------------------------------------------- what this site shows

    @property
    def next_place(self) -> Place:
        """Of the next own bulletin: above all that are known; what another file has said is another incarnation."""
        incarnation, number = self.highest
        is_own = incarnation == self._incarnation and number < MAX_TIME  # whoever has the key may have signed the last
        return (incarnation, number + 1) if is_own else (incarnation + 1, 1)

    def made(self, place: Place, digest: bytes) -> None:
        """This process has made a bulletin."""
        self.highest, self._incarnation = max(self.highest, place), place[0]
        self._made[place] = digest
        if len(self._made) > HISTORY:
            del self._made[next(iter(self._made))]
        if self.doubt is not None:
            self._in_doubt.add(digest)

    def asks(self, neighbour: str) -> bool:
        """Whether a neighbour has yet to show which bulletin of this site it holds: it is not told which is here."""
        return neighbour not in self._answered

    @property
    def is_challenged(self) -> bool:
        """Whether it was sure, and waits for a neighbour to show what it claims to have."""
        return self.doubt is not None and self.doubt.why == "unconfirmed" and bool(self.doubt.by)

    def is_withheld(self, own: Bulletin, digest: bytes, neighbours: Collection[str]) -> bool:
        """Whether an own bulletin is shown to nobody yet.

        In doubt it would only repeat what the file says, and whoever passes it on would seem to know it. A new file
        first takes back what neighbours have of this site, which its first bulletin would replace. And where another
        process may have released the same rewards, or has, only rows that others know are shown: with them, two
        bulletins with one number still are a proof.
        """
        if self.run == 0:
            return False
        if self.is_challenged:
            return own.run in self._runs
        if self.rival is not None and own.run in self._runs:
            known = self.rival.by_arm
            if own.evaluation.releases and own.evaluation != self.rival.evaluation:
                return True
            return any(
                it.releases
                and (it.name not in known or (it.releases, it.row) != (known[it.name].releases, known[it.name].row))
                for it in own.arms
            )
        if digest in self._in_doubt:
            return False
        return (self.is_new and bool(neighbours)) or (self.doubt is not None and self.doubt.why == "unconfirmed")

    # ---------------------------------------------------------------- what neighbours show

    @property
    def is_new(self) -> bool:
        """Whether no neighbour has ever shown what it has of this site."""
        return not self._has_spoken and not self._was_answered

    def receive_have(self, by: str, version: Version | None, is_known: bool) -> None:
        """A neighbour says what it has of this site. ``is_known``: that bulletin is here.

        If it is not, the neighbour sends it, since it was not told what is here.
        """
        is_mine = version is not None and self._made.get(version.place) == version.digest
        if version is None:
            self._answered.add(by)
            self._was_answered = True
        elif is_known or is_mine:
            self._answer(by, version.digest)
        else:
            self._claimed[by] = version.digest
            self._challenge(by, version.place)
            return
        self._claimed.pop(by, None)

    def _challenge(self, by: str, place: Place) -> None:
        """A process that is sure hears of a bulletin that it has not made since it opened its file."""
        is_lost = self.first == 0 and self.is_new
        is_sure = self.run != 0 and (self.doubt is None or self.is_challenged)
        if is_sure and not is_lost and by not in self._disbelieved and place > max(self.opened, self.answers):
            self.doubt = self.doubt or Doubt("unconfirmed", by)
            self._answered.discard(by)

    def _answer(self, by: str, digest: bytes) -> None:
        self._answered.add(by)
        self._was_answered = True
        if digest not in self._in_doubt:
            self._confirmed_by.add(by)

    def receive_own(self, it: Bulletin, digest: bytes, by: str, releases: Mapping[str, int], decided: int) -> bool:
        """Take in an own bulletin that came from a neighbour; whether it is of an earlier file of this site.

        ``releases`` are those of this site now, by arm; ``decided`` is its last decision.
        """
        mine, self.highest = self.highest, max(self.highest, it.place)
        is_lost = self.first == 0 and self.is_new  # also if its clock was ahead
        if is_lost:
            self.opened = max(self.opened, it.place)
        elif it.place > max(self.opened, self.answers) and not (it.run in self._runs and it.place <= mine):
            self._examine(it, by, mine, releases, decided)
        for name in [name for name, claimed in self._claimed.items() if claimed == digest]:
            del self._claimed[name]
            self._answer(name, digest)
        return is_lost or it.incarnation < self.opened[0]

    def _examine(self, it: Bulletin, by: str, mine: Place, releases: Mapping[str, int], decided: int) -> None:
        """Another process has made a bulletin, or this one at a time that it does not know, as a restored machine.

        If the other has opened a file of this process's time, or of its start, both may hold the same decisions.
        """
        if it.run not in self._runs or it.place > mine:
            self.rival = it if self.rival is None else max(self.rival, it, key=lambda known: known.place)
        knows_this = self.opened < it.opened <= mine
        known = releases if knows_this else self._opened_releases
        lacking = [name for name, count in it.releases.items() if count > known.get(name, 0)]
        again = [name for name in lacking if not knows_this and releases.get(name, 0) > known.get(name, 0)]
        if again:
            name, before, now = again[0], known.get(again[0], 0), releases[again[0]]
            self.drawn_twice[by] = (
                f"{by} has seen {it.releases[name]} releases of {_of(name)} of this data folder, which had {before} "
                f"when it was opened and has {now} now"
            )
        is_unsure = self._is_fresh and self.doubt is not None and self.doubt.why == "unconfirmed"
        if is_unsure or lacking or it.run in self._runs:
            found = Doubt("old", by, _proof(it, self.opened, lacking, known, by))
        else:
            found = Doubt("split-brain", by)
        self.doubt_that(found, self.opened <= it.opened <= mine, decided)

    def doubt_that(self, found: Doubt, may_hold: bool, decided: int) -> None:
        """Something speaks against this process; the first time, decisions so far may be another's, too."""
        is_first = self.doubt is None or self.doubt.why == "unconfirmed"
        if is_first and (may_hold or not self._is_fresh):
            self.first = decided
        if self.doubt is None or _RANK[found.why] > _RANK[self.doubt.why]:
            self.doubt = found

    def forget(self, neighbour: str) -> None:
        """There is no link with it any more."""
        for known in (self._answered, self._confirmed_by):
            known.discard(neighbour)
        self._claimed.pop(neighbour, None)
        self._disbelieved.discard(neighbour)

    def is_waiting(self, neighbours: Collection[str]) -> Literal["for one", "for some", "for none", "no"]:
        """For whom a process waits before it releases: nobody knows its file, not all, or all have answered; or not."""
        if self.doubt is None or self.doubt.why != "unconfirmed":
            return "no"
        if self.waits_for(neighbours):
            return "for some"
        return "for none" if self.is_challenged or self._confirmed_by or not self._has_spoken else "for one"

    def waits_for(self, neighbours: Collection[str]) -> tuple[str, ...]:
        """The neighbours that have not answered a process which waits."""
        if self.doubt is None or self.doubt.why != "unconfirmed":
            return ()
        if self.is_challenged:
            return tuple(name for name in neighbours if name in self._claimed and name not in self._answered)
        return tuple(name for name in neighbours if name not in self._answered)

    def go_on(self, neighbours: Collection[str]) -> bool:
        """Every neighbour has answered, and the driver has waited for another process to speak; whether it goes on."""
        if self.is_waiting(neighbours) != "for none":
            return False
        self._trust()
        return True

    def dismiss_claims(self) -> bool:
        """The driver has waited for what neighbours claim to have: whoever has not shown it is not believed.

        An honest neighbour shows it within a round trip; without this, one that lies could silence a site for ever.
        Whether a process that was sure goes on.
        """
        if not self.is_challenged:
            return False
        self._disbelieved |= self._claimed.keys()
        self._trust()
        return True

    def pause(self, run: int) -> None:
        """The process has stood still: another may have been started with its file meanwhile. It asks again."""
        if self.run and (self.doubt is None or self.is_challenged):
            self._rename(run)
            self.doubt = Doubt("unconfirmed")
            for known in (self._answered, self._confirmed_by, self._claimed):
                known.clear()

    # ---------------------------------------------------------------- the operator

    def confirm(self, run: int, has_conflict: bool) -> None:
        """The operator says: this process lives, its file is the latest. It goes on as another run."""
        if self.doubt is None and not has_conflict:
            return
        if self.doubt is not None and self.doubt.why == "old":
            raise FileIsOld(
                f"the file is old: {self.doubt.proof}. 'fedbandit restore' begins a new incarnation with it"
            )
        if has_conflict or (self.doubt is not None and self.doubt.why == "split-brain"):
            self.answers = self.highest
        self._disbelieved |= self._claimed.keys()
        self._rename(run)
        self._trust()

    def check_restore(self) -> None:
        """Refuse to begin a new incarnation with a file that is known to be current."""
        if self.run and self.doubt is None:
            raise FileIsCurrent("the file is current: there is nothing to restore")

    def renewed(self, run: int, incarnation: int, releases: Mapping[str, int]) -> None:
        """A new incarnation has begun: all that it can release was collected by this process."""
        self._before, self.answers = (incarnation, self.doubt), self.highest
        self._rename(run)
        self._open(incarnation, releases)
        self._trust()

    def _rename(self, run: int) -> None:
        if run in self._runs:
            raise InvalidArgument("run", run, "a number that was not used before")
        self.run = run
        self._runs.add(run)

    # ---------------------------------------------------------------- warnings

    def warnings(self, doubt: Doubt | None, waits_for: Sequence[str]) -> Iterator[str]:
        """Why nothing is released here, and what may have been released twice; ``doubt`` as the site has it."""
        match doubt:
            case Doubt("unconfirmed"):
                whom = f"It waits for {', '.join(waits_for)}." if waits_for else "They are being asked."
                claim = [name for name in waits_for if name in self._claimed]
                if claim:
                    whom += (
                        f" {', '.join(claim)} claims to have a bulletin of this site that is not in this folder, and "
                        "has not shown it. If it never does, it is wrong, or lies."
                    )
                yield (
                    f"nothing is released until all neighbours have answered that this data folder is the latest. "
                    f"{whom} That happens by itself. Only if they will not, and no copy of the folder has run since it "
                    "last ran here: 'fedbandit confirm'."
                )
            case Doubt("old", _, proof):
                yield (
                    f"this data folder is old: {proof}. Nothing is released. If another process uses the later one, "
                    "stop this one. If the later one is lost, begin a new incarnation with this one: "
                    "'fedbandit restore'."
                )
            case Doubt("split-brain", by):
                shown = f"{by} has shown a bulletin that this one has not made"
                if by == "its file":
                    shown = "a bulletin in its own file was made by another process"
                yield (
                    f"another process speaks as this site: {shown}. "
                    "Neither releases anything. Stop one of them, then tell the other: 'fedbandit confirm'."
                )
            case _:
                pass
        for name in sorted(self._disbelieved & self._claimed.keys()):
            yield (
                f"{name} claims to have a bulletin of this site, and has never shown it: it is wrong, or lies. What it "
                "claims holds nothing here."
            )
        for shown in self.drawn_twice.values():
            yield (
                f"rewards may have been released twice: {shown}. For those rewards epsilon counts twice. An old copy "
                "of the folder was used."
            )


def _of(name: str) -> str:
    return repr(name) if name else "the evaluation"


def _proof(it: Bulletin, opened: Place, lacking: Sequence[str], known: Mapping[str, int], by: str) -> str:
    """Why a bulletin shows that a file is old, in words."""
    if it.incarnation > opened[0]:
        return f"{by} knows a later incarnation of this site"
    if lacking:
        name = lacking[0]
        return f"{by} knows of {it.releases[name]} releases of {_of(name)}, it has {known.get(name, 0)}"
    return f"{by} has a bulletin of this site from a later time"


def drew_again(before: Bulletin, now: Bulletin) -> str:
    """What of two bulletins of one site shows that rewards may have been released twice, in words; empty: nothing.

    The later is of a process that was started with a file that lacked the earlier one, and has released since.
    """
    if now.run == before.run or not now.opened < before.place < now.place:
        return ""
    for it in now.arms:
        known = before.by_arm.get(it.name)
        if known is not None and known.releases > 0 and (known.releases, known.row) != (it.releases, it.row):
            return (
                f"it was started with a data folder that lacked what it had released of {it.name!r}, and has released "
                "since"
            )
    return ""


# ---------------------------------------------------------------- a new incarnation with an old file


@dataclass(frozen=True)
class Restored:
    """What a new incarnation has dropped.

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


def records_of_new_incarnation(
    stored: Stored, terms: Federation, names: Sequence[str], incarnation: int, first: int, own: Bulletin | None
) -> tuple[tuple[Record, ...], Restored]:
    """The records that begin it, and what they drop; decisions up to the number ``first`` are not this process's.

    ``own``: the newest own bulletin. Where it knows more releases than the file, they are the site's.
    """
    told: Mapping[str, ArmEntry] = {} if own is None else own.by_arm
    unplayed = [it for it in stored.decisions.values() if it.is_open]
    doubtful = [it for it in unplayed if it.number <= first]
    known = dict(_known_by_releases(stored, terms))
    collected = sum(fields["n"] for arm, fields in stored.known.items() if arm != NO_ARM)
    dropped = collected - sum(fields["n"] for arm, fields in known.items() if arm != NO_ARM)
    later = {
        name: told[name]
        for k, name in enumerate(names)
        if name in told and told[name].releases >= known.get(k, {}).get("releases", 1)
    }
    rest = {
        k: fields for k, fields in known.items() if k == NO_ARM or names[k] not in later or not terms.page.take_back
    }
    file = Stored(stored.numbering, known=rest)
    records: list[Record] = [
        Renewed(),
        Numbering(incarnation, stored.numbering.decisions),
        *(Forgotten(it.id) for it in doubtful),
        *(Known(arm, fields) for arm, fields in rest.items()),
        *(Released(arm, level, last) for (arm, level), last in stored.released.items() if arm in rest),
        *taken_back(terms, names, file, later, frozenset(later)),
        *evaluation_renewed(stored, terms, first, None if own is None else own.evaluation),
    ]
    rewarded = sum(it.reward is not None for it in doubtful)
    kept = len(unplayed) - len(doubtful)
    return tuple(records), Restored(dropped + rewarded, len(doubtful) - rewarded, kept)


def _nothing_open(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Sums of rewards that are in no release are dropped; with strata those of each cell."""
    if "marks" in fields:
        return {"cells": fields["marks"], "totals": [0] * len(fields["marks"])}
    return {"total": 0}


def _known_by_releases(stored: Stored, terms: Federation) -> Iterator[tuple[int, dict[str, Any]]]:
    """What the page knows by what was released alone.

    FedBatch: all but the open batch. A tree's later intervals would hold rewards of earlier ones again, and what pages
    of other authors keep is not known here: they begin anew. Where nothing is private, nothing is dropped.
    """
    if terms.page.noise_due is None:
        yield from stored.known.items()
    elif terms.page.take_back is not None:
        for arm, fields in stored.known.items():
            yield arm, fields if arm == NO_ARM else {**fields, "n": fields["released"], **_nothing_open(fields)}
