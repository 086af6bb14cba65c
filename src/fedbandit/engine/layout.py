"""Array layout of a simulation: agents, what they see, their terms, streams and links as arrays for compiled code.

What an agent knows is one record of a structured array. The number of arms is part of the type, so compiled code
unrolls its loops over arms.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedbandit.checks import InvalidArgument
from fedbandit.engine.late_rewards import Lateness, lateness_of, new_waiting
from fedbandit.engine.links import LINKS, LinkKind, Matching, links_by, new_matching
from fedbandit.engine.threads import single_thread
from fedbandit.policies import Policy
from fedbandit.policies.plain import carried
from fedbandit.policies.protocol import ARMS, FEATURES, STRATA, Count, LinkRule, Page, Setting
from fedbandit.policies.registry import label_of
from fedbandit.shares import Shares
from fedbandit.world.graph import Contacts, Schedule
from fedbandit.world.problem import Problem

_KINDS = {"count": "i4", "number": "f8", "flag": "u1"}  # Numba has no nested arrays of booleans


class World(NamedTuple):
    """A problem as numbers."""

    means: Any  # [N, M]; with strata [N, S M], one stratum after the other
    rewards: Any  # the numbers of their family
    in_step: bool
    rates: Any  # [N]: probability that an agent acts in a round, unless in_step
    lateness: Lateness
    strata: Any  # [N, S]: the probability of a stratum or one before it; of problems without strata, nothing
    features: Any = 0  # FeatureArrays, where decisions have features
    theta: Any = 0  # [N, M, F]
    average_theta: Any = 0  # [M, F]


class LinkArrays(NamedTuple):
    """The graph's links, and which of them are active in a round."""

    edges: Any  # [E, 2]; indices are unsigned: compiled code tests signed ones for negative values
    first_neighbour: Any  # [N + 1], into neighbours
    neighbours: Any
    presence: float  # probability of each edge, where they come and go
    weight: float  # of each present edge; 0: Metropolis
    contact_times: Any  # of the contact list, in order; empty without one
    contact_edges: Any  # which edge
    present: Any  # [E]: whether an edge is present in this round; scratch where that does not matter
    degree: Any  # [N], scratch
    mixed: Any  # like the averages, scratch
    matching: Matching  # scratch
    team: Any  # Team, or one of a GPU


class TapeArrays(NamedTuple):
    """Fixed randomness, instead of streams."""

    on: bool
    rewards: Any  # [T + 1, N, M]
    edges: Any  # [T, 2]
    picks: Any  # [T, N]
    has_noise: bool
    noise: Any  # [T + 2, N, M]: of the interval that ends at the first index
    has_normals: bool
    normals: Any  # [T, N, M]
    shares: Any = np.zeros((1, 1))  # [T, N]: draws in [0, 1) for shares of arms
    strata: Any = np.zeros((1, 1), np.int64)  # [M + T, N]: of the first pulls, arm by arm, and of each later decision
    features: Any = np.zeros((1, 1, 1))  # [M + T, N, F]: in the same order


class ShownCounts(NamedTuple):
    """What neighbours read of an agent, apart from its record; of this round and of the next, in turn."""

    rows: Any  # [2, N, M and what fills a line of the cache]: n~
    stirred: Any  # [2, N]: whether it has changed since the round before


class Sharing(NamedTuple):
    """The shares, and the agents in a world without the control arm; without one, empty."""

    control: int  # -1: none
    control_share: float
    least_share: float
    few: Any  # [N] records of what each agent knows there; scratch
    few_bytes: Any  # [N, ...]: the same memory
    fresh: Any  # like few_bytes: before the first round
    all_bytes: Any  # [N, ...]: the memory of what agents know of all arms
    places: Any  # [..., 2]: of each byte that is the same in both, its places in few_bytes and in all_bytes
    unobserved: Any  # [N, M - 1]: scratch


class Releases(NamedTuple):
    """The boards of all agents: by who holds it, and whose it is."""

    rows: Any  # [N, N, M C]: what is published of the first arm, then of the second, ...
    versions: Any  # [N, N]
    shares: Any  # [N]: N times each agent's weight
    sources: Any  # [N], scratch: from whom an agent takes a row
    newest: Any  # [N], scratch: its version
    taken: Any  # [N, M C], scratch: the row


class Records(NamedTuple):
    """Where the numbers of records, and of noise, lie in an agent's row of numbers."""

    places: Any  # [..., 2]: of each name the first number, and how many there are of an arm
    length: int  # of the record of an arm
    noise: Any  # [..., 2]: the first number, and how many there are
    noises: int
    per_arm: bool  # noise is that of one arm; otherwise of all
    is_one: bool  # the record of the first arm is that of all


class Contexts(NamedTuple):
    """What is known of decisions before their arms are chosen, and what agents have decided in each cell."""

    names: Any  # [N]: names of the streams
    stratum: Any  # [N]: of the decision in hand
    waiting: Any  # [N, ...]: of the slots of ``Waiting``
    pulls: Any  # [N, S M]: decisions of each cell
    first: Any  # [N, S M]: those of t = 0


class FeatureContexts(NamedTuple):
    """Features of decisions, and what agents have lost by their arms."""

    names: Any  # [N]: names of the streams
    x: Any  # [N, F]: of the decision in hand
    zeros: Any  # [N, F]: where a decision of no features is asked for
    waiting: Any  # [N, ..., F]: of the slots of ``Waiting``
    mean: Any  # [N, M]: of the reward of the arm in hand
    lost: Any  # [N]: regret
    best: Any  # [N]: decisions for the best arm
    drawn: Any  # [N, F], scratch


class Population(NamedTuple):
    """All agents of one trial."""

    agents: Any  # [N] records of what each knows, and of what the network shows it
    terms: Any  # [N] records of each one's fixed numbers
    averages: Any  # [N, ...]: the same memory as rows of numbers, of which the first are averaged
    n_max: Any  # [N, M]: n~ of the next round, where it lies in agents' records
    shown: ShownCounts  # n~, where it lies apart
    steps: Any  # [N] records of what each does in the current round
    streams: Any  # [N] records of the names of its random streams
    pooled: Any  # [M]: the round in which an arm was last pooled
    before: Any  # [N, M, ...]: what an agent published of each arm before it was reweighed; scratch
    waiting: Any  # Waiting: rewards that do not count yet
    sharing: Any  # Sharing: shares of arms
    releases: Any  # Releases, where these spread; else 0
    contexts: Any  # Contexts, where decisions have strata, or FeatureContexts; else 0
    records: Any = 0  # Records, where a page has them or takes noise for features


def _dtype_of(page: Page, num_arms: int, num_strata: int = 0, num_features: int = 0) -> np.dtype[Any]:
    """The record of one agent: what the network averages for it first, then the rest, numbers before counts.

    What it sees and what it knows lie in one record, so that compiled code can tell that they do not overlap.
    """
    lengths = {ARMS: num_arms, STRATA: max(num_strata, 1), FEATURES: max(num_features, 1)}
    described = [
        (name, _KINDS[field.kind], tuple(lengths[size] if isinstance(size, str) else size for size in field.shape))
        for name, field in (page.knows | {"n_max": Count[ARMS]}).items()
    ]
    described.sort(key=lambda entry: -np.dtype(entry[1]).itemsize)
    averaged = [(name, "f8", (num_arms,)) for name in page.averaged]
    packed = np.dtype([*averaged, *described])
    padding = [("padding", "u1", (-packed.itemsize % 8,))] if packed.itemsize % 8 else []
    return np.dtype([*averaged, *described, *padding])


def _dtype_of_terms(terms: Any) -> np.dtype[Any]:
    kinds = {int: "i8", float: "f8"}
    return np.dtype([(name, kinds[type(value)]) for name, value in terms._asdict().items()])


def new_population(
    page: Page,
    terms: Any,
    num_arms: int,
    rounds_of_waiting: int = 0,
    shares: Shares | None = None,
    releasing: NDArray[np.float64] | None = None,
    num_strata: int = 0,
    num_features: int = 0,
    rows_of_features: int = 1,
) -> Population:
    """Agents that know nothing yet.

    ``rounds_of_waiting``: how long a reward may wait; 0: it counts at once. ``releasing``: N times each agent's weight,
    where releases spread.
    """
    num_agents, columns = len(terms), max(len(page.published_names), 1)
    agents = np.zeros(num_agents, _dtype_of(page, num_arms, num_strata, num_features))
    slots = rounds_of_waiting + num_arms if rounds_of_waiting else 1
    agents["n_max"] = 1  # after the first pulls everyone has pulled every arm once
    step = [("before", "f8", (columns,)), ("clock", "i8"), ("arm", "u8"), ("messages", "i8"), ("mixed", "i8")]
    cells = max(num_strata, 1) * num_arms
    noises = cells if page.context is not None else num_arms
    stream = [
        ("picks", "u8"),
        ("arrivals", "u8"),
        ("shares", "u8"),
        *((name, "u8", (noises if name == "noise" else num_arms,)) for name in _STREAMS_PER_ARM),
    ]
    return Population(
        agents=agents,
        terms=terms,
        averages=agents.view(np.float64).reshape(num_agents, -1),
        n_max=np.ones((num_agents, num_arms), np.int32),
        shown=_new_shown(num_agents, num_arms),
        steps=np.zeros(num_agents, np.dtype([*step, ("released", "i8"), ("acts", "i8")])),
        streams=np.zeros(num_agents, np.dtype(stream)),
        pooled=np.zeros(num_arms, np.int64),
        before=np.zeros((num_agents if page.reweigh is not None else 1, num_arms, columns)),
        waiting=new_waiting(num_agents, num_arms, columns, rounds_of_waiting),
        sharing=new_sharing(page, agents, _dtype_of(page, num_arms - 1, num_strata, num_features), shares, num_arms),
        releases=_new_boards(page, agents, releasing, num_arms, columns),
        records=new_records(page, agents.dtype, num_arms),
        contexts=(
            new_contexts(num_agents, num_arms, num_strata, slots)
            if num_strata
            else new_feature_contexts(num_agents, num_arms, num_features * rows_of_features, slots)
            if num_features
            else 0
        ),
    )


def new_records(page: Page, dtype: np.dtype[Any], num_arms: int) -> Records:
    """The places of the page's records and noise."""
    noisy = [name for name in ("noise", "gram_noise") if name in page.knows and page.context == "features"]
    places = [(_offset(dtype, name) // 8, dtype[name].itemsize // 8 // num_arms) for name in page.records]
    noise = [(_offset(dtype, name) // 8, dtype[name].itemsize // 8) for name in noisy]
    return Records(
        places=np.array(places, np.int64).reshape(-1, 2),
        length=sum(size for _, size in places),
        noise=np.array(noise, np.int64).reshape(-1, 2),
        noises=sum(size for _, size in noise),
        per_arm="gram_noise" not in page.knows,
        is_one=page.one_record,
    )


def length_of_record(page: Page, num_arms: int, num_strata: int, num_features: int) -> int:
    """How many numbers an agent publishes of an arm."""
    if not page.records:
        return len(page.published_names)
    return new_records(page, _dtype_of(page, num_arms, num_strata, num_features), num_arms).length


def _new_boards(page: Page, agents: Any, releasing: Any, num_arms: int, columns: int) -> Any:
    """Where releases spread: a board for each agent, of all agents. Of records also elsewhere: its own, or the sum."""
    if page.records:
        columns, num_agents = new_records(page, agents.dtype, num_arms).length, len(agents)
        boards, rows = {"gossip": (num_agents, num_agents), "pooled": (1, 1)}.get(page.network, (num_agents, 1))
        return new_releases(np.ones(rows) if releasing is None else releasing, num_arms, columns, boards)
    return 0 if releasing is None else new_releases(releasing, num_arms, columns, len(agents))


def new_feature_contexts(num_agents: int, num_arms: int, num_features: int, slots: int) -> FeatureContexts:
    """No decision has been made."""
    row = (num_agents, num_features)
    return FeatureContexts(
        names=np.zeros(num_agents, np.uint64),
        x=np.zeros(row),
        zeros=np.zeros(row),
        waiting=np.zeros((num_agents, slots, num_features)),
        mean=np.zeros((num_agents, num_arms)),
        lost=np.zeros(num_agents),
        best=np.zeros(num_agents, np.int64),
        drawn=np.zeros(row),
    )


def new_contexts(num_agents: int, num_arms: int, num_strata: int, slots: int) -> Contexts:
    """No decision has been made."""
    cells = num_strata * num_arms
    return Contexts(
        names=np.zeros(num_agents, np.uint64),
        stratum=np.zeros(num_agents, np.int64),
        waiting=np.zeros((num_agents, slots), np.uint8),
        pulls=np.zeros((num_agents, cells), np.int32),
        first=np.zeros((num_agents, cells), np.int32),
    )


def _new_shown(num_agents: int, num_arms: int) -> ShownCounts:
    """Everyone has pulled every arm once, which is news."""
    width = num_arms if num_agents < _MANY else -(-num_arms // _COUNTS_PER_LINE) * _COUNTS_PER_LINE
    room = np.ones(2 * num_agents * width + _COUNTS_PER_LINE, np.int32)
    start = -room.ctypes.data % (4 * _COUNTS_PER_LINE) // 4  # a row of a small number of arms touches one line
    rows = room[start : start + 2 * num_agents * width].reshape(2, num_agents, width)
    return ShownCounts(rows, np.ones((2, num_agents), np.uint8))


_MANY, _COUNTS_PER_LINE = 1_000, 16
MOST_BYTES = 8 * 2**30  # of the releases of one trial
_STREAMS_PER_ARM = ("rewards", "noise", "normals", "delays")


def new_sharing(page: Page, agents: Any, dtype_of_few: np.dtype[Any], shares: Shares | None, num_arms: int) -> Sharing:
    """``agents``: records of what each one knows. ``dtype_of_few``: the same with one arm less."""
    control = -1 if shares is None else shares.control_among(num_arms)
    few = np.zeros(len(agents) if control >= 0 else 0, dtype_of_few)
    few_bytes = few.view(np.uint8).reshape(len(few), dtype_of_few.itemsize)
    return Sharing(
        control=control,
        control_share=0.0 if shares is None else shares.control_share,
        least_share=0.0 if shares is None else shares.least_share,
        few=few,
        few_bytes=few_bytes,
        fresh=few_bytes.copy(),
        all_bytes=agents.view(np.uint8).reshape(len(agents), agents.dtype.itemsize),
        places=_places(page, dtype_of_few, agents.dtype, control, num_arms),
        unobserved=np.zeros((len(few), num_arms - 1), np.uint8),
    )


def _places(page: Page, few: np.dtype[Any], whole: np.dtype[Any], control: int, num_arms: int) -> Any:
    """Where the bytes of carried fields, averages and n~ lie in both records."""
    if control < 0:
        return np.zeros((0, 2), np.int64)
    pairs: list[tuple[int, int]] = []
    for name in (*page.averaged, "n_max", *carried(page)):
        size, here, there = few[name].itemsize, _offset(few, name), _offset(whole, name)
        if size == whole[name].itemsize:  # not a row with an entry for each arm
            pairs += [(here + b, there + b) for b in range(size)]
            continue
        each = whole[name].itemsize // num_arms
        for k in range(num_arms - 1):
            arm = k + int(k >= control)
            pairs += [(here + k * each + b, there + arm * each + b) for b in range(each)]
    return np.array(pairs, np.int64)


def _offset(record: np.dtype[Any], name: str) -> int:
    fields: Any = record.fields
    return fields[name][1]


def new_releases(shares: NDArray[np.float64], num_arms: int, columns: int, boards: int) -> Releases:
    """So many boards on which nobody has published anything; ``shares`` of those who may."""
    num_agents, width = len(shares), num_arms * columns
    return Releases(
        rows=np.zeros((boards, num_agents, width)),
        versions=np.zeros((boards, num_agents), np.int32),
        shares=shares,
        sources=np.zeros(num_agents, np.int64),
        newest=np.zeros(num_agents, np.int32),
        taken=np.zeros((num_agents, width)),
    )


def check_size(num_agents: int, num_arms: int, columns: int) -> None:
    """Refuse boards that no memory holds."""
    size = 8 * num_agents**2 * num_arms * columns
    if size > MOST_BYTES:
        raise InvalidArgument(
            "gossip",
            "releases",
            "averages for so many agents and arms",
            f"Each agent holds what every agent has published: {num_agents:,}^2 agents x {num_arms:,} arms x {columns} "
            f"numbers of 8 bytes are {size / 2**30:,.0f} GiB in each trial, more than {MOST_BYTES / 2**30:.0f}.",
        )


# ---------------------------------------------------------------- from a problem


def world_of(problem: Problem) -> World:
    """A problem as numbers."""
    return World(
        means=np.ascontiguousarray(problem.means).reshape(problem.num_agents, -1).copy(),
        rewards=problem.rewards.numbers,
        in_step=problem.rates is None,
        rates=np.ones(problem.num_agents) if problem.rates is None else problem.rates.copy(),
        lateness=lateness_of(problem),
        strata=np.zeros((1, 1)) if problem.strata is None else np.cumsum(problem.strata, axis=1),
        features=0 if problem.features is None else problem.features.arrays(problem.num_agents),
        theta=0 if problem.theta is None else problem.theta.copy(),
        average_theta=0 if problem.theta is None else problem.average_theta.copy(),
    )


def shares_of(problem: Problem) -> NDArray[np.float64]:
    """N times each agent's weight."""
    if np.all(problem.weights == problem.weights[0]):
        return np.ones(problem.num_agents)  # exactly the paper's update, whatever N * (1 / N) rounds to
    return problem.num_agents * problem.weights


def setting_of(problem: Problem, horizon: int, agent: int = 0) -> Setting:
    """What one agent may know of its world."""
    num_agents = problem.num_agents
    shares = shares_of(problem)
    low, high = problem.reward_range or (-np.inf, np.inf)
    return Setting(
        num_agents=num_agents,
        num_arms=problem.num_arms,
        share=float(shares[agent]),
        sum_of_squares=float(np.sum(problem.weights**2)),
        mean_square_share=float(np.sum(shares**2)) / num_agents,
        degree=int(problem.graph.degrees[agent]),
        complete=problem.graph.num_edges == num_agents * (num_agents - 1) // 2,
        in_step=problem.rates is None,
        horizon=horizon,
        low=float(low),
        high=float(high),
        bounded=problem.rewards.bounded,
        scale=problem.rewards.scale,
        reward_variance=problem.rewards.variance,
        unit=1.0,
        rewards=problem.rewards.name,
        counts=problem.counts,
        at_once=not problem.is_late,
        keeps_means=not (problem.changes or problem.may_miss_window),
        gossip=problem.gossip,
        num_strata=problem.num_strata,
        num_features=problem.num_features,
        rows_of_features=problem.rows_of_features,
        has_constant=problem.features is None or problem.features.intercept,
        norm=1.0 if problem.features is None else problem.features.norm,
    )


def settings_of(problem: Problem, horizon: int) -> tuple[list[Setting], NDArray[np.int64]]:
    """What agents may know of their world, each setting once; and which of these each agent has.

    Agents differ by their share and their number of neighbours alone.
    """
    table = np.column_stack([shares_of(problem), problem.graph.degrees])
    _, first, which = np.unique(table, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)  # in the order of agents: errors name the first
    world = setting_of(problem, horizon)
    found = [world._replace(share=share, degree=int(degree)) for share, degree in table[first[order]].tolist()]
    return found, np.argsort(order)[which.ravel()]


def terms_of(policy: Policy, settings: Sequence[Setting], which: NDArray[np.int64] | None = None) -> Any:
    """The fixed numbers of all agents, as records. ``which``: the setting of each agent; default: one for each."""
    each = [policy.terms(setting) for setting in settings]
    if len({tuple(map(type, terms)) for terms in each}) > 1:
        raise InvalidArgument("terms", each[0], "numbers of the same types for every agent")
    records = np.array([tuple(terms) for terms in each], _dtype_of_terms(each[0]))
    return records if which is None else records[which]


def links_of(policy: Policy, problem: Problem, horizon: int) -> tuple[LinkKind, list[tuple[int, LinkArrays]]]:
    """How links are used: the problem's way or the policy's own; and the links themselves, by their first round."""
    bring_links = getattr(policy, "links", None)
    kind, rule, chosen = LINKS["present"], LinkRule(1.0), problem.edges_per_round
    if bring_links is not None:
        if isinstance(problem.over_time, Contacts) or callable(chosen):
            raise InvalidArgument(
                "policy",
                label_of(policy),
                "one that takes the problem's links",
                "It brings its own, over all edges of the graph: leave out the contact list and the rule.",
            )
        rule = bring_links(setting_of(problem, horizon))
    elif isinstance(problem.over_time, Contacts):
        kind = LINKS["contacts"]
    elif callable(chosen):
        kind = links_by(chosen)
    elif chosen in ("one", "matching"):
        kind = LINKS[str(chosen)]
    elif chosen != "all":
        rule = LinkRule(float(chosen))
    page = policy.page()
    if page.meet is not None and page.network != "server" and kind in (LINKS["one"], LINKS["matching"]):
        raise InvalidArgument("links", chosen, "brought by a policy whose page has meet: it is told which are present")
    columns = len(page.averaged) * problem.num_arms
    periods = problem.over_time.periods if isinstance(problem.over_time, Schedule) else ((0, problem.graph.edge_array),)
    contacts = problem.over_time if isinstance(problem.over_time, Contacts) else None
    return kind, [(first, _links(problem, edges, contacts, rule, columns)) for first, edges in periods]


def _links(problem: Problem, given: Any, contacts: Contacts | None, rule: LinkRule, columns: int) -> LinkArrays:
    num_agents, edges = problem.num_agents, np.array(given, np.uint32).reshape(-1, 2)
    first_neighbour, neighbours = _adjacency(num_agents, edges, problem.over_time is not None)
    return LinkArrays(
        edges=edges,
        first_neighbour=first_neighbour,
        neighbours=neighbours,
        presence=rule.presence,
        weight=rule.weight,
        contact_times=np.zeros(0, np.int64) if contacts is None else contacts.times.copy(),
        contact_edges=np.zeros(0, np.int64) if contacts is None else contacts.edge_numbers.copy(),
        present=np.zeros(len(edges), np.int64),
        degree=np.zeros(num_agents, np.int64),
        mixed=np.zeros((num_agents, columns)),
        matching=new_matching(num_agents),
        team=single_thread(num_agents),
    )


def _adjacency(
    num_agents: int, edges: NDArray[np.uint32], with_itself: bool
) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """The neighbours of each agent in one row, and where each agent's begin.

    ``with_itself``: where links come and go, an agent remembers its own n~. So it does if it has no neighbour.
    """
    lonely = np.bincount(edges.ravel(), minlength=num_agents) == 0
    itself = np.flatnonzero(lonely | with_itself)
    ends = np.concatenate([edges[:, 0], edges[:, 1], itself])
    others = np.concatenate([edges[:, 1], edges[:, 0], itself])
    order = np.lexsort((others, ends))
    first = np.concatenate([[0], np.cumsum(np.bincount(ends.astype(np.int64), minlength=num_agents))])
    return first.astype(np.int64), others[order].astype(np.uint32)


def with_own_scratch(links: LinkArrays) -> LinkArrays:
    """The same links, with scratch memory for another thread."""
    return links._replace(
        present=links.present.copy(),
        degree=links.degree.copy(),
        mixed=links.mixed.copy(),
        matching=new_matching(len(links.degree)),
    )


def no_tape() -> TapeArrays:
    """Randomness from streams alone."""
    cube = np.zeros((1, 1, 1))
    return TapeArrays(False, cube, np.zeros((1, 2), np.int64), np.zeros((1, 1)), False, cube, False, cube)
