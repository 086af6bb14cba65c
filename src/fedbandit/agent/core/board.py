"""The newest bulletin of every site: what a site knows of its federation, and all that it computes estimates from.

Of each site a board keeps a few bulletins, chosen by what they say and never by the order in which they came:

* the newest, that with the highest place; and, since a conflict may take the newest away, those before it;
* the proof of a **conflict**, if there is one: two different bulletins with one place. Two processes write as one site,
  or somebody has its key. The lowest place counts, and there the two smallest digests;
* with a conflict, the newest bulletin before it. The site counts with that until its operator has answered: until its
  newest bulletin ``answers`` for the place.
* beside these, the newest that a certificate has signed which is revoked by now: it is dropped, and shown to its own
  site only, which so knows which places are used. The site itself is not refused: another certificate may sign for it.

So ``merge`` is idempotent and commutative, and a place never falls: a join-semilattice. Two boards that have exchanged
what ``newer_than`` gives are equal; with conflicts of which only one knew, after three exchanges at most. What is
computed from equal boards is equal bit for bit: sites are added up in the order of their names, and nothing depends on
a clock (``core.counting``).

A bulletin is verified before it is merged (``gossip.signatures``).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from math import isnan, nan
from types import MappingProxyType
from typing import Literal, NamedTuple

from fedbandit.agent.core.arms import MAX_ADDED, ArmChange, arm_name
from fedbandit.agent.core.bulletin import CENTURY, Bulletin, Place, Signed, decode
from fedbandit.agent.core.counting import ROUNDING, Counting, Row
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.oddities import beyond_rate, cut_shares, oddities_of
from fedbandit.checks import InvalidArgument
from fedbandit.rules.cell_sequences import CellMean
from fedbandit.rules.guardrail import MeanOfReleases
from fedbandit.rules.releases import MEAN, VARIANCE, WEIGHT


@dataclass(frozen=True, slots=True)
class Version:
    """What a site has of another: the place of the newest bulletin, and a digest of all that must be equal."""

    place: Place
    digest: bytes
    conflict: Place | None = None


Have = Mapping[str, Version]
"""What a board has of each site."""


@dataclass(frozen=True)
class Held:
    """A bulletin on the board.

    * ``since``: when it was first seen here, in seconds by the own clock
    * ``rows``: what its entry of each arm counts as, if it does
    """

    bulletin: Bulletin
    signed: Signed
    since: float
    rows: Mapping[str, Row] = field(compare=False, repr=False)

    @property
    def place(self) -> Place:
        """That of the bulletin."""
        return self.bulletin.place


@dataclass(frozen=True)
class Conflict:
    """The proof that two processes, or two holders of a key, write as one site; in the order of their digests."""

    place: Place
    first: Held
    second: Held


class Outcome(NamedTuple):
    """What a bulletin was.

    * ``new``: the newest of its site; ``conflict``: it proves one, or tells more of it. Both are passed on
    * ``known``: already here; ``older``: there is a newer one; ``refused``: its site is
    * ``held``: the bulletin as it was read; None if it is ``refused``, or ``known`` and no longer kept
    """

    kind: Literal["new", "known", "older", "conflict", "refused"]
    site: str
    held: Held | None


class Kept(NamedTuple):
    """A bulletin as it is stored."""

    signed: Signed
    since: float


class BoardRow(NamedTuple):
    """All that a board keeps of one site, as it is stored: at most nine bulletins. Merging them again restores it."""

    site: str
    kept: tuple[Kept, ...]


# ---------------------------------------------------------------- what is kept of one site


class _OfSite(NamedTuple):
    """What a board keeps of one site; ``candidates`` decide on all else."""

    newest: Held
    before: Held | None  # the newest with a lower place
    next: Held | None  # the newest before that: another board sends its newest, then the halves of a conflict
    conflict: Conflict | None
    counting: Held | None  # with which the site counts; None: there is a conflict, and nothing before it is here
    late: Held | None  # the last that was not the newest: the other half of a conflict may follow
    under: Held | None  # the newest before that, which would count then

    def candidates(self) -> Iterator[Held]:
        """In the order in which another board, or this one after a restart, can make use of them.

        The newest says what is answered; the halves of a conflict come one after the other.
        """
        seen = (self.newest, *self.halves, self.counting, self.before, self.next, self.late, self.under)
        yield from {it.signed.digest: it for it in seen if it is not None}.values()

    @property
    def halves(self) -> tuple[Held, ...]:
        return () if self.conflict is None else (self.conflict.first, self.conflict.second)

    @property
    def shared(self) -> tuple[Held, ...]:
        """What another board must have."""
        wanted = {it.signed.digest for it in (self.newest, *self.halves, self.counting) if it is not None}
        return tuple(it for it in self.candidates() if it.signed.digest in wanted)

    @property
    def version(self) -> Version:
        if self.conflict is None:  # nearly always
            return Version(self.newest.place, self.newest.signed.digest)
        digests = sorted(it.signed.digest for it in self.shared)
        return Version(self.newest.place, sha256(b"".join(digests)).digest()[:16], self.conflict.place)


def _chosen(candidates: Iterable[Held], late: Held | None) -> _OfSite:
    """What is kept of these bulletins of one site: a function of the set alone, but for ``late``."""
    by_place: dict[Place, list[Held]] = {}
    for it in candidates:
        by_place.setdefault(it.place, []).append(it)
    for several in by_place.values():
        several.sort(key=lambda it: it.signed.digest)
    places = sorted(by_place, reverse=True)
    newest = by_place[places[0]][0]
    answered = newest.bulletin.answers
    doubtful = [place for place in places if place > answered and len(by_place[place]) > 1]

    def newest_before(it: Held | Conflict | None) -> Held | None:
        return None if it is None else next((by_place[place][0] for place in places if place < it.place), None)

    conflict, counting = None, newest
    if doubtful:
        conflict = Conflict(doubtful[-1], *by_place[doubtful[-1]][:2])
        counting = newest_before(conflict)
    before = newest_before(newest)
    return _OfSite(newest, before, newest_before(before), conflict, counting, late, newest_before(late))


# ---------------------------------------------------------------- the board


_UNSIGNED = Signed(b"", b"", b"")


class Board:
    """The newest bulletins of all sites; pure."""

    def __init__(self, own: str, terms: Federation, rows: Iterable[BoardRow] = ()) -> None:
        """As it is on disk. ``own``: the name of this site, which always counts here."""
        self._own, self._terms = own, terms
        self._draft: Held | None = None
        self._counting = Counting(terms)
        self._most_arms, self._arms_of_terms = terms.num_arms + MAX_ADDED, frozenset(terms.arms)
        self._sites: dict[str, _OfSite] = {}
        self._by_digest: dict[bytes, Held] = {}
        self._versions: dict[str, Version] = {}
        self._excluded: frozenset[str] = frozenset()
        self._refused: frozenset[str] = frozenset()
        self._unsaved: set[str] = set()
        self._counted: tuple[str, ...] | None = None  # until anything changes
        self._rows: dict[str, tuple[list[Row], list[int]]] = {}
        self._odd: dict[str, list[str]] | None = None  # until anything changes
        self._cut: dict[str, tuple[float, float]] | None = None  # until anything changes
        self._first: dict[str, Held] = {}  # what this process has seen first of each site
        self._revoked: frozenset[bytes] = frozenset()
        self._dropped: dict[str, Held] = {}
        self._draws: dict[str, dict[str, dict[int, tuple[int, float | Row]]]] = {}
        self._drawn_twice: dict[str, str] = {}
        for row in rows:
            for kept in row.kept:
                if kept.signed.digest not in self._by_digest:
                    self._merge(self._read(kept.signed, kept.since))
        self._unsaved.clear()

    # ---------------------------------------------------------------- merging

    def knows(self, site: str, place: Place, digest: bytes) -> bool:
        """Whether a bulletin need not be verified: it is here, or its site is refused, or it is the one dropped."""
        if site in self._refused:
            return True
        held, dropped = self._by_digest.get(digest), self._dropped.get(site)
        if dropped is not None and (dropped.signed.digest, dropped.place) == (digest, place):
            return True
        return held is not None and held.bulletin.site == site and held.place == place

    def merge(self, signed: Signed, now: float) -> Outcome:
        """Take in a bulletin whose signature was verified; refuses one that no site of this federation writes."""
        known = self._by_digest.get(signed.digest)
        if known is not None and known.bulletin.site not in self._refused:
            return Outcome("known", known.bulletin.site, known)
        try:
            held = self._read(signed, now)
        except InvalidArgument:
            raise
        except Exception as error:  # nothing has changed yet: no body may cost the site what it has in memory
            accepted = f"one that this version can read ({type(error).__name__})"
            raise InvalidArgument("bulletin", f"{len(signed.body)} bytes", accepted) from error
        site = held.bulletin.site
        if held.bulletin.incarnation > 1000.0 * now + CENTURY:
            accepted = "at most 100 years ahead: no clock is so wrong"
            raise InvalidArgument("incarnation", held.bulletin.incarnation, accepted)
        if site in self._refused or self._is_revoked(held):
            return Outcome("refused", site, None)
        return self._merge(held)

    def _read(self, signed: Signed, since: float) -> Held:
        bulletin = decode(signed.body, self._terms.num_columns, self._terms.num_strata)
        if bulletin.federation != self._terms.digest():
            raise InvalidArgument("federation", bulletin.federation, "the hash of the terms of this site")
        if len(bulletin.arms) > self._most_arms:
            raise InvalidArgument("arms", f"{len(bulletin.arms)} arms", f"at most {self._most_arms}")
        for entry in bulletin.arms:
            if entry.name not in self._arms_of_terms:
                arm_name(entry.name)
        if self._terms.num_levels <= max((it.strata[-1] for it in bulletin.changes if it.strata), default=-1):
            raise InvalidArgument(
                "changes.strata", "others", f"strata of the terms, which have {self._terms.num_levels}"
            )
        rows = 0 if self._terms.evaluation is None else self._terms.evaluation.num_rows
        if len(bulletin.evaluation.rows) != rows:
            raise InvalidArgument("evaluation", f"{len(bulletin.evaluation.rows)} rows", f"{rows}, as the terms say")
        return Held(bulletin, signed, since, self._counting.rows(bulletin.arms))

    def _merge(self, held: Held) -> Outcome:
        site, mine = held.bulletin.site, self._sites.get(held.bulletin.site)
        if mine is None:
            found = _OfSite(held, None, None, None, held, None, None)
        else:
            is_late = held.place < mine.newest.place
            found = _chosen((*mine.candidates(), held), held if is_late else mine.late)
        self._look_for_second_draws(held, found)
        self._keep(site, found)
        self._unsaved.add(site)
        version = found.version
        if mine is not None and version == self._versions[site]:
            return Outcome("older", site, held)
        self._versions[site] = version
        self._first.setdefault(site, held)
        self._recount()
        old_halves = () if mine is None else mine.halves
        is_new = found.newest is held and (found.conflict is None or found.halves == old_halves)
        return Outcome("new" if is_new else "conflict", site, held)

    def _keep(self, site: str, found: _OfSite | None) -> None:
        """This is what the board has of a site from now on."""
        before = self._sites.pop(site, None)
        for it in () if before is None else before.candidates():
            self._by_digest.pop(it.signed.digest, None)
        if found is not None:
            self._by_digest.update((it.signed.digest, it) for it in found.candidates())
            self._sites[site] = found

    # ---------------------------------------------------------------- what is held

    @property
    def sites(self) -> tuple[str, ...]:
        """All of which there is a bulletin, by name."""
        return tuple(sorted(self._sites))

    def held(self, site: str) -> Held | None:
        """The newest bulletin of a site, whether it counts or not."""
        mine = self._sites.get(site)
        return None if mine is None else mine.newest

    def counting(self, site: str) -> Held | None:
        """The bulletin with which a site counts, if it is not excluded: with a conflict, the last one before it."""
        if site == self._own and self._draft is not None:
            return self._draft
        mine = self._sites.get(site)
        return None if mine is None else mine.counting

    def draft(self, bulletin: Bulletin | None) -> None:
        """What this site's next bulletin will say counts here at once; nobody else has it. None: it is published."""
        if bulletin is not None or self._draft is not None:
            self._draft = bulletin and Held(bulletin, _UNSIGNED, 0.0, self._counting.rows(bulletin.arms))
            self._recount()

    @property
    def conflicts(self) -> Mapping[str, Conflict]:
        """Of each site with one, by name."""
        return {name: it for name in self.sites if (it := self._sites[name].conflict) is not None}

    def have(self) -> Have:
        """What this board has of each site; a view, which changes with it."""
        return MappingProxyType(self._versions)

    def newer_than(self, have: Have) -> list[Signed]:
        """What the holder of another board lacks, in the order in which it is to be sent."""
        missing: list[Signed] = []
        for site, version in self._versions.items():
            theirs = have.get(site)
            if theirs != version and site not in self._refused:
                missing += self._lacking(self._sites[site], theirs)
        return missing

    def kept(self, site: str) -> list[Signed]:
        """All that is kept of a site, earlier and dropped bulletins among it: for that site, if it has lost its file.

        It learns from them which places are used.
        """
        return [] if site in self._refused else [it.signed for it in self._all_of(site)]

    def version_for(self, site: str) -> Version | None:
        """What is here of a site, as that site is told: a dropped bulletin, too, if it is the newest."""
        dropped, version = self._dropped.get(site), self._versions.get(site)
        if dropped is None or (version is not None and version.place >= dropped.place):
            return version
        return Version(dropped.place, dropped.signed.digest)

    def _all_of(self, site: str) -> Iterator[Held]:
        if site in self._sites:
            yield from self._sites[site].candidates()
        if site in self._dropped:
            yield self._dropped[site]

    def _kept_and_dropped(self, site: str) -> tuple[list[Signed], Signed | None]:
        kept = [it.signed for it in self._sites[site].candidates()] if site in self._sites else []
        return kept, self._dropped[site].signed if site in self._dropped else None

    def to_send(self, site: str) -> list[Signed]:
        """All that another board must have of a site, in the order in which it is to be sent."""
        return [] if site in self._refused or site not in self._sites else self._lacking(self._sites[site], None)

    @staticmethod
    def _lacking(mine: _OfSite, theirs: Version | None) -> list[Signed]:
        """Where there is a conflict, or will be, all that may count with it."""
        if theirs is None:
            return [it.signed for it in mine.shared]
        if mine.conflict is not None or theirs.conflict is not None or theirs.place == mine.newest.place:
            return [it.signed for it in mine.candidates()]
        return [mine.newest.signed] if mine.newest.place > theirs.place else []

    # ---------------------------------------------------------------- who counts

    def exclude(self, names: Collection[str]) -> None:
        """These do not count here. Their bulletins are kept and passed on."""
        self._excluded = self._without_own("exclude", names)
        self._recount()

    def refuse(self, names: Collection[str]) -> None:
        """These do not count here; their bulletins are neither taken nor passed on."""
        self._refused = self._without_own("refuse", names)
        self._recount()

    @property
    def signers(self) -> frozenset[bytes]:
        """By whom others' bulletins are signed that are here, dropped ones among them."""
        of_all = (it for site in {*self._sites, *self._dropped} if site != self._own for it in self._all_of(site))
        return frozenset(it.signed.signer for it in of_all)

    def revoke(self, signers: Collection[bytes]) -> None:
        """What these have signed counts no more, and is not passed on; a bulletin of the same site by another is read.

        Of each site the newest of them is kept, for the site itself (``kept``), and counts again if it is revoked no
        more. Own bulletins stay: which places are used is a matter of the release guard.
        """
        self._revoked = frozenset(signers) - {b""}
        for site in sorted({*self._sites, *self._dropped} - {self._own}):
            before, mine = list(self._all_of(site)), self._sites.get(site)
            was = self._kept_and_dropped(site)
            bad = [it for it in before if self._is_revoked(it)]
            if not bad and site not in self._dropped:
                continue  # nearly always
            good = [it for it in before if not self._is_revoked(it)]
            late = None if mine is None or mine.late not in good else mine.late
            self._keep(site, _chosen(good, late) if good else None)
            self._dropped.pop(site, None)
            if bad:
                self._dropped[site] = max(bad, key=lambda it: (it.place, it.signed.digest))
            if was == self._kept_and_dropped(site):
                continue
            self._versions.pop(site, None)
            if good:
                self._versions[site] = self._sites[site].version
            for known in (self._first, self._draws, self._drawn_twice):  # whose words were they?
                known.pop(site, None)
            self._unsaved.add(site)
        self._recount()

    @property
    def dropped(self) -> Mapping[str, Held]:
        """The newest bulletin of each site that a revoked certificate has signed; it does not count."""
        return MappingProxyType(self._dropped)

    def _is_revoked(self, held: Held) -> bool:
        return held.signed.signer in self._revoked and held.bulletin.site != self._own

    def _without_own(self, what: str, names: Collection[str]) -> frozenset[str]:
        if self._own in names:
            raise InvalidArgument(what, self._own, "other sites than this one")
        return frozenset(names)

    def _recount(self) -> None:
        self._rows.clear()
        self._counted = self._odd = self._cut = None

    def counted(self) -> tuple[str, ...]:
        """Whose rows count, by name."""
        if self._counted is None:
            out = self._excluded | self._refused
            known = {*self._sites, self._own}
            self._counted = tuple(it for it in sorted(known) if it not in out and self.counting(it) is not None)
        return self._counted

    @property
    def num_agents(self) -> int:
        """N, as far as it is known here; at least this site."""
        return max(len(self.counted()), 1)

    # ---------------------------------------------------------------- what pages see

    def rows(self, arm: str) -> tuple[Sequence[Row], Sequence[int]]:
        """What a page combines: the row of each counted site, in the order of names, and 0 where there is none.

        Values and weights are those that count (``core.counting``), never just what a site says.
        """
        found = self._rows.get(arm)
        if found is None:
            found = self._rows[arm] = self._counting.capped([self._row(name, arm) for name in self.counted()])
        return found

    def _row(self, name: str, arm: str) -> Row | None:
        """What a site's entry of an arm counts as; None: it has none that counts."""
        held = self.counting(name)
        return None if held is None else held.rows.get(arm)

    def released_mean(self, site: str, arm: str) -> MeanOfReleases | None:
        """All that a site has released of an arm; None: nothing that counts."""
        held = self.counting(site)
        entry = None if held is None else held.bulletin.by_arm.get(arm)
        return None if entry is None else self._counting.released(entry)

    def released_in(self, site: str, arm: str, stratum: int) -> CellMean | None:
        """All that a site has released of an arm in a stratum alone; None: nothing that counts."""
        held = self.counting(site)
        entry = None if held is None else held.bulletin.by_arm.get(arm)
        return None if entry is None else self._counting.released_in(entry, stratum)

    def known_share(self, arm: str) -> float:
        """How much of all sites that count, or of their patients, has released an arm; at most 1.

        Sites that have not measured their rate yet count as the mean of the others, as in ``random_effects``.
        """
        rows, versions = self.rows(arm)
        if strata := self._counting.num_strata:
            each = [sum(row[1 : 1 + strata]) for row in rows]
            known = sum(weight for row, weight in zip(rows, each, strict=True) if row[0] > 0.0)
        elif self._counting.has_weights:
            each = [row[WEIGHT] for row in rows]
            known = sum(row[WEIGHT] for row in rows if row[VARIANCE] > 0.0)
        else:
            return sum(map(bool, versions)) / max(len(versions), 1)
        weights = [weight for weight in each if weight > 0.0]
        if not weights:
            return 0.0
        return min(known / sum(weights) * len(weights) / len(rows), 1.0)

    def rests_on(self, arms: Sequence[str]) -> str:
        """The site without which another of these arms would have the highest mean, or one would be unknown; else "".

        Of several the one with the largest share. A site that is the only one rests on itself: that is not named.
        """
        names = self.counted()
        if len(names) < 2 or not self._counting.has_weights:
            return ""
        by_arm = [self.rows(arm)[0] for arm in arms]
        weight = [sum(row[WEIGHT] for row in rows if row[VARIANCE] > 0.0) for rows in by_arm]
        value = [sum(row[WEIGHT] * row[MEAN] for row in rows if row[VARIANCE] > 0.0) for rows in by_arm]
        if min(weight, default=0.0) <= 0.0:
            return ""
        best = max(range(len(arms)), key=lambda k: value[k] / weight[k])
        found: dict[str, float] = {}
        for j, name in enumerate(names):
            without: list[float] = []
            for k, rows in enumerate(by_arm):
                w = rows[j][WEIGHT] if rows[j][VARIANCE] > 0.0 else 0.0
                rest = weight[k] - w
                is_alone = rest <= ROUNDING * weight[k]
                without.append(nan if is_alone else (value[k] - w * rows[j][MEAN]) / rest)
            if any(isnan(x) or x > without[best] for x in without):
                found[name] = max(rows[j][WEIGHT] / total for rows, total in zip(by_arm, weight, strict=True))
        return max(found, key=lambda name: found[name]) if found else ""

    def n_max(self, arms: Sequence[str], most: int) -> tuple[int, ...]:
        """The most decisions for each arm at a site that counts (Algorithm 1, line 5); nobody can have had ``most``."""
        counting = [self.counting(name) for name in self.counted()]
        found = [it.bulletin.by_arm for it in counting if it is not None]
        return tuple(min(max((it[arm].decisions for it in found if arm in it), default=0), most) for arm in arms)

    def decisions(self, arms: Sequence[str]) -> tuple[int, ...]:
        """Decisions for each arm at all other sites that count, as they say."""
        counting = [self.counting(name) for name in self.counted() if name != self._own]
        found = [it.bulletin.by_arm for it in counting if it is not None]
        return tuple(sum(it[arm].patients for it in found if arm in it) for arm in arms)

    def decisions_in(self, arms: Sequence[str], num_strata: int) -> tuple[tuple[int, ...], ...]:
        """The same by stratum."""
        counting = [self.counting(name) for name in self.counted() if name != self._own]
        found = [it.bulletin.by_arm for it in counting if it is not None]
        strata = range(num_strata)
        return tuple(tuple(sum(it[arm].cells[s] for it in found if arm in it) for s in strata) for arm in arms)

    # ---------------------------------------------------------------- who knows what

    def known_changes(self, name: str, site: str) -> tuple[ArmChange, ...]:
        """Which changes of arms of a site another knows, as its newest bulletin says; of its own all."""
        held, maker = self.held(name), self.held(site)
        if held is None or maker is None:
            return ()
        return (
            maker.bulletin.changes if name == site else maker.bulletin.changes_of(held.bulletin.receipts.get(site, ""))
        )

    def has_accepted(self, name: str, change: ArmChange) -> bool:
        """Whether a site has accepted a change of another, as its newest bulletin says; its own it has."""
        held = self.held(name)
        if name == change.by or held is None:
            return change in self.known_changes(name, change.by)
        bits, known = int(held.bulletin.accepted.get(change.by, "0"), 16), self.known_changes(name, change.by)
        return bits > 0 and any(it == change and bits >> k & 1 for k, it in enumerate(known))

    def receipts(self, change: ArmChange) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Who has a change of arms, and who has not said so; its own site and refused ones left out."""
        has: list[str] = []
        lacks: list[str] = []
        for name in self.sites:
            if name != change.by and name not in self._refused:
                (has if change in self.known_changes(name, change.by) else lacks).append(name)
        return tuple(has), tuple(lacks)

    # ---------------------------------------------------------------- what is wrong

    def oddities(self, now: float) -> Mapping[str, tuple[str, ...]]:
        """What of the sites that count does not fit, in words, by name (``core.oddities``)."""
        counting = [it for name in self.counted() if (it := self.counting(name)) is not None]
        if self._odd is None:
            self._odd = oddities_of(self._counting, [(it.bulletin, it.rows) for it in counting])
        found = {name: list(said) for name, said in self._odd.items()}
        for it in counting:
            first = self._first.get(it.bulletin.site, it)
            # The first may be an old one, shown again. Who lies in its times is not named, and counts no more for that.
            made = min(it.bulletin.at / 1000.0, now) - first.bulletin.at / 1000.0
            elapsed = max(now - first.since, made)
            if said := beyond_rate(self._terms, it.bulletin.decisions, first.bulletin.decisions, elapsed):
                found.setdefault(it.bulletin.site, []).append(said)
        for name, said in self._drawn_twice.items():
            found.setdefault(name, []).append(said)
        return {name: tuple(said) for name, said in found.items()}

    def cut_shares(self) -> Mapping[str, tuple[float, float]]:
        """Whose share of all patients is cut by ``largest_share``: what it says, and what it counts as."""
        if self._cut is None:
            counting = [it for name in self.counted() if (it := self.counting(name)) is not None]
            self._cut = cut_shares(self._counting, [(it.bulletin, it.rows) for it in counting])
        return self._cut

    @property
    def drawn_twice(self) -> Mapping[str, str]:
        """Sites of which two genuine bulletins say different things of the same releases, and what, in words."""
        return self._drawn_twice

    def _look_for_second_draws(self, held: Held, found: _OfSite) -> None:
        """Compare with what the site said before: the mean of so many releases never changes.

        Of arms that are in none of its bulletins here nothing is remembered.
        """
        if not self._counting.draws_noise:
            return
        site, incarnation = held.bulletin.site, held.bulletin.incarnation
        said = {entry.name for it in (held, *found.candidates()) for entry in it.bulletin.arms}
        of_arms = self._draws[site] = {name: it for name, it in self._draws.get(site, {}).items() if name in said}
        for entry in held.bulletin.arms:
            mean = self._counting.mean_of(entry)
            if mean is None:
                continue
            draws = of_arms.setdefault(entry.name, {})
            known = draws.get(entry.releases)
            if known is None:
                draws[entry.releases] = incarnation, mean
                if len(draws) > REMEMBERED:
                    del draws[min(draws)]
            elif known[1] != mean and known[0] == incarnation:  # a lost file comes back with what its neighbours had
                self._drawn_twice[site] = (
                    f"{entry.releases} releases of {entry.name!r} at {site} have two different means: noise was drawn "
                    f"twice for the same rewards"
                )

    # ---------------------------------------------------------------- on disk

    def unsaved(self) -> list[BoardRow]:
        """What has changed since it was last written; ``mark_saved`` once it is."""
        return [self._stored(site) for site in sorted(self._unsaved)]

    def stored(self) -> list[BoardRow]:
        """All of it."""
        return [self._stored(site) for site in sorted({*self._sites, *self._dropped})]

    def _stored(self, site: str) -> BoardRow:
        return BoardRow(site, tuple(Kept(it.signed, it.since) for it in self._all_of(site)))

    def mark_saved(self, rows: Iterable[BoardRow]) -> None:
        """These are on disk, as they were."""
        self._unsaved -= {row.site for row in rows if self._stored(row.site) == row}


REMEMBERED = 4
"""Numbers of releases of an arm whose means are remembered, to tell when one is drawn again."""
