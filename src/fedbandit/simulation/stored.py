"""Reads what runs have left: the file of a result or of a sweep, or the folder that ``fedbandit run`` wrote."""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from fedbandit.checks import InvalidArgument, instance
from fedbandit.notebook import sweep_html, sweep_text
from fedbandit.simulation.result import Result, read, result_in

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["RESULT", "SWEEP", "Sweep", "load"]

RESULT, SWEEP = "result.nc", "sweep.nc"
"""The files of a folder that ``fedbandit run`` wrote: one of the two."""


@dataclass(frozen=True, eq=False)
class Sweep:
    """The outcome of a sweep: final numbers over run, policy and trial, with the swept values as coordinates.

    ``dataset`` is an ``xarray.Dataset``. The whole results of its runs lie beside it, under the names in ``file``.
    """

    dataset: xr.Dataset

    @property
    def swept(self) -> list[str]:
        """The names of the swept values."""
        return self.dataset.attrs["swept"].split()

    @property
    def policies(self) -> list[str]:
        """The labels, in the order of the file."""
        return [str(label) for label in self.dataset["policy"].values]

    @cached_property
    def table(self) -> "pd.DataFrame":
        """One row per run and policy: the swept values, regret per agent, its standard error, and its costs."""
        trials = self.dataset.sizes["trial"]
        means = self.dataset.mean("trial")
        means["std_error"] = self.dataset["regret"].std("trial", ddof=1) / np.sqrt(trials) if trials > 1 else np.nan
        flat = means.to_dataframe(dim_order=["run", "policy"]).reset_index()
        named = ["regret", "std_error", "worst_agent", "messages", "theta_error"]
        return flat[["run", *self.swept, "policy", "epsilon", *named]]

    def plot(self, **options: Any) -> "Figure":
        """Final regret against the swept values; see ``fedbandit.figures.sweep.sweep_figure``."""
        from fedbandit.figures.sweep import sweep_figure

        return sweep_figure(self.dataset, **options)

    __repr__ = sweep_text
    _repr_html_ = sweep_html


def load(path: str | os.PathLike[str]) -> Result | Sweep:
    """Read a result or a sweep: a file written by ``Result.save`` or ``fedbandit run``, or the folder of the latter."""
    instance("path", path, (str, os.PathLike), "a path")
    place = Path(path)
    if place.is_dir():
        found = [place / name for name in (SWEEP, RESULT) if (place / name).is_file()]
        if not found:
            raise InvalidArgument("path", str(path), f"a folder with a {RESULT} or {SWEEP} that 'fedbandit run' wrote")
        place = found[0]
    if not place.exists():
        raise InvalidArgument("path", str(path), "a file or folder that exists")
    dataset = read(place)
    is_sweep = "swept" in dataset.attrs and "run" in dataset.dims
    return Sweep(dataset) if is_sweep else result_in(dataset, place)
