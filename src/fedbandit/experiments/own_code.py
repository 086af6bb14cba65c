"""Finds the functions that an experiment file names as ``module:function``."""

import sys
from importlib import import_module
from pathlib import Path
from types import FunctionType

from fedbandit.checks import InvalidArgument, closest, shortened

__all__ = ["own_function"]


def own_function(argument: str, text: str, folder: Path) -> FunctionType:
    """What ``module:function`` names: a module beside the experiment file, or an installed one.

    The folder stays on Python's path, where the processes of a sweep look for the module.
    """
    name, _, attribute = text.partition(":")
    accepted = "'module:function', with a module beside the experiment file or an installed one"
    place = str(folder.resolve())
    if place not in sys.path:
        sys.path.append(place)
    try:
        module = import_module(name)
    except Exception as error:  # the user's code runs here, and may raise anything
        reason = shortened(f"{type(error).__name__}: {error}", 200)
        raise InvalidArgument(argument, text, accepted, f"{reason}.") from None
    beside = Path(place, *name.split(".")).with_suffix(".py")
    loaded = Path(module.__file__ or "").resolve()
    if beside.exists() and loaded != beside:
        hint = f"Another module of that name was loaded, {loaded}: rename yours."
        raise InvalidArgument(argument, text, accepted, hint)
    if not hasattr(module, attribute):
        raise InvalidArgument(argument, text, accepted, f"{name} has no {attribute}. {closest(attribute, dir(module))}")
    found: object = getattr(module, attribute)
    if not isinstance(found, FunctionType):
        raise InvalidArgument(argument, text, accepted, f"{text} is not a function.")
    return found
