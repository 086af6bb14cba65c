import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fedbandit import InvalidArgument
from fedbandit.world import hospital

DATA = Path(__file__).parents[2] / "shared" / "data" / "dataset_diabetes.zip"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="the UCI diabetes data is not beside the checkout")


@pytest.fixture(scope="module")
def table():
    return hospital.load(DATA)


def test_split_by_order_gives_local_bias():
    """The paper: "local biased indeed occurs when the dataset is separated ... according to the order"."""
    problem = hospital.problem("order")
    assert problem.best_arm == 2
    assert problem.means[1].argmax() == 3, "hospital 2 alone would take arm 4"
    np.testing.assert_allclose(problem.means[1], [0.3757, 0.3804, 0.4174, 0.4272, 0.3537], atol=5e-5)
    assert problem.reward_range == (0.0, 1.0)


def test_split_at_random_has_little_bias():
    """Pooled n and mean of each arm; a hospital has a third of the records, so 6 standard errors of its mean."""
    pooled_n = np.array([29064, 14184, 13810, 16188, 23403])
    pooled = np.array([0.3405, 0.3272, 0.3752, 0.3579, 0.3088])
    for seed in range(3):
        problem = hospital.problem("random", seed=seed)
        allowed = 6 * np.sqrt(pooled * (1 - pooled) / (pooled_n / 3))
        assert (np.abs(problem.means - pooled) < allowed).all()
    assert not np.array_equal(hospital.problem("random", seed=1).means, hospital.problem("random", seed=2).means)


def test_bad_split():
    with pytest.raises(InvalidArgument, match="split must be 'order' or 'random'"):
        hospital.problem("alphabet")


@needs_data
def test_shipped_counts_are_those_of_the_data(table):
    np.testing.assert_array_equal(hospital.problem_from(table).means, hospital.problem("order").means)
    arms = table[[f"arm_{k}" for k in range(1, 6)]].to_numpy()
    for pattern, counts in hospital._PATTERN_COUNTS.items():
        rows = (arms == np.isin(np.arange(1, 6), pattern)).all(axis=1)
        success = table["reward"].to_numpy()[rows].sum()
        assert (rows.sum() - success, success) == counts
    assert len(table) == hospital._NUM_RECORDS
    assert (~arms.any(axis=1)).sum() == len(table) - sum(map(sum, hospital._PATTERN_COUNTS.values()))


@needs_data
def test_pooled_table(table):
    """n / mean per arm, all hospitals together."""
    arms = table[[f"arm_{k}" for k in range(1, 6)]].to_numpy()
    np.testing.assert_array_equal(arms.sum(axis=0), [29064, 14184, 13810, 16188, 23403])
    means = table["reward"].to_numpy() @ arms / arms.sum(axis=0)
    np.testing.assert_allclose(means, [0.3405, 0.3272, 0.3752, 0.3579, 0.3088], atol=5e-5)


@needs_data
def test_other_splits(table):
    by_source = hospital.problem_from(table, 4, split="admission_source_id", graph="ring")
    assert by_source.graph.name == "ring:4"
    assert by_source.means.shape == (4, 5)
    assert hospital.problem_from(table, 20, split="random", seed=1, graph="path").num_agents == 20
    with pytest.raises(InvalidArgument, match="Did you mean 'admission_source_id'"):
        hospital.problem_from(table, 4, split="admission_source")
    with pytest.raises(InvalidArgument, match="num_hospitals must be at most 3"):
        hospital.problem_from(table, 5, split="readmitted")
    with pytest.raises(InvalidArgument, match=r"smaller, not 50000. Hospital \d+ has no record of arm"):
        hospital.problem_from(table, 50_000)


@needs_data
def test_zip_and_csv_are_the_same(table, tmp_path):
    with zipfile.ZipFile(DATA) as archive:
        (tmp_path / "diabetic_data.csv").write_bytes(archive.read("dataset_diabetes/diabetic_data.csv"))
    assert hospital.load(tmp_path / "diabetic_data.csv").equals(table)


def test_bad_files_say_where_the_data_is(tmp_path):
    with pytest.raises(InvalidArgument, match=r"path must be a file that exists.*UCI Machine Learning Repository"):
        hospital.load(tmp_path / "missing.zip")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InvalidArgument, match="unchanged, with the sha256 0689e7ec"):
        hospital.load(tmp_path / "other.csv")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("something.txt", "no data")
    (tmp_path / "empty.zip").write_bytes(buffer.getvalue())
    with pytest.raises(InvalidArgument, match=r"There is no diabetic_data.csv in it"):
        hospital.load(tmp_path / "empty.zip")


@needs_data
def test_damaged_zip_and_wrong_arguments(table, tmp_path):
    content = bytearray(DATA.read_bytes())
    content[100_000:100_100] = bytes(100)
    (tmp_path / "damaged.zip").write_bytes(content)
    with pytest.raises(InvalidArgument, match="undamaged zip file"):
        hospital.load(tmp_path / "damaged.zip")
    with pytest.raises(InvalidArgument, match="split must be"):
        hospital.problem_from(table, 3, split=3)
    with pytest.raises(InvalidArgument, match=r"table must be what hospital.load returns"):
        hospital.problem_from(table[["reward"]], 3)


def test_missing_columns_are_named(monkeypatch, tmp_path):
    import hashlib

    content = b"encounter_id,insulin\n1,No\n"
    monkeypatch.setattr(hospital, "CSV_SHA256", hashlib.sha256(content).hexdigest())
    (tmp_path / "short.csv").write_bytes(content)
    with pytest.raises(InvalidArgument, match=r"not 'a table without the columns metformin, "):
        hospital.load(tmp_path / "short.csv")
