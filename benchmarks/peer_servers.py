"""A decision and its reward over the network: a live agent beside MABWiser in FastAPI and Vowpal Wabbit's daemon.

One application with one connection, on plain sockets: only the server's CPU time counts, of its process and its
children. The agent writes every decision and every reward to disk before it answers, releases with differential privacy
and holds a gossip port open; the others keep everything in memory and have neither.
"""

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from fedbandit import FedBatch  # noqa: E402
from fedbandit.agent.core.federation import Federation  # noqa: E402
from fedbandit.local.processes import LocalFederation  # noqa: E402
from live_load import Connection, cpu_seconds  # noqa: E402
from peer_environments import WORKERS, NotInstalled, python_of  # noqa: E402
from readme_tables import markdown, spread  # noqa: E402

NUM_ARMS = 10
STARTS_WITHIN = 30.0


class Lines:
    """An application of Vowpal Wabbit's daemon: an example per line, and chances as the answer."""

    def __init__(self, port: int) -> None:
        """Connect."""
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=5.0)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._random = Random(0)

    def pair(self) -> float:
        """Ask for an arm and report its reward; how long the decision took, in seconds."""
        began = time.perf_counter()
        chances = dict(part.split(":") for part in self._ask("| a").decode().strip().split(","))
        (arm,) = self._random.choices(list(chances), list(map(float, chances.values())))
        took = time.perf_counter() - began
        self._ask(f"{int(arm) + 1}:-0.5:{chances[arm]} | a")
        return took

    def _ask(self, line: str) -> bytes:
        self._socket.sendall(line.encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n\n"):
            some = self._socket.recv(65_536)
            if not some:
                raise ConnectionError("the daemon has closed the connection")
            answer += some
        return answer

    def close(self) -> None:
        """Disconnect."""
        self._socket.close()


@dataclass
class Server:
    """A row of the table."""

    label: str
    keeps: str
    start: Callable[[ExitStack, Path], tuple[int, int]]  # the process and its port
    connect: Callable[[int], Connection | Lines]
    process: int = 0
    port: int = 0
    failed: str = ""
    cpu: list[float] = field(default_factory=list[float])  # seconds per pair, an entry per run
    rate: list[float] = field(default_factory=list[float])  # pairs per second
    median: list[float] = field(default_factory=list[float])  # seconds of a decision

    def run(self, pairs: int) -> None:
        """Measure once more, unless it has failed before."""
        if self.failed:
            return
        application = self.connect(self.port)
        for _ in range(20):
            application.pair()
        cpu, began = self._cpu_seconds(), time.perf_counter()
        times = [application.pair() for _ in range(pairs)]
        self.rate.append(pairs / (time.perf_counter() - began))
        self.cpu.append((self._cpu_seconds() - cpu) / pairs)
        self.median.append(statistics.median(times))
        application.close()

    def _cpu_seconds(self) -> float:
        return sum(map(cpu_seconds, family(self.process)))


def family(process: int) -> Iterator[int]:
    """A process and its descendants."""
    yield process
    for task in Path(f"/proc/{process}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from family(int(child))


def our_agent(stack: ExitStack, folder: Path) -> tuple[int, int]:
    """A live agent with ten arms whose neighbour is away."""
    arms = tuple(f"arm {k}" for k in range(NUM_ARMS))
    terms = Federation("peers", arms, 0.0, 1.0, FedBatch(epsilon=1.0), max_agents=2)
    federation = LocalFederation(folder, terms, [("east", "north")])
    stack.callback(federation.stop_all)
    federation.start("north")
    federation.wait_ready("north")
    return federation.process("north"), federation.http_ports["north"]


def worker(environment: str, script: str) -> Callable[[ExitStack, Path], tuple[int, int]]:
    """Starts one of our scripts in a peer's environment."""

    def start(stack: ExitStack, folder: Path) -> tuple[int, int]:
        python, port = python_of(environment), free_port()
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return stack.enter_context(running([str(python), str(WORKERS / script), str(port)], env, port)), port

    return start


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


@contextmanager
def running(command: list[str], env: dict[str, str], port: int) -> Iterator[int]:
    """A server's process, from when it listens."""
    process = subprocess.Popen(  # noqa: S603  # our own scripts
        command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    children: list[int] = []
    try:
        until = time.monotonic() + STARTS_WITHIN
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > until:
                    raise NotInstalled(f"does not start (exit code {process.poll()})") from None
                time.sleep(0.1)
        children = [it for it in family(process.pid) if it != process.pid]
        yield process.pid
    finally:
        process.terminate()
        process.wait()
        for child in children:  # Vowpal Wabbit's parent leaves its child behind
            if Path(f"/proc/{child}").exists():
                os.kill(child, 15)


def servers() -> list[Server]:
    """All rows; the first is what the others are compared with."""
    return [
        Server("**fedbandit agent**, FedBatch, HTTP", "on disk before it answers", our_agent, Connection),
        Server(
            "MABWiser, UCB1, in FastAPI with uvicorn, HTTP",
            "in memory",
            worker("mabwiser", "serve_mabwiser.py"),
            Connection,
        ),
        Server(
            "Vowpal Wabbit's daemon, epsilon-greedy, lines over TCP",
            "in memory",
            worker("vowpalwabbit", "serve_vowpalwabbit.py"),
            Lines,
        ),
    ]


def live_table(runs: int, pairs: int) -> str:
    """Measure all servers in turns; a table."""
    rows = servers()
    os.umask(0o077)  # an agent may refuse data that others can read
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        for row in rows:
            try:
                row.process, row.port = row.start(stack, Path(folder))
            except NotInstalled as error:
                row.failed = str(error)
        for run in range(runs):
            for row in rows if run % 2 == 0 else rows[::-1]:
                row.run(pairs)
                print(f"run {run + 1}: {row.label}: {row.failed or f'{row.rate[-1]:.0f} pairs/s'}", file=sys.stderr)
    headings = ["", "state", "CPU per decide + reward, ms", "times the agent's CPU", "pairs/s", "decide, median, ms"]
    return markdown(headings, [cells(rows[0], row) for row in rows], left=2)


def cells(ours: Server, row: Server) -> list[str]:
    """One row of the table."""
    if row.failed:
        return [row.label, row.keeps, row.failed, "", "", ""]
    ratios = [b / a for a, b in zip(ours.cpu, row.cpu, strict=True)]
    return [
        row.label,
        row.keeps,
        spread([1e3 * it for it in row.cpu]),
        "1" if row is ours else spread(ratios, letters=False),
        spread(row.rate),
        spread([1e3 * it for it in row.median]),
    ]
