"""Checks that results of consecutive trials belong to one experiment, and describes that experiment.

``Result.concat`` joins the arrays.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, cast

import xarray as xr

from fedbandit.checks import InvalidArgument

__all__ = ["attributes_of_all", "in_order"]

_COMPUTES = ("fedbandit", "engine", "numba")
"""What must agree: the version, the engine's sources, and the compiler that turns them into floating-point operations.

Parts by other versions could differ in the last bits, or in what a policy does; a mixture could not be run again. Other
packages draw, label and save. What they contribute to a run, its means and checkpoints, is compared itself.
"""


def in_order(parts: Sequence[xr.Dataset]) -> list[xr.Dataset]:
    """The parts by trial; refused, with what differs and where, unless together they are one run."""
    if not parts:
        raise InvalidArgument("parts", [], "at least one Result")
    about = [_facts(part, f"parts[{position}]") for position, part in enumerate(parts)]
    for position, facts in enumerate(about):
        _same(about[0], facts, f"parts[{position}]")
    trials = [range(*_experiment(part)["trials"]) for part in parts]
    order = sorted(range(len(parts)), key=lambda position: trials[position].start)
    for before, after in pairwise(order):
        stop, start = trials[before].stop, trials[after].start
        if start != stop:
            found = f"Trial {stop} is missing." if start > stop else f"Trial {start} is in both."
            accepted = f"a range that begins at {stop}, where parts[{before}] ends"
            raise InvalidArgument(f"parts[{after}].trials", trials[after], accepted, found)
    return [parts[position] for position in order]


def attributes_of_all(parts: Sequence[xr.Dataset]) -> dict[str, Any]:
    """The attributes of one run of all trials, from those of its parts in order."""
    about = [_experiment(part) for part in parts]
    whole: dict[str, Any] = about[0] | {"trials": [about[0]["trials"][0], about[-1]["trials"][1]]}
    if _is_redrawn(about[0]):
        for name in _own_means(about[0]):
            whole["problem"] = whole["problem"] | {name: [each for a in about for each in a["problem"][name]]}
    versions = [json.loads(part.attrs["versions"]) for part in parts]
    mixed = {name: ", ".join(dict.fromkeys(v[name] for v in versions)) for name in versions[0]}
    return parts[0].attrs | {"experiment": json.dumps(whole), "versions": json.dumps(mixed)}


def _experiment(part: xr.Dataset) -> dict[str, Any]:
    return json.loads(part.attrs["experiment"])


def _is_redrawn(about: dict[str, Any]) -> bool:
    """Whether each trial has means of its own: then there is a matrix for each."""
    means = about["problem"]["means"]  # a matrix, or the digest of a large one; or a list of these
    return isinstance(means, list) and isinstance(means[0][0] if isinstance(means[0], list) else means[0], list | dict)


def _own_means(about: dict[str, Any]) -> list[str]:
    """The fields with an entry for each trial, where means are drawn for each."""
    return [name for name in ("means", "changes") if name in about["problem"]]


def _facts(part: xr.Dataset, name: str) -> dict[str, Any]:
    """All that parts of one run have in common."""
    about = _experiment(part)
    trials = about.pop("trials")
    if part["trial"].values.tolist() != list(range(*trials)):
        raise InvalidArgument(
            f"{name}.dataset", f"{part.sizes['trial']} trials", f"all of its trials, {range(*trials)}"
        )
    redrawn = _is_redrawn(about)
    if redrawn:
        rounds = [[start for start, _ in changes] for changes in about["problem"].get("changes", [])]
        for name in _own_means(about):
            del about["problem"][name]  # each part knows those of its own trials
        about["problem"]["rounds of changes"] = rounds[0] if rounds else []
    versions = json.loads(part.attrs["versions"])
    return {
        "format": int(part.attrs["fedbandit_format"]),
        "versions": {package: versions[package] for package in _COMPUTES},
        "means": "drawn for each trial" if redrawn else "the same in all trials",
        **about,
        "checkpoints": part["time"].values.tolist(),
        "watch_radii": "misses" in part,
    }


def _same(first: Any, other: Any, place: str) -> None:
    """Refuse the first difference, by the name of its place."""
    if isinstance(first, dict) and isinstance(other, dict):
        ours, theirs = cast("Mapping[str, Any]", first), cast("Mapping[str, Any]", other)
        if list(ours) == list(theirs):
            for key, value in ours.items():
                _same(value, theirs[key], f"{place}.{key}" if key.isidentifier() else f"{place}[{key!r}]")
            return
        first, other = list(ours), list(theirs)
    elif isinstance(first, list) and isinstance(other, list):
        rows, others = cast("list[Any]", first), cast("list[Any]", other)
        if len(rows) == len(others):
            for position, value in enumerate(rows):
                _same(value, others[position], f"{place}[{position}]")
            return
        raise InvalidArgument(place, f"{len(others)} entries", f"{len(rows)} entries, as in parts[0]")
    if first != other:
        hint = "Other versions may compute other numbers: run one of the parts again." if ".versions." in place else ""
        raise InvalidArgument(place, other, f"{first!r}, as in parts[0]", hint)
