"""Reads a TOML file into checked sections, or reports every error on its own line; never waits for a pipe."""

import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from fedbandit.checks import FileError, InvalidArgument, closest

MOST = 2**24
"""The most bytes of a file."""


def read_regular(path: Path, check: Callable[[os.stat_result], None] | None = None) -> bytes:
    """The content of a file; ``check`` may refuse it by what the system knows of it. Never blocks on a pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        seen = os.fstat(descriptor)
        if not stat.S_ISREG(seen.st_mode):
            kind = _KINDS.get(stat.S_IFMT(seen.st_mode), "something else")
            raise FileError(f"{path} is not a regular file, but {kind}")
        if seen.st_size > MOST:
            raise FileError(f"{path} has {seen.st_size} bytes; at most {MOST} are read")
        if check is not None:
            check(seen)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(MOST)
    finally:
        os.close(descriptor)


_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


class Section(BaseModel):
    """A table of a file. Unknown keys are refused, and types are strict.

    A validator may raise ``InvalidArgument`` without a name: the place in the file becomes the name.
    """

    model_config = ConfigDict(extra="forbid", strict=True)


S = TypeVar("S", bound=Section)


def read_toml(source: Path, failure: type[FileError]) -> tuple[str, dict[str, Any]]:
    """The text of a file and its content."""
    try:
        text = read_regular(source).decode("utf-8")
    except FileError as error:
        raise failure(str(error)) from None
    except FileNotFoundError:
        raise failure(f"{source}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise failure(f"{source}: {error}") from None
    try:
        return text, tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise failure(f"{source}: {_twice(text, str(error)) or error}") from None
    except ValueError:  # of Python, which reads no number of more than some thousand digits
        raise failure(f"{source}: a number has too many digits") from None
    except RecursionError:  # of the parser, which calls itself for each bracket
        raise failure(f"{source}: brackets are nested too deeply") from None


def _twice(text: str, error: str) -> str:
    """What is wrong with a table that stands in a file again, if that is the error."""
    found = re.match(r"Cannot (?:declare|overwrite).*\(at line (\d+),", error)
    heading = re.match(r"\s*\[+([^\[\]]+)\]", text.splitlines()[int(found[1]) - 1]) if found else None
    if found is None or heading is None:
        return ""
    name = heading[1].strip()
    return f"line {found[1]} has another '{name}'. Where there may be several, all of them begin with [[{name}]]"


def checked(section: type[S], content: Mapping[str, Any], source: Path, failure: type[FileError]) -> S:
    """The content as a section; misspelt, missing and mistyped keys are all reported at once."""
    try:
        return section.model_validate(content)
    except ValidationError as error:
        found = error
    raise failure("\n".join(f"{source}: {line}" for line in _explained(found, section)))


def _explained(error: ValidationError, section: type[BaseModel]) -> Iterator[str]:
    """One line per error: the key, what is wrong, a suggestion for a misspelt name."""
    for mistake in error.errors():
        misspelt = mistake["type"] == "extra_forbidden"
        place, inner = _place(mistake["loc"][:-1] if misspelt else mistake["loc"], section)
        reason = mistake.get("ctx", {}).get("error")
        if misspelt:
            key = str(mistake["loc"][-1])
            known = list(inner.model_fields)
            suggestion = closest(key, known)
            yield (
                f"unknown key '{place}{'.' if place else ''}{key}'. {suggestion}{' ' if suggestion else ''}"
                f"Known: {', '.join(known)}"
            )
        elif mistake["type"] == "missing":
            yield f"'{place}' is missing"
        elif isinstance(reason, InvalidArgument):
            yield str(InvalidArgument(place, reason.value, reason.accepted, reason.hint))
        elif mistake["type"] == "list_type" and isinstance(mistake["input"], dict):
            yield f"[{place}] stands for one of several: write [[{place}]], with two brackets"
        elif mistake["type"] in ("model_type", "dict_type") and isinstance(mistake["input"], list):
            yield f"there is one '{place}': write [{place}], with one bracket, and only once"
        elif mistake["type"] == "model_type":
            yield str(InvalidArgument(place, mistake["input"], f"a table, [{place}]"))
        elif mistake["msg"].startswith("Input should be "):
            yield str(InvalidArgument(place, mistake["input"], mistake["msg"].removeprefix("Input should be ")))
        else:
            yield f"{place}: {mistake['msg']}, not {mistake['input']!r}"


def _place(steps: tuple[int | str, ...], section: type[BaseModel]) -> tuple[str, type[BaseModel]]:
    """A location in the file, such as ``problem.means[0]``, and the section where it ends.

    Pydantic's location also names the candidate types of a value: these are left out.
    """
    place = ""
    for step in steps:
        if isinstance(step, int):
            place += f"[{step}]"
        elif step in section.model_fields:
            place += f"{'.' if place else ''}{step}"
            section = next(_sections_in(section.model_fields[step].annotation), section)
    return place, section


def _sections_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _sections_in(part)
