"""The terms that all sites of a federation agree on, their hash, and how two sets of terms differ.

What may differ between sites (name, neighbours, files) is in the configuration.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import inf
from typing import Any, cast

from fedbandit.agent.core.bulletin import room_for_changes
from fedbandit.agent.core.context import Factors
from fedbandit.agent.core.evaluation import Evaluation
from fedbandit.agent.core.guardrails import Guardrails, check_guardrails
from fedbandit.agent.core.words import Plan, Words
from fedbandit.checks import (
    LARGEST,
    Counts,
    InvalidArgument,
    checked_counts,
    finite_number,
    instance,
    number_between,
    shortened,
    whole_number,
)
from fedbandit.policies import FedBatch, FedUCB, GossipUCB, Policy
from fedbandit.policies.protocol import ARMS, Count, Page, Setting, page_on
from fedbandit.policies.registry import WrongPage, check_kind, is_built_in, kind_of, source_hash
from fedbandit.privacy.mechanism import Mechanism, levels_of, setting_in_steps, terms_in_steps
from fedbandit.privacy.noise import GRID, NoiseSource, from_grid, laplace
from fedbandit.rules.strata_influence import packed_length
from fedbandit.shares import Shares
from fedbandit.testing.admission import admit, check_choices, claimed_epsilon, small
from fedbandit.testing.dry_run import dry_run

__all__ = [
    "DAY",
    "LARGEST_RATE",
    "LARGEST_SHARE",
    "MAX_AGENTS",
    "MAX_WINDOW",
    "NO_FEATURES",
    "SCALES",
    "Federation",
    "check_own_policy",
    "check_trust",
]


# ---------------------------------------------------------------- own policies


AVERAGED = (("theta",), ("value", "weight"))

SCALES = 100.0
"""A Laplace draw exceeds this many scales with probability e^-100."""


def check_trust(kind: str, trusted: str) -> None:
    """Refuse an own policy that the operator has not agreed to run."""
    if kind != trusted:
        raise InvalidArgument(
            "policy.kind",
            kind,
            "a policy of fedbandit, or the one that trust_policy names",
            "It is code from outside, and would run with the rewards of this site. Read it; then write "
            f'trust_policy = "{kind}" at the top of site.toml.',
        )


NO_FEATURES = (
    "Live sites do not support features: a release has exact sums of them, which can show those of one patient, and "
    'its noise is in floating point. Declare levels in [federation.context], for context = "strata" in '
    "[federation.policy]; with features, simulate."
)
"""Why nothing at a live site takes features."""


def check_own_policy(policy: Policy, trusted: str, num_agents: int, num_arms: int, low: float, high: float) -> None:
    """Refuse an own policy that is not trusted, not sound, or that a live site cannot play.

    What a site gossips of an arm is a mean, or a value and its weight, so that neighbours can tell impossible numbers.
    """
    kind = kind_of(policy)
    check_trust(kind, trusted)
    if _takes_features(policy):
        raise WrongPage(kind, f"its page has context='features'. {NO_FEATURES}")
    setting = setting_in_steps(num_agents, num_arms, low, high)
    if (check := getattr(policy, "check", None)) is not None:
        check(setting)
    page = admit(policy, setting).page
    _check_page(kind, page, hasattr(policy, "links"))
    terms = policy.terms(setting)
    _check_noise(kind, page, terms, claimed_epsilon(policy))
    _check_published(kind, page, policy.terms(small(setting)), small(setting))
    check_choices(kind, page, policy.terms(small(setting)), small(setting))


def _takes_features(policy: Policy) -> bool:
    try:
        return policy.page().context == "features"
    except Exception:  # its admission says what is wrong
        return False


def _check_page(kind: str, page: Page, has_links: bool) -> None:
    if page.network != "gossip" or page.meet is not None or has_links:
        raise WrongPage(kind, "a live site plays pages of the network 'gossip', without meet and links of their own")
    if page.averaged not in AVERAGED:
        raise WrongPage(
            kind,
            f"averaged is {page.averaged!r}: a live site gossips ('theta',), a mean, or ('value', 'weight'), and so "
            "knows how large an honest number can be; a page taken from FedBatch needs on_releases=None",
        )
    n = page.knows.get("n")
    if n != Count[ARMS]:
        raise WrongPage(kind, "knows must have n=Count[ARMS], the rewards of each arm: a live site counts with it")


def _check_noise(kind: str, page: Page, terms: Any, epsilon: float) -> None:
    if page.noise_due is None:
        if epsilon < inf:
            raise WrongPage(kind, f"claims epsilon={epsilon:g} and asks for no noise: the page has no noise_due")
        return
    if page.interval is None:
        raise WrongPage(
            kind, "noise_due asks for noise, and the page has no interval, which names the rewards it hides"
        )
    per_release = getattr(terms, "epsilon_per_release", None)
    if type(per_release) is not float or not 0.0 < per_release < inf:
        raise WrongPage(kind, "the terms need epsilon_per_release, a float: the ledger draws noise for it")
    if epsilon == inf:
        raise WrongPage(kind, "noise_due asks for noise, and the policy claims no privacy: give it a field epsilon")
    spent = levels_of(terms) * per_release
    if spent > epsilon * (1.0 + 1e-9):
        raise WrongPage(kind, f"claims epsilon={epsilon:g}, but its releases cost one reward {spent:g}")


def _check_published(kind: str, page: Page, terms: Any, setting: Setting) -> None:
    """Others clamp what lies outside the range and its noise (``counting``): so this site refuses it at its start."""
    room = SCALES * getattr(terms, "noise_scale", 0.0) / getattr(terms, "first_batch", 1)
    for t, shown in enumerate(dry_run(kind, page, terms, setting)[1]):
        for row in shown.published:
            for arm, (value, *weight) in enumerate(row):
                most = weight[0] * GRID if weight else GRID
                if not -room <= value <= most + room or any(not 0.0 <= x <= 1.0 for x in weight):
                    raise WrongPage(
                        kind,
                        f"published returns {(value, *weight)} for arm {arm} in round {t}, where rewards lie in 0 to "
                        f"{GRID}: a live site publishes means, or weights from 0 to 1 and means times weights",
                    )


# ---------------------------------------------------------------- the terms


MAX_AGENTS = 100
"""The most sites that may take part, if the terms say nothing."""

LARGEST_SHARE = 0.5
"""Of all patients, that one site counts as at most, if the terms say nothing."""

DAY = 24 * 3600.0

LARGEST_RATE = 100.0
"""The most decisions per second by which a site counts, if the terms say nothing; one that is faster counts as this
fast."""

MAX_WINDOW = 1e9
"""The longest reward window in seconds, about 30 years."""

MOST_SHOWN = 20
"""The most differences that are shown: another site may have made up thousands."""


@dataclass(frozen=True)
class Federation:
    """The terms. Sites with different terms are refused, and so are their files.

    * ``arms``: their names, in order
    * ``low``, ``high``: the range of a reward
    * ``policy``: ``FedBatch`` with a finite epsilon, without the paper's consistency rule, which makes a slow site
      chase a fast one's counts for ever (docs/fedbatch.md); or, with that rule, ``FedUCB`` with a finite epsilon and a
      horizon, the most decisions of an arm at a site after the first; or ``GossipUCB``, which is not private; or an
      own policy that is trusted (docs/own-policy.md)
    * ``reward_window``: seconds from a decision until its reward counts, if it has come by then; 0: rewards are
      reported at once, and count as soon as those of all earlier decisions of the arm are there
    * ``default_reward``: counts where no reward came; None: the lowest
    * ``counts``: whose average decides which arm is best: ``"patients"``, the default for ``FedBatch``, or ``"sites"``,
      which count alike, as in the paper
    * ``max_decisions_per_day``: the most decisions per day at one site; one that is faster counts as this fast. It
      bounds what a site that lies can claim (docs/liars.md); None: 100 per second
    * ``largest_share``: where patients count, one site counts as at most this share of all, however many it claims to
      have: so one that lies moves no estimate further
    * ``shares``: a control arm, by name, and the least share of every other arm (docs/shares.md); None: the index alone
    * ``max_agents``: how many sites are expected at most, 100 unless given. How many there are, sites learn from each
      other. With fewer than ten, the first batches of ``FedBatch`` are larger. An own policy is tried, and plays, with
      this number of sites
    * ``guardrails``: by how much an arm may be worse than a reference before every site suspends it
      (docs/guardrails.md); None: only people stop arms
    * ``context``: what is known of a patient before an arm is chosen (docs/http.md); None: nothing
    * ``evaluation``: which other policies are evaluated over all sites, with a budget of their own (docs/evaluate.md)
    * ``words``, ``plan``: how it speaks to people, and what was planned; they change no number
    * ``trusted``: the ``module:Class`` whose code this site agrees to run; not a term of the federation
    """

    name: str
    arms: tuple[str, ...]
    low: float
    high: float
    policy: Policy
    trusted: str = field(default="", compare=False, repr=False)
    reward_window: float = 0.0
    default_reward: float | None = None
    counts: Counts | None = None
    max_decisions_per_day: float | None = None
    shares: Shares | None = None
    max_agents: int | None = None
    largest_share: float = LARGEST_SHARE
    guardrails: Guardrails | None = None
    context: Factors | None = None
    evaluation: Evaluation | None = None
    words: Words = field(default_factory=Words)
    plan: Plan = field(default_factory=Plan)

    def __post_init__(self) -> None:
        """Check the terms."""
        instance("name", self.name, str, "text")
        self._check_agents()
        object.__setattr__(self, "arms", tuple(self.arms))
        for k, arm in enumerate(self.arms):
            instance(f"arms[{k}]", arm, str, "text")
        if len(self.arms) < 2 or len(set(self.arms)) < len(self.arms):
            raise InvalidArgument("arms", self.arms, "two or more different names")
        for name in ("low", "high"):
            value = finite_number(name, getattr(self, name))
            if abs(value) > LARGEST:
                raise InvalidArgument(name, value, f"at most {LARGEST:g} in size")
            object.__setattr__(self, name, value)
        if not self.low < self.high:
            raise InvalidArgument("high", self.high, f"above low ({self.low:g})")
        self._check_window()
        self._check_policy()
        _ = self.room_for_changes
        self._check_counts()
        self._check_rate()
        self._check_shares()
        self._check_share()
        if self.guardrails is not None:
            instance("guardrails", self.guardrails, Guardrails, "Guardrails")
            check_guardrails(self)
        if self.context is not None:
            instance("context", self.context, Factors, "Factors")
        if self.evaluation is not None:
            instance("evaluation", self.evaluation, Evaluation, "Evaluation")
            self.evaluation.targets(self.arms, {} if self.context is None else self.context.plain)
        instance("words", self.words, Words, "Words")
        instance("plan", self.plan, Plan, "a Plan")

    def _check_agents(self) -> None:
        if self.max_agents is None:
            return
        most = whole_number("max_agents", self.max_agents, 1, 10**6)
        is_default = most == MAX_AGENTS and is_built_in(self.policy)
        object.__setattr__(self, "max_agents", None if is_default else most)  # equal terms are equal

    @property
    def most_agents(self) -> int:
        """How many sites are expected at most."""
        return self.max_agents or MAX_AGENTS

    def _check_window(self) -> None:
        window = finite_number("reward_window", self.reward_window)
        if not 0.0 <= window <= MAX_WINDOW:
            raise InvalidArgument("reward_window", window, f"0 to {MAX_WINDOW:g} seconds")
        object.__setattr__(self, "reward_window", window)
        if self.default_reward is None:
            return
        default = finite_number("default_reward", self.default_reward)
        if not self.low <= default <= self.high:
            raise InvalidArgument("default_reward", default, f"a reward, from {self.low:g} to {self.high:g}")
        object.__setattr__(self, "default_reward", None if default == self.low else default)  # equal terms are equal

    def _check_counts(self) -> None:
        if self.counts is None:
            return
        counts, default = checked_counts("counts", self.counts), self._default_counts
        if (counts, default) == ("patients", "sites"):
            hint = "Only fed_batch measures how many patients a site has."
            raise InvalidArgument("counts", counts, f"sites for {kind_of(self.policy)} with these parameters", hint)
        object.__setattr__(self, "counts", None if counts == default else counts)  # equal terms are equal

    def _check_rate(self) -> None:
        if self.max_decisions_per_day is None:
            return
        most = finite_number("max_decisions_per_day", self.max_decisions_per_day)
        if not 1.0 <= most <= LARGEST_RATE * DAY:
            raise InvalidArgument("max_decisions_per_day", most, f"1 to {LARGEST_RATE * DAY:g}")
        if self.counted == "sites" and not self.catches_up:
            hint = "Sites count alike here, however many decisions they make."
            raise InvalidArgument("max_decisions_per_day", most, "left out where sites count", hint)
        object.__setattr__(self, "max_decisions_per_day", most)

    def _check_share(self) -> None:
        share = number_between("largest_share", self.largest_share, 0.0, 1.0)
        if share != LARGEST_SHARE and self.counted == "sites":
            hint = "Sites count alike here, however many patients they have."
            raise InvalidArgument("largest_share", share, "left out where sites count", hint)
        object.__setattr__(self, "largest_share", share)

    def _check_shares(self) -> None:
        if self.shares is None:
            return
        instance("shares", self.shares, Shares, "Shares")
        try:
            self.shares.control_among(self.arms)
        except InvalidArgument as error:
            raise error.at("shares") from None

    @cached_property
    def control(self) -> int:
        """The number of the control arm; -1: there is none."""
        return -1 if self.shares is None else self.shares.control_among(self.arms)

    @property
    def largest_rate(self) -> float:
        """The most decisions per second by which a site counts."""
        return LARGEST_RATE if self.max_decisions_per_day is None else self.max_decisions_per_day / DAY

    @property
    def _default_counts(self) -> Counts:
        return "patients" if isinstance(self.policy, FedBatch) else "sites"

    @property
    def counted(self) -> Counts:
        """Whose average decides which arm is best."""
        return self.counts or self._default_counts

    def _check_policy(self) -> None:
        policy = self.policy
        if is_built_in(policy) and policy.page().context == "features":
            raise InvalidArgument("policy", policy, "one that takes no features", NO_FEATURES)
        check_kind("policy", policy, (FedBatch, FedUCB, GossipUCB), "a FedBatch, FedUCB or GossipUCB")
        if not is_built_in(policy):
            if self.max_agents is None:
                hint = "An own policy is checked, and plays, with this number of sites."
                raise InvalidArgument("max_agents", None, "given for a policy from outside", hint)
            check_own_policy(policy, self.trusted, self.max_agents, self.num_arms, self.low, self.high)
            return
        if not isinstance(policy, (FedBatch, FedUCB)):
            return
        if policy.epsilon == inf:
            raise InvalidArgument("policy.epsilon", inf, "finite", "The policy without privacy is gossip_ucb.")
        if policy.assume_sensitivity is not None:
            raise InvalidArgument(
                "policy.assume_sensitivity", policy.assume_sensitivity, "left out: rewards have a range"
            )
        if isinstance(policy, FedUCB):
            if policy.paper:
                raise InvalidArgument("policy.paper", True, "False: as printed, epsilon is not met")
            if policy.horizon is None:
                raise InvalidArgument("policy.horizon", None, "given: the tree is made for so many decisions of an arm")
            return
        if policy.radius == "proved":
            self._check_proof()
        if policy.context != "ignore":
            self._check_strata(policy.context)
        if policy.catches_up:
            raise InvalidArgument("policy.catches_up", True, "False: live sites do not act in step")
        if policy.index == "kl" and (self.low, self.high) != (0.0, 1.0):
            raise InvalidArgument("policy.index", "kl", "for rewards in [0, 1] only")

    def _check_strata(self, context: str) -> None:
        """Refuse a policy that is told the strata of a federation that has none, or one that is there to compare."""
        if context == "separate":
            hint = "It is there to be compared with, in simulations."
            raise InvalidArgument("policy.context", context, "strata, or ignore", hint)
        if self.context is None:
            raise InvalidArgument("policy.context", context, "ignore unless [federation.context] names factors")

    def _check_proof(self) -> None:
        """Refuse terms that docs/theorem.md does not cover; ``FedBatch.check`` says the rest."""
        hint = "docs/theorem.md says what is proved."
        if self.counted == "patients":
            accepted = 'calibrated unless counts is "sites": the proof knows the weights beforehand'
            raise InvalidArgument("policy.radius", "proved", accepted, hint)
        if self.reward_window > 0.0:
            accepted = "calibrated with a reward_window: the default that counts for a missing reward moves the mean"
            raise InvalidArgument("policy.radius", "proved", accepted, hint)

    @property
    def num_arms(self) -> int:
        """M."""
        return len(self.arms)

    @property
    def num_strata(self) -> int:
        """How many strata the policy tells apart; 0: it gives all the same arm, whatever their context."""
        is_told = isinstance(self.policy, FedBatch) and self.policy.context != "ignore"
        return self.context.num_strata if is_told and self.context is not None else 0

    @property
    def num_levels(self) -> int:
        """How many combinations of levels patients may have, whether the policy is told or not; 0: no factors."""
        return 0 if self.context is None else self.context.num_strata

    @property
    def num_columns(self) -> int:
        """How many numbers a bulletin has of what a site has released of an arm."""
        return packed_length(self.num_strata) if self.num_strata else len(self.page.published_names)

    def stratum(self, context: Mapping[str, str | None] | None) -> int | None:
        """The stratum of a patient of whom this is known; None where the terms have no factors."""
        if self.context is not None:
            return self.context.stratum({} if context is None else context)
        if context is None:
            return None
        raise InvalidArgument("context", context, "left out: the terms have no [federation.context]")

    @cached_property
    def room_for_changes(self) -> int:
        """The bytes that a site's changes of arms may have in its bulletin."""
        return room_for_changes(self.arms, self.num_columns, self.num_strata)

    @property
    def missing_reward(self) -> float:
        """What counts where no reward came."""
        return self.low if self.default_reward is None else self.default_reward

    @cached_property
    def page(self) -> Page:
        """The functions that play the policy."""
        return page_on(self.policy.page(), "releases", self.num_strata)

    @cached_property
    def page_terms(self) -> Any:
        """The fixed numbers of the page, in steps of the grid: the one source of first batch, horizon and noise."""
        world = self.num_arms, self.low, self.high, self.counted, self.num_strata
        return terms_in_steps(self.policy, self.most_agents, *world)

    def mechanism(self, noise: NoiseSource = laplace, num_arms: int | None = None) -> Mechanism:
        """A site's own numbers before the first reward; ``num_arms``: how many it has now, if not those of the terms.

        An arm that is added changes no number that was fixed before the first round.
        """
        return Mechanism(
            self.policy,
            self.most_agents,
            self.num_arms,
            self.low,
            self.high,
            noise,
            self.counted,
            num_arms,
            self.num_strata,
        )

    @property
    def first_batch(self) -> int:
        """How many rewards the first release of an arm holds."""
        return getattr(self.page_terms, "first_batch", 1)

    @property
    def max_pulls(self) -> int | None:
        """The most decisions of an arm at one site: T, and the first one at t = 0; None without a horizon."""
        return getattr(self.page_terms, "max_pulls", None)

    @property
    def noise_scale(self) -> float:
        """The scale of the noise of one release's sum, in units of the reward; 0 without privacy."""
        return from_grid(getattr(self.page_terms, "noise_scale", 0.0), 0.0, self.high - self.low)

    @property
    def catches_up(self) -> bool:
        """Whether the paper's consistency rule holds (Algorithm 1, lines 5, 6 and 13)."""
        return self.page.announced is not None

    def terms(self) -> dict[str, Any]:
        """The terms in plain text, numbers, lists and mappings, fit for JSON; without those that are not given."""
        plain: dict[str, Any] = asdict(self) | {
            "default_reward": self.missing_reward,
            "counts": self.counted,
            "max_agents": self.most_agents,
            "arms": list(self.arms),
        }
        del plain["trusted"]
        plain["context"] = None if self.context is None else self.context.plain
        plain["evaluation"] = None if self.evaluation is None else self.evaluation.plain
        for name, default in (("words", Words()), ("plan", Plan())):
            said = {key: value for key, value in plain.pop(name).items() if value != getattr(default, key)}
            if said:
                plain[name] = said
        if self.counted == "sites":
            del plain["largest_share"]
        source = {} if is_built_in(self.policy) else {"source": source_hash(self.policy)}
        policy = {"kind": kind_of(self.policy), **source, **_given(plain["policy"])}
        return {**_given(plain), "policy": policy}

    def digest(self) -> str:
        """A hash of the terms: equal if and only if the terms are."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        return hashlib.sha256(json.dumps(self.terms(), sort_keys=True).encode()).hexdigest()

    def difference(self, other_terms: Mapping[str, object]) -> list[str]:
        """The fields that differ from another's ``terms()``, such as "policy.epsilon: 1.0 here, 2.0 there"."""
        here, there = _flat(self.terms()), _flat(other_terms)
        names = [
            name
            for name in dict.fromkeys([*here, *there])
            if name not in here or name not in there or here[name] != there[name]
        ]
        more = [f"and {len(names) - MOST_SHOWN} more"] if len(names) > MOST_SHOWN else []
        shown = [f"{name}: {_shown(here, name)} here, {_shown(there, name)} there" for name in names[:MOST_SHOWN]]
        return [*shown, *more]


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _flat(terms: Mapping[str, object]) -> dict[str, object]:
    """The fields, and those of the policy; no deeper, whatever another site says."""
    flat: dict[str, object] = {}
    for name, value in terms.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{inner}": x for inner, x in cast(Mapping[str, object], value).items()}
        else:
            flat[name] = value
    return flat


def _shown(flat: Mapping[str, object], name: str) -> str:
    if name not in flat:
        return "absent"
    value = flat[name]
    if name == "reward_window" and isinstance(value, int | float) and 0 <= value <= LARGEST:  # another site says it
        return f"{value:.12g} seconds" + (f" ({value / DAY:g} days)" if value >= DAY else "")
    return shortened(json.dumps(value, ensure_ascii=False, default=repr), 200)
