"""A link over a wire that delays, cuts or swallows (``bad_wire.py``), and through a real HTTP proxy from Debian."""

import asyncio
import os
import shutil
import socket
import subprocess
from contextlib import asynccontextmanager

import pytest

from bad_wire import BadWire
from fedbandit.agent.gossip import links as of_links
from fedbandit.agent.gossip.connection import proxy_for
from fedbandit.agent.process.addresses import Address
from fedbandit.agent.process.config import DIRECT, Neighbour
from links_network import Authority, Party, run, until

TINYPROXY = shutil.which("tinyproxy")


@asynccontextmanager
async def north_and_east():
    authority = Authority()
    north, east = Party("north", authority.tls("north")), Party("east", authority.tls("east"))
    north.listen()
    await north.use("east")
    try:
        yield north, east
    finally:
        await east.links.close()
        await north.links.close()


async def exchange(north, east):
    """Both publish, and have each other's newest bulletin."""
    north.publish()
    east.publish()
    await until(lambda: north.knows("east") == east.site.number and east.knows("north") == north.site.number, 20.0)


# ---------------------------------------------------------------- bad wires


def test_a_link_outlives_a_bad_wire(monkeypatch):
    """Whatever the wire did: when it is well, both have everything, and an old connection keeps nobody out."""
    monkeypatch.setattr(of_links, "PING_AFTER", 1.0)
    monkeypatch.setattr(of_links, "DEAD_AFTER", 2.0)
    monkeypatch.setattr(of_links, "TENDED_EVERY", 0.25)
    monkeypatch.setattr(of_links, "PROBED", 0.5)

    async def scenario():
        async with north_and_east() as (north, east):
            with BadWire(north.listener.port) as wire:
                await east.links.use([Neighbour("north", Address("127.0.0.1", wire.port))])
                await exchange(north, east)
                for mode in ("late", "crumbs"):
                    await asyncio.to_thread(wire.become, mode)
                    await exchange(north, east)
                for mode in ("cut", "hole"):
                    await asyncio.to_thread(wire.become, mode)
                    await until(lambda: not east.status("north").linked)
                    north.publish()
                    await asyncio.to_thread(wire.become, "well")
                    await exchange(north, east)
                await asyncio.to_thread(wire.forget)
                await exchange(north, east)
                assert north.status("east").suspicion is None
                await east.links.close()

    run(scenario())


# ---------------------------------------------------------------- proxies


class Proxy:
    """Debian's tinyproxy, which lets clients connect to one port."""

    def __init__(self, folder, target, password=None):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        lines = [f"Port {self.port}", "Listen 127.0.0.1", "Timeout 600", f'LogFile "{folder}/log"', "LogLevel Connect"]
        lines += ["MaxClients 20", "Allow 127.0.0.1", f"ConnectPort {target}"]
        lines += [] if password is None else [f"BasicAuth site {password}"]
        self._file, self._log = folder / "tinyproxy.conf", folder / "log"
        self._file.write_text("\n".join(lines) + "\n")

    def __enter__(self):
        assert TINYPROXY is not None
        command = [TINYPROXY, "-d", "-c", str(self._file)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1.0).close()
                break
            except OSError:
                subprocess.run(["sleep", "0.02"], check=True)
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()

    @property
    def log(self):
        return self._log.read_text()


needs_tinyproxy = pytest.mark.skipif(TINYPROXY is None, reason="needs Debian's tinyproxy (scripts/debian-packages)")


@needs_tinyproxy
@pytest.mark.parametrize("how", ["configured", "with a password", "environment"])
def test_a_link_through_a_proxy(tmp_path, how, monkeypatch):
    async def scenario():
        async with north_and_east() as (north, east):
            password = "s3cret" if how == "with a password" else None
            with Proxy(tmp_path, north.listener.port, password) as proxy:
                user = "site:s3cret@" if password else ""
                url = f"http://{user}127.0.0.1:{proxy.port}"
                host = "127.0.0.1"
                if how == "environment":
                    monkeypatch.setenv("https_proxy", url)
                    monkeypatch.delenv("no_proxy", raising=False)
                    monkeypatch.delenv("NO_PROXY", raising=False)
                    url, host = None, "0.0.0.0"  # noqa: S104 - this machine, and no loopback address
                await east.links.use([Neighbour("north", Address(host, north.listener.port), url)])
                await exchange(north, east)
                assert f"CONNECT {host}:{north.listener.port}" in proxy.log
                proxy.__exit__()
                await until(lambda: not east.status("north").linked)
                proxy.__enter__()
                await exchange(north, east)
                await east.links.close()

    run(scenario())


@needs_tinyproxy
def test_why_a_proxy_refuses_is_told(tmp_path):
    async def scenario():
        async with north_and_east() as (north, east):
            with Proxy(tmp_path, 443, "s3cret") as proxy:
                for user, words in (
                    ("", "407"),
                    ("site:s3cret@", "403"),
                ):
                    url = f"http://{user}127.0.0.1:{proxy.port}"
                    await east.links.use([Neighbour("north", north.address, url)])
                    await until(lambda w=words: f" {w} " in (east.status("north").last_error or ""))
                    told = east.status("north").last_error
                    assert told.startswith(f"the proxy 127.0.0.1 refuses to connect to {north.address}: HTTP/1.")
                    assert "s3cret" not in told
            await until(lambda: "cannot be reached: Connection refused" in (east.status("north").last_error or ""))

    run(scenario())


def test_a_proxy_that_says_nonsense_is_told(monkeypatch):
    async def scenario():
        async with north_and_east() as (north, east):

            async def answer(reader, writer):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"SSH-2.0-OpenSSH\r\n\r\n")
                writer.close()

            server = await asyncio.start_server(answer, "127.0.0.1", 0)
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            await east.links.use([Neighbour("north", north.address, url)])
            await until(lambda: "refuses to connect" in (east.status("north").last_error or ""))
            server.close()

    run(scenario())


def test_which_proxy(monkeypatch):
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    away, here = Address("north.example", 443), Address("127.0.0.1", 443)
    assert proxy_for(away, None) is None
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    assert proxy_for(away, None) == "http://proxy:3128"
    assert proxy_for(here, None) is None
    assert proxy_for(away, DIRECT) is None
    assert proxy_for(away, "http://other:3128") == proxy_for(here, "http://other:3128") == "http://other:3128"
    monkeypatch.setenv("no_proxy", "example")
    assert proxy_for(away, None) is None
