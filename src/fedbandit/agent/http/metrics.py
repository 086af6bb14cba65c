"""Prometheus metrics of an agent, computed from its state on every scrape.

Times are timestamps, by convention: the age of an exchange is ``time() - ..._timestamp_seconds``.
"""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from fedbandit.agent.http.state import SiteState

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
"""The content type of the metrics."""

_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)


class Metrics:
    """One agent's metrics: its state, the latency of decisions and rewards, and the process."""

    def __init__(self) -> None:
        """Use a separate registry: several agents may share one process."""
        registry = self._registry = CollectorRegistry()
        self._from_state = _FromState()
        registry.register(self._from_state)
        ProcessCollector(registry=registry)
        self.decide_seconds = Histogram(
            "fedbandit_decide_duration_seconds",
            "Time to hand out a decision, including the disk.",
            buckets=_BUCKETS,
            registry=registry,
        )
        self.reward_seconds = Histogram(
            "fedbandit_reward_duration_seconds",
            "Time to accept a reward, including the disk.",
            buckets=_BUCKETS,
            registry=registry,
        )

    def text(self, state: SiteState, is_ready: bool) -> bytes:
        """All metrics, in the text format."""
        self._from_state.read = state, is_ready
        return generate_latest(self._registry)


class _FromState(Collector):
    read: tuple[SiteState, bool] | None = None
    """The state, and whether the agent serves; None before the first scrape."""

    def describe(self) -> Iterable[Metric]:
        """Nothing: the state is not read before the first scrape."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All metrics of one state."""
        if self.read is None:
            return
        state, is_ready = self.read
        yield InfoMetricFamily(
            "fedbandit_agent",
            "Identity of the agent.",
            {
                "agent": state.name,
                "version": state.version,
                "federation": state.federation.name,
                "federation_digest": state.federation.digest,
            },
        )
        yield _gauge("fedbandit_ready", "Whether the agent serves.", float(is_ready))
        yield _gauge(
            "fedbandit_certificate_expires_timestamp_seconds", "Expiry of the certificate.", state.certificate_until
        )
        yield _gauge("fedbandit_held", "Whether nothing is released now.", float(state.held is not None))
        yield _by(
            "kind",
            "fedbandit_warnings",
            "Number of warnings in the state: those of the terms, which stay; notes, which need nobody; and others.",
            (
                ("terms", terms := len(state.warnings_of_terms)),
                ("note", notes := len(state.notes)),
                ("other", len(state.warnings) - terms - notes),
            ),
            GaugeMetricFamily,
        )
        yield _gauge("fedbandit_privacy_epsilon", "Epsilon that one reward costs.", state.privacy.epsilon_per_reward)
        window = state.federation.reward_window
        yield _gauge("fedbandit_reward_window_seconds", "Time until a reward counts; 0: at once.", window)
        yield from _decisions(state)
        yield from _arms(state)
        yield from _neighbours(state)
        yield from _members(state)
        refused = state.refused.items()
        yield _counters("fedbandit_refused", "Refused connections and calls at the gossip port.", "reason", refused)


def _decisions(state: SiteState) -> Iterator[Metric]:
    decisions = state.decisions
    yield CounterMetricFamily("fedbandit_decisions", "Decisions handed out, over all runs.", decisions.handed_out)
    yield _gauge("fedbandit_decisions_pending", "Decisions without a reward.", decisions.pending)
    yield _gauge("fedbandit_rewards_waiting", "Rewards that do not count yet.", decisions.waiting)
    yield CounterMetricFamily("fedbandit_rewards_late", "Rewards that came too late to count.", decisions.late)
    yield _gauge("fedbandit_decisions_remembered", "Decisions that have not expired.", decisions.remembered)
    yield _gauge("fedbandit_decisions_keep", "Most decisions that are remembered.", decisions.keep)
    says = "Time after its window until a decision is forgotten."
    yield _gauge("fedbandit_decisions_expire_after_seconds", says, decisions.expire_after)
    forgotten = decisions.forgotten.items()
    yield _counters("fedbandit_decisions_forgotten", "Decisions forgotten without a reward.", "reason", forgotten)


def _arms(state: SiteState) -> Iterator[Metric]:
    def each(name: str, says: str, values: Iterable[float | None], kind: type[_Family] = GaugeMetricFamily) -> Metric:
        return _by("arm", name, says, zip((arm.name for arm in state.arms), values, strict=True), kind)

    arms = state.arms
    yield _gauge("fedbandit_arms_version", "Changes of the arms that this site knows.", state.arms_version)
    yield _gauge("fedbandit_arms_waiting", "Changes of the arms that wait for the operator.", state.arms_waiting)
    family = GaugeMetricFamily("fedbandit_arm_status", "1: the arm is in this status.", labels=["arm", "status"])
    for arm in arms:
        for status in ("active", "suspended", "retired"):
            family.add_metric([arm.name, status], float(arm.status == status))
    yield family
    says = "Decisions for the arm, pending ones included."
    yield each(
        "fedbandit_arm_pulls", says, [arm.pulls for arm in arms]
    )  # a gauge: expiry in an old file subtracts some
    yield each("fedbandit_arm_rewards", "Rewards of the arm.", [arm.rewards for arm in arms], CounterMetricFamily)
    yield each("fedbandit_arm_releases", "Releases of the arm.", [arm.releases for arm in arms], CounterMetricFamily)
    yield each(
        "fedbandit_arm_estimate",
        "Mean over all patients, or sites; absent while unknown.",
        [arm.estimate for arm in arms],
    )
    yield each("fedbandit_arm_radius", "Uncertainty of it; absent while unknown.", [arm.radius for arm in arms])
    says = "Chance that it is the best active arm; absent while unknown."
    yield each("fedbandit_arm_chance_best_ratio", says, [arm.chance_best for arm in arms])
    says = "What giving it instead of the leading arm costs per decision; absent while unknown."
    yield each("fedbandit_arm_behind", says, [arm.behind for arm in arms])
    yield _gauge("fedbandit_settled", "Whether the answer is settled.", state.answer.settled)
    yield each("fedbandit_arm_own_mean", "Mean of this site's releases.", [arm.own_mean for arm in arms])
    says = "Sites that have not said that they know the stop of the arm, or have resumed it."
    yield each("fedbandit_arm_stop_missing", says, [len(arm.missing) + len(arm.resumed_by) for arm in arms])
    yield each("fedbandit_arm_weight", "Share of the federation in the estimate.", [arm.weight for arm in arms])


def _neighbours(state: SiteState) -> Iterator[Metric]:
    links = state.neighbours
    names = [link.name for link in links]

    def each(name: str, says: str, values: Iterable[float | None], kind: type[_Family] = GaugeMetricFamily) -> Metric:
        return _by("neighbour", f"fedbandit_neighbour_{name}", says, zip(names, values, strict=True), kind)

    counter = CounterMetricFamily
    yield each("received", "Bulletins that came over the link.", [link.received for link in links], counter)
    yield each("sent", "Bulletins sent over the link.", [link.sent for link in links], counter)
    yield each("failures", "Failed calls and lost connections.", [link.failures for link in links], counter)
    yield each("refusals", "Refused calls and messages from the neighbour.", [link.refusals for link in links], counter)
    yield each("reachable", "Whether there is a connection.", [link.reachable for link in links])
    says = "When anything came from it last; absent before."
    yield each("last_heard_timestamp_seconds", says, [link.last_heard for link in links])


def _members(state: SiteState) -> Iterator[Metric]:
    members = state.members
    names = [it.name for it in members]

    def each(name: str, says: str, values: Iterable[float | None]) -> Metric:
        return _by("member", f"fedbandit_member_{name}", says, zip(names, values, strict=True), GaugeMetricFamily)

    yield _gauge("fedbandit_members_counted", "Sites whose numbers count here.", state.federation.num_agents)
    yield each("counts", "Whether its numbers count here.", [it.counts for it in members])
    yield each(
        "conflict", "Whether it has signed two bulletins with one number.", [bool(it.conflict) for it in members]
    )
    yield each("oddities", "What does not fit in its numbers.", [len(it.oddities) for it in members])
    yield each("share_ratio", "Its largest share of an average here.", [it.share for it in members])
    yield each("bulletin_timestamp_seconds", "When its newest bulletin arrived.", [it.since for it in members])


_Family = CounterMetricFamily | GaugeMetricFamily


def _gauge(name: str, says: str, value: float | None) -> Metric:
    family = GaugeMetricFamily(name, says)
    if value is not None:
        family.add_metric([], value)
    return family


def _counters(name: str, says: str, label: str, values: Iterable[tuple[str, float]]) -> Metric:
    return _by(label, name, says, values, CounterMetricFamily)


def _by(label: str, name: str, says: str, values: Iterable[tuple[str, float | None]], kind: type[_Family]) -> Metric:
    """One sample per name; none where there is no value."""
    family = kind(name, says, labels=[label])
    for key, value in values:
        if value is not None:
            family.add_metric([key], float(value))
    return family
