"""Runs parts as tasks of a Ray cluster: one core each, in any order, on any machine.

The driver, the process that calls ``run_parts``, starts few more tasks than there are cores, takes results one by one,
as files, and saves each at once. So it holds one part at a time, machines share no file system, and what is finished
stays when the rest is stopped. A task that dies with its process or its machine starts again elsewhere. Trials depend
on their numbers only: the result is bit for bit that of one process.
"""

import hashlib
import logging
import math
import os
import pickle
import platform
import shutil
import socket
import sys
import tempfile
import warnings
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import cache
from importlib import invalidate_caches
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FunctionType
from typing import Any

from fedbandit.checks import InvalidArgument
from fedbandit.engine.cpu import usable_cores
from fedbandit.extras import needs
from fedbandit.policies.registry import digest_of, is_built_in, is_own_code, source_hash
from fedbandit.simulation.parts import SOURCES, Part, first_problem, merge, ranges, written_whole
from fedbandit.simulation.result import Result, read_result
from fedbandit.simulation.run import OnProgress, simulate

# ---------------------------------------------------------------- sending objects, with the source of own modules


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


# ---------------------------------------------------------------- the connection

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

    def nothing(*_: Any, **__: Any) -> None: ...

    worker: Any = getattr(getattr(ray, "_private", None), "worker", None)
    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = nothing


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


# ---------------------------------------------------------------- tasks

MOST_DEATHS = 5
"""How often one part may die with its worker or its machine before the run ends: it may be its own fault."""

_INSTALL = "install the same versions of fedbandit[ray] and of what own code imports on all machines"
_BETWEEN_REPORTS = 0.5  # seconds


def simulate_on_cluster(call: Mapping[str, Any], trials: range, progress: OnProgress) -> Result:
    """``simulate(**call, trials=trials)``, as tasks of the cluster that this process is connected to."""
    with TemporaryDirectory(prefix="fedbandit-") as folder:
        parts = [Part(call, r, Path(folder) / f"{r.start}.nc") for r in ranges(trials, call)]
        run_parts(parts, progress)
        whole = Path(folder) / "whole.nc"
        merge([part.path for part in parts], whole)
        return read_result(whole)


def run_parts(parts: Sequence[Part], progress: OnProgress, address: str | None = None) -> None:
    """Run parts as tasks; each result is saved as soon as it is there.

    ``address``: HOST:PORT of the head node. Default: ``RAY_ADDRESS``, else Ray starts on this machine for this call; a
    process that has called ``ray.init`` stays with that cluster.
    """
    for call in {id(part.call): part.call for part in parts}.values():
        _packed(call)  # refused before anything runs
    with connection(address) as ray:
        _drive(ray, parts, progress)


def _packed(call: Mapping[str, Any]) -> bytes:
    return packed("policies and problem", call)


def _drive(ray: Any, parts: Sequence[Part], progress: OnProgress) -> None:
    start, here = ray.remote(num_cpus=1, max_retries=0, num_returns="streaming")(_play).remote, facts()
    left = Counter(id(part.call) for part in parts)
    sent: dict[int, tuple[Any, list[str]]] = {}  # calls in Ray's store, and their own code
    waiting, running, deaths = deque(parts), dict[Any, Part](), Counter[Path]()
    total, finished, done = sum(part.pulls for part in parts), 0, dict[Path, int]()
    try:
        while waiting or running:
            # As many tasks as there are cores on all machines now, and as many again that wait for one.
            cores = int(ray.cluster_resources().get("CPU", 0))
            for _ in range(min(len(waiting), max(2, 2 * cores) - len(running))):
                part = waiting.popleft()
                if id(part.call) not in sent:
                    sent[id(part.call)] = ray.put(_packed(part.call)), _code_of(part.call)
                running[start(here, *sent[id(part.call)], part.trials.start, part.trials.stop)] = part
            ready, _ = ray.wait(list(running), num_returns=len(running), timeout=0.2, fetch_local=False)
            for task in ready:
                part = running[task]
                try:
                    told = ray.get(next(task))
                except (*_deaths(ray), StopIteration) as error:
                    del running[task]
                    deaths[part.path] += 1
                    if deaths[part.path] == MOST_DEATHS:
                        raise _gave_up(part, error) from None
                    waiting.appendleft(part)
                    done.pop(part.path, None)
                    continue
                except ray.exceptions.RayError as error:
                    raise _in_words(error) from None
                if isinstance(told, bytes):
                    with written_whole(part.path) as unfinished:
                        unfinished.write_bytes(told)
                    del running[task]
                    finished += part.pulls
                    done.pop(part.path, None)
                    left[id(part.call)] -= 1
                    if not left[id(part.call)]:
                        del sent[id(part.call)]
                else:
                    done[part.path] = told
            progress(finished + sum(done.values()), total)
    except BaseException:
        for task in running:
            with suppress(Exception):
                ray.cancel(task, force=True)
        raise


def _deaths(ray: Any) -> tuple[type[Exception], ...]:
    """How Ray says that a process, a machine or an object is lost: the part can run again."""
    errors = ray.exceptions
    return (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError, errors.ObjectLostError)


def _gave_up(part: Part, error: Exception) -> ClusterError:
    last = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return ClusterError(
        f"trials {part.trials.start} to {part.trials.stop - 1} died {MOST_DEATHS} times with their worker process or "
        f"machine (memory full?); finished parts are kept: run the command again to resume. Ray's last words: {last}"
    )


def _in_words(error: Exception) -> Exception:
    """The error in a task as it was raised there; Ray's own errors in one line."""
    cause = getattr(error, "cause", None)
    words = (str(cause or error).strip().splitlines() or [type(error).__name__])[-1]
    if "failed to import" in str(cause):
        return ClusterError(f"a machine cannot import fedbandit as it is here ({words}): {_INSTALL}")
    return cause if isinstance(cause, Exception) else ClusterError(f"Ray gives up on a task: {words}")


def _code_of(call: Mapping[str, Any]) -> list[str]:
    """Hashes of the user's own code that a call runs."""
    problem = first_problem(call)
    functions = (problem.edges_per_round, getattr(problem.rewards, "draw", None))
    policies = [source_hash(policy) for policy in call["policies"].values() if not is_built_in(policy)]
    return policies + [digest_of(function) for function in functions if isinstance(function, FunctionType)]


# ---------------------------------------------------------------- in a worker


class _StoppedError(Exception):
    """The task is cancelled."""


def _play(there: dict[str, str], content: bytes, code: list[str], start: int, stop: int) -> Iterator[int | bytes]:
    """The task: yields agent-pulls done from time to time, and at last the file of the result."""
    _refuse_another_version(there)
    try:
        call = unpacked(content)
    except Exception as error:
        raise ClusterError(f"machine {_machine()} cannot load what it should run ({error}): {_INSTALL}") from None
    if _code_of(call) != code:
        raise ClusterError(
            "a worker has loaded other code of an own policy or function than this process: a file has changed since "
            "it was loaded here, or another module of the same name is installed there"
        )
    warnings.simplefilter("ignore")  # the driver has issued them
    told, stopped = 0, False

    def report(done: int, total: int) -> None:
        nonlocal told
        told = done
        if stopped:
            raise _StoppedError

    with TemporaryDirectory(prefix="fedbandit-") as folder, ThreadPoolExecutor(1) as pool:
        result = pool.submit(simulate, **call, trials=range(start, stop), progress=report, threads=1)
        try:
            while not wait([result], timeout=_BETWEEN_REPORTS).done:
                yield told
        finally:
            stopped = True
        yield result.result().save(Path(folder) / "part.nc").read_bytes()


def _refuse_another_version(there: dict[str, str]) -> None:
    """Refuse to compute where something else is installed than where the run was started."""
    here = facts()
    differ = [f"{name} {here[name]} there, {there[name]} here" for name in there if here.get(name) != there[name]]
    if differ:
        raise ClusterError(f"machine {_machine()} would compute something else ({'; '.join(differ)}): {_INSTALL}")


def _machine() -> str:
    import ray

    api: Any = ray
    return api.util.get_node_ip_address()
