"""What happens to a site in one run of an audit: all that reaches it.

A scenario has two parts, as the proof has. ``events`` is public: requests for arms, members' bulletins, the operator,
crashes, each at its time. ``entries`` is what the proof protects: what the application reports of each decision, and
when. An audit changes one entry and nothing else.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal, NamedTuple

from fedbandit.agent.core.arms import ChangeKind
from fedbandit.agent.core.decisions import ANY, Request, SiteDraws
from fedbandit.agent.core.federation import Federation
from fedbandit.policies import FedBatch, FedUCB
from fedbandit.privacy.noise import GRID
from fedbandit.testing.memory_network import Crash

DRAWS = SiteDraws((0.0, 0.0), 0.5)  # an attacker may know even the randomness of decisions


# ---------------------------------------------------------------- what is protected


class Report(NamedTuple):
    """A value that the application reports, so many seconds after the decision."""

    value: float
    delay: float = 0.0


Entry = tuple[Report, ...]
"""All that it reports of one decision, in order of time; nothing, if it is empty."""

NOTHING: Entry = ()


def once(value: float, delay: float = 0.0) -> Entry:
    """One report."""
    return (Report(value, delay),)


# ---------------------------------------------------------------- what is public


@dataclass(frozen=True)
class Decide:
    """The application asks for arms."""

    at: float
    draws: tuple[SiteDraws, ...] = (DRAWS,)
    request: Request = ANY


@dataclass(frozen=True)
class Cancel:
    """It says that a decision, counted from 1, was not used."""

    at: float
    number: int


@dataclass(frozen=True)
class Expire:
    """The site forgets all but so many decisions."""

    at: float
    keep: int


@dataclass(frozen=True)
class Say:
    """A member publishes a bulletin: for each arm a row, releases, rewards and decisions, true or not."""

    at: float
    member: str
    arms: tuple[tuple[tuple[float, ...], int, int, int], ...]


@dataclass(frozen=True)
class ChangeArm:
    """The operator changes an arm."""

    at: float
    kind: ChangeKind
    arm: str
    reason: str = ""


@dataclass(frozen=True)
class Exclude:
    """The operator no longer counts a member, or counts it again."""

    at: float
    member: str
    is_over: bool = False


@dataclass(frozen=True)
class Restart:
    """The process is killed and started again. ``is_vouched``: a witness knows its file as the latest."""

    at: float
    is_vouched: bool = False


@dataclass(frozen=True)
class DieAtNextWrite:
    """The process dies at its next write, and is started again. A public write must follow at once."""

    at: float
    crash: Crash


@dataclass(frozen=True)
class LoseDisk:
    """The disk is lost; the process starts on an empty one."""

    at: float


@dataclass(frozen=True)
class PutBack:
    """The disk is put back to what it was at an earlier time, and the process started; ``restore`` follows."""

    at: float
    since: float


Event = Decide | Cancel | Expire | Say | ChangeArm | Exclude | Restart | DieAtNextWrite | LoseDisk | PutBack


@dataclass(frozen=True)
class Scenario:
    """A run of one site.

    * ``events``: in order of time; ``entries``: one for each decision, in the order of their numbers
    * ``until``: the length of the run in seconds
    * ``pace``: seconds between two looks of the process at its clock
    * ``members``: the other sites; each has a link
    * ``in_bulk``: reports that come at one time come in one call
    """

    terms: Federation
    events: tuple[Event, ...]
    entries: tuple[Entry, ...]
    until: float
    pace: float = 1.0
    members: tuple[str, ...] = ("member",)
    in_bulk: bool = False

    def changed(self, number: int, entry: Entry) -> "Scenario":
        """The same scenario with another entry for one decision, counted from 1."""
        return replace(self, entries=(*self.entries[: number - 1], entry, *self.entries[number:]))

    @property
    def cancelled(self) -> dict[int, float]:
        """Decisions that are cancelled, and how many seconds after they were made."""
        times, keys = [0.0], set[str]()
        for it in self.events:
            if isinstance(it, Decide) and it.request.key not in keys:
                times += [it.at] * it.request.count
                keys |= set() if it.request.key is None else {it.request.key}
        return {it.number: it.at - times[it.number] for it in self.events if isinstance(it, Cancel)}


def in_turn(
    terms: Federation,
    entries: Iterable[Entry],
    draws: Iterable[SiteDraws] = (),
    others: Iterable[Event] = (),
    pace: float = 1.0,
    rest: float = 2.0,
    requests: Sequence[Request] = (),
) -> Scenario:
    """A request, for any arm if none are given, a moment after each look of the process at its clock.

    ``draws`` and ``entries``: one for each decision; ``rest``: how many looks follow.
    """
    entries, drawn = tuple(entries), iter(draws)
    requests = requests or [ANY] * len(entries)
    decided = [
        Decide((number + BETWEEN) * pace, tuple(next(drawn, DRAWS) for _ in range(request.count)), request)
        for number, request in enumerate(requests, start=1)
    ]
    events = sorted((*others, *decided), key=lambda it: it.at)  # stable: at one time, others come first
    return Scenario(terms, tuple(events), entries, (len(requests) + 1 + rest) * pace, pace)


BETWEEN = 0.25
"""Of the time between two looks at the clock."""


# ---------------------------------------------------------------- the scenarios of the audit
# Two arms or three, three to nine releases of each, restarts, crashes, late rewards, a member that lies. No two rewards
# are alike, in a range that is not [0, 1]; draws make both arms come and let a small difference decide now and then.

LOW, HIGH = -1.0, 3.0
WINDOW = 4
DAY = 86400.0
MUCH = 1e9  # more than any estimate
SOON = 0.1  # a report, of the time between two looks at the clock
DECISIONS = {"fed_batch": 26, "fed_ucb": 12}


def scenarios_of(policy: str, epsilon: float) -> dict[str, Scenario]:
    """The scenarios for one policy, by name."""
    count = DECISIONS[policy]
    half = count // 2
    terms = Federation("audit", ("a", "b"), LOW, HIGH, _policy(policy, epsilon), counts="sites", max_agents=3)
    window = replace(terms, reward_window=float(WINDOW))
    values, draws = _values(count), _draws(count)
    at_once, late = tuple(once(value, SOON) for value in values), _late(values)
    missing = tuple(NOTHING if n in (3, 4) else entry for n, entry in enumerate(at_once))
    lies = [lie(terms, second + 0.6, second % 3 + 1) for second in range(2, count, 5)]
    by_rate: dict[str, Scenario] = {}
    if policy == "fed_batch":
        patients = replace(terms, counts="patients", reward_window=WINDOW * DAY)
        entries = tuple(tuple(it._replace(delay=it.delay * DAY) for it in entry) for entry in late)
        said = [lie(patients, second * DAY, 2) for second in (3.5, 9.5)]
        faults = [*said, Restart((half + 0.5) * DAY)]
        by_rate = {"late rewards, patients count": in_turn(patients, entries, draws, faults, DAY, WINDOW + 1)}
    died = (
        DieAtNextWrite(3.25 + SOON / 2, "torn"),  # at the report
        DieAtNextWrite(5.25, "before"),  # at the decision
        DieAtNextWrite(7.25 + SOON / 2, "before"),
        DieAtNextWrite(8.25 + SOON / 2, "after"),
    )
    return {
        "rewards at once": in_turn(terms, at_once, draws, lies),
        "restarts and crashes": in_turn(
            terms, at_once, draws, [*lies, *died, Restart(half + 0.5, is_vouched=True), Restart(half + 3.5)]
        ),
        **by_rate,
        "late rewards": in_turn(window, late, draws, lies, rest=WINDOW + 1),
        "late rewards, restarts": in_turn(
            window,
            late,
            draws,
            [
                *(Restart(5.5), Restart(half + 0.5), Restart(half + 0.7)),
                *(DieAtNextWrite(7.25, "before"), DieAtNextWrite(8.25, "after"), DieAtNextWrite(11.25, "torn")),
            ],
            rest=WINDOW + 1,
        ),
        "missing rewards, lost disk": in_turn(terms, missing, draws, [Expire(10.1, 2), LoseDisk(half + 2.1)]),
        "requests of all kinds": replace(_asked_for(terms, at_once, draws), in_bulk=True),
        "requests of all kinds, late rewards": replace(_asked_for(window, late, draws), in_bulk=True),
        "arms, members and an old file": in_turn(
            window,
            late,
            draws,
            [
                *lies,
                *(ChangeArm(4.5, "suspend", "b", "a rash"), ChangeArm(6.5, "resume", "b")),
                *(Exclude(7.5, "member"), Exclude(9.5, "member", is_over=True)),
                PutBack(half + 2.6, half + 0.6),
            ],
            rest=WINDOW + 1,
        ),
        "three arms, many releases": _small_batches(replace(terms, arms=("a", "b", "c")), policy),
    }


def _small_batches(terms: Federation, policy: str) -> Scenario:
    """Nine releases of each arm by turns, or of a tree as many as it takes."""
    small = replace(terms.policy, first_batch=1, growth=1.1) if isinstance(terms.policy, FedBatch) else terms.policy
    count = 3 * (9 if policy == "fed_batch" else 5)
    requests = [Request((number % 3,)) for number in range(count)]
    entries, draws = [once(value, SOON) for value in _values(count)], [SiteDraws((0.0, 0.0, 0.0), 0.5)] * count
    return in_turn(replace(terms, policy=small), entries, draws, requests=requests)


def _asked_for(terms: Federation, entries: Sequence[Entry], draws: Sequence[SiteDraws]) -> Scenario:
    """Keys, subjects, some arms only, several decisions at once, and three that are cancelled."""
    kinds = [ANY, Request(count=2), Request(subject="s"), Request((1,)), Request((1,), key="k"), Request(exclude=(1,))]
    requests: list[Request] = []
    left = len(entries)
    while left > 0:
        kind = kinds[len(requests) % len(kinds)]
        kind = replace(kind, count=min(kind.count, left))
        requests.append(kind if kind.key is None else replace(kind, key=f"k{left}"))
        left -= kind.count
    others: list[Event] = [Cancel(4.55, 4), Cancel(7.35, 7), Cancel(7.45, 8)]
    others += [ChangeArm(7.95, "suspend", "b", "a rash"), ChangeArm(8.3, "resume", "b")]
    others += [Decide(at, (DRAWS,), it) for at, it in zip((8.1, 8.6), [it for it in requests if it.key], strict=False)]
    entries = [NOTHING if number in (4, 7, 8) else entry for number, entry in enumerate(entries, start=1)]
    rest = WINDOW + 1.0 if terms.reward_window else 2.0
    return in_turn(terms, entries, draws, others, rest=rest, requests=requests)


def with_real_noise(epsilon: float) -> Scenario:
    """Four releases of each arm, by turns, and a restart in the middle: short, to be played often."""
    terms = Federation("audit", ("a", "b"), 0.0, 1.0, FedBatch(epsilon, first_batch=2), counts="sites", max_agents=2)
    entries = [once(value) for value in _values(16, 0.0, 1.0)]
    return in_turn(terms, entries, [draws_for(number % 2) for number in range(16)], [Restart(9.5, is_vouched=True)])


def draws_for(arm: int) -> SiteDraws:
    """Draws that decide for an arm, whatever the estimates are."""
    return SiteDraws((MUCH, -MUCH) if arm == 0 else (-MUCH, MUCH), 0.5)


def lie(terms: Federation, at: float, releases: int) -> Say:
    """A member says that arm 0 is worth all there is and others nothing, by more releases than it can have."""
    columns = len(terms.page.published_names)
    rewards = 10 * releases
    rows = [(GRID * float(arm == 0), 0.0, 1.0)[:columns] for arm in range(terms.num_arms)]
    return Say(at, "member", tuple((row, releases, rewards, rewards) for row in rows))


def _policy(policy: str, epsilon: float) -> FedBatch | FedUCB:
    return FedBatch(epsilon, first_batch=2, growth=1.5) if policy == "fed_batch" else FedUCB(epsilon, horizon=10)


def _values(count: int, low: float = LOW, high: float = HIGH) -> list[float]:
    return [low + (high - low) * (number * 0.381966 % 1.0) for number in range(1, count + 1)]


def _draws(count: int) -> tuple[SiteDraws, ...]:
    sizes = [1.5 * (2.0 * (number * 0.618034 % 1.0) - 1.0) for number in range(1, count + 1)]
    return tuple(SiteDraws((size, -size), 0.5) for size in sizes)


def _late(values: list[float]) -> tuple[Entry, ...]:
    """At once, later, in the last visible moment, too late, never, out of range, twice."""
    found: list[Entry] = []
    for number, value in enumerate(values):
        kinds: tuple[Entry, ...] = (
            *(once(value), once(value, WINDOW - 0.9), once(value, 1.37), once(value, WINDOW + 1.4)),
            *(NOTHING, once(value + 2.0 * (HIGH - LOW)), (Report(value, 0.21), Report(LOW, 1.6))),
        )
        found.append(kinds[number % len(kinds)])
    return tuple(found)


# ---------------------------------------------------------------- random ones


def random_scenarios(policy: str, epsilon: float, count: int, seed: int = 0) -> Iterator[Scenario]:
    """Runs with any delays, restarts, crashes, lies and lost disks; the same ones for the same seed."""
    source = Random(seed)  # noqa: S311  # what is attacked, not what protects
    for _ in range(count):
        yield _random(policy, epsilon, source)


def _random(policy: str, epsilon: float, source: Random) -> Scenario:
    chosen = _policy(policy, epsilon)
    low = source.choice([0.0, -1.0, 5.0])
    high, count = low + source.choice([1.0, 4.0, 0.3]), source.randint(8, DECISIONS[policy])
    if isinstance(chosen, FedBatch):
        index: Literal["thompson", "ucb", "kl"] = source.choice(["thompson", "ucb"])
        index = "kl" if (low, high) == (0.0, 1.0) and source.random() < 0.5 else index
        chosen = replace(chosen, index=index, first_batch=source.randint(1, 4), growth=source.choice([1.1, 1.25, 2.0]))
    window, pace = source.choice([0, 3, 6]), source.choice([1.0, DAY])
    terms = Federation(
        "audit",
        ("a", "b"),
        low,
        high,
        chosen,
        reward_window=window * pace,
        default_reward=source.choice([None, high]),
        counts=source.choice([None, "sites"]),
        max_agents=3,
    )
    entries = [_random_entry(terms, pace, source) for _ in range(count)]
    others: list[Event] = []
    for _ in range(source.randint(0, 3)):
        others.append(Restart(_moment(count, source) * pace, source.random() < 0.5))
        others.append(lie(terms, _moment(count, source) * pace, source.randint(1, 4)))
    kinds: list[Crash] = ["before", "torn", "after"]
    for _ in range(2):
        others.append(DieAtNextWrite((source.randint(1, count) + BETWEEN) * pace, source.choice(kinds)))
    if source.random() < 0.3:
        others.append(LoseDisk(_moment(count, source) * pace))
    if source.random() < 0.3:
        others.append(Expire(_moment(count, source) * pace, source.randint(0, 4)))
    if source.random() < 0.3:
        since, at = sorted((_moment(count, source), _moment(count, source)))
        others.append(PutBack(at * pace, since * pace))
    if source.random() < 0.3:
        others.append(Exclude(_moment(count, source) * pace, "member"))
    draws = [SiteDraws((source.gauss(0.0, 1.5), source.gauss(0.0, 1.5)), source.random()) for _ in entries]
    scenario = in_turn(terms, entries, draws, others, pace, window + 1)
    return replace(scenario, in_bulk=source.random() < 0.3)


def _moment(count: int, source: Random) -> float:
    """Never that of a decision, and not within a look of the end."""
    return source.randint(1, count) + source.choice([0.05, 0.5, 0.9])


def _random_entry(terms: Federation, pace: float, source: Random) -> Entry:
    delays = [0.0, 0.1, 1.0, 2.4, 5.0, 9.3] if terms.reward_window else [0.0, SOON]
    value = source.choice([terms.low, terms.high, source.uniform(terms.low, terms.high)])
    first = Report(value, source.choice(delays) * pace)
    if source.random() < 0.1:
        return NOTHING
    return (first, Report(terms.high, first.delay + 0.3 * pace)) if source.random() < 0.1 else (first,)
