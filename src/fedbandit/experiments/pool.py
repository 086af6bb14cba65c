"""Runs parts in processes of this machine. Workers save their results; the parent shows progress and can stop them."""

import multiprocessing as mp
import os
import signal
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from typing import Any

from fedbandit.engine.cpu import usable_cores
from fedbandit.engine.loop import MANY
from fedbandit.simulation.parts import Part, first_problem
from fedbandit.simulation.run import OnProgress, compiled_policy, simulate

__all__ = ["run_parts"]

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
            kit = compiled_policy(policy, problem, call["horizon"], call["watch_radii"], shares=call["shares"]).kit
            one = Part({**call, "policies": {label: policy}}, part.trials[:1], part.path)
            found.setdefault((kit, problem.num_arms, problem.num_agents >= MANY), one)
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
