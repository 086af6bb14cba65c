"""Describes an experiment in JSON types: everything needed to run it again.

Of large arrays there is a digest: a problem that was drawn from a seed is drawn again, and compared.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import isinf
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fedbandit.graph import Contacts, Schedule
from fedbandit.outside.modules import digest_of
from fedbandit.outside.policies import is_built_in, kind_of, source_hash
from fedbandit.policies import Policy
from fedbandit.problem import Problem
from fedbandit.rewards import Family, Own
from fedbandit.shares import Shares
from fedbandit.simulation.aggregates import Keep
from fedbandit.simulation.rewards import code_of

__all__ = ["describe"]

_MOST_NUMBERS = 200_000


def _described(array: NDArray[Any]) -> Any:
    """The numbers of an array; of a large one its shape and a hash."""
    if array.size <= _MOST_NUMBERS:
        return array.tolist()
    return {"shape": list(array.shape), "sha256": hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()}


def describe(
    played: Problem | Sequence[Problem],
    policies: Mapping[str, Policy],
    trials: range,
    horizon: int,
    seed: int,
    shares: Shares | None = None,
    keep: Keep = "agents",
) -> dict[str, Any]:
    """Everything needed to rerun an experiment, in JSON types. ``played``: one problem, or one for each trial."""
    problem = played if isinstance(played, Problem) else played[0]
    means = _described(problem.means) if isinstance(played, Problem) else [_described(p.means) for p in played]
    graph: dict[str, Any] = {"name": problem.graph.name, "edges": _described(problem.graph.edge_array)}
    match problem.over_time:
        case Schedule(periods=periods):
            graph["periods"] = periods
        case Contacts(times=times, edge_numbers=numbers):
            graph["contacts"] = hashlib.sha256(np.stack([times, numbers]).tobytes()).hexdigest()
        case None:
            pass
    return {
        "problem": {
            "rewards": problem.rewards.name if isinstance(problem.rewards, Own) else problem.family,
            "means": means,
            **_family(problem.rewards),
            "reward_range": problem.reward_range,
            "weights": _described(problem.weights),
            "edges_per_round": _described_links(problem),
            **({"changes": _described_changes(played)} if problem.changes else {}),
            "rates": None if problem.rates is None else problem.rates.tolist(),
            **({"counts": problem.counts} if problem.counts == "patients" else {}),
            **(_described_lateness(problem) if problem.is_late else {}),
        },
        "graph": graph,
        **({} if shares is None else {"shares": asdict(shares)}),
        "policies": {label: _named(policy) | _plain(asdict(cast(Any, policy))) for label, policy in policies.items()},
        "horizon": horizon,
        "trials": [trials.start, trials.stop],
        "seed": seed,
        **({"keep": keep} if keep != "agents" else {}),
    }


def _described_links(problem: Problem) -> Any:
    """How links are chosen; a rule of the user's own by its module and name, and a hash of its code."""
    chosen = problem.edges_per_round
    if not callable(chosen):
        return chosen
    return {"rule": f"{chosen.__module__}:{chosen.__qualname__}", "code": digest_of(chosen)}


def _described_lateness(problem: Problem) -> dict[str, Any]:
    """Delays of all agents by one text, or of each by its own."""
    texts = [str(each) for each in problem.delays or ()]
    delays = texts[0] if len(set(texts)) == 1 else texts or None
    return {"delays": delays, "reward_window": problem.reward_window, "default_reward": problem.default_reward}


def _described_changes(played: Problem | Sequence[Problem]) -> Any:
    if isinstance(played, Problem):
        return [[start, _described(means)] for start, means in played.changes]
    return [_described_changes(problem) for problem in played]


def _family(family: Family) -> dict[str, Any]:
    """What identifies a family of rewards: of a user's own draw also its code."""
    code = code_of(family)
    return family.parameters() | ({"code": code} if code else {})


def _named(policy: Policy) -> dict[str, Any]:
    """The kind, and for an own policy a hash of its source."""
    return {"kind": kind_of(policy)} | ({} if is_built_in(policy) else {"source": source_hash(policy)})


def _plain(parameters: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity."""
    return {name: "inf" if isinstance(value, float) and isinf(value) else value for name, value in parameters.items()}
