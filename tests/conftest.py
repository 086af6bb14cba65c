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
        "--fault-seeds", type=int, default=200, help="how many schedules of faults the live agent is tried with"
    )


@pytest.fixture
def fault_seeds(request: pytest.FixtureRequest) -> int:
    return request.config.getoption("--fault-seeds")
