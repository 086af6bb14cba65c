"""Connects this process to a Ray cluster, quietly and in bounded time, and says what a machine computes with."""

import hashlib
import logging
import math
import os
import platform
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from typing import Any

from fedbandit.checks import InvalidArgument
from fedbandit.extras import needs
from fedbandit.simulation.compiled import SOURCES
from fedbandit.simulation.cpu import usable_cores

__all__ = ["ClusterError", "connection", "facts"]

_PATIENCE = 5.0  # seconds until an address counts as wrong

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # hides no GPU, and so has nothing to warn of
}


class ClusterError(OSError):
    """A cluster that cannot be reached, or that cannot do what it was asked for."""


@cache
def facts() -> dict[str, str]:
    """What decides which bits come out of a run: the same on all machines of a cluster, or they must not share one."""
    packages = {name: version(name) for name in ("fedbandit", "numba", "numpy")}
    python = {"Python": platform.python_version()}
    return python | packages | {"fedbandit's sources": SOURCES[:16], "the C library's log and exp": _last_bits()}


def _last_bits() -> str:
    """A hash of functions of the C library, which are not the same to the last bit everywhere."""
    numbers = [0.001 * k + 0.0007 for k in range(2000)]
    functions: list[Callable[[float], float]] = [math.log, math.exp, math.expm1, math.erfc, math.cos, math.log10]
    found = [function(x) for function in functions for x in numbers]
    return hashlib.sha256(repr(found).encode()).hexdigest()[:16]


@contextmanager
def connection(address: str | None) -> Generator[Any]:
    """The module ``ray``, connected; a connection that is made here ends here, and with it all tasks."""
    needs("engine 'ray'", "ray", "sim")
    where = address or os.environ.get("RAY_ADDRESS") or None
    place = None if where is None else _host_and_port(where, "address" if address else "RAY_ADDRESS")
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)  # read when ray is imported
    import ray

    module: Any = ray
    if module.is_initialized():
        if address is not None:
            raise InvalidArgument("address", address, "left out where ray.init has been called")
        yield module
        return
    if place is not None:
        _find_ray_at(*place)
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if where is None:
        options |= {"include_dashboard": False, "num_cpus": usable_cores()}
    _silence(module)
    try:
        module.init(address=where or "local", **options)
    except Exception as error:
        words = str(error).strip().splitlines()
        raise ClusterError(
            f"Ray cannot connect to {where or 'a cluster of its own'}: {words[0] if words else type(error).__name__} "
            "(this machine must be one of the cluster: ray start --address=HOST:PORT, with --num-cpus=0 if it should "
            "not compute; Ray and Python must be of one version on all, and RAY_AUTH_MODE and the token the same)"
        ) from None
    try:
        yield module
    finally:
        module.shutdown()


def _silence(ray: Any) -> None:
    """Ray prints news of deaths, which a run survives, to standard output, and has no switch for it."""
    worker: Any = getattr(getattr(ray, "_private", None), "worker", None)
    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = _print_nothing


def _print_nothing(*_: Any, **__: Any) -> None:
    """Instead of Ray's own."""


def _host_and_port(address: str, argument: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if "/" in address or not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise InvalidArgument(argument, address, "HOST:PORT of a Ray cluster's head node, such as 10.0.0.1:6379")
    return host.strip("[]"), int(port)


def _find_ray_at(host: str, port: int) -> None:
    """Refuse an address where no Ray answers: Ray itself would try for minutes."""
    try:
        with socket.create_connection((host, port), timeout=_PATIENCE) as there:
            there.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))  # as gRPC begins
            answer = there.recv(9)
    except OSError as error:
        raise ClusterError(f"no Ray cluster answers at {host}:{port} ({error}): is it running? ray status") from None
    if len(answer) < 9 or answer[3] != 4:  # the type of a frame of settings
        raise ClusterError(f"what answers at {host}:{port} is not a Ray cluster: give the port of ray start --head")
