"""P9: the same schedule over real links, with real files, plays the simulator's arms."""

import pytest

from links_network import LinksNetwork
from test_agent_simulation import WORLDS, follow_the_tape


@pytest.mark.parametrize(
    ("index", "world", "horizon"),
    [("thompson", "path", 200), pytest.param("ucb", "ring", 300, marks=pytest.mark.slow)],
)
def test_over_links_agents_are_the_simulator_too(tmp_path, index, world, horizon):
    """Websockets with mutual TLS: the same arms, estimates to 1e-12."""
    networks = []

    def connected(terms, links, noise):
        networks.append(LinksNetwork(tmp_path, terms, links, noise))
        return networks[-1]

    try:
        follow_the_tape(index, WORLDS[world], horizon, connected)
    finally:
        networks[0].close()
