"""Runs experiments in a pool of processes: resumable, with one progress display.

The work is cut into parts, each some trials of one experiment. A finished part is saved at once, under a name that
identifies its content. A run that was stopped or killed finds its finished parts and does the rest; the result is
bit-identical.
"""

import fcntl
import hashlib
import json
import multiprocessing as mp
import os
import re
import signal
import threading
import warnings
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import xarray as xr

from fedbandit.checks import FileError, InvalidArgument
from fedbandit.experiments.experiment import Experiment
from fedbandit.simulation.compiled import SOURCES
from fedbandit.simulation.cpu import usable_cores
from fedbandit.simulation.result import Result, describe, load
from fedbandit.simulation.run import OnProgress, check_call, simulate

__all__ = ["forget", "run_all", "sweep_table"]

_PULLS_PER_PART = 3e7  # a second or two: a kill loses little


class _Part(NamedTuple):
    experiment: Experiment
    trials: range
    path: Path

    @property
    def pulls(self) -> int:
        """Agent-pulls."""
        e = self.experiment
        return len(self.trials) * len(e.policies) * e.horizon * e.problem.num_agents


def run_all(experiments: Sequence[Experiment], folder: str | Path, progress: OnProgress | None = None) -> list[Result]:
    """Run experiments; store each result in ``folder`` and reuse what an earlier call stored there.

    ``progress`` is a function of (agent-pulls done, total).
    """
    place = Path(folder)
    for e in experiments:
        check_call(e.played, e.policies, e.horizon, e.trials, e.seed, e.checkpoints, shares=e.shares)
    place.mkdir(parents=True, exist_ok=True)  # before the work: a bad folder fails now
    with _alone_in(place):
        return _run_or_take(experiments, place, progress or (lambda done, total: None))


@contextmanager
def _alone_in(folder: Path) -> Generator[None]:
    """Lock a folder against a second command; the lock ends with the process, however it ends."""
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FileError(f"{folder} is in use by another run") from None
        yield
        (folder / ".lock").unlink(missing_ok=True)


def _run_or_take(experiments: Sequence[Experiment], place: Path, progress: OnProgress) -> list[Result]:
    parts = [_parts_of(experiment, place) for experiment in experiments]
    missing = {
        part.path: part  # by path: two experiments may be equal
        for its in parts
        if not _is_sound(_result_path(its, place))
        for part in its
        if not _is_sound(part.path)
    }
    _run_parts(list(missing.values()), progress)
    results: list[Result] = []
    for its in parts:
        whole = _result_path(its, place)
        if not whole.exists():
            Result.concat(load(part.path) for part in its).save(whole)
        results.append(load(whole))
    forget(place / "parts")
    return results


def _is_sound(path: Path) -> bool:
    """Whether a file exists and is readable; an unreadable one is removed, to be computed again."""
    if not path.exists():
        return False
    try:
        load(path)
    except InvalidArgument:
        path.unlink()
        return False
    return True


def forget(folder: str | Path) -> None:
    """Remove the files that ``run_all`` keeps in ``folder``, and nothing else."""
    for path in Path(folder).glob("*.nc*"):
        if re.fullmatch(r"[0-9a-f]{20}(-\d+-\d+)?\.nc(\.part)?", path.name):
            path.unlink()
    _remove_if_empty(Path(folder))


def _remove_if_empty(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _key(experiment: Experiment) -> str:
    """A hash of what an experiment computes and of the code that computes it."""
    e = experiment
    content = describe(e.played, e.policies, range(e.trials), e.horizon, e.seed, e.shares)
    content |= {"checkpoints": e.checkpoints, "watch_radii": e.watch_radii}
    return hashlib.sha256(json.dumps([content, SOURCES]).encode()).hexdigest()[:20]


def _parts_of(experiment: Experiment, folder: Path) -> list[_Part]:
    key = _key(experiment)
    whole = _Part(experiment, range(experiment.trials), folder)
    size = max(1, ceil(_PULLS_PER_PART * experiment.trials / whole.pulls))
    starts = range(0, experiment.trials, size)
    ranges = [range(start, min(start + size, experiment.trials)) for start in starts]
    return [_Part(experiment, r, folder / "parts" / f"{key}-{r.start}-{r.stop}.nc") for r in ranges]


def _result_path(parts: list[_Part], folder: Path) -> Path:
    return folder / f"{parts[0].path.name.partition('-')[0]}.nc"


# ---------------------------------------------------------------- the pool

_shared: dict[str, Any] = {}  # in a worker: what the parent passed at the start


class _StoppedError(Exception):
    """The parent asked to stop."""


def _start_worker(pulls_done: Any, stop: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    warnings.simplefilter("ignore")  # the parent has issued them
    _shared.update(pulls_done=pulls_done, stop=stop)
    threading.Thread(target=_leave_with_the_parent, daemon=True).start()


def _leave_with_the_parent() -> None:
    parent = mp.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run_part(job: int, part: _Part) -> None:
    def report(done: int, total: int) -> None:
        _shared["pulls_done"][job] = done
        if _shared["stop"].value:
            raise _StoppedError

    e = part.experiment
    result = simulate(
        e.played,
        e.policies,
        e.horizon,
        part.trials,
        e.seed,
        e.checkpoints,
        progress=report,
        threads=1,
        watch_radii=e.watch_radii,
        shares=e.shares,
    )
    result.save(part.path)


def _run_parts(parts: Sequence[_Part], progress: OnProgress) -> None:
    if not parts:
        return
    context = mp.get_context("spawn")
    pulls_done, stop = context.Array("q", len(parts), lock=False), context.Value("b", 0, lock=False)
    total = sum(part.pulls for part in parts)
    workers = min(usable_cores(), len(parts))
    with ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=(pulls_done, stop)) as pool:
        try:
            pending = {pool.submit(_run_part, job, part) for job, part in enumerate(parts)}
            while pending:
                done, pending = wait(pending, timeout=0.2, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
                progress(sum(pulls_done), total)
        except BrokenProcessPool:
            raise OSError(
                "a worker process died (disk or memory full?); finished parts are kept: run the command again to resume"
            ) from None
        except BaseException:
            stop.value = 1
            pool.shutdown(wait=True, cancel_futures=True)
            raise


# ---------------------------------------------------------------- one labelled result


def _without_means(problem: dict[str, Any]) -> dict[str, Any]:
    """What a sweep says of a problem: the files of its runs have the means."""
    return {name: value for name, value in problem.items() if name not in ("means", "changes")}


def _coordinate(value: Any) -> Any:
    """A swept value as one label; delays of each agent are a list."""
    return " | ".join(map(str, cast("list[Any]", value))) if isinstance(value, list) else value


def sweep_table(experiments: Sequence[Experiment], results: Sequence[Result]) -> xr.Dataset:
    """The outcome of a sweep: final numbers over run, policy and trial, with the swept values as coordinates."""
    run_coordinates: dict[str, list[Any]] = {
        "graph": [str(e.swept.get("graph", e.problem.graph.name)) for e in experiments],
        "num_agents": [e.problem.num_agents for e in experiments],
        "num_arms": [e.problem.num_arms for e in experiments],
        "lambda2": [e.problem.graph.lambda2 for e in experiments],
        "horizon": [e.horizon for e in experiments],
        "file": [f"{_key(e)}.nc" for e in experiments],  # the whole Result of each run
    }
    for name in experiments[0].swept:
        run_coordinates.setdefault(name.removeprefix("problem."), [_coordinate(e.swept[name]) for e in experiments])
    finals: dict[str, Callable[[xr.Dataset], xr.DataArray]] = {
        "regret": lambda last: last["regret"].mean("agent"),
        "worst_agent": lambda last: last["regret"].max("agent"),
        "messages": lambda last: last["messages"].mean("agent"),
        "theta_error": lambda last: last["theta_error"].mean("agent"),
    }
    policies = list(experiments[0].policies.values())
    return xr.Dataset(
        {
            name: (("run", "policy", "trial"), np.stack([final(r.dataset.isel(time=-1)).values for r in results]))
            for name, final in finals.items()
        },
        coords={
            "policy": list(experiments[0].policies),
            "trial": np.arange(experiments[0].trials),
            "family": ("policy", [experiments[0].families.get(label, label) for label in experiments[0].policies]),
            "epsilon": ("policy", [float(getattr(policy, "epsilon", np.inf)) for policy in policies]),
        }
        | {name: ("run", values) for name, values in run_coordinates.items()},
        attrs={
            "name": experiments[0].name,
            "swept": " ".join(name.removeprefix("problem.") for name in experiments[0].swept),
            "experiment": experiments[0].text,
            "versions": results[0].dataset.attrs["versions"],
            "policies": json.dumps(results[0].experiment["policies"]),  # with a hash of the source of own ones
            "problems": json.dumps([_without_means(r.experiment["problem"]) for r in results]),
        },
    )
