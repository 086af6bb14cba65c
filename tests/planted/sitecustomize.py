"""Loads one module of the package with a planted bug: Python runs this file first where it finds it on ``PYTHONPATH``.

So the bug is in the process of a test and in every process that it starts. ``FEDBANDIT_PLANTED`` names the module, the
file with its broken text, and a file that is made when it has been loaded, each after a newline.
"""

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

_PLANTED = "FEDBANDIT_PLANTED"


class _Loader(SourceFileLoader):
    """Runs the broken text; the module's own file and name stay, so that it finds what lies beside it."""

    def __init__(self, name: str, path: str, broken: str, loaded: str) -> None:
        super().__init__(name, path)
        self._broken, self._loaded = broken, loaded

    def get_code(self, fullname: str) -> CodeType:
        code = compile(Path(self._broken).read_text(), self._broken, "exec", dont_inherit=True)
        Path(self._loaded).touch()
        return code

    def get_source(self, fullname: str) -> str:
        return Path(self._broken).read_text()


class _Finder:
    def __init__(self, module: str, broken: str, loaded: str) -> None:
        self._module, self._broken, self._loaded = module, broken, loaded

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != self._module:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader, spec.cached = _Loader(name, spec.origin, self._broken, self._loaded), None
        return spec


if _PLANTED in os.environ:
    sys.meta_path.insert(0, _Finder(*os.environ[_PLANTED].split("\n")))  # pyright: ignore[reportArgumentType]
