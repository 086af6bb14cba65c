"""Writes and reads the folder that ``fedbandit run`` leaves.

A single experiment leaves ``result.nc`` and ``regret.png`` (and ``agents.png``, if agents' rates differ), a sweep
``sweep.nc`` and ``sweep.png``. Files from an earlier run of the other kind are removed.
"""

import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

import xarray as xr

from fedbandit.checks import InvalidArgument
from fedbandit.experiments.experiment import Experiment
from fedbandit.experiments.sweep import Engine, forget, sweep_table
from fedbandit.figures.regret import agents_figure
from fedbandit.figures.sweep import sweep_figure
from fedbandit.simulation.parts import written_whole
from fedbandit.simulation.result import RESULT, SWEEP, Result, read_result

FIGURE, AGENTS_FIGURE = "regret.png", "agents.png"
SWEEP_FIGURE = "sweep.png"
EXPERIMENT = "experiment.toml"
RUNS = "fedbandit-runs"  # parts of an unfinished run; for a sweep the result of each of its experiments


def keep_result(experiment: Experiment, result: Result, folder: Path) -> None:
    """Write the files of a single experiment."""
    result.save(folder / RESULT)
    forget(folder / RUNS)  # the result contains all of it
    result.plot(title=experiment.name).savefig(folder / FIGURE)
    if experiment.problem.rates is not None:
        agents_figure(result, experiment.name).savefig(folder / AGENTS_FIGURE)
    else:
        (folder / AGENTS_FIGURE).unlink(missing_ok=True)
    (folder / SWEEP).unlink(missing_ok=True)
    if len(set(experiment.families.values())) < len(experiment.policies):
        # Several values of epsilon for one policy are a sweep of epsilon.
        sweep_figure(sweep_table([experiment], [result])).savefig(folder / SWEEP_FIGURE)
    else:
        (folder / SWEEP_FIGURE).unlink(missing_ok=True)


def keep_sweep(
    experiments: Sequence[Experiment], results: Iterable[Result], folder: Path, engine: Engine = "cpu"
) -> xr.Dataset:
    """Write the files of a sweep. ``results`` may be an iterator that loads them."""
    table = sweep_table(experiments, results, engine)
    with written_whole(folder / SWEEP) as part:
        table.to_netcdf(part, engine="h5netcdf")
    sweep_figure(table).savefig(folder / SWEEP_FIGURE)
    for name in (RESULT, FIGURE, AGENTS_FIGURE):
        (folder / name).unlink(missing_ok=True)
    return table


def load_sweep(folder: Path) -> xr.Dataset | None:
    """The table of a sweep, if the folder has one."""
    if not folder.exists():
        raise InvalidArgument("FOLDER", str(folder), "a folder that exists")
    return xr.load_dataset(folder / SWEEP, engine="h5netcdf") if (folder / SWEEP).is_file() else None


def load_result(folder: Path) -> Result:
    """The result of a single experiment."""
    if not (folder / RESULT).is_file():
        raise InvalidArgument("FOLDER", str(folder), f"a folder with a {RESULT} that 'fedbandit run' wrote")
    return read_result(folder / RESULT)


def title_of(folder: Path) -> str:
    """The name of the experiment, if its copy in the folder has one, else that of the folder."""
    try:
        name = tomllib.loads((folder / EXPERIMENT).read_text(encoding="utf-8")).get("name")
    except (OSError, ValueError):
        return str(folder)
    return name if isinstance(name, str) else str(folder)
