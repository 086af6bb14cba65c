"""Runs parts in processes of this machine. Workers save their results; the parent shows progress and can stop them."""

import multiprocessing as mp
import os
import signal
import threading
import warnings
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from fedbandit.simulation.cpu import usable_cores
from fedbandit.simulation.parts import Part
from fedbandit.simulation.run import OnProgress, simulate

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


def run_parts(parts: Sequence[Part], progress: OnProgress) -> None:
    """Run parts, one per core at a time; each result is saved as soon as it is there."""
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
