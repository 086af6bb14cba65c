"""Runs a whole federation on this machine with simulated patients: real agent processes, certificates and time.

It uses only the agents' HTTP API, and serves a page with all sites side by side. ``report`` summarises a run.
"""

import asyncio
import signal
import socket
from array import array
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fedbandit.agent.client import AgentError, AsyncClient
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.words import Words
from fedbandit.agent.http.access import AccessControl, Door
from fedbandit.agent.http.bodies import HttpError, answer_errors
from fedbandit.agent.http.events import EventStream, Feed, timed
from fedbandit.agent.http.server import PAGE, file_response, files_in, http_server, listening
from fedbandit.agent.http.state import SiteState
from fedbandit.checks import InvalidArgument, number_between, whole_number
from fedbandit.local.processes import STARTS_WITHIN, AgentDied, LocalFederation
from fedbandit.policies import FedBatch
from fedbandit.world.graph import Graph, parse
from fedbandit.world.hospital import SHORT_ARM_NAMES
from fedbandit.world.hospital import problem as hospital_problem
from fedbandit.world.problem import Problem

# ---------------------------------------------------------------- what to run

MAX_AGENTS, MAX_ARMS = 64, 100  # an agent is a process of about 100 MB

MAX_SPEED = 1000.0

WINDOW = 1.0
"""The reward window in seconds: simulated patients report at once, but for a busy machine."""


@dataclass(frozen=True)
class LocalSetting:
    """What to run. Rewards of the problem are 0 or 1.

    * ``names``, ``arms``: of sites and arms, in the problem's order
    * ``speed``: patients per second at each site
    * ``seed``: of patients and outcomes; agents use the system's randomness, so no two runs are alike
    """

    title: str
    problem: Problem
    names: tuple[str, ...]
    arms: tuple[str, ...]
    epsilon: float
    speed: float
    seed: int

    @property
    def terms(self) -> Federation:
        """The terms that the sites share; first batches follow from how many sites there are."""
        policy, most = FedBatch(epsilon=self.epsilon), len(self.names)
        words = Words("treatment", "success", "failure")
        return Federation(self.title, self.arms, 0.0, 1.0, policy, max_agents=most, reward_window=WINDOW, words=words)

    @property
    def links(self) -> list[tuple[str, str]]:
        """The graph's edges; the first of a pair dials."""
        return [(self.names[i], self.names[j]) for i, j in self.problem.graph.edges]

    def mean(self, site: int, arm: int) -> float:
        """The chance of success of an arm at a site; of one that was added meanwhile: the average of the others.

        So what an added arm costs is what arms given at random cost, and the best arm stays the best.
        """
        means = self.problem.means[site]
        return float(means[arm] if arm < len(means) else means.mean())


def graph_of(text: str, agents: int | None) -> Graph:
    """A graph such as ``ring`` or ``ring:5``, which must match the number of agents if that is given."""
    size = 3 if agents is None else whole_number("--agents", agents, 2, MAX_AGENTS)
    try:
        graph = parse(text if ":" in text else f"{text}:{size}")
    except InvalidArgument as error:
        if error.argument == "graph":
            raise InvalidArgument("--graph", text, error.accepted, error.hint) from None
        raise error.at("--graph") from None
    if agents is not None and graph.num_agents != size:
        raise InvalidArgument("--graph", text, f"a graph of {size} agents, as --agents says")
    whole_number("--agents", graph.num_agents, 2, MAX_AGENTS)
    return graph


def setting_of(problem: str, graph: Graph, arms: int | None, epsilon: float, speed: float, seed: int) -> LocalSetting:
    """The setting for the options of ``fedbandit up``."""
    seed = whole_number("--seed", seed, 0, 2**64 - 1)
    common = (
        number_between("--epsilon", epsilon, 0.0, 100.0),
        number_between("--speed", speed, 0.0, MAX_SPEED),
        seed,
    )
    size = graph.num_agents
    if problem == "hospital":
        if arms is not None:
            raise InvalidArgument("--arms", arms, f"left out: the hospital data have {len(SHORT_ARM_NAMES)}")
        world = hospital_problem("order" if size == 3 else "random", seed, graph, size)
        return LocalSetting("diabetes", world, _numbered("hospital-", size), SHORT_ARM_NAMES, *common)
    if problem == "bernoulli":
        count = whole_number("--arms", 5 if arms is None else arms, 2, MAX_ARMS)
        world = Problem.random(size, count, graph, seed, "bernoulli")
        return LocalSetting("bernoulli", world, _numbered("site-", size), _numbered("arm ", count), *common)
    raise InvalidArgument("--problem", problem, "one of hospital, bernoulli")


def _numbered(prefix: str, count: int) -> tuple[str, ...]:
    return tuple(f"{prefix}{i + 1}" for i in range(count))


# ---------------------------------------------------------------- the page

OWN = files_in(Path(__file__).parent / "page")
"""The files of this page; it also uses those of an agent's page."""


class GraphShown(BaseModel):
    """The links: pairs of positions in ``sites``."""

    edges: list[tuple[int, int]]


class SiteShown(BaseModel):
    """One site: what only a simulation knows of it, and the state of its agent.

    * ``means``: the true mean of each arm here
    * ``best_share``: share of its latest patients who got the arm that is best on average over all
    * ``regret``: expected successes lost against that arm
    * ``age``: seconds since the agent told this state; it is asked every second. None: it never has
    """

    name: str
    url: str
    means: list[float]
    patients: int
    best_share: float | None
    regret: float
    running: bool
    state: SiteState | None
    age: float | None = None


class FederationShown(BaseModel):
    """The event ``federation``: all sites side by side, with the true means."""

    title: str
    graph: GraphShown
    arms: list[str]
    true_means: list[float]
    best_arm: int
    seconds: float
    epsilon: float
    sites: list[SiteShown]


def page_listener(port: int) -> socket.socket:
    """A socket on loopback for the page; 0: a free port. A port that cannot be had is an error of ``--port``."""
    number = whole_number("--port", port, 0, 65_535)
    try:
        return listening("127.0.0.1", number)
    except OSError as error:
        hint = f"Port {number}: {error.strerror or error}."
        raise InvalidArgument("--port", port, "a free port of this machine, or left out for any", hint) from None


@asynccontextmanager
async def serving_page(listener: socket.socket, shown: Callable[[], FederationShown]) -> AsyncGenerator[str]:
    """Serve the page while the block runs; its address."""

    async def read() -> tuple[FederationShown, float]:
        return timed(shown)

    feed = Feed(read, lambda error: None if error is None else f"{type(error).__name__}: {error}", "federation")
    server = http_server(_app(feed))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        feed.close()
        server.should_exit = True
        await serving


def _app(feed: Feed) -> Starlette:
    async def index(request: Request) -> Response:
        return file_response(OWN, "index.html", request)

    async def own_file(request: Request) -> Response:
        return file_response(OWN, request.path_params["name"], request)

    async def shared_file(request: Request) -> Response:
        return file_response(PAGE, request.path_params["name"], request)

    async def events(request: Request) -> Response:
        if request.method == "HEAD":
            raise HttpError(405, "method_not_allowed", "a stream has no HEAD", None, "GET", {"Allow": "GET"})
        return EventStream(feed, feed.open())

    routes = [
        Route("/", index),
        Route("/local/{name:path}", own_file),
        Route("/page/{name:path}", shared_file),
        Route("/v1/federation-events", events),
    ]
    app = Starlette(routes=routes, middleware=[Middleware(AccessControl, sessions=None, door=Door())])
    answer_errors(app)
    return app


# ---------------------------------------------------------------- a run

IN_FLIGHT = 2
"""Concurrent patients of a site; more wait. The client slows down with the number of connections."""

LOOK_EVERY = 0.5
"""Seconds between polls of the agents."""

LAST_ANSWERS = 3.0
"""Seconds that the last patients, and the last poll of an agent, may take."""

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Killed(Exception):
    """A second stop signal arrived: the agents were killed."""


@dataclass
class Visits:
    """The patients of one site, and the last state of its agent.

    * ``at``, ``arms``: when each arrived, in seconds since the run began, and the arm given
    * ``unanswered``: calls that the agent did not answer
    * ``seen``: when it told its state, in seconds since the run began
    """

    at: "array[float]" = field(default_factory=lambda: array("d"))
    arms: "array[int]" = field(default_factory=lambda: array("H"))
    unanswered: int = 0
    state: SiteState | None = None
    seen: float | None = None


@dataclass
class Run:
    """A run, during and after: a row of ``visits`` per site, its length in seconds so far, the address of its page."""

    setting: LocalSetting
    federation: LocalFederation
    visits: list[Visits]
    seconds: float = 0.0
    page: str | None = None


Page = tuple[socket.socket, Callable[[Run], FederationShown]]
"""Where the page of a federation is served, and what it shows."""


def new_folder(output: Path) -> Path:
    """A new folder for the state of a run: agents must not resume the state of another run."""
    output.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        try:
            (folder := output / f"sites-{number}").mkdir(mode=0o700)
            return folder
        except FileExistsError:
            number += 1


def run(
    setting: LocalSetting,
    folder: Path,
    seconds: float | None,
    began: Callable[[Run], None],
    show: Callable[[Run], None],
    page: Page | None = None,
) -> Run:
    """Start the agents, send patients for ``seconds`` or until a stop signal, stop the agents.

    ``began`` is called once they serve, ``show`` twice a second. Raises ``AgentDied`` if an agent dies, ``Killed``
    after a second signal; whatever happens, no agent is left behind.
    """
    federation = LocalFederation(folder, setting.terms, setting.links)
    return asyncio.run(_run(Run(setting, federation, [Visits() for _ in setting.names]), seconds, began, show, page))


async def _run(
    run: Run, seconds: float | None, began: Callable[[Run], None], show: Callable[[Run], None], page: Page | None
) -> Run:
    federation = run.federation
    with _signals(federation) as asked:
        stack = AsyncExitStack()
        try:
            if page is not None:
                listener, shown = page
                run.page = await stack.enter_async_context(serving_page(listener, lambda: shown(run)))
            for name in federation.names:
                federation.start(name)
            if await _ended(_all_ready(federation), asked):
                began(run)
                await _serve(run, seconds, asked, show)
        except AgentDied:
            if not asked.is_killed:
                raise
        finally:
            await asyncio.gather(stack.aclose(), asyncio.to_thread(federation.stop_all))
        if asked.is_killed:
            raise Killed
    return run


class _StopRequest(asyncio.Event):
    """Set by a stop signal; a second one kills."""

    is_killed = False


@contextmanager
def _signals(federation: LocalFederation) -> Generator[_StopRequest]:
    asked, loop = _StopRequest(), asyncio.get_running_loop()

    def on_signal() -> None:
        if asked.is_set():
            asked.is_killed = True
            federation.kill_all()
        asked.set()

    for number in _STOPPING:
        loop.add_signal_handler(number, on_signal)
    try:
        yield asked
    finally:
        for number in _STOPPING:
            loop.remove_signal_handler(number)


async def _ended(work: Coroutine[Any, Any, None], asked: asyncio.Event, within: float | None = None) -> bool:
    """Run the work to its end; False if a signal or the time limit came first."""
    working, waiting = asyncio.create_task(work), asyncio.create_task(asked.wait())
    done, _ = await asyncio.wait({working, waiting}, timeout=within, return_when=asyncio.FIRST_COMPLETED)
    for task in (working, waiting):
        if task not in done:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
    if working in done:
        working.result()
    return working in done


async def _all_ready(federation: LocalFederation) -> None:
    until = asyncio.get_running_loop().time() + STARTS_WITHIN
    for name in federation.names:
        while not await asyncio.to_thread(federation.is_ready, name):
            federation.check_running()
            if asyncio.get_running_loop().time() > until:
                raise AgentDied(f"{name} does not serve after {STARTS_WITHIN:g} s: {federation.last_words(name)}")
            await asyncio.sleep(0.05)


# ---------------------------------------------------------------- while it runs


async def _serve(run: Run, seconds: float | None, asked: asyncio.Event, show: Callable[[Run], None]) -> None:
    """Send patients and poll, then poll every agent a last time."""
    began = asyncio.get_running_loop().time()
    clients = [AsyncClient(run.federation.url(name), timeout=5.0, deadline=10.0) for name in run.setting.names]
    try:
        await _ended(_busy(run, clients, began, show), asked, seconds)
        run.seconds = asyncio.get_running_loop().time() - began
        run.federation.check_running()
        await asyncio.gather(*(_look(run, site, client) for site, client in enumerate(clients)))
    finally:
        await asyncio.gather(*(client.close() for client in clients))


async def _busy(run: Run, clients: list[AsyncClient], began: float, show: Callable[[Run], None]) -> None:
    """Run all streams of patients and all polls, and check that all agents live."""
    tasks: list[asyncio.Task[None]] = []
    try:
        for site, client in enumerate(clients):
            tasks.append(asyncio.create_task(_stream(run, site, client, began)))
            tasks.append(asyncio.create_task(_watch(run, site, client)))
        while True:
            await asyncio.wait(tasks, timeout=LOOK_EVERY, return_when=asyncio.FIRST_EXCEPTION)
            for task in tasks:
                if task.done():
                    task.result()  # they end only by a bug: raise it
            run.seconds = asyncio.get_running_loop().time() - began
            run.federation.check_running()
            show(run)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _stream(run: Run, site: int, client: AsyncClient, began: float) -> None:
    """Send the patients of one site, a Poisson stream. If all places are taken, a patient waits."""
    loop, setting, visits = asyncio.get_running_loop(), run.setting, run.visits[site]
    source = Random(f"{setting.seed} {site}")  # noqa: S311  # simulated patients: not a secret
    places, present, due = asyncio.Semaphore(IN_FLIGHT), set[asyncio.Task[None]](), began

    async def treat(luck: float) -> None:
        try:
            decision = await client.decide()
            visits.at.append(loop.time() - began)
            visits.arms.append(decision.arm)
            await client.reward(decision, float(luck < setting.mean(site, decision.arm)))
        except AgentError:
            visits.unanswered += 1
        finally:
            places.release()

    try:
        while True:
            due += source.expovariate(setting.speed)
            await asyncio.sleep(max(0.0, due - loop.time()))
            await places.acquire()
            patient = asyncio.create_task(treat(source.random()))
            present.add(patient)
            patient.add_done_callback(present.discard)
    finally:  # patients under treatment finish
        if present:
            await asyncio.wait(present, timeout=LAST_ANSWERS)
        for patient in present:
            patient.cancel()


async def _watch(run: Run, site: int, client: AsyncClient) -> None:
    while True:
        await asyncio.sleep(2 * LOOK_EVERY)
        await _look(run, site, client)


async def _look(run: Run, site: int, client: AsyncClient) -> None:
    """Store an agent's current state; if it does not answer, keep the last one."""
    with suppress(AgentError, TimeoutError):
        async with asyncio.timeout(LAST_ANSWERS):  # wait_for of Python 3.11 can lose a cancellation
            run.visits[site].state = await client.state()
        run.visits[site].seen = run.seconds
