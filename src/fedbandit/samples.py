"""Reads rewards that were observed: nested lists, or a CSV file with the columns agent, arm and reward."""

import csv
import hashlib
import os
from collections.abc import Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedbandit.checks import LARGEST, InvalidArgument, closest
from fedbandit.rewards import Empirical, Range

__all__ = ["Samples", "empirical_of"]

Samples = Sequence[Sequence[Sequence[float]]] | str | os.PathLike[str]

_COLUMNS = ("agent", "arm", "reward")
_LISTS = "a list of rewards for each agent and arm, samples[agent][arm], or the path of a CSV file"


def empirical_of(samples: Samples, reward_range: Range | None) -> Empirical:
    """The family of these samples."""
    if isinstance(samples, (str, os.PathLike)):
        agents, arms, cells = _from_file(Path(samples))
    else:
        agents, arms, cells = (), (), _from_lists(samples)
    count = np.array([[len(cell) for cell in row] for row in cells], np.int64)
    ends = np.cumsum(count.ravel())
    first = (ends - count.ravel()).reshape(count.shape)
    values = np.concatenate([cell for row in cells for cell in row])
    for array in (values, first, count):
        array.flags.writeable = False
    told = hashlib.sha256(repr((count.shape, agents, arms)).encode() + count.tobytes() + values.tobytes())
    return Empirical(values, first, count, told.hexdigest(), agents, arms, reward_range)


# ---------------------------------------------------------------- nested lists


def _from_lists(samples: Any) -> list[list[NDArray[np.float64]]]:
    cells = [
        [_cell(f"samples[{i}][{k}]", cell) for k, cell in enumerate(_listed(f"samples[{i}]", row))]
        for i, row in enumerate(_listed("samples", samples))
    ]
    for i, row in enumerate(cells):
        if len(row) != len(cells[0]):
            raise InvalidArgument(f"samples[{i}]", f"{len(row)} arms", f"as long as samples[0], {len(cells[0])} arms")
    return cells


def _listed(place: str, value: Any) -> list[Any]:
    try:
        listed = [] if isinstance(value, (str, bytes)) else list(value)
    except TypeError:
        listed = []
    if not listed:
        raise InvalidArgument(place, value, _LISTS)
    return listed


def _cell(place: str, cell: Any) -> NDArray[np.float64]:
    accepted = "at least one reward, all finite numbers"
    try:
        values = np.array(cell, np.float64)
    except (TypeError, ValueError):
        raise InvalidArgument(place, cell, accepted) from None
    if values.ndim != 1 or values.size == 0:
        raise InvalidArgument(place, cell, accepted)
    bad = ~np.isfinite(values) | (np.abs(values) > LARGEST)
    if bad.any():
        position = int(bad.argmax())
        raise InvalidArgument(f"{place}[{position}]", float(values[position]), f"at most {LARGEST:g} in size")
    return values


# ---------------------------------------------------------------- a CSV file


def _from_file(path: Path) -> tuple[tuple[str, ...], tuple[str, ...], list[list[NDArray[np.float64]]]]:
    """Names of agents and arms (none if they are numbers), and the rewards of each pair."""
    lines: list[int] = []
    agents: list[str] = []
    arms: list[str] = []
    rewards: list[float] = []
    for line, agent, arm, reward in _rows(path):
        lines.append(line)
        agents.append(agent)
        arms.append(arm)
        rewards.append(reward)
    agent_names, agent_of = _numbered(path, "agent", agents, lines)
    arm_names, arm_of = _numbered(path, "arm", arms, lines)
    num_agents, num_arms = int(agent_of.max()) + 1, int(arm_of.max()) + 1
    cell_of = agent_of * num_arms + arm_of
    order = np.argsort(cell_of, kind="stable")
    count = np.bincount(cell_of, minlength=num_agents * num_arms)
    if (count == 0).any():
        i, k = divmod(int(count.argmin()), num_arms)
        agent, arm = agent_names[i] if agent_names else i, arm_names[k] if arm_names else k
        raise InvalidArgument(
            "samples", str(path), "at least one reward for every agent and arm", f"Agent {agent} has none of arm {arm}."
        )
    parts = np.split(np.array(rewards)[order], np.cumsum(count)[:-1])
    return agent_names, arm_names, [parts[i * num_arms : (i + 1) * num_arms] for i in range(num_agents)]


def _rows(path: Path) -> Iterator[tuple[int, str, str, float]]:
    """The number of each line, and what it says."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = [name.strip() for name in next(reader, list[str]())]
            places = [_column(path, header, name) for name in _COLUMNS]
            found = False
            for row in reader:
                if not any(row):
                    continue  # an empty line
                if len(row) != len(header):
                    raise _bad(path, reader.line_num, "", f"{len(row)} columns", f"{len(header)} columns, as the first")
                agent, arm, reward = (row[place].strip() for place in places)
                for name, value in (("agent", agent), ("arm", arm)):
                    if not value:
                        raise _bad(path, reader.line_num, name, value, "a number or a name")
                yield reader.line_num, agent, arm, _reward(path, reader.line_num, reward)
                found = True
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidArgument("samples", str(path), "a readable CSV file in UTF-8", f"{reason}.") from None
    if not found:
        raise InvalidArgument("samples", str(path), "a CSV file with at least one reward")


def _column(path: Path, header: list[str], name: str) -> int:
    if header.count(name) != 1:
        raise _bad(path, 1, "", ",".join(header), f"the columns {', '.join(_COLUMNS)}", closest(name, header))
    return header.index(name)


def _reward(path: Path, line: int, text: str) -> float:
    try:
        reward = float(text)
    except ValueError:
        reward = float("nan")
    if not isfinite(reward) or abs(reward) > LARGEST:
        raise _bad(path, line, "reward", text, f"a number of at most {LARGEST:g} in size")
    return reward


def _numbered(
    path: Path, column: str, values: list[str], lines: list[int]
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """The names in a column, in order of first appearance, and the position of each entry.

    A column of whole numbers counts from 0 and has no names. One of both kinds is a typing error, not a list of names.
    """
    distinct = list(dict.fromkeys(values))
    numeric = [value.isascii() and value.isdigit() for value in distinct]
    if not any(numeric):
        place = {name: position for position, name in enumerate(distinct)}
        return tuple(distinct), np.array([place[value] for value in values], np.int64)
    if not all(numeric):
        odd = distinct[numeric.index(not numeric[0])]
        accepted = f"a {'whole number' if numeric[0] else 'name'}, as in the lines before it"
        raise _bad(path, lines[values.index(odd)], column, odd, accepted)
    numbers = {value: int(value) for value in distinct}
    missing = set(range(len(set(numbers.values())))) - set(numbers.values())
    if missing:
        top = max(distinct, key=int)
        raise _bad(
            path, lines[values.index(top)], column, top, f"numbered from 0 without gaps; there is no {min(missing)}"
        )
    return (), np.array([numbers[value] for value in values], np.int64)


def _bad(path: Path, line: int, column: str, value: str, accepted: str, hint: str = "") -> InvalidArgument:
    place = f"{path}, line {line}" + (f", column {column}" if column else "")
    return InvalidArgument(place, value, accepted, hint)
