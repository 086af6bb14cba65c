"""What the base can do, and what it says where an extra is missing. Run in an environment without extras."""

import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from fedbandit.cli import app

NEEDS = {
    ("run", "x.toml"): ("fedbandit run needs the simulator", "sim"),
    ("show", "x"): ("fedbandit show needs the simulator", "sim"),
    ("plot", "x"): ("fedbandit plot needs the simulator", "sim"),
    ("graph", "path:3"): ("fedbandit graph needs the simulator", "sim"),
    ("theory", "--graph=path:3", "--arms=2", "--horizon=9"): ("fedbandit theory needs the simulator", "sim"),
    ("reproduce",): ("fedbandit reproduce needs the simulator", "sim"),
    ("demo",): ("fedbandit demo needs the simulator", "sim"),
    ("audit",): ("fedbandit audit needs the packages of a live site and the simulator", "agent,sim"),
    ("up",): ("fedbandit up needs the packages of a live site and the simulator", "agent,sim"),
    ("agent",): ("fedbandit agent needs the packages of a live site", "agent"),
    ("certs", "init"): ("fedbandit certs init needs the packages of a live site", "agent"),
    ("certs", "issue", "north"): ("fedbandit certs issue needs the packages of a live site", "agent"),
    ("certs", "sign", "x.csr", "north"): ("fedbandit certs sign needs the packages of a live site", "agent"),
}


def command(*arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of ``fedbandit``."""
    ran = CliRunner().invoke(app, arguments)
    return ran.exit_code, ran.stdout, ran.stderr.strip()


def words_of(code: str) -> str:
    """What the ``ImportError`` of this code says."""
    try:
        exec(code, {})  # noqa: S102  # one of the lines below
    except ImportError as error:
        return str(error)
    raise AssertionError(f"{code!r} works in the base")


def check_words() -> None:
    """Commands and imports name the extra that they need."""
    for arguments, (words, extras) in NEEDS.items():
        assert command(*arguments) == (2, "", f"error: {words}: pip install 'fedbandit[{extras}]'"), command(*arguments)
    assert not list(Path().iterdir()), "a command that cannot run writes nothing"
    ran = subprocess.run([sys.executable, "-m", "fedbandit", "run", "x.toml"], capture_output=True, text=True)
    words = "error: fedbandit run needs the simulator: pip install 'fedbandit[sim]'\n"
    assert (ran.returncode, ran.stderr) == (2, words), ran
    assert "COMMAND" in command("--help")[1]
    install = "needs the simulator: pip install 'fedbandit[sim]'"
    assert words_of("from fedbandit import simulate") == f"fedbandit.simulate {install}"
    assert words_of("from fedbandit import graph") == f"fedbandit.{'graph'} {install}"
    assert words_of("from fedbandit.testing import check_policy") == f"fedbandit.testing {install}"
    assert words_of("import fedbandit.simulation.run") == f"fedbandit.simulation {install}"
    draw = "from fedbandit.privacy.noise import laplace; laplace(1.0)"
    assert words_of(draw) == "noise for real rewards needs the packages of a live site: pip install 'fedbandit[agent]'"


def check_names() -> None:
    """Every name that ``dir`` shows can be loaded; names of an extra are not shown."""
    import fedbandit

    shown = dir(fedbandit)
    assert {"Client", "FedBatch", "InvalidArgument", "privacy", "theory"} <= set(shown) < set(fedbandit.__all__)
    for name in fedbandit.__all__:
        if name in shown:
            getattr(fedbandit, name)
        else:
            assert "pip install 'fedbandit[sim]'" in words_of(f"from fedbandit import {name}")


def check_a_page() -> None:
    """Rules compute, and a page plays: two sites in memory."""
    from fedbandit import FedBatch, theory
    from fedbandit.agent.core.federation import Federation
    from fedbandit.rules import choose
    from fedbandit.testing.memory_network import MemoryNetwork

    assert choose.highest([0.1, 0.3]) == 1
    assert theory.alpha1(3) > 0.0
    network = MemoryNetwork(
        Federation("f", ("a", "b"), 0, 1, FedBatch(1.0, first_batch=1), max_agents=2), [("north", "east")]
    )
    network.report("north", network.decide("north").id, 1.0)
    network.exchange("north", "east")
    network.run()
    assert network.site("east").theta[0] is not None, "east knows what north has released"


if __name__ == "__main__":
    check_words()
    check_names()
    check_a_page()
    print("rules and pages work, and what needs an extra says so")
