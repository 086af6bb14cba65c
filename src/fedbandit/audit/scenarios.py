"""Runs a live site and an attacker on its link through scenarios: decisions, rewards, exchanges and faults.

A scenario says, second by second, what the application does about each decision and when the site fails. The site is
opened from what its disk holds and knows nothing of the scenario, so a broken one can stand in its place. The attacker
is a site of the same network that reads every message of the victim and lies within the victim's bounds.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Literal, NamedTuple, TypeVar

from fedbandit.agent.core.bounds import Bounds
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.memory_network import Crash, Down, MemoryJournal, MemoryNetwork
from fedbandit.agent.core.messages import Message, Offer, Reply
from fedbandit.agent.core.records import DecisionRecord, Refused, Stored
from fedbandit.agent.core.site import Site, SiteDraws, Step
from fedbandit.agent.core.standings import Standing
from fedbandit.checks import InvalidArgument
from fedbandit.policies import FedBatch, FedUCB
from fedbandit.privacy.noise import NoiseSource
from fedbandit.rules.flow import FIRST, Stamp, mirrored

VICTIM, ATTACKER, EPOCH = "victim", "attacker", 1

LIE = 0.5
"""The share of what a link may carry; the rest is left for the victim's numbers, which must not be clamped."""


class Reading(NamedTuple):
    """What the attacker reads in one message of the victim."""

    pulls: tuple[int, ...]  # of each arm: decisions made so far, which the attacker sees
    own: tuple[float, ...]  # the victim's own row: means, then weights
    header: tuple[object, ...]  # incarnations, version, standings
    version: int = 0  # of the link


class Attacker(Site):
    """A site that claims an enormous value for arm 0, so that the victim goes on pulling it.

    From each offer and answer it works out the victim's own row: what the victim gossips less what has flowed to it.
    What it sends depends only on the version of the link, so each message is made once. ``view`` holds what it has
    read in the victim's ``messages``.
    """

    def __init__(self, terms: Federation, lies: bool = True) -> None:
        """With ``lies=False`` it sends zeros and only reads."""
        super().__init__(ATTACKER, terms, MemoryJournal(EPOCH).load())
        lie, nothing = LIE * Bounds.of(terms).largest if lies else 0.0, (0.0,) * (terms.num_arms - 1)
        count = terms.max_pulls or 0 if lies else 0
        self._flow = (lie, *nothing, *(0.0,) * terms.num_arms)  # towards the victim
        self._gossips = (lie, *nothing, *(1.0,) * terms.num_arms)
        self._ends = ATTACKER, VICTIM, EPOCH, EPOCH, terms.digest(), mirrored(self._flow)
        counts = count, *(0,) * (terms.num_arms - 1)
        self._claims = (Standing(ATTACKER, EPOCH, 0, 1.0, counts),) if terms.catches_up else ()
        self._offers: dict[Stamp, Offer] = {}
        self._replies: dict[int, Reply] = {}
        self.begin()

    def begin(self) -> None:
        """Begin another run."""
        self._pulls, self._stamp, self.view = [0] * self.terms.num_arms, FIRST, list[Reading]()
        self.messages = list[Message]()

    def watch(self, arm: int) -> None:
        """Count a decision of the victim."""
        self._pulls[arm] += 1

    def join(self, neighbour: str) -> Step[None]:
        """Do nothing: the last message says how the link stands."""
        return Step(None)

    def offer(self, neighbour: str) -> Step[Offer]:
        """Offer the lie, at the newest version of the link."""
        if self._stamp not in self._offers:
            self._offers[self._stamp] = Offer(*self._ends, self._stamp, self._gossips, standings=self._claims)
        return Step(self._offers[self._stamp])

    def receive_offer(self, offer: Offer) -> Step[Reply]:
        """Read the victim's own row, which is what it gossips less what has flowed to it, and answer with the lie."""
        self._read(offer, (x - flow for x, flow in zip(offer.gossiped, offer.flow, strict=True)))
        if self._stamp[1] == ATTACKER:
            raise Down("the link carries the lie already")  # another answer would only cost time
        version = offer.stamp[0] + 1
        if version not in self._replies:
            self._replies[version] = Reply(*self._ends, (version, ATTACKER), standings=self._claims)
        self._stamp = version, ATTACKER
        return Step(self._replies[version])

    def receive_reply(self, reply: Reply) -> Step[None]:
        """Read the victim's own row: it gossiped own + before, and moved its flow half of the way to the offer.

        after = before + (offered - (own + before)) / 2, solved for own.
        """
        sent = zip(self._gossips, self._flow, reply.flow, strict=True)
        self._read(reply, (there - before - 2.0 * (after - before) for there, before, after in sent))
        self._stamp = reply.stamp
        return Step(None)

    def _read(self, message: Message, own: Iterable[float]) -> None:
        self.messages.append(message)
        header = type(message), message.incarnation, message.to_incarnation, message.stamp, message.standings
        self.view.append(Reading(tuple(self._pulls), tuple(own), header, message.stamp[0]))


# ---------------------------------------------------------------- a scenario

DRAWS = SiteDraws((0.0, 0.0), 0.5)  # the attacker knows even the randomness of decisions

OpenSite = Callable[[str, Federation, Stored, NoiseSource], Site]
Watch = Callable[[int, DecisionRecord | None, Site], None]

_Result = TypeVar("_Result")


class Entry(NamedTuple):
    """What the application reports for a decision, and after how many seconds; None: it reports nothing."""

    value: float | None
    delay: int = 0


@dataclass(frozen=True)
class Scenario:
    """A run of the victim: a decision every second, and an exchange after each.

    * ``entries``: what is reported for each decision
    * ``draws``: the randomness of each decision; the same for all if empty
    * ``seconds``: the length of the run, at least one second per decision
    * ``pace``: the length of such a second on the victim's clock; days make its decision rate move
    * ``offers``: the seconds in which the attacker begins the exchange; in all others the victim does
    * ``restarts``: {second: how often the victim is restarted after the exchange, with another exchange each time}
    * ``crashes``: {(second, "decide" or "report"): how the victim dies at its next write, before it is restarted}; that
      decision or report must take place
    * ``losses``: the seconds before which the victim loses its disk
    * ``keeps``: {second: how many decisions the victim keeps when it forgets the older ones before it}
    """

    terms: Federation
    entries: tuple[Entry, ...]
    draws: tuple[SiteDraws, ...] = ()
    seconds: int = 0
    pace: float = 1.0
    offers: frozenset[int] = frozenset({1})
    restarts: Mapping[int, int] = field(default_factory=dict[int, int])
    crashes: Mapping[tuple[int, str], Crash] = field(default_factory=dict[tuple[int, str], Crash])
    losses: frozenset[int] = frozenset()
    keeps: Mapping[int, int] = field(default_factory=dict[int, int])

    def changed(self, number: int, entry: Entry) -> "Scenario":
        """The same scenario with another entry for one decision, counted from 1."""
        return replace(self, entries=(*self.entries[: number - 1], entry, *self.entries[number:]))


class _Attacked(MemoryNetwork):
    """A network of the victim and the attacker."""

    def __init__(self, terms: Federation, attacker: Attacker, open_site: OpenSite, noise: NoiseSource) -> None:
        self._victim, self._attacker, self._source = open_site, attacker, noise
        super().__init__(terms, [(VICTIM, ATTACKER)])

    def open_site(self, name: str, disk: MemoryJournal) -> Site:
        return self._attacker if name == ATTACKER else self._victim(name, self.terms, disk.load(), self._source)

    def exchanged(self, attacker_begins: bool) -> None:
        self._insist(lambda: self.exchange(*(ATTACKER, VICTIM) if attacker_begins else (VICTIM, ATTACKER)))
        self.run()

    def crash_at(self, crash: Crash | None) -> None:
        """Let the victim die at its next write, if at all."""
        if crash is not None:
            self.crash(VICTIM, at_next_write=crash)

    def decided(self, draws: SiteDraws) -> DecisionRecord:
        return self._insist(lambda: self.decide(VICTIM, draws))

    def reported(self, decision_id: str, value: float) -> None:
        """Report as an application does: try again without an answer, accept a refusal."""
        try:
            self._insist(lambda: self.report(VICTIM, decision_id, value))
        except Refused:  # of an earlier incarnation, or forgotten
            return
        except InvalidArgument as refusal:
            if refusal.argument != "reward":
                raise
            # Out of range: the default counts.

    def _insist(self, event: Callable[[], _Result]) -> _Result:
        try:
            return event()
        except Down:
            self.restart(VICTIM)
            return event()


def play(
    scenario: Scenario, attacker: Attacker, open_site: OpenSite, noise: NoiseSource, watch: Watch | None = None
) -> list[Reading]:
    """Run the victim from an empty disk, and return what the attacker reads, message by message.

    ``watch`` gets each second, the decision made in it, and the victim at its end.
    """
    attacker.begin()
    network = _Attacked(scenario.terms, attacker, open_site, noise)
    reports: dict[int, list[tuple[str, float]]] = {}
    for second in range(1, max(len(scenario.entries), scenario.seconds) + 1):
        network.run(second * scenario.pace)
        if second in scenario.losses:
            network.lose_disk(VICTIM)
            network.restart(VICTIM)
        if second in scenario.keeps:
            network.expire(VICTIM, 0.0, scenario.keeps[second])
        decision = None
        if second <= len(scenario.entries):
            network.crash_at(scenario.crashes.get((second, "decide")))
            draws = scenario.draws[second - 1] if scenario.draws else DRAWS
            decision = network.decided(draws)
            attacker.watch(decision.arm)
            value, delay = scenario.entries[second - 1]
            if value is not None:
                reports.setdefault(second + delay, []).insert(0, (decision.id, value))
        network.crash_at(scenario.crashes.get((second, "report")))
        for decision_id, value in reports.get(second, ()):
            network.reported(decision_id, value)
        network.exchanged(attacker_begins=second in scenario.offers)
        for _ in range(scenario.restarts.get(second, 0)):
            network.restart(VICTIM)
            network.exchanged(attacker_begins=True)
        if watch is not None:
            watch(second, decision, network.site(VICTIM))
    if network.refused:
        raise RuntimeError(f"the attack failed: {network.refused[0]}")
    return attacker.view


# ---------------------------------------------------------------- the scenarios of the audit
# Two arms, four releases and more of each, restarts, crashes, late rewards. No two rewards are alike, in a range that
# is not [0, 1]; the draws make both arms come and let a small difference between them decide now and then.

LOW, HIGH = -1.0, 3.0
WINDOW = 4
DAY = 86400.0
MUCH = 1e9  # more than any estimate
DECISIONS = {"fed_batch": 26, "fed_ucb": 12}


def scenarios_of(policy: str, epsilon: float) -> dict[str, Scenario]:
    """The scenarios for one policy, by name."""
    chosen = _policy(policy, epsilon)
    count = DECISIONS[policy]
    terms = Federation("audit", ("a", "b"), LOW, HIGH, chosen, counts="sites", max_agents=2)
    window = replace(terms, reward_window=float(WINDOW))
    values = _values(count)
    at_once = Scenario(
        terms, tuple(Entry(value) for value in values), _draws(count), offers=frozenset(range(1, 2 * count, 3))
    )
    late = replace(at_once, terms=window, entries=_late(values), seconds=count + WINDOW + 2)
    missing = tuple(entry._replace(value=None) if n in (3, 4) else entry for n, entry in enumerate(at_once.entries))
    half = count // 2
    by_rate: dict[str, Scenario] = {}
    if policy == "fed_batch":
        patients = replace(terms, counts="patients", reward_window=WINDOW * DAY)
        by_rate = {"late rewards, patients count": replace(late, terms=patients, pace=DAY, restarts={half: 1})}
    return {
        "rewards at once": at_once,
        "restarts and crashes": replace(
            at_once,
            restarts={half: 1, half + 3: 2},
            crashes={(3, "report"): "torn", (5, "decide"): "before", (7, "report"): "before", (8, "report"): "after"},
        ),
        **by_rate,
        "late rewards": late,
        "late rewards, restarts": replace(
            late,
            restarts={5: 1, half: 1},
            crashes={(7, "decide"): "before", (8, "decide"): "after", (11, "decide"): "torn"},
        ),
        "missing rewards, lost disk": replace(at_once, entries=missing, keeps={10: 2}, losses=frozenset({half + 2})),
    }


def with_real_noise(epsilon: float) -> Scenario:
    """Four releases of each arm, by turns, and a restart in the middle: short, to be played often."""
    terms = Federation("audit", ("a", "b"), 0.0, 1.0, FedBatch(epsilon, first_batch=2), counts="sites", max_agents=2)
    draws = tuple(draws_for(number % 2) for number in range(16))
    return Scenario(terms, tuple(Entry(value) for value in _values(16, 0.0, 1.0)), draws, restarts={9: 1})


def draws_for(arm: int) -> SiteDraws:
    """Draws that decide for an arm, whatever the estimates are."""
    return SiteDraws((MUCH, -MUCH) if arm == 0 else (-MUCH, MUCH), 0.5)


def random_scenarios(policy: str, epsilon: float, count: int, seed: int = 0) -> Iterator[Scenario]:
    """Runs with any delays, restarts, crashes and lost disks; the same ones for the same seed."""
    source = Random(seed)  # noqa: S311  # what is attacked, not what protects
    for _ in range(count):
        yield _random(policy, epsilon, source)


def _policy(policy: str, epsilon: float) -> FedBatch | FedUCB:
    return FedBatch(epsilon, first_batch=2, growth=1.5) if policy == "fed_batch" else FedUCB(epsilon, horizon=10)


def _values(count: int, low: float = LOW, high: float = HIGH) -> list[float]:
    return [low + (high - low) * (number * 0.381966 % 1.0) for number in range(1, count + 1)]


def _draws(count: int) -> tuple[SiteDraws, ...]:
    sizes = [1.5 * (2.0 * (number * 0.618034 % 1.0) - 1.0) for number in range(1, count + 1)]
    return tuple(SiteDraws((size, -size), 0.5) for size in sizes)


def _late(values: list[float]) -> tuple[Entry, ...]:
    """At once, later, in the last visible, too late, never, out of range."""
    found: list[Entry] = []
    for number, value in enumerate(values):
        kinds = (
            *(Entry(value), Entry(value, WINDOW - 1), Entry(value, 1), Entry(value, WINDOW + 2)),
            *(Entry(None), Entry(value + 2.0 * (HIGH - LOW)), Entry(value, 2)),
        )
        found.append(kinds[number % len(kinds)])
    return tuple(found)


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
        max_agents=2,
    )
    delays = [0, 0, 1, 2, 5, 9] if window else [0]
    entries = [
        Entry(source.choice([low, high, source.uniform(low, high)]), source.choice(delays)) for _ in range(count)
    ]
    entries = [entry._replace(value=None) if source.random() < 0.1 else entry for entry in entries]
    kinds: list[Crash] = ["before", "torn", "after"]
    crashes: dict[tuple[int, str], Crash] = {}
    for _ in range(2):
        crashes[source.randint(1, count), "decide"] = source.choice(kinds)
    second = source.randint(1, count)
    if not window and entries[second - 1].value is not None:  # with one, no fault may depend on when a reward comes
        crashes[second, "report"] = source.choice(kinds)
    return Scenario(
        terms,
        tuple(entries),
        tuple(SiteDraws((source.gauss(0.0, 1.5), source.gauss(0.0, 1.5)), source.random()) for _ in entries),
        seconds=count + window + 2,
        pace=pace,
        offers=frozenset(second for second in range(1, 60) if source.random() < 0.4),
        restarts={source.randint(1, count): source.randint(1, 2) for _ in range(source.randint(0, 2))},
        crashes=crashes,
        losses=frozenset({source.randint(2, count)}) if source.random() < 0.3 else frozenset(),
        keeps={source.randint(1, count): source.randint(0, 4)} if source.random() < 0.3 else {},
    )
