"""Starts, stops and kills a federation of real agent processes on this machine, for trials and tests.

Every site has a folder, a certificate and a process that runs ``fedbandit agent``. This file uses only their
files and their HTTP API.
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from fedbandit.agent.core.evaluation import Evaluation
from fedbandit.agent.core.federation import LARGEST_SHARE, Federation
from fedbandit.agent.process.certificates import init, issue
from fedbandit.checks import InvalidArgument
from fedbandit.policies.registry import kind_of

STARTS_WITHIN = 30.0
"""Seconds until a process that does not answer counts as dead; starting takes about one, more on a busy machine."""

STOPS_WITHIN = 10.0

DAYS = 90
"""Lifetime of the certificates: this federation is temporary."""


class AgentDied(RuntimeError):
    """A process ended or never served; the message has the end of its log."""


def _evaluation(plan: Evaluation) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Its sections, each with its heading."""
    section = "federation.evaluation"
    yield f"[{section}]", {name: it for name, it in plan.plain.items() if name != "policies"}
    for it in plan.policies:
        yield f"[[{section}.policies]]", {"name": it.name}
        yield f"[{section}.policies.shares]", _quoted(it.shares)
        for other in it.strata:
            yield f"[[{section}.policies.strata]]", {}
            yield f"[{section}.policies.strata.context]", _quoted(other.context)
            yield f"[{section}.policies.strata.shares]", _quoted(other.shares)


def _quoted(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {json.dumps(name): value for name, value in pairs}


class LocalFederation:
    """The sites of a federation as processes on loopback.

    * ``links``: pairs of names; the first of a pair dials
    * ``secure``: with a development CA in the folder; without, agents run with ``--insecure``

    A context manager: it stops all processes at the end.
    """

    def __init__(self, folder: Path, terms: Federation, links: Iterable[tuple[str, str]], secure: bool = True) -> None:
        """Write certificates and configurations; nothing runs yet."""
        self.folder, self.terms, self.links, self.secure = folder, terms, list(links), secure
        self.names = tuple(dict.fromkeys(name for link in self.links for name in link))
        if len(self.names) < 2:
            raise InvalidArgument("links", self.links, "at least one pair of names")
        free = _free_ports(2 * len(self.names))
        self.http_ports = dict(zip(self.names, free, strict=False))
        self.gossip_ports = dict(zip(self.names, free[len(self.names) :], strict=True))
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        folder.mkdir(parents=True, exist_ok=True)
        if secure:
            init(folder / "certs", f"{terms.name} CA"[:64], DAYS, datetime.now(UTC))
        for name in self.names:
            self._prepare(name)

    def _prepare(self, name: str) -> None:
        (self.folder / name).mkdir(exist_ok=True)
        if self.secure:
            issue(self.folder / "certs", name, DAYS, datetime.now(UTC))
        self.config(name).write_text(self._toml(name), encoding="utf-8")

    def _toml(self, name: str) -> str:
        terms, here = self.terms, "127.0.0.1"
        policy = {"kind": kind_of(terms.policy)} | asdict(cast(Any, terms.policy))
        federation = {
            "name": terms.name,
            "arms": terms.arms,
            "rewards": (terms.low, terms.high),
            "counts": terms.counted,
            "max_agents": terms.max_agents,
            "reward_window": f"{terms.reward_window} s" if terms.reward_window else None,
            "default_reward": terms.default_reward,
            "max_decisions_per_day": terms.max_decisions_per_day,
            "largest_share": terms.largest_share if terms.largest_share != LARGEST_SHARE else None,
        }
        listen = {"http": f"{here}:{self.http_ports[name]}", "gossip": f"{here}:{self.gossip_ports[name]}"}
        sections: list[tuple[str, Mapping[str, Any]]] = [
            ("", {"name": name, "data": "data", "trust_policy": terms.trusted or None}),
            ("[federation]", federation),
            ("[federation.words]", asdict(terms.words)),
            ("[federation.plan]", asdict(terms.plan)),
            ("[federation.policy]", policy),
            ("[listen]", listen),
        ]
        for section, it in (("shares", terms.shares), ("guardrails", terms.guardrails)):
            if it is not None:
                sections.insert(2, (f"[federation.{section}]", asdict(it)))
        if terms.context is not None:
            factors = {json.dumps(name): levels for name, levels in terms.context.plain.items()}
            sections.insert(2, ("[federation.context]", factors))
        if terms.evaluation is not None:
            sections += _evaluation(terms.evaluation)
        if self.secure:
            files = {"certificate": f"{name}.crt", "key": f"{name}.key", "ca": "ca.crt"}
            sections.append(("[tls]", {field: f"../certs/{file}" for field, file in files.items()}))
        for dials, listens in self.links:
            if name == dials:
                address = f"{here}:{self.gossip_ports[listens]}"
                sections.append(("[[neighbours]]", {"name": listens, "address": address}))
            elif name == listens:
                sections.append(("[[neighbours]]", {"name": dials}))
        return "\n".join(
            "\n".join([heading, *(f"{key} = {json.dumps(it)}" for key, it in fields.items() if it is not None), ""])
            for heading, fields in sections
        ).lstrip()

    # ---------------------------------------------------------------- where things are

    def config(self, name: str) -> Path:
        """The site's configuration."""
        return self.folder / name / "site.toml"

    def state_file(self, name: str) -> Path:
        """The site's journal."""
        return self.folder / name / "data" / "state.sqlite"

    def log(self, name: str) -> Path:
        """The log of the site's processes."""
        return self.folder / name / "agent.log"

    def url(self, name: str) -> str:
        """The site's HTTP address."""
        return f"http://127.0.0.1:{self.http_ports[name]}"

    # ---------------------------------------------------------------- processes

    def start(self, name: str, *options: str) -> None:
        """Start a site's process, with further options of ``fedbandit agent``; ``wait_ready`` waits until it serves."""
        command = [sys.executable, "-m", "fedbandit", "agent", "--config", str(self.config(name)), *options]
        with self.log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(  # noqa: S603  # our own program
                command if self.secure else [*command, "--insecure"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches only this process, which stops the agents in order
            )

    def start_all(self) -> None:
        """Start all sites, and wait until they serve."""
        for name in self.names:
            self.start(name)
        for name in self.names:
            self.wait_ready(name)

    def wait_ready(self, name: str, within: float = STARTS_WITHIN) -> None:
        """Wait until a site serves."""
        until = time.monotonic() + within
        while not self.is_ready(name):
            code = self._running[name].poll()
            if code is not None:
                raise AgentDied(f"{name} ended with code {code}: {self.last_words(name)}")
            if time.monotonic() > until:
                raise AgentDied(f"{name} does not serve after {within:g} s: {self.last_words(name)}")
            time.sleep(0.02)

    def is_ready(self, name: str) -> bool:
        """Whether a site serves now."""
        try:
            with urllib.request.urlopen(f"{self.url(name)}/readyz", timeout=1.0) as answer:  # noqa: S310  # loopback
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def process(self, name: str) -> int:
        """The process id of a site."""
        return self._running[name].pid

    def is_running(self, name: str) -> bool:
        """Whether a site's process is running."""
        return name in self._running and self._running[name].poll() is None

    def signal(self, name: str, number: int) -> None:
        """Send a signal: SIGKILL, SIGSTOP, ..."""
        os.kill(self._running[name].pid, number)

    def kill(self, name: str) -> None:
        """Kill a process as a power cut would, and wait until it is gone."""
        self._running[name].kill()
        self._running.pop(name).wait()

    def stop(self, name: str) -> int:
        """Stop a process with SIGTERM; return its exit code."""
        process = self._running[name]
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            code = process.wait(STOPS_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        del self._running[name]  # now, not before: until it is gone, ``kill_all`` must find it
        return code

    def stop_all(self) -> None:
        """Stop all processes at once."""
        for process in self._running.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for name in list(self._running):
            self.stop(name)

    def kill_all(self) -> None:
        """Kill all processes, even while another thread waits in ``stop_all``, which then returns."""
        for process in list(self._running.values()):
            process.kill()

    def check_running(self) -> None:
        """Raise ``AgentDied`` if a process has ended by itself."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise AgentDied(f"{name} ended with code {process.returncode}: {self.last_words(name)}")

    def __enter__(self) -> "LocalFederation":
        try:
            self.start_all()
        except BaseException:
            self.stop_all()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_all()

    def last_words(self, name: str) -> str:
        """The end of a site's log."""
        return self.log(name).read_text(encoding="utf-8", errors="replace")[-1000:].strip()


_OUR_PORTS = range(20_000, 32_768)
"""Below those that Linux gives to outgoing connections and to whoever asks for any port: nobody takes one by chance
between now and the start of the agent that is to listen there."""


def _free_ports(count: int) -> list[int]:
    """Free ports: all are bound at once, so they differ, then released."""
    listeners: list[socket.socket] = []
    for port in random.sample(_OUR_PORTS, len(_OUR_PORTS)):
        if len(listeners) == count:
            break
        with suppress(OSError):
            listeners.append(socket.create_server(("127.0.0.1", port)))
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports
