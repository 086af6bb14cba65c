"""The decisions of a site: what an application may ask, which arm it gets, when a reward counts, what is forgotten.

Requests are recognised by keys and subjects, which are stored as keyed hashes, with the key of the site's file: nobody
without the file can tell what they were, or compare those of two sites.
"""

import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from random import Random  # noqa: TID251  # an argument's type
from typing import Any, Literal, NamedTuple, TypeVar

from fedbandit.agent.core.arms import Arms, in_words_of_stops
from fedbandit.agent.core.evaluator import Evaluator
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.player import Player
from fedbandit.agent.core.records import (
    DecisionCancelled,
    DecisionNotFound,
    DecisionRecord,
    Forgotten,
    HorizonReached,
    Kept,
    KeyTaken,
    NoArmLeft,
    Numbering,
    Record,
    Refused,
    Rewarded,
    SiteTimes,
    Step,
    StoppedMeanwhile,
    Stored,
    WindowOver,
)
from fedbandit.checks import InvalidArgument, finite_number, whole_number
from fedbandit.policies import FedBatch
from fedbandit.policies.plain import widen
from fedbandit.policies.registry import WrongPage, is_built_in, kind_of
from fedbandit.rules import urn
from fedbandit.rules.choose import (
    BY_INDEX,
    CONTROL,
    floor_of_others,
    given_by_share,
    shared_chance,
    sum_of_floors,
)

MAX_DECISIONS = 1000
"""The most decisions of one request."""

MAX_TEXT = 200
"""The most characters of a key or a subject."""

_KEY_SIZE, _REQUEST_SIZE, _SUBJECT_SIZE = 12, 4, 16  # bytes


@dataclass(frozen=True, slots=True)
class Request:
    """What an application asks for.

    * ``eligible``: numbers of the arms that may be given; None: all. ``exclude``: those that may not
    * ``key``: the same key gets the same decisions again
    * ``subject``: the same subject gets the same arm again
    * ``count``: so many decisions
    * ``context``: what is known of the patient, by factor
    """

    eligible: tuple[int, ...] | None = None
    key: str | None = None
    subject: str | None = None
    count: int = 1
    exclude: tuple[int, ...] = ()
    context: Mapping[str, str | None] | None = None

    def __post_init__(self) -> None:
        """Check the fields; arms are sorted, so that equal requests are equal."""
        whole_number("count", self.count, 1, MAX_DECISIONS)
        for name in ("key", "subject"):
            text = getattr(self, name)
            if text is not None and not (isinstance(text, str) and 0 < len(text) <= MAX_TEXT and text.isprintable()):
                raise InvalidArgument(name, text, f"1 to {MAX_TEXT} printable characters")
        if self.eligible is not None:
            if self.exclude:
                raise InvalidArgument("exclude", self.exclude, "left out where eligible is given")
            object.__setattr__(self, "eligible", tuple(sorted(set(self.eligible))))
        object.__setattr__(self, "exclude", tuple(sorted(set(self.exclude))))

    def arms(self, num_arms: int, stopped: frozenset[int]) -> tuple[int, ...] | None:
        """The arms that may be given, of those that there are; None: all of them."""
        if self.eligible is None and not self.exclude and not stopped:
            return None
        for name, given in (("eligible", self.eligible or ()), ("exclude", self.exclude)):
            for arm in given:
                whole_number(name, arm, 0, num_arms - 1)
        asked = range(num_arms) if self.eligible is None else self.eligible
        return tuple(k for k in asked if k not in self.exclude and k not in stopped)


ANY = Request()
"""One decision for any arm."""


def key_tag(secret: bytes, request: Request, stratum: int | None = None) -> bytes:
    """What is stored of a request's key: a hash of the key, then one of all else that it asks for."""
    asked = request.eligible, request.exclude, request.subject, request.count
    rest = repr(asked if stratum is None else (*asked, stratum)).encode()
    return _hash(secret, b"key", (request.key or "").encode(), _KEY_SIZE) + _hash(
        secret, b"request", rest, _REQUEST_SIZE
    )


def subject_tag(secret: bytes, subject: str) -> bytes:
    """What is stored of a subject."""
    return _hash(secret, b"subject", subject.encode(), _SUBJECT_SIZE)


def _hash(secret: bytes, person: bytes, text: bytes, size: int) -> bytes:
    return blake2b(text, digest_size=size, key=secret, person=person).digest()


def as_bits(arms: Iterable[int]) -> bytes:
    """A set of arms, a bit for each."""
    bits = sum(1 << arm for arm in arms)
    return bits.to_bytes(max(-(-bits.bit_length() // 8), 1), "little")


def arms_in(bits: bytes) -> list[int]:
    """The arms of such a set, in order."""
    number = int.from_bytes(bits, "little")
    return [k for k in range(number.bit_length()) if number >> k & 1]


class RequestIndex:
    """Finds decisions that are remembered by their key, and the newest one of a subject."""

    def __init__(self, decisions: Iterable[DecisionRecord]) -> None:
        """For these decisions, oldest first."""
        self._keys: dict[bytes, str | tuple[str, ...]] = {}  # nearly every key has one decision: no tuple for that
        self._subjects: dict[bytes, str] = {}
        for decision in decisions:
            self.add(decision)

    def add(self, decision: DecisionRecord) -> None:
        """A decision was handed out."""
        if decision.key:
            key = decision.key[:_KEY_SIZE]
            before = self.with_key(key)
            self._keys[key] = (*before, decision.id) if before else decision.id
        if decision.subject:
            self._subjects[decision.subject] = decision.id

    def drop(self, decision: DecisionRecord) -> None:
        """A decision was forgotten."""
        if decision.key:
            key = decision.key[:_KEY_SIZE]
            left = tuple(name for name in self.with_key(key) if name != decision.id)
            self._keys.pop(key, None)
            if left:
                self._keys[key] = left
        if decision.subject and self._subjects.get(decision.subject) == decision.id:
            del self._subjects[decision.subject]

    def with_key(self, tag: bytes) -> tuple[str, ...]:
        """The ids of the decisions that were handed out for a key, in order; of whatever request."""
        found = self._keys.get(tag[:_KEY_SIZE], ())
        return (found,) if isinstance(found, str) else found

    def newest_of(self, subject: bytes) -> str | None:
        """The id of the newest decision of a subject."""
        return self._subjects.get(subject)


# ---------------------------------------------------------------- ids


KEY_SIZE = 32
"""Bytes of the key in a site's file; the disk draws it when the file is made."""


def decision_id(key: bytes, run: int, incarnation: int, number: int, at: float) -> str:
    """The number of the decision, and 128 bits that follow from the key alone: nobody can guess them.

    Whoever knows an id was handed the decision, or was given it by the one who was: only they can report its reward.
    The run is in them: a process that starts with an old file, or a copy, hands out other ids for the same numbers.
    """
    tag = blake2b(struct.pack("<qqqd", run, incarnation, number, at), digest_size=16, key=key, person=b"decision")
    return f"{number}-{tag.hexdigest()}"


# ---------------------------------------------------------------- slots


@dataclass(frozen=True)
class HeldUp:
    """Rewards of an arm that wait for that of an earlier decision."""

    arm: int
    rewards: int
    by: DecisionRecord


class Slots:
    """The slots of each arm that have not been played, in order; ``decisions`` is the site's own table.

    An arm's rewards count in the order of its decisions, whatever came when: a decision takes its slot when it is
    handed out. With a reward window a slot is due when its window is over, by the clock alone: so neither the contents
    nor the times of releases depend on when a reward came. Without one it is due once its reward is there. Either way
    it waits for the slots before it.
    """

    def __init__(self, terms: Federation, decisions: Mapping[str, DecisionRecord], num_arms: int | None = None) -> None:
        """As the journal knows them; ``num_arms``: how many there are now, if not those of the terms."""
        self._window, self._decisions = terms.reward_window, decisions
        self._open: list[deque[str]] = []
        self.grow(terms.num_arms if num_arms is None else num_arms)
        for decision in decisions.values():
            if decision.is_open:
                self.add(decision)

    def grow(self, num_arms: int) -> None:
        """There are so many arms now."""
        self._open += [deque() for _ in range(num_arms - len(self._open))]

    def add(self, decision: DecisionRecord) -> None:
        """Give the next slot of its arm to a decision."""
        self._open[decision.arm].append(decision.id)

    def remove(self, decision: DecisionRecord) -> None:
        """Take the slot of a cancelled decision out: those behind it move up."""
        self._open[decision.arm].remove(decision.id)

    def is_over(self, decision: DecisionRecord, now: float) -> bool:
        """Whether a reward that comes now is too late."""
        return 0.0 < self._window <= now - decision.at

    def is_due(self, now: float) -> bool:
        """Whether any slot can be played."""
        return any(slots and self._is_ready(self._decisions[slots[0]], now) for slots in self._open)

    def is_next(self, decision: DecisionRecord) -> bool:
        """Whether all earlier slots of its arm have been played, and this one has not."""
        slots = self._open[decision.arm]
        return bool(slots) and slots[0] == decision.id

    def take(self, arm: int) -> DecisionRecord:
        """The next slot of an arm, which is now played."""
        return self._decisions[self._open[arm].popleft()]

    def take_due(self, now: float, most: int) -> list[DecisionRecord]:
        """Slots that are due, oldest first in each arm, at most so many: they are now played."""
        due: list[DecisionRecord] = []
        for arm in range(len(self._open)):
            while len(due) < most and self._is_due(arm, now):
                due.append(self.take(arm))
        return due

    def _is_due(self, arm: int, now: float) -> bool:
        slots = self._open[arm]
        return bool(slots) and self._is_ready(self._decisions[slots[0]], now)

    def _is_ready(self, decision: DecisionRecord, now: float) -> bool:
        return self.is_over(decision, now) if self._window else decision.reward is not None

    def waiting(self) -> int:
        """Rewards that have been reported and not been played."""
        return sum(self._decisions[name].reward is not None for slots in self._open for name in slots)

    def oldest(self) -> Iterator[DecisionRecord]:
        """The first slot of each arm that has any."""
        return (self._decisions[slots[0]] for slots in self._open if slots)

    def held_up(self) -> Iterator[HeldUp]:
        """Arms whose rewards wait for that of an earlier decision, which nobody has reported; none with a window."""
        for arm, slots in enumerate(self._open):
            if slots and not self._window:
                rewards = sum(self._decisions[name].reward is not None for name in slots)
                if rewards:
                    yield HeldUp(arm, rewards, self._decisions[slots[0]])


# ---------------------------------------------------------------- the choice of an arm


class Choice(NamedTuple):
    """An arm, and its propensity: the probability with which this site gives this arm to this request.

    Given what the site knows now. Exact, but for Thompson's draws, where it is within 0.01; None: an own page draws and
    does not say its chances.
    """

    arm: int
    propensity: float | None


Certain = Literal["index", "subject", "one arm"]
"""Why a decision was certain: the policy gives the highest index, the subject keeps its arm, no other was possible."""


def _why_certain(given: Choice, num_arms: int, is_kept: bool) -> Certain | None:
    """Why a decision among so many arms was certain; None: it was not, or its chance is not known."""
    if given.propensity != 1.0:
        return None
    if num_arms == 1:
        return "one arm"
    return "subject" if is_kept else "index"


@dataclass(frozen=True)
class SiteDraws:
    """The randomness of one decision.

    * ``normals``: a standard normal draw for each arm, for the Thompson index
    * ``u``: uniform in [0, 1), for the pick among lagging arms
    * ``share``: uniform in [0, 1), for the shares of arms; None where the terms have none
    """

    normals: tuple[float, ...]
    u: float
    share: float | None = None

    def __post_init__(self) -> None:
        """Check the draws."""
        object.__setattr__(
            self, "normals", tuple(finite_number(f"normals[{k}]", z) for k, z in enumerate(self.normals))
        )
        for name in ("u", "share"):
            value = getattr(self, name)
            if value is None and name == "share":
                continue
            value = finite_number(name, value)
            object.__setattr__(self, name, value)
            if not 0.0 <= value < 1.0:
                raise InvalidArgument(name, value, "a number in [0, 1)")


def draws_for(terms: Federation, random: Random, num_arms: int | None = None) -> SiteDraws:
    """All that a decision under these terms may need, among so many arms; None: those of the terms."""
    normals = tuple(random.gauss(0.0, 1.0) for _ in range(num_arms or terms.num_arms))
    u = random.random()
    return SiteDraws(normals, u, None if terms.shares is None else random.random())


def choice(
    terms: Federation,
    player: Player,
    n_max: Sequence[int],
    draws: SiteDraws,
    allowed: Sequence[int] | None = None,
    stratum: int | None = None,
) -> Choice:
    """The arm of a decision, and how likely that was: the page's choice, wrapped in the shares of the terms.

    ``allowed``: the arms that this request may have; None: all. An arm whose pending decisions would fill its tree is
    not handed out. ``n_max`` is empty without the consistency rule. If only some arms remain, the page chooses as in a
    world of these; t goes on counting all decisions. ``stratum``: that of the patient, where the page is told.
    """
    num_arms = player.num_arms
    _check_normals(terms, num_arms, draws)
    arms = _with_room(terms, player, range(num_arms) if allowed is None else _checked_arms(num_arms, allowed))
    if terms.shares is None:
        said = _said(terms, player, n_max, draws, arms, stratum)
        return Choice(said.arm, said.chance(said.arm))
    control, control_share = terms.control, 0.0
    others = arms
    if control in arms and len(arms) > 1:
        control_share, others = terms.shares.control_share, [k for k in arms if k != control]
    if draws.share is None:
        raise InvalidArgument("share", None, "a draw in [0, 1): the terms have shares")
    said = _said(terms, player, n_max, draws, others, stratum)
    floor = floor_of_others(control_share, terms.shares.least_share, len(others))
    given = given_by_share(draws.share, control_share, floor, len(others))
    if given == CONTROL:
        return Choice(control, control_share)
    arm = said.arm if given == BY_INDEX else others[given]
    chance = said.chance(arm)
    if chance is None:
        return Choice(arm, None)
    return Choice(arm, shared_chance(chance, floor, sum_of_floors(control_share, floor, len(others))))


def _with_room(terms: Federation, player: Player, arms: Sequence[int]) -> Sequence[int]:
    most = terms.max_pulls
    if most is None:
        return arms
    opened = [k for k in arms if player.me.tried[k] < most]
    if not opened:
        raise HorizonReached(
            f"every arm{'' if len(arms) == player.num_arms else ' that this request may have'} has had the {most} "
            "decisions for which policy.horizon pays: the promised epsilon is spent. A new federation with a longer "
            "horizon, on new rewards, can go on"
        )
    return opened


class _Said(NamedTuple):
    """What the index says: an arm, and how likely it says each; ``chance_of`` is None where that is not known."""

    arm: int
    is_certain: bool
    chance_of: Callable[[int], float] | None = None

    def chance(self, arm: int) -> float | None:
        """How likely the index says this arm."""
        if self.is_certain:
            return float(arm == self.arm)
        return None if self.chance_of is None else self.chance_of(arm)


def _certainly(arm: int) -> _Said:
    return _Said(arm, True)


def _said(
    terms: Federation,
    player: Player,
    n_max: Sequence[int],
    draws: SiteDraws,
    arms: Sequence[int],
    stratum: int | None,
) -> _Said:
    """The page's choice among some arms."""
    page, me, seen = player.page, player.me, player.seen
    if page.unknown is None:  # the page takes every arm for known: Alg. 1, line 1, is the site's
        unknown = [player.is_unknown(k) for k in arms]
        if any(unknown) and len(arms) > 1:
            tried = [me.tried[k] for k in arms]
            chances = {k: urn.any_chance(tried, unknown, position) for position, k in enumerate(arms)}
            return _Said(arms[urn.any_drawn(tried, unknown, draws.u)], False, chances.__getitem__)
    if len(arms) == 1:
        return _certainly(arms[0])
    if n_max:
        seen.n_max[:] = n_max
    is_part = len(arms) < len(me.tried)
    if is_part:
        me, seen = player.among(arms)
    now, watched, context = player.now, _WatchedDraws(draws, len(arms)), player.context(stratum)
    position = _checked_arm(terms, page.decide(me, player.terms, seen, now, watched, *context), len(arms))
    if is_part:
        widen(page, player.me, me, arms)
    if not watched.are_used:
        return _certainly(arms[position])
    if (chance := page.chance) is None:
        return _Said(arms[position], False)

    def chance_of(arm: int) -> float:
        return chance(me, player.terms, seen, now, arms.index(arm), *context)

    return _Said(arms[position], False, chance_of)


class _WatchedDraws:
    """The draws of a decision among some arms, and whether any was used: if not, the choice was certain."""

    are_used: bool
    normals: tuple[float, ...]
    u: float

    def __init__(self, draws: SiteDraws, num_arms: int) -> None:
        self._draws, self._num_arms, self.are_used = draws, num_arms, False

    def __getattr__(self, name: str) -> Any:
        """Python asks for a name that is not there: each draw once."""
        if name not in ("normals", "u"):
            raise AttributeError(name)
        self.are_used = True
        value = self._draws.u if name == "u" else self._draws.normals[: self._num_arms]
        setattr(self, name, value)
        return value


def _checked_arm(terms: Federation, arm: object, num_arms: int) -> int:
    """The arm of a page: an own one may be wrong where no dry run has been."""
    if type(arm) is not int or not 0 <= arm < num_arms:
        raise WrongPage(kind_of(terms.policy), f"decide returns {arm!r}, not an arm from 0 to {num_arms - 1}")
    return arm


def _checked_arms(num_arms: int, allowed: Sequence[int]) -> Sequence[int]:
    arms = [k for k in range(num_arms) if k in allowed]
    if not arms or len(arms) < len(allowed):
        raise InvalidArgument("allowed", allowed, f"one or more different arms from 0 to {num_arms - 1}")
    return arms


def _check_normals(terms: Federation, num_arms: int, draws: SiteDraws) -> None:
    policy = terms.policy
    needed = policy.index == "thompson" if isinstance(policy, FedBatch) else not is_built_in(policy)
    if len(draws.normals) != num_arms and (needed or draws.normals):
        raise InvalidArgument("normals", draws.normals, f"{num_arms} draws, one for each arm")


# ---------------------------------------------------------------- the decisions of a site


@dataclass(frozen=True)
class Retention:
    """The most decisions that are remembered, and for how many seconds after the end of their reward window."""

    keep: int
    expire_after: float


@dataclass(frozen=True)
class Expired:
    """How many decisions a site has forgotten; of those without a reward, how many by age and because of ``keep``."""

    total: int
    by_age: int = 0
    by_keep: int = 0


MAX_EXPIRED = 1000
"""The most decisions that one call forgets, so that its transaction stays short."""

MAX_SETTLED = 1000
"""The most rewards that one call lets the page observe, for the same reason."""

MAX_KEEP = 1 << 62

LONGEST_GAP = 7 * 24 * 3600.0
"""Seconds that count at most between two events when a rate is measured: a clock may jump by decades."""

_SOON = 0.1
"""Share of ``keep`` or of the time that is left when a warning begins."""

Outcome = bool | Refused | InvalidArgument
"""What came of one reward: whether it counts, or why it was refused."""

_Result = TypeVar("_Result")


class Decisions:
    """Hands out arms, and takes rewards, which the player observes in the order of the decisions.

    ``is_held``: nothing may be released, so nothing is observed. ``stored`` is the site's; a step's records are applied
    to it before the step is returned.
    """

    reported = 0
    """Rewards that came since the site was loaded, late ones too; a repetition is not another."""

    out_of_range = 0
    """Rewards that were refused since the site was loaded: no numbers within the range."""

    def __init__(
        self,
        terms: Federation,
        stored: Stored,
        player: Player,
        keeps_rewards: bool,
        evaluator: Evaluator | None = None,
    ) -> None:
        """As the journal knows them. ``evaluator``: that of the terms, if they evaluate other policies."""
        self._evaluator = evaluator
        self.missing = sum(it.played and not it.rewarded for it in stored.decisions.values())
        """Decisions that counted without a reward: those remembered when the site was loaded, and later ones."""
        self._terms, self._stored, self._player, self._keeps_rewards = terms, stored, player, keeps_rewards
        self.slots = Slots(terms, stored.decisions, player.num_arms)
        self._requests = RequestIndex(stored.decisions.values())
        self.clock = max([stored.times.clock, *(decision.at for decision in stored.decisions.values())])
        """The largest time that this site has seen: it never goes back.

        After a restart it is the largest at which a decision was made, or anything settled: a file keeps no time that
        depends on when a reward came.
        """
        self._since: float | None = stored.times.since  # when the rate's time begins

    def grow(self, player: Player) -> None:
        """There are more arms, which another player plays."""
        self._player = player
        self.slots.grow(player.num_arms)

    def __getitem__(self, decision_id: str) -> DecisionRecord:
        decision = self._stored.decisions.get(decision_id)
        if decision is None:
            raise DecisionNotFound(f"no decision has the id {decision_id!r}, or it has expired")
        return decision

    @property
    def elapsed(self) -> float:
        """Since the first decision, up to the last time that anything was decided or settled."""
        return 0.0 if self._since is None else self.clock - self._since

    def oldest_pending(self) -> Iterator[DecisionRecord]:
        """The oldest decision of each arm that has no reward and does not count yet."""
        return (decision for decision in self.slots.oldest() if not decision.rewarded)

    # ---------------------------------------------------------------- events

    def decide(
        self, at: float, drawn: Sequence[SiteDraws], request: Request, arms: Arms, n_max: Sequence[int], run: int
    ) -> Step[tuple[DecisionRecord, ...]]:
        """Hand out arms, and with each the next slot of the arm; ``drawn`` for each decision that is asked for.

        Each is chosen in turn, as if it had been asked for alone. A request whose key is remembered gets the decisions
        that it got before, and nothing changes.
        """
        at = finite_number("at", at)
        if len(drawn) != request.count:
            raise InvalidArgument("draws", len(drawn), f"those of {request.count} decisions")
        stored, stratum = self._stored, self._terms.stratum(request.context)
        key = key_tag(stored.key, request, stratum) if request.key is not None else b""
        if key and (found := self._again(key, request, stratum, arms)):
            return Step(found)
        allowed = _allowed(request, arms, stratum)
        subject = subject_tag(stored.key, request.subject) if request.subject is not None else b""
        chosen = self._chosen(drawn, allowed, subject, stratum, n_max)
        at, before = self.tick(at), stored.numbering.decisions
        numbering = Numbering(stored.numbering.incarnation, before + len(chosen))
        eligible = b"" if allowed is None else as_bits(allowed)
        made: list[DecisionRecord] = []
        for number, ((arm, propensity), why) in enumerate(chosen, before + 1):
            name = decision_id(stored.key, run, numbering.incarnation, number, at)
            state = None, False, False, False, False
            asked = propensity, key, subject, eligible, stratum, why
            made.append(DecisionRecord(name, number, arm, at, *state, *asked))
        if self._since is None:
            self._since = at
        is_later = self._since != stored.times.since
        records = *made, numbering, *([replace(stored.times, since=self._since)] if is_later else [])
        stored.apply(records)
        for decision in made:
            self.slots.add(decision)
            self._requests.add(decision)
        return Step(tuple(made), records)

    def _again(self, key: bytes, request: Request, stratum: int | None, arms: Arms) -> tuple[DecisionRecord, ...]:
        """The decisions that this request got before; none: it is new. It never tells whether any is rewarded."""
        found = tuple(self._stored.decisions[name] for name in self._requests.with_key(key))
        if any(it.key != key for it in found):
            is_other = any(it.stratum != stratum for it in found)
            raise KeyTaken(f"this key was used for another request{': its context was another' if is_other else ''}")
        if found and len(found) < request.count:
            raise KeyTaken(f"{request.count - len(found)} of the {request.count} decisions of this key are forgotten")
        for it in found:
            if it.cancelled:
                raise DecisionCancelled(f"the decision {it.id} of this key was cancelled")
            if it.arm in arms.stopped_for(it.stratum):
                name = arms.names[it.arm]
                raise StoppedMeanwhile(f"{name}, the arm of the decision {it.id} of this key, was stopped")
        return found

    def _chosen(
        self,
        drawn: Sequence[SiteDraws],
        allowed: tuple[int, ...] | None,
        subject: bytes,
        stratum: int | None,
        n_max: Sequence[int],
    ) -> list[tuple[Choice, Certain | None]]:
        """An arm for each draw, and why it was certain; all of them are counted as tried, or none."""
        name, player = self._requests.newest_of(subject) if subject else None, self._player
        kept = None if name is None else self._stored.decisions[name].arm
        num_arms = player.num_arms if allowed is None else len(allowed)
        chosen: list[tuple[Choice, Certain | None]] = []
        try:
            for draws in drawn:
                is_kept = kept is not None and self._may_have(kept, allowed)
                if kept is not None and is_kept:
                    one = Choice(kept, 1.0)  # given what is remembered, no other arm was possible
                else:
                    one = choice(self._terms, player, n_max, draws, allowed, stratum)
                kept = one.arm if subject else None
                player.hand_out(one.arm, stratum)
                chosen.append((one, _why_certain(one, num_arms, is_kept)))
        except BaseException:
            for one, _ in chosen:
                player.hand_out(one.arm, stratum, -1)
            raise
        return chosen

    def _may_have(self, arm: int, allowed: tuple[int, ...] | None) -> bool:
        most = self._terms.max_pulls
        return (allowed is None or arm in allowed) and (most is None or self._player.me.tried[arm] < most)

    def cancel(self, decision_id: str, at: float, is_held: bool) -> Step[None]:
        """A decision was not used: it loses its slot, and does not count as tried. Idempotent.

        Only before it counts, and before a reward has come. As a request, it must not depend on the outcome. Once the
        window is over, the refusal does not tell whether a reward came.
        """
        decision = self[decision_id]
        if decision.cancelled:
            return Step(None)
        if self.slots.is_over(decision, max(self.clock, finite_number("at", at))):
            raise WindowOver("the reward window of this decision is over: it counts already, and cannot be cancelled")
        if decision.rewarded:
            raise Rewarded("a reward of this decision was reported: it was used, and cannot be cancelled")
        if decision.played:
            raise WindowOver("this decision counts already, and cannot be cancelled")
        now = self.tick(at)
        cancelled = replace(decision, cancelled=True)
        self._stored.apply([cancelled])
        self._player.hand_out(decision.arm, decision.stratum, -1)
        self.slots.remove(cancelled)
        has_none = self._terms.reward_window == 0.0 and not is_held
        due = self.slots.take_due(now, MAX_SETTLED) if has_none else []  # what has waited for it
        if self._evaluator is not None:
            self._evaluator.take((), [cancelled])
        return self._played(None, due, cancelled, evaluates=True)

    def report(self, decision_id: str, reward: float, is_held: bool) -> Step[bool]:
        """Take the reward of a decision; False if it came too late, and does not count.

        Idempotent: a repetition changes nothing, whatever its value, and the answer tells nothing of the first one. A
        report looks at no clock: it is late once anything was decided or settled after the end of its window.
        """
        decision = self[decision_id]
        low, high = self._terms.low, self._terms.high
        try:
            reward = finite_number("reward", reward)
            if not low <= reward <= high:
                raise InvalidArgument("reward", reward, f"a number from {low:g} to {high:g}")
        except InvalidArgument:
            self.out_of_range += 1
            raise
        if decision.cancelled:
            raise DecisionCancelled("this decision was cancelled: it takes no reward")
        if decision.rewarded:
            return Step(True)
        if decision.late:
            return Step(False)
        self.reported += 1
        if decision.played or self.slots.is_over(decision, self.clock):
            times = self._stored.times
            records = replace(decision, late=True), replace(times, late=times.late + 1)
            self._stored.apply(records)
            return Step(False, records)
        decision = decision.after_reward(reward)
        kept = [Kept(decision.id, decision.number, reward)] if self._keeps_rewards else []
        self._stored.apply([decision])
        is_playing = self._terms.reward_window == 0.0 and not is_held
        due = self.slots.take_due(self.clock, MAX_SETTLED) if is_playing else []
        return self._played(True, due, *(() if decision in due else (decision,)), *kept)

    def report_all(self, rewards: Sequence[tuple[str, float]], is_held: bool) -> Step[tuple[Outcome, ...]]:
        """Take several rewards in one transaction: what ``report`` returns of each, or raises."""
        outcomes: list[Outcome] = []
        records: list[Record] = []
        for name, reward in rewards:
            try:
                step = self.report(name, reward, is_held)
            except (Refused, InvalidArgument) as error:
                outcomes.append(error)
            else:
                outcomes.append(step.result)
                records += step.records
        return Step(tuple(outcomes), tuple(records))

    def settle(self, now: float, is_held: bool) -> Step[int]:
        """Let the page observe what is due, oldest first in each arm; how many.

        With a window: each decision whose window is over, with its reward, or the default if none came. So contents and
        times of releases depend on decisions and the clock alone. At most ``MAX_SETTLED`` at once.
        """
        now = self.tick(now)
        due = [] if is_held else self.slots.take_due(now, MAX_SETTLED)
        times = [SiteTimes(now, self._stored.times.late, self._since)] if due else []
        return self._played(len(due), due, *times)

    def expire(self, before: float, keep: int, is_held: bool) -> Step[Expired]:
        """Forget decisions whose window ended before a time, and the oldest beyond the newest ``keep``.

        Before that every one is played: without a window, one that has no reward counts with the default now. With
        one, those that have not been settled stay. All unplayed ones stay while nothing may be released. Those that
        were cancelled go when it is their turn. At most ``MAX_EXPIRED`` at once.
        """
        before, decisions = finite_number("before", before), self._stored.decisions
        surplus = len(decisions) - whole_number("keep", keep, 0, MAX_KEEP)
        window, gone, due = self._terms.reward_window, list[DecisionRecord](), list[DecisionRecord]()
        by_age, by_keep = 0, 0
        for decision in decisions.values():  # in the order of time: the clock never goes back
            is_old = decision.at + window < before
            if len(gone) == MAX_EXPIRED or not (is_old or len(gone) < surplus):
                break
            if decision.is_open:
                if is_held or window or not self.slots.is_next(decision):
                    break
                due.append(self.slots.take(decision.arm))
            if not decision.rewarded and not decision.cancelled:
                by_age, by_keep = by_age + is_old, by_keep + (not is_old)
            gone.append(decision)
        for decision in gone:
            self._requests.drop(decision)
        behind = [] if window or is_held else self.slots.take_due(self.clock, MAX_SETTLED)
        expired = Expired(len(gone), by_age, by_keep)
        return self._played(expired, behind, *[Forgotten(it.id) for it in gone], gone=due)

    def tick(self, at: float) -> float:
        """The time of an event: no earlier than that of any before."""
        before, self.clock = self.clock, max(self.clock, finite_number("at", at))
        if self._since is not None:  # what a wrong clock skips does not count as time in which nobody came
            self._since += max(self.clock - before - LONGEST_GAP, 0.0)
        return self.clock

    def count_before(self, seconds: float, now: float) -> SiteTimes:
        """Decisions of before the federation count, which came over so many seconds."""
        now = self.tick(now)
        self._since = (now if self._since is None else self._since) - seconds
        times = replace(self._stored.times, since=self._since)
        self._stored.apply([times])
        return times

    def count_since(self, rate: float, now: float) -> SiteTimes:
        """A lost file has come back: its decisions were made at this rate."""
        self._since = self.tick(now) - max(sum(self._player.me.tried), 1) / rate
        times = replace(self._stored.times, since=self._since)
        self._stored.apply([times])
        return times

    def _played(
        self,
        result: _Result,
        due: Sequence[DecisionRecord],
        *records: Record,
        gone: Sequence[DecisionRecord] = (),
        evaluates: bool = False,
    ) -> Step[_Result]:
        """A step after which the page has observed what is due; before that, what is ``gone`` after this step.

        ``evaluates``: sums for other policies have changed, also if nothing is due.
        """
        own: tuple[Record, ...] = ()
        if due or gone:
            missing = self._terms.missing_reward
            each = (*gone, *due)
            self.missing += sum(not it.rewarded and not it.cancelled for it in each)
            rewards = ((it.arm, it.stratum, missing if it.reward is None else it.reward) for it in each)
            own = self._player.take(rewards, self.elapsed)
            if self._evaluator is not None:
                self._evaluator.take((it, missing if it.reward is None else it.reward) for it in each)
        if self._evaluator is not None and (due or gone or evaluates):
            records = *records, *self._evaluator.records
        records = *records, *[it.after_play() for it in due]
        self._stored.apply(records)
        return Step(result, (*records, *own))

    # ---------------------------------------------------------------- warnings

    def warnings(self, arms: Sequence[str]) -> Iterator[str]:
        """Rewards that wait for that of another patient."""
        for it in self.slots.held_up():
            if it.rewards >= self._terms.first_batch:
                at = datetime.fromtimestamp(it.by.at, UTC).isoformat(" ", "seconds")  # its id is the application's
                yield (
                    f"{it.rewards} rewards of {arms[it.arm]} wait for that of the decision of {at}, which came before "
                    "them; when it expires without one, the default counts. A reward_window would not wait."
                )

    def warnings_of_forgetting(self, limits: Retention, now: float) -> Iterator[str]:
        """Decisions that still wait for their reward and are forgotten soon.

        With a reward window there are none: nothing is forgotten that can still be rewarded.
        """
        waiting = [] if self._terms.reward_window > 0.0 else list(self.oldest_pending())
        if not waiting:
            return
        first, remembered = min(it.number for it in waiting), len(self._stored.decisions)
        left = limits.keep - min(self._stored.numbering.decisions - first + 1, remembered)
        if left <= _SOON * limits.keep:
            yield (
                f"after {max(left, 0) + 1} more decisions the oldest that waits for its reward is forgotten, and the "
                f"default counts: decisions.keep is {limits.keep}. Report sooner, cancel what was not used, or keep "
                "more."
            )
        seconds = min(it.at for it in waiting) + limits.expire_after - now
        if seconds <= _SOON * limits.expire_after:
            yield (
                f"in {max(seconds, 0.0) / 3600.0:.1f} hours the oldest decision that waits for its reward is "
                f"forgotten, and the default counts: decisions.expire_after_hours is {limits.expire_after / 3600.0:g}."
            )


def _allowed(request: Request, arms: Arms, stratum: int | None) -> tuple[int, ...] | None:
    """The arms that a request may get; None: all."""
    stopped = arms.stopped_for(stratum)
    allowed = request.arms(len(arms.names), stopped)
    if allowed is not None and not allowed:
        asked = request.arms(len(arms.names), frozenset())
        words = in_words_of_stops(arms, stopped if asked is None else stopped.intersection(asked), stratum)
        raise NoArmLeft("no arm is left for this request" + (f": {words}" if words else ""))
    return allowed
