"""Sends objects to processes on other machines, with the source files of users' own modules that they come from.

A pickle names classes and functions by module. The receiver may not have a user's module; so the text of these modules
travels with the pickle, and the receiver imports them from a folder of its own. Libraries do not travel: they must be
installed there.
"""

import hashlib
import os
import pickle
import shutil
import sys
import tempfile
from importlib import invalidate_caches
from io import BytesIO
from pathlib import Path
from types import FunctionType
from typing import Any

from fedbandit.checks import InvalidArgument
from fedbandit.policies.own_code import is_own_code

__all__ = ["packed", "unpacked"]

_SCRIPTS = {"__main__", "__mp_main__"}


class _Pickler(pickle.Pickler):
    """Notes the modules of the functions and classes that it meets."""

    def __init__(self, file: BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.modules: set[str] = set()

    def reducer_override(self, obj: Any) -> Any:
        """As usual."""
        if isinstance(obj, (type, FunctionType)):
            self.modules.add(obj.__module__)
        return NotImplemented


def packed(argument: str, value: Any) -> bytes:
    """A value and the own modules that it needs; refused, under the name of the argument, if it cannot travel."""
    file = BytesIO()
    pickler = _Pickler(file)
    try:
        pickler.dump(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        hint = f"Other machines find classes and functions by module and name ({error})."
        raise InvalidArgument(argument, "given", "made of what stands at the top level of a module", hint) from None
    if pickler.modules & _SCRIPTS:
        hint = "Other machines cannot import a script or a notebook: move the class or function to a module."
        raise InvalidArgument(argument, "given", "of a module, not of the script that runs", hint)
    own = {name for name in pickler.modules if is_own_code(name, "")}
    return pickle.dumps((_sources(own), file.getvalue()), protocol=5)


def unpacked(content: bytes) -> Any:
    """What ``packed`` packed, here."""
    sources, value = pickle.loads(content)  # noqa: S301  # the caller's own: it may run any code here
    if sources:
        _install(sources)
    return pickle.loads(value)  # noqa: S301


def _sources(modules: set[str]) -> dict[str, bytes]:
    """The files of own modules, and of all that is loaded from the same folders: they may import each other."""
    roots = {_root(name) for name in modules} - {None}
    found: dict[str, bytes] = {}
    for name in sorted(sys.modules):
        root = _root(name) if name not in _SCRIPTS and is_own_code(name, "") else None
        if root is not None and root in roots:
            path = Path(str(sys.modules[name].__file__)).resolve()
            found[path.relative_to(root).as_posix()] = path.read_bytes()
    return found


def _root(module: str) -> Path | None:
    """The folder from which a loaded module was imported."""
    path = Path(getattr(sys.modules.get(module), "__file__", None) or "")
    if path.suffix != ".py" or not path.is_file():
        return None
    return path.resolve().parents[module.count(".") + (path.name == "__init__.py")]


def _install(sources: dict[str, bytes]) -> None:
    """Write modules to a folder that their content names, and look there first."""
    digest = hashlib.sha256()
    for name, text in sorted(sources.items()):
        digest.update(f"{name} {len(text)}\n".encode() + text)
    home = _home()
    folder = home / digest.hexdigest()[:32]
    if str(folder) in sys.path[:1]:
        return
    if not folder.is_dir():
        unfinished = Path(tempfile.mkdtemp(dir=home))
        for name, text in sources.items():
            (unfinished / name).parent.mkdir(parents=True, exist_ok=True)
            (unfinished / name).write_bytes(text)
        try:
            unfinished.rename(folder)
        except OSError:  # another process was faster
            shutil.rmtree(unfinished)
    sys.path[:] = [str(folder), *(entry for entry in sys.path if Path(entry).parent != home)]
    for name, module in list(sys.modules.items()):  # of an earlier call, whose files were others
        if Path(getattr(module, "__file__", None) or "").is_relative_to(home):
            del sys.modules[name]
    invalidate_caches()


def _home() -> Path:
    """A folder for modules that nobody else can write to: what lies there runs."""
    home = Path(tempfile.gettempdir()).resolve() / f"fedbandit-modules-{os.getuid()}"
    home.mkdir(mode=0o700, exist_ok=True)
    found = home.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o022 or home.is_symlink():
        raise OSError(f"{home} belongs to somebody else: remove it")
    return home
