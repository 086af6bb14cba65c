"""The paper's hospital experiment: five treatments of diabetes in three hospitals.

This file reads the data (arms, rewards, splits) and ships the counts that reproduce the experiment. The data:
"Diabetes 130-US hospitals for years 1999-2008", UCI Machine Learning Repository, CC BY 4.0; B. Strack et al.,
"Impact of HbA1c measurement on hospital readmission rates", BioMed Research International, 2014. The
records are not part of this package; the counts below come from them.

Rewards are 0 or 1, so drawing a record of arm k at hospital i with replacement *is* a Bernoulli draw with
mean successes / records: the table of counts reproduces the experiment exactly.
"""

import hashlib
import io
import zipfile
import zlib
from collections.abc import Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedbandit.checks import InvalidArgument, closest, instance, whole_number
from fedbandit.world.graph import Graph
from fedbandit.world.problem import Problem

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ARM_NAMES", "SHORT_ARM_NAMES", "load", "problem", "problem_from"]

WHERE = (
    "the data set 'Diabetes 130-US hospitals for years 1999-2008' of the UCI Machine Learning Repository "
    "(archive.ics.uci.edu, data set 296: dataset_diabetes.zip with dataset_diabetes/diabetic_data.csv)"
)
CSV_NAME = "diabetic_data.csv"
CSV_SHA256 = "0689e7ec031237dc63031b938805c48377748761a3b26acab621567afa24df97"

ARM_NAMES = ("insulin", "metformin", "glipizide and others", "glyburide, glimepiride and others", "no drug")
SHORT_ARM_NAMES = ("insulin", "metformin", "glipizide+", "glyburide+", "no drug")

# "Construction of arms". 'sitagliptin' is the data's column 'citoglipton'; tolazamide is in no arm.
_ARM_DRUGS = (
    ("insulin",),
    ("metformin",),
    ("repaglinide", "glipizide", "rosiglitazone", "acarbose", "miglitol", "troglitazone"),
    (
        *("nateglinide", "chlorpropamide", "glyburide", "examide", "glimepiride", "acetohexamide", "tolbutamide"),
        *("pioglitazone", "citoglipton", "glyburide-metformin", "glipizide-metformin"),
        *("glimepiride-pioglitazone", "metformin-rosiglitazone", "metformin-pioglitazone"),
    ),
)
_DRUGS = (*(drug for drugs in _ARM_DRUGS for drug in drugs), "tolazamide")

# All records cut in three by order of appearance: (records, successes) per hospital and arm.
_ORDER_COUNTS = (
    ((10076, 3312), (4545, 1356), (4849, 1670), (5869, 1865), (8928, 2588)),
    ((9507, 3572), (4753, 1808), (4971, 2075), (5388, 2302), (7712, 2728)),
    ((9481, 3013), (4886, 1477), (3990, 1437), (4931, 1626), (6763, 1911)),
)

# The number of records in exactly these arms (numbered from 1): (failures, successes). They allow any random
# split to be drawn without the records. In no arm: 27,722.
_PATTERN_COUNTS = {
    (1,): (10733, 5532),
    (2,): (2852, 1374),
    (3,): (3228, 2084),
    (4,): (4007, 2419),
    (5,): (16176, 7227),
    (1, 2): (1704, 772),
    (1, 3): (2055, 1194),
    (1, 4): (2373, 1284),
    (2, 3): (1139, 654),
    (2, 4): (1613, 781),
    (3, 4): (568, 379),
    (1, 2, 3): (769, 363),
    (1, 2, 4): (965, 422),
    (1, 3, 4): (368, 233),
    (2, 3, 4): (301, 178),
    (1, 2, 3, 4): (200, 97),
}
_NUM_RECORDS = 101_766

MAX_HOSPITALS = 500  # about 200 records each: every hospital has some of every arm


def problem(
    split: Literal["order", "random"] = "order",
    seed: int = 0,
    graph: Graph | str = "complete:3",
    num_hospitals: int = 3,
    **options: Any,
) -> Problem:
    """The experiment of Figure 2 (c) from the shipped counts: three hospitals, five arms.

    ``split="order"`` cuts the records in three in file order, which gives each hospital the bias that the
    paper mentions; ``"random"`` divides them at random (the paper's words) among any number of hospitals, which leaves
    almost no bias.
    """
    if split == "order":
        if whole_number("num_hospitals", num_hospitals, 1, MAX_HOSPITALS) != 3:
            raise InvalidArgument("num_hospitals", num_hospitals, "3 with split 'order' (for others: split 'random')")
        counts = np.array(_ORDER_COUNTS)
        return Problem.bernoulli(counts[:, :, 1] / counts[:, :, 0], graph, **options)
    if split == "random":
        hospitals = whole_number("num_hospitals", num_hospitals, 1, MAX_HOSPITALS)
        means = _random_parts(whole_number("seed", seed, 0, 2**64 - 1), hospitals)
        return Problem.bernoulli(means, graph, **options)
    raise InvalidArgument("split", split, "'order' or 'random' (for a column: load the data and use problem_from)")


def _random_parts(seed: int, hospitals: int) -> NDArray[np.float64]:
    """Local means when all records are divided at random into equal parts."""
    source = np.random.default_rng(seed)
    cells = [(arms, reward) for arms in _PATTERN_COUNTS for reward in (0, 1)]
    left = np.array([_PATTERN_COUNTS[arms][reward] for arms, reward in cells])
    left = np.append(left, _NUM_RECORDS - left.sum())
    means = np.zeros((hospitals, len(ARM_NAMES)))
    for hospital in range(hospitals):
        last = hospital == hospitals - 1
        drawn = left if last else source.multivariate_hypergeometric(left, _NUM_RECORDS // hospitals)
        left = left - drawn
        for k in range(len(ARM_NAMES)):
            of_arm = [(reward, count) for (arms, reward), count in zip(cells, drawn, strict=False) if k + 1 in arms]
            means[hospital, k] = sum(r * c for r, c in of_arm) / sum(c for _, c in of_arm)
    return means


def load(path: str | Path) -> "pd.DataFrame":
    """Read the user's copy of the data into a tidy table, a row per record in file order.

    Columns: ``arm_1`` .. ``arm_5`` (does the record count in this arm?), ``reward`` (1 if readmitted after more
    than 30 days) and the data's own columns other than drugs. Records with a drug 'Up' or 'Down' count in no
    arm ("we only focus on No and Steady").
    """
    import pandas as pd

    raw = _csv_bytes(Path(path))
    found = hashlib.sha256(raw).hexdigest()
    if found != CSV_SHA256:
        raise InvalidArgument("path", str(path), f"{WHERE} unchanged, with the sha256 {CSV_SHA256}", f"Found: {found}.")
    return _tidy(pd.read_csv(io.BytesIO(raw), dtype=str, keep_default_na=False))


def _csv_bytes(path: Path) -> bytes:
    try:
        if not zipfile.is_zipfile(path):
            return path.read_bytes()
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.rpartition("/")[2] == CSV_NAME:
                    return archive.read(name)
    except (zipfile.BadZipFile, zlib.error) as error:
        raise InvalidArgument("path", str(path), f"an undamaged zip file: {WHERE}", str(error)) from None
    except FileNotFoundError:
        raise InvalidArgument("path", str(path), "a file that exists", f"It is {WHERE}.") from None
    except OSError as error:
        raise InvalidArgument(
            "path", str(path), f"a readable zip or CSV file: {WHERE}", str(error.strerror or error)
        ) from None
    raise InvalidArgument("path", str(path), f"{WHERE}", f"There is no {CSV_NAME} in it.")


def _tidy(records: "pd.DataFrame") -> "pd.DataFrame":
    missing = [column for column in (*_DRUGS, "readmitted") if column not in records.columns]
    if missing:
        raise InvalidArgument("path", f"a table without the columns {', '.join(missing)}", WHERE)
    drugs = records[list(_DRUGS)]
    steady, changed = drugs.isin(["Steady"]), drugs.isin(["Up", "Down"]).any(axis=1)
    table = records.drop(columns=list(_DRUGS))
    for k, arm_drugs in enumerate(_ARM_DRUGS):
        table[f"arm_{k + 1}"] = steady[list(arm_drugs)].any(axis=1) & ~changed
    table["arm_5"] = drugs.isin(["No"]).all(axis=1)
    table["reward"] = records["readmitted"].eq(">30").astype(int)
    return table


def problem_from(
    table: "pd.DataFrame",
    num_hospitals: int = 3,
    split: str = "order",
    seed: int = 0,
    graph: Graph | str = "complete",
    **options: Any,
) -> Problem:
    """A problem from the table of ``load``.

    ``split``: ``"order"`` cuts the records in file order, ``"random"`` at random; or the name of a column, such as
    ``"admission_source_id"``: its ``num_hospitals`` most frequent values become the hospitals. A random split has the
    same distribution as that of ``problem``, but different draws for the same seed.
    """
    if "arm_1" not in table.columns:
        raise InvalidArgument("table", list(table.columns), "what hospital.load returns")
    hospitals = whole_number("num_hospitals", num_hospitals, 1, len(table))
    arms = table[[f"arm_{k + 1}" for k in range(len(ARM_NAMES))]].to_numpy(bool)
    reward = table["reward"].to_numpy()
    means = np.zeros((hospitals, len(ARM_NAMES)))
    for hospital, rows in enumerate(parts(table, hospitals, split, seed)):
        records = arms[rows].sum(axis=0)
        if (records == 0).any():
            arm = int(np.argmin(records))
            raise InvalidArgument(
                "num_hospitals", hospitals, "smaller", f"Hospital {hospital} has no record of arm {arm + 1}."
            )
        means[hospital] = reward[rows] @ arms[rows] / records
    return Problem.bernoulli(
        means, f"{graph}:{hospitals}" if isinstance(graph, str) and ":" not in graph else graph, **options
    )


def parts(table: "pd.DataFrame", hospitals: int, split: str, seed: int) -> list[NDArray[np.int64]]:
    """The rows of each hospital: those of a table cut in so many parts, by ``split``."""
    rows = np.arange(len(table))
    if split == "random":
        rows = np.random.default_rng(whole_number("seed", seed, 0, 2**64 - 1)).permutation(rows)
    if split in ("order", "random"):
        return np.array_split(rows, hospitals)
    instance("split", split, str, "'order', 'random' or a column of the table")
    if split not in table.columns:
        raise InvalidArgument(
            "split", split, "'order', 'random' or a column of the table", closest(split, table.columns)
        )
    values: list[Hashable] = table[split].value_counts().index.tolist()
    if len(values) < hospitals:
        raise InvalidArgument("num_hospitals", hospitals, f"at most {len(values)}, the values of column {split}")
    column = table[split].to_numpy()
    return [rows[column == value] for value in values[:hospitals]]


def __dir__() -> list[str]:
    return __all__
