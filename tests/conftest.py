import fcntl
import gc
import hashlib
import os
from collections.abc import Iterator
from functools import wraps
from typing import Any

import pytest
from hypothesis import Phase, settings

# Derandomised: the same examples every time, so that a red test stays red.
settings.register_profile("fixed", derandomize=True, deadline=None, print_blob=True)
# For mutants: that a test fails matters, not the smallest example.
settings.register_profile("unshrunk", settings.get_profile("fixed"), phases=[Phase.explicit, Phase.generate])
settings.load_profile("fixed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite golden traces; read the diff before committing"
    )
    parser.addoption(
        "--fault-seeds", type=int, default=80, help="how many schedules of faults the live agent is tried with"
    )


@pytest.fixture
def fault_seeds(request: pytest.FixtureRequest) -> int:
    return request.config.getoption("--fault-seeds")


# ---------------------------------------------------------------- many tests on few cores


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Half as many workers again as cores: tests of real agents wait for almost a third of their time."""
    return 3 * (os.cpu_count() or 1) // 2


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a file in one worker: they share agents, browsers and compiled pages, which are expensive."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Notice a version of pytest-xdist that forgets the groups: everything would pass, in twice the time."""
    if "PYTEST_XDIST_WORKER" in os.environ and session.config.getoption("dist") == "loadgroup":
        assert all("@" in item.nodeid for item in session.items), "pytest-xdist does not group tests with this pytest"
    _spare_the_garbage_collector()


def _spare_the_garbage_collector() -> None:
    """Leave out what stays for ever. Numba's compiler makes millions of objects: a tenth faster."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.fixture(scope="session", autouse=True)
def each_driver_is_compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Workers that need the same compiled loop at the same time wait for the first one, and load it from the disk."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        yield
        return
    from numba.core.caching import FunctionCache
    from numba.core.dispatcher import Dispatcher

    folder, compile_alone = tmp_path_factory.getbasetemp().parent, Dispatcher.compile

    @wraps(compile_alone)
    def compile_once(self: Any, signature: Any) -> Any:
        if not isinstance(self._cache, FunctionCache):
            return compile_alone(self, signature)
        key = repr(self._cache._index_key(signature, self.targetctx.codegen()))
        name = hashlib.sha256(key.encode()).hexdigest()[:16]
        with (folder / f"compiling-{name}").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return compile_alone(self, signature)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Dispatcher, "compile", compile_once)
        yield
