"""Runs experiments in processes of this machine or on a Ray cluster: resumable, with one progress display.

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
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import numpy as np
import xarray as xr

from fedbandit.checks import FileError, InvalidArgument
from fedbandit.engine.cpu import MANY, usable_cores
from fedbandit.experiments.experiment import Experiment
from fedbandit.simulation.parts import SOURCES, Part, first_problem, merge, ranges
from fedbandit.simulation.result import Result, describe, read_result
from fedbandit.simulation.run import Engine, OnProgress, check_call, chosen_engine, compiled_policy, simulate

_PULLS_PER_PART_ON_A_GPU = 3e10  # some seconds


def run_all(experiments: Sequence[Experiment], folder: str | Path, progress: OnProgress | None = None) -> list[Result]:
    """Run experiments on this machine, as ``run_files`` does, and load all results."""
    return [read_result(path) for path in run_files(experiments, folder, progress)]


def run_files(
    experiments: Sequence[Experiment],
    folder: str | Path,
    progress: OnProgress | None = None,
    engine: Engine = "cpu",
    address: str | None = None,
) -> list[Path]:
    """Run experiments; store each result in ``folder`` and reuse what an earlier call stored there. Returns the files.

    ``progress`` is a function of (agent-pulls done, total); ``address`` is that of a Ray cluster, for ``engine="ray"``.
    The results are the same for every engine but "cuda", whose last bits may differ.
    """
    place = Path(folder)
    for e in experiments:
        check_call(e.played, e.policies, e.horizon, e.trials, e.seed, e.checkpoints, shares=e.shares)
    place.mkdir(parents=True, exist_ok=True)  # before the work: a bad folder fails now
    chosen = chosen_engine(engine)
    with _alone_in(place):
        return _run_or_take(experiments, place, progress or (lambda done, total: None), chosen, address)


@contextmanager
def _alone_in(folder: Path) -> Generator[None]:
    """Lock a folder against a second command; the lock ends with the process, however it ends."""
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FileError(f"{folder} is in use by another run") from None
        try:
            yield
        finally:
            (folder / ".lock").unlink(missing_ok=True)


def _run_or_take(
    experiments: Sequence[Experiment], place: Path, progress: OnProgress, engine: Engine, address: str | None
) -> list[Path]:
    parts = [_parts_of(experiment, place, engine) for experiment in experiments]
    files = [place / f"{its[0].path.name.partition('-')[0]}.nc" for its in parts]
    missing = {
        part.path: part  # by path: two experiments may be equal
        for its, whole in zip(parts, files, strict=True)
        if not _is_sound(whole)
        for part in its
        if not _is_sound(part.path)
    }
    if missing:
        (place / "parts").mkdir(exist_ok=True)
        _run_parts(list(missing.values()), progress, engine, address)
    for its, whole in zip(parts, files, strict=True):
        if not whole.exists():
            merge([part.path for part in its], whole)
    forget(place / "parts")
    return files


def _run_parts(parts: Sequence[Part], progress: OnProgress, engine: Engine, address: str | None) -> None:
    if engine == "ray":
        from fedbandit.simulation import cluster

        cluster.run_parts(parts, progress, address)
    elif engine == "cuda":
        _run_on_gpu(parts, progress)
    else:
        run_parts(parts, progress)


def _run_on_gpu(parts: Sequence[Part], progress: OnProgress) -> None:
    """One part after the other: each fills the GPU."""
    done, total = 0, sum(part.pulls for part in parts)
    for part in parts:
        before = done

        def report(pulls: int, _: int, before: int = before) -> None:
            progress(before + pulls, total)

        simulate(**part.call, trials=part.trials, engine="cuda", progress=report).save(part.path)
        done += part.pulls


def _is_sound(path: Path) -> bool:
    """Whether a file exists and is readable; an unreadable one is removed, to be computed again."""
    if not path.exists():
        return False
    try:
        read_result(path)
    except InvalidArgument:
        path.unlink()
        return False
    return True


def forget(folder: str | Path) -> None:
    """Remove the files that ``run_all`` keeps in ``folder``, and nothing else."""
    for path in Path(folder).glob("*.nc*"):
        if re.fullmatch(r"[0-9a-f]{20}(-\d+-\d+)?\.nc(\.part)?", path.name):
            path.unlink()
    if Path(folder).is_dir() and not any(Path(folder).iterdir()):
        Path(folder).rmdir()


def _key(experiment: Experiment, engine: Engine = "cpu") -> str:
    """A hash of what an experiment computes and of the code that computes it.

    What a GPU has computed is kept apart, by its kind and the code for it: a run is not resumed with other last bits.
    """
    e = experiment
    content = describe(e.played, e.policies, range(e.trials), e.horizon, e.seed, e.shares)
    content |= {"checkpoints": e.checkpoints, "watch_radii": e.watch_radii}
    if engine == "cuda":
        from fedbandit.engine.cuda.engine import description

        content |= {"engine": description()}
    return hashlib.sha256(json.dumps([content, SOURCES]).encode()).hexdigest()[:20]


def _call(e: Experiment) -> dict[str, Any]:
    """The arguments of ``simulate``, without trials."""
    return {
        "problem": e.played,
        "policies": e.policies,
        "horizon": e.horizon,
        "seed": e.seed,
        "checkpoints": e.checkpoints,
        "watch_radii": e.watch_radii,
        "shares": e.shares,
    }


def _parts_of(experiment: Experiment, folder: Path, engine: Engine = "cpu") -> list[Part]:
    key, call, trials = _key(experiment, engine), _call(experiment), range(experiment.trials)
    pulls = _PULLS_PER_PART_ON_A_GPU if engine == "cuda" else None
    return [Part(call, r, folder / "parts" / f"{key}-{r.start}-{r.stop}.nc") for r in ranges(trials, call, pulls)]


# ---------------------------------------------------------------- processes of this machine


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


def _run_part(job: int, part: Part) -> None:
    def report(done: int, total: int) -> None:
        _shared["pulls_done"][job] = done
        if _shared["stop"].value:
            raise _StoppedError

    simulate(**part.call, trials=part.trials, progress=report, threads=1).save(part.path)


def _compile(part: Part) -> None:
    """Play the first rounds of a part: what they compile is then in the cache on disk, for all workers."""

    def leave(done: int, total: int) -> None:
        if done > 0 or _shared["stop"].value:
            raise _StoppedError

    with suppress(_StoppedError):
        simulate(**part.call, trials=part.trials, progress=leave, threads=1)


def _to_compile(parts: Sequence[Part]) -> list[Part]:
    """A trial of one policy for each loop over rounds that the parts need: no two workers compile the same one."""
    found: dict[Any, Part] = {}
    for part in {id(part.call): part for part in parts}.values():
        call, problem = part.call, first_problem(part.call)
        for label, policy in call["policies"].items():
            made = compiled_policy(policy, problem, call["horizon"], call["watch_radii"], shares=call["shares"])
            one = Part({**call, "policies": {label: policy}}, part.trials[:1], part.path)
            found.setdefault((made.specialisation, problem.num_arms, problem.num_agents >= MANY), one)
    return list(found.values())


def _wait_for(pending: set[Future[None]], show: Callable[[], None]) -> None:
    while pending:
        done, pending = wait(pending, timeout=0.2, return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()
        show()


def run_parts(given: Sequence[Part], progress: OnProgress) -> None:
    """Run parts, one per core at a time, the largest first; each result is saved as soon as it is there."""
    parts = sorted(given, key=lambda part: -part.pulls)
    context = mp.get_context("spawn")
    pulls_done, stop = context.Array("q", len(parts), lock=False), context.Value("b", 0, lock=False)
    total = sum(part.pulls for part in parts)
    workers = min(usable_cores(), len(parts))
    with ProcessPoolExecutor(workers, context, initializer=_start_worker, initargs=(pulls_done, stop)) as pool:
        try:
            if workers > 1:
                _wait_for({pool.submit(_compile, part) for part in _to_compile(parts)}, lambda: progress(0, total))
            jobs = {pool.submit(_run_part, job, part) for job, part in enumerate(parts)}
            _wait_for(jobs, lambda: progress(sum(pulls_done), total))
        except BrokenProcessPool:
            raise OSError(
                "a worker process died (disk or memory full?); finished parts are kept: run the command again to resume"
            ) from None
        except BaseException:
            stop.value = 1
            pool.shutdown(wait=True, cancel_futures=True)
            raise


# ---------------------------------------------------------------- one labelled result


def _name(swept: str) -> str:
    """A swept value's name in tables; only the seed is one of the trials and one of the problem."""
    return "problem_seed" if swept == "problem.seed" else swept.removeprefix("problem.")


def _lambda2(experiment: Experiment) -> float:
    """NaN for a large graph that mixes so slowly that it cannot be found."""
    try:
        return experiment.problem.graph.lambda2
    except InvalidArgument:
        return float("nan")


def sweep_table(experiments: Sequence[Experiment], results: Iterable[Result], engine: Engine = "cpu") -> xr.Dataset:
    """The outcome of a sweep: final numbers over run, policy and trial, with the swept values as coordinates.

    ``results`` may be an iterator that loads them: one is in memory at a time.
    """
    run_coordinates: dict[str, list[Any]] = {
        "graph": [str(e.swept.get("graph", e.problem.graph.name)) for e in experiments],
        "num_agents": [e.problem.num_agents for e in experiments],
        "num_arms": [e.problem.num_arms for e in experiments],
        "lambda2": [_lambda2(e) for e in experiments],
        "horizon": [e.horizon for e in experiments],
        "file": [f"{_key(e, engine)}.nc" for e in experiments],  # the whole Result of each run
    }
    for name in experiments[0].swept:
        values = [e.swept[name] for e in experiments]  # delays of each agent are a list
        labels = [" | ".join(map(str, cast("list[Any]", it))) if isinstance(it, list) else it for it in values]
        run_coordinates.setdefault(_name(name), labels)
    finals: dict[str, Callable[[xr.Dataset], xr.DataArray]] = {
        "regret": lambda last: last["regret"].mean("agent"),
        "worst_agent": lambda last: last["regret"].max("agent"),
        "messages": lambda last: last["messages"].mean("agent"),
        "theta_error": lambda last: last["theta_error"].mean("agent"),
    }
    policies = list(experiments[0].policies.values())
    numbers: dict[str, list[Any]] = {name: [] for name in finals}
    problems: list[dict[str, Any]] = []
    about: dict[str, Any] = {}
    for result in results:
        last = result.dataset.isel(time=-1)
        for name, final in finals.items():
            numbers[name].append(final(last).values)
        described = result.experiment
        about_problem = described["problem"]  # the files of the runs have the means
        problems.append({name: it for name, it in about_problem.items() if name not in ("means", "changes")})
        # The same in all; policies with a hash of the source of own ones.
        about = {"versions": result.dataset.attrs["versions"], "policies": json.dumps(described["policies"])}
    return xr.Dataset(
        {name: (("run", "policy", "trial"), np.stack(values)) for name, values in numbers.items()},
        coords={
            "policy": list(experiments[0].policies),
            "trial": np.arange(experiments[0].trials),
            "family": ("policy", [experiments[0].families.get(label, label) for label in experiments[0].policies]),
            "epsilon": ("policy", [float(getattr(policy, "epsilon", np.inf)) for policy in policies]),
            "network": ("policy", [str(policy.page().network) for policy in policies]),
        }
        | {name: ("run", values) for name, values in run_coordinates.items()},
        attrs={
            "name": experiments[0].name,
            "swept": " ".join(map(_name, experiments[0].swept)),
            "experiment": experiments[0].text,
            **about,
            "problems": json.dumps(problems),
        },
    )
