"""Cuts a call of ``simulate`` into parts, each some of its trials, and checks that results are parts of one run.

``Result.concat`` joins the arrays of results in memory, ``merge`` those of files.
"""

import hashlib
import json
import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from itertools import combinations, pairwise
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple, cast

import h5netcdf
import h5py
import numpy as np
import xarray as xr

from fedbandit.checks import InvalidArgument
from fedbandit.world.problem import Problem

_open: Any = h5netcdf.File
open_fast: Any = h5py.File  # knows nothing of dimensions, and takes a tenth of the time

PULLS_PER_PART = 6e7
"""Some seconds: a kill loses little, and what a part costs besides, 0.2 seconds to save it, is small beside it."""


def _digest_of_sources() -> str:
    package = Path(__file__).parents[1]
    sources = [path for room in ("engine", "policies", "rules") for path in (package / room).glob("*.py")]
    sources.append(package / "world" / "rewards.py")  # what agents know of rewards
    return hashlib.sha256(b"".join(source.read_bytes() for source in sorted(sources))).hexdigest()


SOURCES = _digest_of_sources()
"""A hash of the code that decides what a run computes."""

_COMPUTES = ("fedbandit", "engine", "numba")
"""What must agree: the version, the engine's sources, and the compiler that turns them into floating-point operations.

Parts by other versions could differ in the last bits, or in what a policy does; a mixture could not be run again. Other
packages draw, label and save. What they contribute to a run, its means and checkpoints, is compared itself.
"""


class Part(NamedTuple):
    """Some trials of a call of ``simulate``, and the file for their result."""

    call: Mapping[str, Any]  # the arguments, without trials; one object for all parts of a call
    trials: range
    path: Path

    @property
    def pulls(self) -> int:
        """Agent-pulls."""
        return len(self.trials) * pulls_per_trial(self.call)


def pulls_per_trial(call: Mapping[str, Any]) -> int:
    """Agent-pulls of all policies in one trial."""
    return len(call["policies"]) * call["horizon"] * first_problem(call).num_agents


def first_problem(call: Mapping[str, Any]) -> Problem:
    """The problem, or that of trial 0 where each has its own."""
    problem: Problem | Sequence[Problem] = call["problem"]
    return problem if isinstance(problem, Problem) else problem[0]


def ranges(trials: range, call: Mapping[str, Any], pulls: float | None = None) -> list[range]:
    """Consecutive trials of so many agent-pulls, by default some seconds of work each."""
    size = max(1, ceil((pulls or PULLS_PER_PART) / pulls_per_trial(call)))
    return [trials[start : start + size] for start in range(0, len(trials), size)]


def merge(paths: Sequence[Path], target: Path) -> None:
    """Join the files of parts, given in order, into one: the file of the whole run. Reads one part at a time."""
    about = [_about(path) for path in paths]
    in_order(about)
    target.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(target) as unfinished:
        with xr.open_dataset(paths[0], engine="h5netcdf") as first:
            compressed: Any = {str(name): {"zlib": True, "complevel": 4} for name in first.data_vars}
            whole = first.assign_attrs(attributes_of_all(about))
            whole.to_netcdf(unfinished, engine="h5netcdf", encoding=compressed, unlimited_dims=["trial"])
        with _open(unfinished, "a") as file:
            file.resize_dimension("trial", sum(part.sizes["trial"] for part in about))
            axes = {
                name: its.dimensions.index("trial") for name, its in file.variables.items() if "trial" in its.dimensions
            }
        with open_fast(unfinished, "r+") as file:
            end = about[0].sizes["trial"]
            for path, part in zip(paths[1:], about[1:], strict=True):
                start, end = end, end + part.sizes["trial"]
                with open_fast(path, "r") as file_of_part:
                    for name, axis in axes.items():
                        file[name][(slice(None),) * axis + (slice(start, end),)] = file_of_part[name][...]


@contextmanager
def written_whole(target: Path) -> Generator[Path]:
    """Where to write a file, which then appears under its name with all of its content, or not at all."""
    unfinished = target.with_name(target.name + ".part")
    try:
        yield unfinished
        with unfinished.open("rb") as written:
            os.fsync(written.fileno())  # the content must be on disk before its name
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def _about(path: Path) -> xr.Dataset:
    """What a file says of its result, without the numbers of agents."""
    with open_fast(path, "r") as file:
        times = {name: (name, file[name][...]) for name in ("trial", "time")}
        watched: Any = {"misses": 0.0} if "misses" in file else {}
        attributes = {name: value for name, value in file.attrs.items() if name[:1] != "_"}
        numbers = {name: value[0] for name, value in attributes.items() if isinstance(value, np.ndarray)}
        return xr.Dataset(watched, times, attributes | numbers)


def joined(parts: Sequence[xr.Dataset]) -> xr.Dataset:
    """Parts with the same policies joined by trial, then those with other policies; refused unless they are one run."""
    groups: dict[frozenset[str], list[int]] = {}
    for position, part in enumerate(parts):
        groups.setdefault(frozenset(_experiment(part)["policies"]), []).append(position)
    if any(one & other for one, other in combinations(groups, 2)):
        groups = {frozenset(): list(range(len(parts)))}  # refused below, by the policies that differ
    wholes: list[xr.Dataset] = []
    for positions in groups.values() or [[]]:
        ordered = in_order([parts[position] for position in positions], positions)
        whole = xr.concat(ordered, dim="trial", join="exact", combine_attrs="override")
        wholes.append(whole.assign_attrs(attributes_of_all(ordered)))
    if len(wholes) == 1:
        return wholes[0]
    about = [_experiment(whole) for whole in wholes]
    policies = {label: policy for each in about for label, policy in each.pop("policies").items()}
    for whole, each, positions in zip(wholes, about, groups.values(), strict=True):
        place = f"parts[{positions[0]}]"
        no_policies: dict[str, Any] = {"policies": {}}  # which differ
        _same(_facts(wholes[0], "") | no_policies, _facts(whole, "") | no_policies, place)
        trials = [range(*of["trials"]) for of in (about[0], each)]
        if trials[0] != trials[1]:
            hint = "Parts with other policies must have the same trials."
            raise InvalidArgument(f"{place}.trials", trials[1], f"{trials[0]}, as of the policies of parts[0]", hint)
        _same(about[0], each, place)  # also means that are drawn for each trial
    whole = xr.concat(wholes, "policy", "minimal", "minimal", "equals", join="exact", combine_attrs="override")
    attributes = attributes_of_all(wholes)
    return whole.assign_attrs(attributes | {"experiment": json.dumps(_experiment(wholes[0]) | {"policies": policies})})


def in_order(parts: Sequence[xr.Dataset], positions: Sequence[int] | None = None) -> list[xr.Dataset]:
    """The parts by trial; refused, with what differs and where, unless together they are one run.

    ``positions``: their places in the list that errors refer to.
    """
    if not parts:
        raise InvalidArgument("parts", [], "at least one Result")
    names = [f"parts[{position}]" for position in positions or range(len(parts))]
    about = [_facts(part, name) for part, name in zip(parts, names, strict=True)]
    for name, facts in zip(names, about, strict=True):
        _same(about[0], facts, name, names[0])
    trials = [range(*_experiment(part)["trials"]) for part in parts]
    order = sorted(range(len(parts)), key=lambda place: trials[place].start)
    for before, after in pairwise(order):
        stop, start = trials[before].stop, trials[after].start
        if start != stop:
            found = f"Trial {stop} is missing." if start > stop else f"Trial {start} is in both."
            accepted = f"a range that begins at {stop}, where {names[before]} ends"
            raise InvalidArgument(f"{names[after]}.trials", trials[after], accepted, found)
    return [parts[place] for place in order]


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
    return [name for name in ("means", "changes", "theta") if name in about["problem"]]


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
        "keep": about.pop("keep", "agents"),
        **about,
        "checkpoints": part["time"].values.tolist(),
        "watch_radii": "misses" in part,
    }


def _same(first: Any, other: Any, place: str, reference: str = "parts[0]") -> None:
    """Refuse the first difference, by the name of its place."""
    if isinstance(first, dict) and isinstance(other, dict):
        ours, theirs = cast("Mapping[str, Any]", first), cast("Mapping[str, Any]", other)
        if list(ours) == list(theirs):
            for key, value in ours.items():
                _same(value, theirs[key], f"{place}.{key}" if key.isidentifier() else f"{place}[{key!r}]", reference)
            return
        for key in [] if place.endswith(".policies") else [*ours, *theirs]:
            if (key in ours) != (key in theirs):
                accepted = f"{'given' if key in ours else 'left out'}, as in {reference}"
                raise InvalidArgument(f"{place}.{key}", theirs.get(key), accepted)
        first, other = list(ours), list(theirs)  # in another order
    elif isinstance(first, list) and isinstance(other, list):
        rows, others = cast("list[Any]", first), cast("list[Any]", other)
        if len(rows) == len(others):
            for position, value in enumerate(rows):
                _same(value, others[position], f"{place}[{position}]", reference)
            return
        raise InvalidArgument(place, f"{len(others)} entries", f"{len(rows)} entries, as in {reference}")
    if first != other:
        hint = "Other versions may compute other numbers: run one of the parts again." if ".versions." in place else ""
        raise InvalidArgument(place, other, f"{first!r}, as in {reference}", hint)
