"""Shows a progress bar on the terminal: share done, speed, time left."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(
    shown: bool = True, doing: str = "simulating", unit: str = "pulls"
) -> Generator[Callable[[int, int], None]]:
    """A function of (units done, total), usually agent-pulls, that draws a bar while the context lasts."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, transient=True, disable=not shown) as bar:
        task = bar.add_task("compiling", total=None, rate="")

        def show(done: int, total: int) -> None:
            if done == 0:
                return
            speed = bar.tasks[task].speed
            rate = f"{speed / 1e6:5.1f} M {unit}/s" if speed and speed > 1e5 else f"{speed or 0:,.0f} {unit}/s"
            bar.update(task, description=doing, completed=done, total=total, rate=rate)

        yield show
