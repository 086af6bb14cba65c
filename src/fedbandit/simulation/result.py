"""What a simulation found: labelled arrays, a summary, a file.

Here belong results and their files; figures are ``fedbandit.plot``'s.
"""

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from fedbandit.checks import InvalidArgument
from fedbandit.policy import Policy
from fedbandit.problem import Problem
from fedbandit.simulation.cpu import Record

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["Result", "describe", "joined", "load", "result_of"]

FORMAT = 1

_ABOUT = {
    "regret": "cumulative pseudo-regret of an agent, rounds 1..time (R_i)",
    "pulls": "pulls of an arm by an agent up to time, the initial one included (n)",
    "messages": "estimates (vectors of M numbers) that an agent has sent up to time",
    "lagging": "share of rounds up to time in which the agent had to catch up on a lagging arm",
    "theta_error": "mean over arms of |theta - mu|",
}


@dataclass(frozen=True, eq=False)
class Result:
    """Labelled arrays over policy, trial, agent, time (and arm), with all that is needed to run them again.

    ``dataset`` is an ``xarray.Dataset``; its variables are also attributes: ``result.regret.mean("trial")``.
    """

    dataset: xr.Dataset

    @property
    def regret(self) -> xr.DataArray:
        """Cumulative pseudo-regret [policy, trial, agent, time]."""
        return self.dataset["regret"]

    @property
    def pulls(self) -> xr.DataArray:
        """Pulls by arm [policy, trial, agent, time, arm]."""
        return self.dataset["pulls"]

    @property
    def messages(self) -> xr.DataArray:
        """Estimates sent so far [policy, trial, agent, time]."""
        return self.dataset["messages"]

    @property
    def lagging(self) -> xr.DataArray:
        """Share of rounds so far spent catching up [policy, trial, agent, time]."""
        return self.dataset["lagging"]

    @property
    def theta_error(self) -> xr.DataArray:
        """Mean over arms of |theta - mu| [policy, trial, agent, time]."""
        return self.dataset["theta_error"]

    @property
    def policies(self) -> list[str]:
        """The labels, in the order of the call."""
        return [str(label) for label in self.dataset["policy"].values]

    @property
    def experiment(self) -> dict[str, Any]:
        """Problem, policies, horizon, trials and seed, as in the file."""
        return json.loads(self.dataset.attrs["experiment"])

    def summary(self) -> "pd.DataFrame":
        """One row per policy at the last time: regret per agent, its spread, and what it took."""
        import pandas as pd

        last = self.dataset.isel(time=-1)
        per_trial = last["regret"].mean("agent")
        best = last["pulls"].isel(arm=int(self.dataset.attrs["best_arm"]))
        num_trials = last.sizes["trial"]
        error = (
            per_trial.std("trial", ddof=1) / np.sqrt(num_trials) if num_trials > 1 else per_trial.mean("trial") * np.nan
        )
        columns = {
            "regret": per_trial.mean("trial"),
            "std_error": error,
            "min": per_trial.min("trial"),
            "max": per_trial.max("trial"),
            "worst_agent": last["regret"].mean("trial").max("agent"),
            "best_arm_share": (best / last["pulls"].sum("arm")).mean(["trial", "agent"]),
            "messages": last["messages"].mean(["trial", "agent"]),
            "lagging": last["lagging"].mean(["trial", "agent"]),
            "theta_error": last["theta_error"].mean(["trial", "agent"]),
        }
        return pd.DataFrame(
            {name: values.values for name, values in columns.items()}, index=pd.Index(self.policies, name="policy")
        )

    def to_pandas(self) -> "pd.DataFrame":
        """A tidy table: a row per policy, trial, agent and time; pulls in a column per arm."""
        import pandas as pd

        order = ["policy", "trial", "agent", "time"]
        flat: pd.DataFrame = self.dataset.drop_vars(["pulls", "arm"]).to_dataframe(dim_order=order).reset_index()
        pulls = self.pulls.transpose("policy", "trial", "agent", "time", "arm").values
        for k in range(pulls.shape[-1]):
            flat[f"pulls_{k}"] = pulls[..., k].ravel()
        return flat

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a netCDF file; it appears whole or not at all."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(target.name + ".part")
        encoding: Any = {str(name): {"zlib": True, "complevel": 4} for name in self.dataset.data_vars}
        try:
            self.dataset.to_netcdf(part, engine="h5netcdf", encoding=encoding)
            with part.open("rb") as written:
                os.fsync(written.fileno())  # a name must not be on disk before what it names
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
        return target

    def plot(self, **options: Any) -> "Figure":
        """Mean regret per agent over time with a band; see ``fedbandit.plot.regret_figure``."""
        from fedbandit.plot import regret_figure

        return regret_figure(self, **options)


def load(path: str | os.PathLike[str]) -> Result:
    """Read what ``Result.save`` wrote."""
    if not Path(path).is_file():
        raise InvalidArgument("path", str(path), "a file written by Result.save")
    try:
        dataset = xr.load_dataset(path, engine="h5netcdf")
        found = int(dataset.attrs["fedbandit_format"])
    except (OSError, KeyError, ValueError) as error:
        raise InvalidArgument("path", str(path), "a file written by Result.save", str(error)) from None
    if found != FORMAT:
        raise InvalidArgument("path", str(path), f"of format {FORMAT}", f"This one is of format {found}.")
    return Result(dataset)


def joined(parts: Sequence[Result]) -> Result:
    """Results of consecutive ranges of trials of one experiment, as one."""
    dataset = xr.concat([part.dataset for part in parts], dim="trial", combine_attrs="override")
    first, last = parts[0].experiment, parts[-1].experiment
    whole = first | {"trials": [first["trials"][0], last["trials"][1]]}
    return Result(dataset.assign_attrs(experiment=json.dumps(whole)))


def result_of(
    problem: Problem,
    policies: Mapping[str, Policy],
    records: Sequence[Record],
    times: NDArray[np.int64],
    trials: range,
    horizon: int,
    seed: int,
) -> Result:
    """Label the engine's arrays."""
    dims = ("policy", "trial", "agent", "time")
    stacked = {name: np.stack([getattr(record, name) for record in records]) for name in Record._fields}
    dataset = xr.Dataset(
        {
            name: ((*dims, "arm") if name == "pulls" else dims, array, {"long_name": _ABOUT[name]})
            for name, array in stacked.items()
        },
        coords={
            "policy": list(policies),
            "trial": np.arange(trials.start, trials.stop),
            "agent": np.arange(problem.num_agents),
            "time": times,
            "arm": np.arange(problem.num_arms),
        },
        attrs={
            "fedbandit_format": FORMAT,
            "seed": str(seed),  # may be larger than netCDF's integers
            "best_arm": problem.best_arm,
            "versions": json.dumps(_versions()),
            "experiment": json.dumps(describe(problem, policies, trials, horizon, seed)),
        },
    )
    return Result(dataset)


def _versions() -> dict[str, str]:
    names = ("fedbandit", "numpy", "numba", "xarray")
    return {"python": platform.python_version()} | {name: version(name) for name in names}


def describe(
    problem: Problem, policies: Mapping[str, Policy], trials: range, horizon: int, seed: int
) -> dict[str, Any]:
    """All that is needed to run an experiment again, in JSON's types."""
    return {
        "problem": {
            "rewards": problem.family,
            "means": problem.means.tolist(),
            "sigma": problem.sigma,
            "concentration": problem.concentration,
            "reward_range": problem.reward_range,
            "weights": problem.weights.tolist(),
            "edges_per_round": problem.edges_per_round,
        },
        "graph": {"name": problem.graph.name, "edges": problem.graph.edges},
        "policies": {label: {"kind": policy.kind} | _plain(asdict(policy)) for label, policy in policies.items()},
        "horizon": horizon,
        "trials": [trials.start, trials.stop],
        "seed": seed,
    }


def _plain(parameters: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity."""
    return {name: "inf" if isinstance(value, float) and isinf(value) else value for name, value in parameters.items()}
