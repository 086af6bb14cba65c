"""The result of a simulation: labelled arrays, a summary, a file; and what ``load`` reads of a run or a sweep."""

import hashlib
import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import version
from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from fedbandit.checks import InvalidArgument, instance
from fedbandit.engine.accounting import STATISTICS, Keep, Record, named
from fedbandit.engine.streams import code_of
from fedbandit.notebook import result_html, result_text, sweep_html, sweep_text
from fedbandit.policies import Policy
from fedbandit.policies.registry import digest_of, is_built_in, kind_of, source_hash
from fedbandit.shares import Shares
from fedbandit.simulation.parts import SOURCES, joined, open_fast, written_whole
from fedbandit.world.graph import Contacts, Schedule
from fedbandit.world.problem import Problem
from fedbandit.world.rewards import Own

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


FORMAT = 2

_ABOUT = {
    "regret": "cumulative pseudo-regret of an agent, rounds 1..time (R_i)",
    "pulls": "pulls of an arm by an agent up to time, the initial one included (n)",
    "best_pulls": "pulls of the best arm of the moment by an agent up to time, without the initial one",
    "messages": "estimates (vectors of M numbers) that an agent has sent up to time",
    "lagging": "share of rounds up to time in which the agent had to catch up on a lagging arm",
    "theta_error": "mean over arms of |theta - mu|",
    "misses": "share of arms and rounds up to time in which |theta - mu| exceeded the radius; unknown arms did not",
    "regret_by_stratum": "cumulative pseudo-regret of an agent in the decisions of each stratum",
    "disagreement": "standard deviation over agents of theta, mean over arms",
}


@dataclass(frozen=True, eq=False)
class Result:
    """Labelled arrays over policy, trial, agent, time (and arm), with everything needed to reproduce them.

    ``dataset`` is an ``xarray.Dataset``; its variables are also attributes: ``result.regret.mean("trial")``. With
    ``keep="aggregates"`` there is no agent axis: ``regret`` is the mean over agents, beside ``regret_min``,
    ``regret_max`` and ``regret_std``, and so for the others; ``disagreement`` tells how far estimates differ.
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
    def has_agents(self) -> bool:
        """Whether there is an entry for each agent, and not aggregates alone."""
        return "agent" in self.dataset.dims

    @property
    def mean_regret(self) -> xr.DataArray:
        """Cumulative pseudo-regret, mean over agents [policy, trial, time]."""
        return self.regret.mean("agent") if self.has_agents else self.regret

    @property
    def policies(self) -> list[str]:
        """The labels, in the order of the call."""
        return [str(label) for label in self.dataset["policy"].values]

    @property
    def experiment(self) -> dict[str, Any]:
        """Problem, policies, horizon, trials and seed, as in the file."""
        return json.loads(self.dataset.attrs["experiment"])

    def summary(self) -> "pd.DataFrame":
        """One row per policy at the last time: regret per agent, its spread, and its costs.

        ``worst_percent`` is the mean over the worst 1 % of trials, one at least. ``worst_agent`` is the agent with the
        largest mean over trials; of aggregates, that of each trial, on average.
        """
        import pandas as pd

        last = self.dataset.isel(time=-1)
        over_all = ["trial", "agent"] if self.has_agents else ["trial"]
        per_trial = self.mean_regret.isel(time=-1)
        pulled = last["pulls"].sum(self._cells)
        if "best_pulls" in self.dataset:  # without the initial pulls
            best_share = last["best_pulls"] / (pulled - last.sizes["arm"])
        else:
            best_share = last["pulls"].isel(arm=self.dataset["best_arm"]) / pulled
        num_trials = last.sizes["trial"]
        error = (
            per_trial.std("trial", ddof=1) / np.sqrt(num_trials) if num_trials > 1 else per_trial.mean("trial") * np.nan
        )
        worst = last["regret"].mean("trial").max("agent") if self.has_agents else last["regret_max"].mean("trial")
        tail = np.sort(per_trial.values, axis=per_trial.get_axis_num("trial"))[..., -max(1, num_trials // 100) :]
        columns = {
            "regret": per_trial.mean("trial"),
            "std_error": error,
            "min": per_trial.min("trial"),
            "max": per_trial.max("trial"),
            "worst_percent": per_trial.isel(trial=0).copy(data=tail.mean(axis=-1)),
            "worst_agent": worst,
            "best_arm_share": best_share.mean(over_all),
            "messages": last["messages"].mean(over_all),
            "lagging": last["lagging"].mean(over_all),
            "theta_error": last["theta_error"].mean(over_all),
        }
        if "misses" in self.dataset:
            columns["misses"] = last["misses"].mean(over_all)
        return pd.DataFrame(
            {name: values.values for name, values in columns.items()}, index=pd.Index(self.policies, name="policy")
        )

    def by_agent(self) -> "pd.DataFrame":
        """One row per policy and agent at the last time: its pulls, and its regret per pull."""
        import pandas as pd

        self._need_agents("by_agent")
        last = self.dataset.isel(time=-1)
        own = last["pulls"].sum(self._cells) - last.sizes["arm"]  # pulls since t = 0: the agent's clock
        rates = self.experiment["problem"].get("rates") or [1.0] * last.sizes["agent"]
        columns = {
            "pulls": own.mean("trial"),
            "regret": last["regret"].mean("trial"),
            "regret_per_pull": last["regret"].sum("trial") / own.sum("trial"),
            "lagging": last["lagging"].mean("trial"),
        }
        index = pd.MultiIndex.from_product([self.policies, last["agent"].values], names=["policy", "agent"])
        table = {name: values.values.ravel() for name, values in columns.items()}
        return pd.DataFrame({"rate": rates * len(self.policies)} | table, index=index)

    @property
    def has_strata(self) -> bool:
        """Whether decisions had strata."""
        return "stratum" in self.dataset.dims

    @property
    def _cells(self) -> list[str]:
        """The axes of pulls that tell decisions apart."""
        return ["stratum", "arm"] if self.has_strata else ["arm"]

    def by_stratum(self) -> "pd.DataFrame":
        """One row per policy and stratum at the last time: decisions per agent, regret, and the share of the best arm.

        ``best_arm`` is that of the first trial, at the start.
        """
        import pandas as pd

        if not self.has_strata:
            raise InvalidArgument("problem", "without strata", "one with strata, for by_stratum")
        last = self.dataset.isel(time=-1)
        over = ["trial", "agent"] if self.has_agents else ["trial"]
        best = last["pulls"].isel(arm=self.dataset["best_arm"]).mean(over)
        decisions = last["pulls"].sum("arm").mean(over)
        columns = {
            "decisions": decisions,
            "regret": last["regret_by_stratum"].mean(over),
            "best_arm_share": best / decisions,
        }
        index = pd.MultiIndex.from_product([self.policies, last["stratum"].values], names=["policy", "stratum"])
        table = {name: values.transpose("policy", "stratum").values.ravel() for name, values in columns.items()}
        best_arm = self.dataset["arm"].values[self.dataset["best_arm"].isel(trial=0).values]
        return pd.DataFrame({"best_arm": list(best_arm) * len(self.policies)} | table, index=index)

    def to_pandas(self) -> "pd.DataFrame":
        """A tidy table: a row per policy, trial, agent and time; pulls in a column per arm.

        Of aggregates a row per policy, trial and time, and mean pulls. With strata, pulls have a column per stratum and
        arm, and regret one per stratum.
        """
        import pandas as pd

        order = ["policy", "trial", *(["agent"] if self.has_agents else []), "time"]
        wide = [name for name in self.dataset.data_vars if {"arm", "stratum"} & set(self.dataset[name].dims)]
        left_out = [*wide, "arm", *(["stratum", "best_arm"] if self.has_strata else [])]
        flat: pd.DataFrame = self.dataset.drop_vars(left_out).to_dataframe(dim_order=order).reset_index()
        pulls = self.pulls.transpose(*order, *self._cells).values
        for k, arm in enumerate(self.dataset["arm"].values):
            for s in self.dataset["stratum"].values if self.has_strata else ():
                flat[f"pulls_{s}_{arm}"] = pulls[..., s, k].ravel()
            if not self.has_strata:
                flat[f"pulls_{arm}"] = pulls[..., k].ravel()
        for s in self.dataset["stratum"].values if self.has_strata else ():
            flat[f"regret_{s}"] = self.dataset["regret_by_stratum"].transpose(*order, "stratum").values[..., s].ravel()
        return flat

    def to_latex(self) -> str:
        """A booktabs table of regret per agent at the last time: a row per policy.

        Its mean over trials, the standard error of that mean, and the mean over the worst 1 % of trials.
        """
        lines = [
            r"\begin{tabular}{lrrr}",
            r"\toprule",
            r"Policy & Regret & Std. error & Worst 1\,\% \\",
            r"\midrule",
        ]
        for label, row in self.summary()[["regret", "std_error", "worst_percent"]].iterrows():
            cells = ["--" if np.isnan(number) else f"{number:.1f}" for number in row]
            lines.append(" & ".join(["".join(_LATEX.get(letter, letter) for letter in str(label)), *cells]) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])

    def _need_agents(self, what: str) -> None:
        if not self.has_agents:
            raise InvalidArgument("keep", "aggregates", f"'agents', for {what}")

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a netCDF file atomically, into a folder that exists."""
        target = Path(path)
        if not target.parent.is_dir():
            raise InvalidArgument("path", str(path), "in a folder that exists", f"There is no {target.parent}.")
        encoding: Any = {str(name): {"zlib": True, "complevel": 4} for name in self.dataset.data_vars}
        with written_whole(target) as part:
            self.dataset.to_netcdf(part, engine="h5netcdf", encoding=encoding)
        return target

    @classmethod
    def concat(cls, parts: Iterable["Result"]) -> "Result":
        """Join parts of one run, ``simulate(..., trials=range(a, b))``, in any order: bit for bit the whole run.

        Policies that were run later, on the same problem, seed and trials, join the others, in the order given.
        Refuses parts that differ in anything else, trials that are missing or there twice, and parts that another
        version of fedbandit or Numba has computed.
        """
        if not isinstance(parts, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument("parts", parts, "a list of Results")
        given = list(parts)
        for position, part in enumerate(given):
            if isinstance(part, (str, os.PathLike)):
                raise InvalidArgument(f"parts[{position}]", part, "a Result", "Read files with load(...).")
            instance(f"parts[{position}]", part, Result, "a Result")
        return cls(joined([part.dataset for part in given]))

    __repr__ = result_text
    _repr_html_ = result_html

    def plot(self, **options: Any) -> "Figure":
        """Mean regret per agent over time with a band; see ``fedbandit.figures.regret.regret_figure``."""
        from fedbandit.figures.regret import regret_figure

        return regret_figure(self, **options)


_LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "\n": " "},
}


def read_result(path: str | os.PathLike[str]) -> Result:
    """Read a file written by ``Result.save``."""
    return result_in(read(path), path)


def read(path: str | os.PathLike[str]) -> xr.Dataset:
    """The whole content of a netCDF file."""
    if not Path(path).exists():
        raise InvalidArgument("path", str(path), "a file that exists")
    if not Path(path).is_file():
        raise InvalidArgument("path", str(path), "a file written by Result.save")
    try:
        _refuse_endless(Path(path))
        return xr.load_dataset(path, engine="h5netcdf")
    except (OSError, LookupError, ValueError, RuntimeError) as error:  # RuntimeError: of HDF5, for a damaged file
        raise InvalidArgument("path", str(path), "a file written by Result.save", str(error)) from None


_LARGEST_RATIO = 1032  # of zlib


def _refuse_endless(path: Path) -> None:
    """Refuse a damaged file that claims more than it can hold: HDF5 would fill the memory before it notices."""
    size = path.stat().st_size
    with open_fast(path, "r") as file:
        arrays = [its for its in file.values() if hasattr(its, "nbytes")]
        if sum(its.nbytes for its in arrays) > _LARGEST_RATIO * size:
            raise ValueError("It is damaged: it claims more numbers than its bytes can hold.")
        for texts in arrays:  # of each, the file has its length (4 bytes), and where it lies (12)
            start = texts.id.get_offset() if texts.dtype == object else None
            if start is not None and np.fromfile(path, "<u4", 4 * texts.size, offset=start)[::4].max() > size:
                raise ValueError("It is damaged: it claims a text that is longer than the file.")


def result_in(dataset: xr.Dataset, path: str | os.PathLike[str]) -> Result:
    """What ``Result.save`` has written to a file with such a content."""
    try:
        found = int(dataset.attrs["fedbandit_format"])
    except KeyError:
        raise InvalidArgument(
            "path", str(path), "a file written by Result.save", "It has no fedbandit_format."
        ) from None
    except ValueError as error:
        raise InvalidArgument("path", str(path), "a file written by Result.save", str(error)) from None
    if found != FORMAT:
        raise InvalidArgument("path", str(path), f"of format {FORMAT}", f"This one is of format {found}.")
    return Result(dataset)


def result_of(
    played: Problem | Sequence[Problem],
    policies: Mapping[str, Policy],
    records: Sequence[Record],
    times: NDArray[np.int64],
    trials: range,
    horizon: int,
    seed: int,
    watched: bool,
    shares: Shares | None = None,
    keep: Keep = "agents",
    gpu: str = "",
) -> Result:
    """Label the engine's arrays. ``played``: one problem, or one for each trial. ``gpu``: what played, if a GPU did."""
    problem = played if isinstance(played, Problem) else played[0]
    strata = problem.num_strata
    each = [played] * len(trials) if isinstance(played, Problem) else played
    best_arms = [p.best_arms if strata else p.best_arm for p in each]
    stacked = {name: np.stack([getattr(record, name) for record in records]) for name in Record._fields}
    disagreement = stacked.pop("disagreement")
    if keep == "agents":
        stacked["misses"] = np.cumsum(stacked["misses"], axis=-1)
    stacked["misses"] = stacked["misses"] / (times * problem.num_arms)
    if not watched:
        del stacked["misses"]
    if not problem.changes and not strata and not problem.num_features:
        del stacked["best_pulls"]  # the same as in pulls
    if strata:
        stacked["pulls"] = stacked["pulls"].reshape(*stacked["pulls"].shape[:-1], strata, problem.num_arms)
    else:
        del stacked["regret_by_stratum"]
    variables = {name: (array, _ABOUT[name]) for name, array in stacked.items()}
    dims = ("policy", "trial", "agent", "time")
    if keep == "aggregates":
        dims = ("policy", "trial", "time")
        variables = {n: v for name, array in stacked.items() for n, v in named(name, array, _ABOUT[name]).items()}
        variables["disagreement"] = (disagreement, _ABOUT["disagreement"])
    versions = {"python": platform.python_version(), "engine": f"{SOURCES[:16]} {gpu}".strip()}
    versions |= {name: version(name) for name in ("fedbandit", "numpy", "numba", "xarray")}
    dataset = xr.Dataset(
        {
            name: ((*dims, *_axes_of(name, strata)), array, {"long_name": about})
            for name, (array, about) in variables.items()
        },
        coords={
            "policy": list(policies),
            "trial": np.arange(trials.start, trials.stop),
            **({"agent": list(problem.agent_names) or np.arange(problem.num_agents)} if keep == "agents" else {}),
            "time": times,
            "arm": list(problem.arm_names) or np.arange(problem.num_arms),
            **({"stratum": np.arange(strata)} if strata else {}),
            "best_arm": (("trial", "stratum") if strata else "trial", best_arms),
        },
        attrs={
            "fedbandit_format": FORMAT,
            "seed": str(seed),  # may be larger than netCDF's integers
            "versions": json.dumps(versions),
            "experiment": json.dumps(describe(played, policies, trials, horizon, seed, shares, keep)),
        },
    )
    return Result(dataset)


def _axes_of(name: str, strata: int) -> tuple[str, ...]:
    """The last axes of a variable, of agents or of aggregates."""
    plain = next((name.removesuffix(suffix) for suffix in STATISTICS if suffix and name.endswith(suffix)), name)
    if plain == "pulls":
        return ("stratum", "arm") if strata else ("arm",)
    return ("stratum",) if plain == "regret_by_stratum" else ()


# ---------------------------------------------------------------- files and folders

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


# ---------------------------------------------------------------- everything needed to run it again

# In JSON types. Of large arrays there is a digest: a problem that was drawn from a seed is drawn again, and compared.

_MOST_NUMBERS = 200_000


def _described(array: NDArray[Any]) -> Any:
    """The numbers of an array; of a large one its shape and a hash."""
    if array.size <= _MOST_NUMBERS:
        return array.tolist()
    return {"shape": list(array.shape), "sha256": hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()}


def describe(
    played: Problem | Sequence[Problem],
    policies: Mapping[str, Policy],
    trials: range,
    horizon: int,
    seed: int,
    shares: Shares | None = None,
    keep: Keep = "agents",
) -> dict[str, Any]:
    """Everything needed to rerun an experiment, in JSON types. ``played``: one problem, or one for each trial."""
    problem = played if isinstance(played, Problem) else played[0]
    means = _described(problem.means) if isinstance(played, Problem) else [_described(p.means) for p in played]
    graph: dict[str, Any] = {"name": problem.graph.name, "edges": _described(problem.graph.edge_array)}
    match problem.over_time:
        case Schedule(periods=periods):
            graph["periods"] = periods
        case Contacts(times=times, edge_numbers=numbers):
            graph["contacts"] = hashlib.sha256(np.stack([times, numbers]).tobytes()).hexdigest()
        case None:
            pass
    return {
        "problem": {
            "rewards": problem.rewards.name if isinstance(problem.rewards, Own) else problem.family,
            "means": means,
            **problem.rewards.parameters(),
            **({"code": code} if (code := code_of(problem.rewards)) else {}),  # of a user's own draw
            "reward_range": problem.reward_range,
            "weights": _described(problem.weights),
            "edges_per_round": _described_links(problem),
            **({"gossip": problem.gossip} if problem.gossip == "releases" else {}),
            **({"changes": _described_changes(played)} if problem.changes else {}),
            **({"strata": _described(problem.strata)} if problem.strata is not None else {}),
            **({"features": problem.features.parameters()} if problem.features is not None else {}),
            **({} if problem.theta is None else {"theta": _described_theta(played)}),
            "rates": None if problem.rates is None else problem.rates.tolist(),
            **({"counts": problem.counts} if problem.counts == "patients" else {}),
            **(_described_lateness(problem) if problem.is_late else {}),
        },
        "graph": graph,
        **({} if shares is None else {"shares": asdict(shares)}),
        "policies": {label: _described_policy(policy) for label, policy in policies.items()},
        "horizon": horizon,
        "trials": [trials.start, trials.stop],
        "seed": seed,
        **({"keep": keep} if keep != "agents" else {}),
    }


def _described_links(problem: Problem) -> Any:
    """How links are chosen; a rule of the user's own by its module and name, and a hash of its code."""
    chosen = problem.edges_per_round
    if not callable(chosen):
        return chosen
    return {"rule": f"{chosen.__module__}:{chosen.__qualname__}", "code": digest_of(chosen)}


def _described_lateness(problem: Problem) -> dict[str, Any]:
    """Delays of all agents by one text, or of each by its own."""
    texts = [str(each) for each in problem.delays or ()]
    delays = texts[0] if len(set(texts)) == 1 else texts or None
    return {"delays": delays, "reward_window": problem.reward_window, "default_reward": problem.default_reward}


def _described_changes(played: Problem | Sequence[Problem]) -> Any:
    if isinstance(played, Problem):
        return [[start, _described(means)] for start, means in played.changes]
    return [_described_changes(problem) for problem in played]


def _described_theta(played: Problem | Sequence[Problem]) -> Any:
    each = [played] if isinstance(played, Problem) else played
    found = [None if problem.theta is None else _described(problem.theta) for problem in each]
    return found[0] if isinstance(played, Problem) else found


def _described_policy(policy: Policy) -> dict[str, Any]:
    """The kind, for an own policy a hash of its source, and the parameters."""
    source = {} if is_built_in(policy) else {"source": source_hash(policy)}
    parameters: dict[str, Any] = asdict(cast(Any, policy))
    infinite = {name: "inf" for name, it in parameters.items() if isinstance(it, float) and isinf(it)}  # not in JSON
    return {"kind": kind_of(policy)} | source | parameters | infinite
