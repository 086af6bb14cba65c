"""The engine computes what was recorded of it, bit for bit.

``golden/record.py`` has the cases, and says how to record them anew.
"""

from pathlib import Path

import numpy as np
import pytest

import groups
from golden.record import FILE, cases, load

slow = pytest.mark.slow

TOLERANCE: dict[str, float] = {}
"""For cases whose name ends so: by how much their floats may differ. Whole numbers must always be equal."""

CASES = cases()
IN_A_MINUTE = {
    *(f"simulate/gaussian/{it}" for it in ("gossip_ucb", "fed_ucb_paper", "dist_ucb", "coop_ucb2", "gse")),
    *(f"simulate/bernoulli/{it}" for it in ("fed_ucb", "batch", "batch_catching_up", "batch_kl", "local_ucb")),
    *(
        f"simulate/bernoulli/{it}"
        for it in ("central_learning", "central_thompson_learning", "gse_present", "adap_ucb")
    ),
    *(f"replay/full/{it}" for it in ("gossip_ucb", "fed_ucb_paper", "coop_ucb2")),
    *(f"replay/unit/{it}" for it in ("batch", "batch_first")),
    *(f"replay/apart/{it}" for it in ("fed1_ucb", "gse_present")),
}
"""Every page once. Variants compile for each kind of links, rewards and number of arms: the rest waits for test-all."""


@pytest.fixture(scope="module")
def recorded():
    return load()


def tolerance_of(case):
    return max((most for ending, most in TOLERANCE.items() if case.endswith(ending)), default=0.0)


def differences(expected, actual, tolerance):
    """What differs, in words; nothing if all is well."""
    found = [f"{name} is missing" for name in expected.keys() - actual.keys()]
    found += [f"{name} is new" for name in actual.keys() - expected.keys()]
    for name in expected.keys() & actual.keys():
        old, new = expected[name], np.asarray(actual[name])
        if old.shape != new.shape or old.dtype.kind != new.dtype.kind:
            found.append(f"{name} was {old.dtype}{old.shape}, is {new.dtype}{new.shape}")
        elif old.dtype.kind != "f":
            if not np.array_equal(old, new):
                found.append(f"{name}: {np.sum(old != new)} of {old.size} whole numbers differ")
        elif not np.array_equal(old, new, equal_nan=True):
            off = np.abs(old - new)
            if not np.allclose(old, new, rtol=0.0, atol=tolerance, equal_nan=True):
                found.append(f"{name}: {np.sum(off > 0)} of {old.size} floats differ, by at most {np.nanmax(off):g}")
    return sorted(found)


def test_every_case_is_recorded_and_nothing_else(recorded):
    assert recorded.keys() == CASES.keys() > IN_A_MINUTE
    assert FILE.stat().st_size < 2**20


@pytest.mark.filterwarnings("ignore::fedbandit.PrivacyWarning")
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=[groups.of_page(Path(case).name), *([] if case in IN_A_MINUTE else [slow])])
        for case in CASES
    ],
)
def test_engine_computes_what_was_recorded(case, recorded):
    assert differences(recorded[case], CASES[case](), tolerance_of(case)) == []


def test_a_difference_is_seen():
    old = {"x": np.array([1.0, np.nan]), "n": np.array([1, 2])}
    assert differences(old, {"x": np.array([1.0, np.nan]), "n": np.array([1, 2], np.int32)}, 0.0) == []
    near = {"x": np.array([np.nextafter(1.0, 2.0), np.nan]), "n": np.array([1, 2])}
    assert differences(old, near, 0.0) == ["x: 1 of 2 floats differ, by at most 2.22045e-16"]
    assert differences(old, near, 1e-12) == []
    assert differences(old, {"n": np.array([1, 3])}, 1e9) == ["n: 1 of 2 whole numbers differ", "x is missing"]
    assert len(differences(old, {"x": np.array([1.0, 2.0]), "n": np.array([1.0, 2.0]), "y": old["n"]}, 1e9)) == 3
