"""The GPU engine where there is no GPU: its kernels in plain Python, its books, and what it says.

``simulated_gpu.py`` plays the real kernels, thread by thread; ``cuda_simulator.py`` has the simulations. A process of
its own plays them: Numba is told before it is imported that there is no compiler.
"""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from cuda_simulator import CASES, call_of, numbers_of
from fedbandit import simulate

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def on_gpu():
    """What the simulated GPU tells of all cases."""
    path = os.pathsep.join([str(Path(sys.modules["fedbandit"].__file__).parents[1]), str(HERE)])
    options = {"NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": path}
    ran = subprocess.run(
        [sys.executable, HERE / "cuda_simulator.py"], env={**os.environ, **options}, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout)


@pytest.mark.parametrize("name", CASES)
def test_the_kernels_play_as_the_cpu_does(name, on_gpu):
    arguments, options = call_of(CASES[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = numbers_of(simulate(*arguments, **options))
    assert on_gpu[name].keys() == expected.keys()
    for variable, numbers in expected.items():
        close = {"rtol": 1e-12, "atol": 1e-12} if variable.startswith("theta_error") else {"rtol": 1e-14}
        np.testing.assert_allclose(on_gpu[name][variable], numbers, **close, err_msg=variable)
