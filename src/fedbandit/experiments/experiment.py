"""Reads an experiment from a TOML file: problem, graph, policies, horizon, trials, seed.

A list where one value is expected makes a sweep: every combination of the listed values of ``graph``, ``num_agents``,
``horizon``, ``seed``, ``problem.num_arms``, ``problem.seed``, ``problem.edges_per_round``, ``problem.gossip``,
``problem.same_means``, ``problem.strata``, ``problem.interaction``, ``problem.hospital``, ``problem.delays``,
``problem.reward_window``, ``shares.control_share``, ``shares.least_share`` and the parameters of rewards is a separate
experiment; a list within the list of ``delays`` has an entry for each agent, and ``strata = [0.6, 0.4]`` says how often
each stratum comes, where ``strata = [2, 4]`` are two experiments. A list in a policy (``epsilon = [1, 2]``) makes one
policy per value, compared within every experiment. ``problem.redraw = true`` draws new random means for every trial,
with consecutive seeds from ``problem.seed``. ``problem.features`` names features of decisions ("ball:4"), with
``theta``, or an ``effect`` with which it is drawn.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator

from fedbandit.checks import FileError, InvalidArgument, closest, instance, number_between, whole_number
from fedbandit.policies import MAX_HORIZON, Policy
from fedbandit.policies.registry import label_of, own_function, policy_from
from fedbandit.shares import Shares
from fedbandit.toml_files import Section, checked, read_toml
from fedbandit.world import features as distributions
from fedbandit.world import graph as graphs
from fedbandit.world import hospital
from fedbandit.world.graph import Contacts, Graph, Schedule
from fedbandit.world.problem import Problem
from fedbandit.world.rewards import FAMILIES

MAX_REDRAWN = 10_000
BuiltGraph = Graph | Schedule | Contacts


class ExperimentError(FileError):
    """An experiment file that cannot be run; the message has a line per error."""


class _GraphSection(Section):
    edges: list[list[int]] | None = None
    schedule: list[list[Any]] | None = None  # [first round, graph] each
    contacts: str | None = None
    num_agents: int | None = None


def _number_or_numbers(value: object) -> object:
    several = cast("list[object]", value) if isinstance(value, list) else [value]
    for each in several:
        if isinstance(each, bool) or not isinstance(each, int | float):
            raise InvalidArgument("", each, "a valid number")
    return cast(object, value)


_Means = list[list[Annotated[Any, AfterValidator(_number_or_numbers)]]]
"""Numbers, or with strata lists of them: by agent, stratum and arm."""


class _Change(Section):
    first_round: int
    means: _Means


class _ProblemSection(Section):
    rewards: str = "gaussian"
    hospital: Literal["order", "random"] | None = None
    means: _Means | None = None
    changes: list[_Change] | None = None
    num_arms: int | None = None
    seed: int = 0
    redraw: bool = False
    same_means: bool = False
    strata: int | list[Any] | None = None
    interaction: float | None = None
    features: str | None = None
    by_arm: bool = False
    constant: bool = True
    effect: float | None = None
    theta: list[Any] | None = None
    sigma: float | None = None
    concentration: float | None = None
    degrees_of_freedom: float | None = None
    scale: float | None = None
    samples: str | None = None
    variance: float | None = None
    bounded: bool | None = None
    reward_range: list[float] | None = None
    weights: list[float] | None = None
    edges_per_round: str | float = "one"
    gossip: str | None = None
    rates: list[float] | None = None
    counts: str | None = None
    delays: str | list[str] | None = None
    reward_window: float = 0
    default_reward: float | None = None


class _SharesSection(Section):
    control: int | None = None
    control_share: float = 0.0
    least_share: float = 0.0


class _File(Section):
    name: str | None = None
    graph: str | _GraphSection
    num_agents: int | None = None
    problem: _ProblemSection
    policies: list[dict[str, Any]]
    horizon: float
    trials: int = 100
    seed: int = 0
    checkpoints: int | list[int] = 200
    watch_radii: bool = False
    shares: _SharesSection | None = None


@dataclass(frozen=True, eq=False)
class Experiment:
    """The content of an experiment file, ready for ``simulate``."""

    name: str
    problems: list[Problem]  # one; or one for each trial, if means are redrawn
    policies: dict[str, Policy]
    horizon: int
    trials: int
    seed: int
    checkpoints: int | list[int]
    watch_radii: bool = False
    shares: Shares | None = None
    text: str = ""  # the file itself
    swept: dict[str, Any] = field(default_factory=dict[str, Any])  # the swept values of this combination
    families: dict[str, str] = field(default_factory=dict[str, str])  # policies that differ only in epsilon share one

    @property
    def problem(self) -> Problem:
        """The problem; if means are redrawn for every trial, that of the first."""
        return self.problems[0]

    @property
    def played(self) -> Problem | list[Problem]:
        """The problem, or the list of problems, for ``simulate``."""
        return self.problems if len(self.problems) > 1 else self.problem


def read_experiment(path: str | Path) -> Experiment:
    """Read and check an experiment file without a sweep in it."""
    experiments = read_sweep(path)
    if len(experiments) > 1:
        raise ExperimentError(f"{path}: asks for {len(experiments)} experiments, where one is expected")
    return experiments[0]


def read_sweep(path: str | Path, instead: Mapping[str, Any] | None = None) -> list[Experiment]:
    """Read and check an experiment file; return an experiment for every combination of its listed values.

    ``instead`` overrides values of the file: trials, horizon, seed.
    """
    source = Path(path)
    text, content = read_toml(source, ExperimentError)
    try:
        return [
            _built(checked(_File, chosen, source, ExperimentError), source, text, swept)
            for chosen, swept in _combinations(content | dict(instead or {}))
        ]
    except InvalidArgument as error:
        raise ExperimentError(f"{source}: {error}") from None


_SWEPT = {
    "": ("graph", "num_agents", "horizon", "seed"),
    "problem": (
        *("num_arms", "seed", "edges_per_round", "gossip", "same_means", "hospital", "counts", "delays"),
        *("reward_window", "strata", "interaction"),
        *("sigma", "concentration", "degrees_of_freedom", "scale", "samples", "variance"),
    ),
    "shares": ("control_share", "least_share"),
}


def _combinations(content: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The file's content, once for each combination of listed values."""
    lists: list[tuple[str, str, list[Any]]] = []
    for section, names in _SWEPT.items():
        part: Any = content if section == "" else content.get(section, {})
        if isinstance(part, dict):
            given = cast("dict[str, Any]", part)
            for name in names:
                if name == "strata" and not _are_numbers_of_strata(given.get(name)):
                    continue
                if given.get(name) == []:
                    raise InvalidArgument(f"{section}{'.' if section else ''}{name}", [], "at least one value")
                _check_differ(f"{section}{'.' if section else ''}{name}", given.get(name))
                if isinstance(given.get(name), list):
                    lists.append((section, name, given[name]))
    for values in itertools.product(*(options for _, _, options in lists)):
        chosen = dict(content)
        for section in ("problem", "shares"):
            if isinstance(content.get(section), dict):
                chosen[section] = dict(content[section])
        swept: dict[str, Any] = {}
        for (section, name, _), value in zip(lists, values, strict=True):
            (chosen if section == "" else chosen[section])[name] = value
            swept[name if section == "" else f"{section}.{name}"] = value
        yield chosen, swept


def _are_numbers_of_strata(value: Any) -> bool:
    """Whether a list has whole numbers, each of which is an experiment; else it says how often each stratum comes."""
    return isinstance(value, list) and all(type(it) is int for it in cast("list[Any]", value))


def _check_differ(name: str, values: Any) -> None:
    """Refuse a sweep over equal values: a list with an entry for each agent, where that was meant, has two brackets."""
    several = cast("list[Any]", values) if isinstance(values, list) else []
    if any(value in several[:position] for position, value in enumerate(several)):
        hint = "A list is a sweep. For one entry per agent write a list in the list." if name.endswith("delays") else ""
        raise InvalidArgument(name, several, "different values", hint)


def _built(file: _File, source: Path, text: str, swept: dict[str, Any]) -> Experiment:
    policies, families = _policies(file.policies, source.parent)
    return Experiment(
        name=file.name or source.stem,
        problems=_problems(file, _graph(file.graph, file.num_agents, source.parent), source.parent),
        policies=policies,
        families=families,
        horizon=whole_number("horizon", file.horizon, 1, MAX_HORIZON),
        trials=file.trials,
        seed=file.seed,
        checkpoints=file.checkpoints,
        watch_radii=file.watch_radii,
        shares=_shares(file.shares),
        text=text,
        swept=swept,
    )


def _shares(section: _SharesSection | None) -> Shares | None:
    """Shares of arms; where all are 0, as in a sweep over them, there are none."""
    if section is None or (section.control is None and section.control_share == section.least_share == 0.0):
        return None
    try:
        return Shares(section.control, section.control_share, section.least_share)
    except InvalidArgument as error:
        raise error.at("shares") from None


def _graph(section: str | _GraphSection, num_agents: int | None, folder: Path) -> BuiltGraph:
    if isinstance(section, str):
        if num_agents is None:
            return graphs.parse(section)
        if ":" in section:
            raise InvalidArgument("graph", section, "a bare name like 'path' where num_agents is given")
        return graphs.parse(f"{section}:{num_agents}")
    given = [name for name in ("edges", "schedule", "contacts") if getattr(section, name) is not None]
    if len(given) != 1:
        raise InvalidArgument("graph", section.model_dump(exclude_none=True), "one of edges, schedule and contacts")
    if section.contacts is not None:
        return graphs.contacts(folder / section.contacts, section.num_agents)
    if section.schedule is not None:
        return graphs.schedule(cast("list[tuple[int, Any]]", section.schedule))
    return graphs.from_edges(section.edges or [], section.num_agents)


def _problems(file: _File, graph: BuiltGraph, folder: Path) -> list[Problem]:
    """The problem, or one for each trial."""
    section = file.problem
    if not section.redraw:
        return [_problem(section, graph, folder)]
    if section.means is not None or section.hospital is not None or section.samples is not None:
        raise InvalidArgument("problem.redraw", True, "left out unless means are random (num_arms)")
    trials = whole_number("trials", file.trials, 1, MAX_REDRAWN)
    return [_problem(section.model_copy(update={"seed": section.seed + r}), graph, folder) for r in range(trials)]


_PARAMETERS = {
    "sigma": ("gaussian",),
    "concentration": ("beta",),
    "degrees_of_freedom": ("student_t",),
    "scale": ("student_t",),
    "samples": ("empirical",),
    "variance": ("module:function",),
    "bounded": ("module:function",),
    "reward_range": ("gaussian", "student_t", "empirical", "module:function"),
}
"""The parameters of rewards, and the kinds that have them."""

_OF_ALL_REWARDS = (
    *("weights", "edges_per_round", "gossip", "rates", "counts", "delays", "reward_window", "default_reward", "strata"),
)


def _problem(section: _ProblemSection, graph: BuiltGraph, folder: Path) -> Problem:
    given = section.model_dump(exclude_none=True)
    options = {name: given[name] for name in _OF_ALL_REWARDS if name in given}
    if ":" in str(section.edges_per_round):
        options["edges_per_round"] = own_function("problem.edges_per_round", str(section.edges_per_round), folder)
    own = ":" in section.rewards
    if not own and section.rewards not in FAMILIES:
        accepted = f"one of {', '.join(FAMILIES)}, or your own 'module:function'"
        raise InvalidArgument("problem.rewards", section.rewards, accepted, closest(section.rewards, FAMILIES))
    for name, kinds in _PARAMETERS.items():
        if name in given:
            if ("module:function" if own else section.rewards) not in kinds:
                accepted = f"left out unless problem.rewards is {' or '.join(map(repr, kinds))}"
                raise InvalidArgument(f"problem.{name}", given[name], accepted)
            options[name] = given[name]
    if section.rewards == "empirical":
        return _empirical(section, graph, folder, options)
    rewards = own_function("problem.rewards", section.rewards, folder) if own else section.rewards
    if section.changes and section.means is None:
        raise InvalidArgument("problem.changes", "given", "left out unless means are given")
    if section.interaction is not None and (section.means is not None or section.num_arms is None):
        raise InvalidArgument("problem.interaction", section.interaction, "left out unless means are random (num_arms)")
    if section.hospital is not None:
        if section.means is not None or section.num_arms is not None or section.rewards != "bernoulli":
            raise InvalidArgument("problem.hospital", section.hospital, 'alone with rewards = "bernoulli"')
        if not isinstance(graph, Graph):
            raise InvalidArgument("graph", graph.union.name, "a graph that does not change, for problem.hospital")
        return hospital.problem(section.hospital, section.seed, graph, **options)
    if section.features is not None:
        return _linear(section, section.features, graph, rewards, options)
    for name in ("theta", "effect"):
        if name in given:
            raise InvalidArgument(f"problem.{name}", given[name], "left out unless decisions have problem.features")
    if section.means is None:
        if section.num_arms is None:
            raise InvalidArgument(
                "problem", section.model_dump(exclude_none=True), "given means, or num_arms for random ones"
            )
        num_agents = (graph if isinstance(graph, Graph) else graph.union).num_agents
        if section.interaction is not None:
            options["interaction"] = section.interaction
        return Problem.random(num_agents, section.num_arms, graph, section.seed, rewards, section.same_means, **options)
    if section.same_means:
        raise InvalidArgument("problem.same_means", True, "left out where means are given")
    if section.means == [] or section.means[0] == []:
        raise InvalidArgument("problem.means", section.means, "a matrix: a row per agent, a column per arm")
    row = section.means[0]
    num_arms = len(cast("list[Any]", row[0])) if isinstance(row[0], list) else len(row)
    if section.num_arms is not None and section.num_arms != num_arms:
        raise InvalidArgument("problem.num_arms", section.num_arms, f"left out, or the {num_arms} of means")
    changes = [(change.first_round, change.means) for change in section.changes or []]
    return Problem.changing([(0, section.means), *changes], graph, rewards, **options)


def _linear(
    section: _ProblemSection, features: str, graph: BuiltGraph, rewards: Any, options: dict[str, Any]
) -> Problem:
    """Decisions with features: theta is given, or drawn with an effect."""
    if section.means is not None or section.same_means or section.changes:
        raise InvalidArgument("problem.features", features, "given with theta or effect, without means")
    found = replace(distributions.parse(features), intercept=section.constant, by_arm=section.by_arm)
    if section.theta is not None:
        if section.effect is not None or section.redraw:
            raise InvalidArgument("problem.theta", "given", "left out where it is drawn (effect, redraw)")
        return Problem.linear(section.theta, graph, found, rewards, section.num_arms, **options)
    num_agents = (graph if isinstance(graph, Graph) else graph.union).num_agents
    arms, shared = whole_number("problem.num_arms", section.num_arms, 2, 10_000), section.by_arm or not section.constant
    if section.effect is None or shared or not features.startswith("ball"):
        accepted = "given, unless features are a ball with the constant, the same for all arms, and effect is given"
        raise InvalidArgument("problem.theta", None, accepted)
    effect = number_between("problem.effect", section.effect, 0.0, distributions.MOST_EFFECT)
    theta = distributions.drawn_theta(num_agents, arms, found.size, effect, section.seed)
    return Problem.linear(theta, graph, found, rewards, **options)


def _empirical(section: _ProblemSection, graph: BuiltGraph, folder: Path, options: dict[str, Any]) -> Problem:
    """Rewards from a CSV file, whose path starts from the folder of the experiment file."""
    if section.means is not None or section.num_arms is not None or section.hospital is not None or section.same_means:
        raise InvalidArgument("problem.rewards", "empirical", "given samples, and no means, num_arms or hospital")
    if section.samples is None:
        raise InvalidArgument("problem.samples", None, "a CSV file with the columns agent, arm and reward")
    del options["samples"]
    return Problem.empirical(folder / section.samples, graph, **options)


def _policies(sections: list[dict[str, Any]], folder: Path) -> tuple[dict[str, Policy], dict[str, str]]:
    """Policies by label, and the label of each policy's family."""
    policies: dict[str, Policy] = {}
    families: dict[str, str] = {}
    for position, section in enumerate(sections):
        where = f"policies[{position}]"
        for chosen in _expanded(where, section):
            policy = policy_from(
                where,
                {name: value for name, value in chosen.items() if name != "label"},
                beside=("label",),
                folder=folder,
            )
            label, family = _labels(where, section, chosen, policy)
            if label in policies:
                raise InvalidArgument(f"{where}.label", label, "different from the others'")
            policies[label], families[label] = policy, family
    if not policies:
        raise InvalidArgument("policies", sections, "at least one [[policies]] section")
    return policies, families


_TOLD_BY_LABELS = ("epsilon", "index", "radius", "catches_up", "context", "learns_variance", "present", "paper")


def _labels(where: str, section: dict[str, Any], chosen: dict[str, Any], policy: Policy) -> tuple[str, str]:
    """A policy's label, and that of its family: the same without epsilon."""
    listed = [name for name, value in section.items() if isinstance(value, list)]
    told = ("epsilon",) if "label" in section else _TOLD_BY_LABELS
    if "label" not in section and not hasattr(policy, "label"):
        told = tuple(section)  # the label of an own policy names all parameters
    others = "".join(f", {name}={chosen[name]}" for name in listed if name not in told)
    if "label" not in section:
        return label_of(policy) + others, label_of(policy).partition(", eps=")[0] + others
    instance(f"{where}.label", section["label"], str, "a text")
    epsilon = f", eps={chosen['epsilon']:g}" if "epsilon" in listed else ""
    return f"{section['label']}{epsilon}{others}", f"{section['label']}{others}"


def _expanded(where: str, section: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One section for each combination of its listed values."""
    listed = [name for name, value in section.items() if isinstance(value, list)]
    for name in listed:
        if section[name] == []:
            raise InvalidArgument(f"{where}.{name}", [], "at least one value")
    for values in itertools.product(*(section[name] for name in listed)):
        yield section | dict(zip(listed, values, strict=True))
