"""Reads a TOML file into checked sections, or reports every error on its own line."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from fedbandit.checks import FileError, InvalidArgument, closest
from fedbandit.regular_files import read_regular

__all__ = ["Section", "checked", "read_toml"]


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
        return text, tomllib.loads(text)
    except FileError as error:
        raise failure(str(error)) from None
    except FileNotFoundError:
        raise failure(f"{source}: no such file") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise failure(f"{source}: {error}") from None


def checked(section: type[S], content: Mapping[str, Any], source: Path, failure: type[FileError]) -> S:
    """The content as a section; misspelt, missing and mistyped keys are all reported at once."""
    try:
        return section.model_validate(content)
    except ValidationError as error:
        raise failure("\n".join(f"{source}: {line}" for line in _explained(error, section))) from None


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
