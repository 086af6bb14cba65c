"""A link over a bad wire: real agents, mutual TLS, and a proxy between them that delays, cuts and swallows."""

import pytest

from bad_wire import BadWire
from fedbandit.agent.core.memory_network import imbalance
from fedbandit.local.processes import LocalFederation
from processes import decide_and_reward, exchanges, neighbour, read, terms, wait_until


@pytest.mark.slow
def test_a_link_outlives_a_bad_wire(tmp_path):
    """Whatever the wire did, exchanges come through again when it is well, and no mass is lost."""
    federation = LocalFederation(tmp_path, terms(), [("north", "east")], rate=20.0)
    with BadWire(federation.gossip_ports["east"]) as wire:
        config = federation.config("north")
        dialled, proxy = f"127.0.0.1:{federation.gossip_ports['east']}", f"127.0.0.1:{wire.port}"
        config.write_text(config.read_text().replace(dialled, proxy))
        with federation:

            def come_through(count, within):
                before = exchanges(federation, "north", "east")
                return wait_until(lambda: exchanges(federation, "north", "east") >= before + count, within)

            def is_down():
                return not neighbour(federation, "north", "east")["reachable"]

            for name in federation.names:
                decide_and_reward(federation, name, 40)
            come_through(3, 10.0)
            for mode in ("late", "crumbs"):
                wire.become(mode)
                come_through(3, 20.0)
            for mode in ("cut", "hole"):
                wire.become(mode)
                wait_until(is_down, 20.0)
                decide_and_reward(federation, "north", 10)  # the application notices nothing
                wire.become("well")
                took = come_through(3, 40.0)
                print(f"after {mode}: {took:.1f} s")  # noqa: T201
            wire.forget()
            wait_until(is_down, 20.0)
            took = come_through(3, 40.0)
            print(f"after a connection was forgotten: {took:.1f} s")  # noqa: T201
            decide_and_reward(federation, "east", 40)
            come_through(10, 20.0)
    assert imbalance(read(federation, "north", "east")) <= 1e-9
