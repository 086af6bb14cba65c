"""An experiment as a TOML file: problem, graph, policies, horizon, trials, seed.

Here belong the file's form and its errors. Every mistake is reported at once, each with the name of its
field and what it accepts.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from fedbandit import graph as graphs
from fedbandit.checks import InvalidArgument, closest
from fedbandit.graph import Graph
from fedbandit.policy import CentralUCB, FedUCB, GossipUCB, LocalUCB, Policy
from fedbandit.problem import Problem

__all__ = ["Experiment", "ExperimentError", "read_experiment"]

_POLICIES: dict[str, type[Policy]] = {policy.kind: policy for policy in (GossipUCB, FedUCB, LocalUCB, CentralUCB)}


class ExperimentError(ValueError):
    """An experiment file that cannot be run; the message has a line per mistake."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=False)


class _GraphSection(_Section):
    edges: list[list[int]]
    num_agents: int | None = None


class _ProblemSection(_Section):
    rewards: Literal["gaussian", "bernoulli", "beta"] = "gaussian"
    means: list[list[float]] | None = None
    num_arms: int | None = None
    seed: int = 0
    sigma: float | None = None
    concentration: float | None = None
    reward_range: list[float] | None = None
    weights: list[float] | None = None
    edges_per_round: str | float = "one"


class _File(_Section):
    name: str | None = None
    graph: str | _GraphSection
    problem: _ProblemSection
    policies: list[dict[str, Any]]
    horizon: float
    trials: int = 100
    seed: int = 0
    checkpoints: int | list[int] = 200


@dataclass(frozen=True, eq=False)
class Experiment:
    """What a file asks for, ready for ``simulate``."""

    name: str
    problem: Problem
    policies: dict[str, Policy]
    horizon: int
    trials: int
    seed: int
    checkpoints: int | list[int]
    text: str  # the file itself


def read_experiment(path: str | Path) -> Experiment:
    """Read and check an experiment file."""
    source = Path(path)
    try:
        text = source.read_text(encoding="utf-8")
        content = tomllib.loads(text)
    except FileNotFoundError:
        raise ExperimentError(f"{source}: no such file") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ExperimentError(f"{source}: {error}") from None
    try:
        return _built(_File.model_validate(content), source, text)
    except ValidationError as error:
        raise ExperimentError("\n".join(f"{source}: {line}" for line in _explained(error))) from None
    except InvalidArgument as error:
        raise ExperimentError(f"{source}: {error}") from None


def _built(file: _File, source: Path, text: str) -> Experiment:
    graph = _graph(file.graph)
    if file.horizon != int(file.horizon):
        raise InvalidArgument("horizon", file.horizon, "a whole number")
    return Experiment(
        name=file.name or source.stem,
        problem=_problem(file.problem, graph),
        policies=_policies(file.policies),
        horizon=int(file.horizon),
        trials=file.trials,
        seed=file.seed,
        checkpoints=file.checkpoints,
        text=text,
    )


def _graph(section: str | _GraphSection) -> Graph:
    if isinstance(section, str):
        return graphs.parse(section)
    return graphs.from_edges(section.edges, section.num_agents)


def _problem(section: _ProblemSection, graph: Graph) -> Problem:
    given = section.model_dump(exclude_none=True)
    options = {name: given[name] for name in ("weights", "edges_per_round") if name in given}
    for name, family in (("sigma", "gaussian"), ("reward_range", "gaussian"), ("concentration", "beta")):
        if name in given:
            if section.rewards != family:
                raise InvalidArgument(f"problem.{name}", given[name], f"left out unless problem.rewards is '{family}'")
            options[name] = given[name]
    if section.means is None:
        if section.num_arms is None:
            raise InvalidArgument(
                "problem", section.model_dump(exclude_none=True), "given means, or num_arms for random ones"
            )
        return Problem.random(graph.num_agents, section.num_arms, graph, section.seed, section.rewards, **options)
    if section.num_arms is not None and section.num_arms != len(section.means[0]):
        raise InvalidArgument(
            "problem.num_arms", section.num_arms, f"left out, or the {len(section.means[0])} of means"
        )
    build = {"gaussian": Problem.gaussian, "bernoulli": Problem.bernoulli, "beta": Problem.beta}[section.rewards]
    return build(section.means, graph, **options)


def _policies(sections: list[dict[str, Any]]) -> dict[str, Policy]:
    policies: dict[str, Policy] = {}
    for position, section in enumerate(sections):
        where = f"policies[{position}]"
        given = dict(section)
        kind = given.pop("kind", None)
        if kind not in _POLICIES:
            raise InvalidArgument(
                f"{where}.kind", kind, f"one of {', '.join(_POLICIES)}.{closest(str(kind), _POLICIES)} It is"
            )
        label = given.pop("label", None)
        known = [field.name for field in fields(_POLICIES[kind])]
        for name in given:
            if name not in known:
                accepted = f"one of {', '.join([*known, 'label'])}.{closest(name, known)} It is"
                raise InvalidArgument(f"a key of {where} ({kind})", name, accepted)
        try:
            policy = _POLICIES[kind](**given)
        except TypeError:
            raise InvalidArgument(
                f"{where} ({kind})", section, f"given all of {', '.join(known)} without a default"
            ) from None
        except InvalidArgument as error:
            raise InvalidArgument(
                f"{where}.{error.argument}",
                given[error.argument],
                str(error).partition(" must be ")[2].rpartition(", not ")[0],
            ) from None
        if str(label or policy.label) in policies:
            raise InvalidArgument(f"{where}.label", label or policy.label, "different from the others'")
        policies[str(label or policy.label)] = policy
    if not policies:
        raise InvalidArgument("policies", sections, "at least one [[policies]] section")
    return policies


def _explained(error: ValidationError) -> Iterator[str]:
    """One line per mistake: the field, what is wrong, a suggestion for a misspelt name."""
    sections: dict[str, type[BaseModel]] = {"": _File, "problem": _ProblemSection, "graph": _GraphSection}
    for mistake in error.errors():
        parts = [str(part) for part in mistake["loc"] if part not in ("str", "_GraphSection", "int", "float")]
        field = ".".join(parts)
        if mistake["type"] == "extra_forbidden":
            section = sections.get(parts[0] if len(parts) > 1 else "", _File)
            known = list(section.model_fields)
            yield f"unknown key '{field}'.{closest(parts[-1], known)} Known: {', '.join(known)}"
        elif mistake["type"] == "missing":
            yield f"'{field}' is missing"
        else:
            yield f"'{field}': {mistake['msg']}, not {mistake['input']!r}"
