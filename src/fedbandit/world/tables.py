"""Reads tables that users bring, a CSV file or a pandas DataFrame: texts row by row, each row with its place."""

import csv
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, Union

from fedbandit.checks import InvalidArgument, listed

if TYPE_CHECKING:
    import pandas as pd

UserTable = Union[str, "os.PathLike[str]", "pd.DataFrame"]
"""The path of a CSV file, or a DataFrame of pandas."""

Row = tuple[str, list[str]]  # its place, and its cells


def is_table(source: Any) -> TypeGuard[UserTable]:
    """Whether this can be read here."""
    return isinstance(source, (str, os.PathLike)) or _is_frame(source)


def _is_frame(source: Any) -> bool:
    pandas = sys.modules.get("pandas")  # who has a DataFrame has loaded it
    return pandas is not None and isinstance(source, pandas.DataFrame)


def rows_of(argument: str, source: UserTable, columns: Mapping[str, Sequence[str]]) -> Iterator[Row]:
    """Each row's place and cells: those of ``columns``, in their order. Other columns, and empty rows, are left out.

    A column may have any of its listed names; its key is what messages call it.
    """
    rows = _of_frame(argument, source) if _is_frame(source) else _of_file(argument, Path(source))  # pyright: ignore[reportArgumentType]
    place, header = next(rows)
    positions = [_position(place, header, columns, column) for column in columns]
    for place, row in rows:
        if len(row) != len(header):
            raise InvalidArgument(place, f"{len(row)} columns", f"{len(header)} columns, as the first")
        yield place, [row[position] for position in positions]


def _of_file(argument: str, path: Path) -> Iterator[Row]:
    """The header, then all lines that are not empty."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            yield f"{path}, line 1", [name.strip() for name in next(reader, list[str]())]
            for row in reader:
                if any(row):
                    yield f"{path}, line {reader.line_num}", [cell.strip() for cell in row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidArgument(argument, str(path), "a readable CSV file in UTF-8", f"{reason}.") from None


def _of_frame(argument: str, frame: Any) -> Iterator[Row]:
    """The columns' names, then all rows, numbered from 0."""
    yield f"columns of {argument}", [str(name).strip() for name in frame.columns]
    present = frame.astype(object).where(frame.notna(), None)  # one way to be missing
    for position, row in enumerate(present.itertuples(index=False, name=None)):
        yield f"{argument}, row {position}", [_text(cell) for cell in row]


def _text(cell: Any) -> str:
    """As a CSV file would have it: what is missing is empty, and a whole number has no point."""
    if cell is None:
        return ""
    if isinstance(cell, bool) or (isinstance(cell, float) and cell.is_integer()):
        return str(int(cell))
    return str(cell).strip()


def _position(place: str, header: list[str], columns: Mapping[str, Sequence[str]], column: str) -> int:
    """Where a column is: under its first name, or else under the only other one that is there."""
    names = columns[column]
    there = [name for name in header if name in names]
    found = [name for name in there if name == names[0]] or there
    if len(found) == 1:
        return header.index(found[0])
    if found:
        hint = f"It is not clear which one is the {column}: {listed(found)}."
    else:
        choice = f": call it {', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else ""
        hint = f"There is no column {column}{choice}."
    raise InvalidArgument(place, ",".join(header), f"the columns {listed(list(columns))}", hint)
