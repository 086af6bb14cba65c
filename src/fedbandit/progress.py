"""Shows progress: a bar on a terminal or in a notebook, else a line now and then. Needs no extra packages."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from time import monotonic
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn


class Show(Protocol):
    """Takes units done and their total; where there are several runs in a row, also the name of this one."""

    def __call__(self, done: int, total: int, run: str = "") -> None:
        """Show it."""
        ...


_BETWEEN_PICTURES, _BETWEEN_LINES = 0.25, 10.0
"""Seconds: a notebook keeps up, and a log file stays short."""
_LEFT_OF_RUN = "left of this run"


@contextmanager
def progress_bar(shown: bool = True, doing: str = "simulating", unit: str = "pulls") -> Generator[Show]:
    """A function of (units done, total), usually agent-pulls, that shows progress while the context lasts.

    Of several runs in a row each has its name, and what is left is that of the run: nobody knows how many there are.
    """
    if not shown:
        yield lambda done, total, run="": None
    elif _notebook() is not None:
        yield from _in_notebook(doing, unit)
    elif sys.stderr.isatty():
        yield from _on_terminal(doing, unit)
    else:
        yield from _in_lines(doing, unit)


def _speed(speed: float, unit: str) -> str:
    return f"{speed / 1e6:5.1f} M {unit}/s" if speed > 1e5 else f"{speed:,.0f} {unit}/s"


def _on_terminal(doing: str, unit: str) -> Generator[Show]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with Progress(*columns, transient=True, console=Console(stderr=True)) as bar:
        task = bar.add_task("compiling", total=None, rate="", left="left")
        named = ""

        def show(done: int, total: int, run: str = "") -> None:
            nonlocal named
            if run != named:
                named = run
                bar.reset(task, total=total, description=run, rate="", left=_LEFT_OF_RUN)
            if done > 0:
                rate = "" if run else _speed(bar.tasks[task].speed or 0.0, unit)
                bar.update(task, description=run or doing, completed=done, total=total, rate=rate)

        yield show


class _Words:
    """Progress in words, not more often than every so many seconds. Time spent compiling is not counted."""

    began: tuple[float, int] | None

    def __init__(self, doing: str, unit: str, between: float) -> None:
        self.doing, self.unit, self.between = doing, unit, between
        self.run, self.began = "", None
        self.said = monotonic()

    def at(self, done: int, total: int, run: str) -> str | None:
        """The words, if they are due."""
        now = monotonic()
        if run != self.run:
            self.run, self.began = run, None
        if done > 0 and self.began is None:
            self.began = now, done
        if self.began is None or now - self.said < self.between:
            return None
        self.said = now
        seconds, units = now - self.began[0], done - self.began[1]
        speed = units / seconds if units and seconds else 0.0
        if not speed:
            return f"{run or self.doing}: {100 * done // total} %"
        rate = "" if run else f", {_speed(speed, self.unit).strip()}"
        left = f", {(total - done) / speed:,.0f} s {_LEFT_OF_RUN if run else 'left'}"
        return f"{run or self.doing}: {100 * done // total} %{rate}{left}"


def _in_lines(doing: str, unit: str) -> Generator[Show]:
    """On standard error; nothing at all for a run that is over at once."""
    words = _Words(doing, unit, _BETWEEN_LINES)

    def show(done: int, total: int, run: str = "") -> None:
        line = words.at(done, total, run)
        if line is not None:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()

    yield show


# ---------------------------------------------------------------- notebooks


def _notebook() -> Any:
    """The shell of the kernel in which this runs, or None."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell if getattr(shell, "kernel", None) is not None else None


class _Bar:
    """What a notebook displays: HTML, or a text where it shows none."""

    def __init__(self, text: str, share: float | None) -> None:
        self.text, self.share = text, share

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        if not self.text:
            return ""
        value = "" if self.share is None else f' value="{self.share:.4f}"'
        return f'<div><progress max="1"{value} style="vertical-align:middle"></progress> {self.text}</div>'


def _in_notebook(doing: str, unit: str) -> Generator[Show]:
    """One output that is replaced, at most four times a second; gone at the end, as on a terminal."""
    display: Any = sys.modules["IPython"].display
    handle = display.display(_Bar("compiling", None), display_id=True)
    words = _Words(doing, unit, _BETWEEN_PICTURES)

    def show(done: int, total: int, run: str = "") -> None:
        text = words.at(done, total, run)
        if text is not None:
            handle.update(_Bar(text, done / total))

    try:
        yield show
    finally:
        handle.update(_Bar("", None))
