"""A ring of eight real agents in one process: how fast a release and a stop are known everywhere."""

import asyncio
import time
from datetime import UTC, datetime

from fedbandit import FedBatch
from fedbandit.agent.core.federation import Federation
from fedbandit.agent.gossip.tls import read_tls
from fedbandit.agent.process.config import read_config
from fedbandit.agent.process.rights import ANYBODY
from fedbandit.agent.process.runtime import Agent
from fedbandit.local.processes import LocalFederation
from links_network import run, until

NAMES = [f"s{i}" for i in range(8)]
TERMS = Federation("ring", ("A", "B"), 0.0, 1.0, FedBatch(1.0, first_batch=2), max_agents=8)
RELEASE, STOP = 0.5, 0.2  # seconds, as promised


def test_a_release_and_a_stop_are_known_everywhere_at_once(tmp_path):
    links = [(name, NAMES[(i + 1) % 8]) for i, name in enumerate(NAMES)]
    federation = LocalFederation(tmp_path, TERMS, links)
    configs = [read_config(federation.config(name)) for name in NAMES]

    async def scenario():
        agents = [Agent(config, read_tls(config, datetime.now(UTC))) for config in configs]
        try:
            for agent in agents:
                await agent.start()
            await until(lambda: all(it.linked for agent in agents for it in agent.links.statuses.values()), 30.0)
            first = agents[0]
            await until(lambda: all(agent.site.in_memory.may_release for agent in agents), 60.0)

            def releases_of_first(agent):
                held = agent.site.in_memory.board.held("s0")
                return 0 if held is None else sum(it.releases for it in held.bulletin.arms)

            async def release():
                before, begun = sum(first.site.in_memory.releases), time.perf_counter()
                while sum(first.site.in_memory.releases) == before:
                    decision = await first.decide()
                    begun = time.perf_counter()
                    await first.report(decision.id, 1.0)
                now = sum(first.site.in_memory.releases)
                await until(lambda: all(releases_of_first(agent) >= now for agent in agents), every=0.001)
                return time.perf_counter() - begun

            async def stop(kind):
                begun = time.perf_counter()
                change = await first.change_arm(kind, "A", ANYBODY.deed("recalled"))
                await until(
                    lambda: all(change.id in agent.site.in_memory.arms.changes for agent in agents), every=0.001
                )
                return time.perf_counter() - begun

            for _ in range(4):  # other work on this machine may slow a round of five, and hardly four of them
                released = []
                for _ in range(5):
                    released.append(await release())
                    await asyncio.sleep(0.5)
                stopped = [await stop(kind) for kind in 3 * ("suspend", "resume")]
                print("release", [round(1e3 * it) for it in released], "ms")  # noqa: T201
                print("stop", [round(1e3 * it) for it in stopped], "ms")  # noqa: T201
                if max(released) < RELEASE and max(stopped) < STOP:
                    return
            raise AssertionError("slower than promised, four times")
        finally:
            for agent in agents:
                await agent.stop()

    run(scenario())
