"""Load on a live agent, and what its process uses: shared by reliability.py and agent_cost.py."""

import json
import os
import socket
import threading
import time
from pathlib import Path

PAIRS_FOR = 4.0
TICK = 1.0 / os.sysconf("SC_CLK_TCK")


class Connection:
    """An application with one connection that it keeps: plain sockets, or a client would be measured, too."""

    def __init__(self, port: int) -> None:
        """Connect."""
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=5.0)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def pair(self) -> float:
        """Ask for an arm and report its reward; how long the decision took, in seconds."""
        began = time.perf_counter()
        decision = json.loads(self._call("POST", "/v1/decisions", b"", 201))
        took = time.perf_counter() - began
        self._call("PUT", f"/v1/decisions/{decision['id']}/reward", b'{"value": 0.5}', 204)
        return took

    def _call(self, method: str, path: str, body: bytes, expected: int) -> bytes:
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        self._socket.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self._receive()
        head, _, content = answer.partition(b"\r\n\r\n")
        if int(head.split()[1]) != expected:
            raise RuntimeError(head.decode())
        length = [
            int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
        ]
        while length and len(content) < length[0]:
            content += self._receive()
        return content

    def _receive(self) -> bytes:
        some = self._socket.recv(65_536)
        if not some:
            raise ConnectionError("the agent has closed the connection")
        return some

    def close(self) -> None:
        """Disconnect."""
        self._socket.close()


def pairs_of(port: int, connections: int) -> tuple[float, list[float]]:
    """Pairs per second over so many connections at once, and how long each decision took."""
    times: list[list[float]] = [[] for _ in range(connections)]
    until = time.perf_counter() + PAIRS_FOR

    def ask(mine: list[float]) -> None:
        application = Connection(port)
        while time.perf_counter() < until:
            mine.append(application.pair())

    askers = [threading.Thread(target=ask, args=(mine,)) for mine in times]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    return sum(map(len, times)) / PAIRS_FOR, [took for mine in times for took in mine]


def resident(process: int) -> float:
    """The resident memory of a process in MB."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1000.0


def cpu_seconds(process: int) -> float:
    """User and system time that a process has used so far."""
    stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) * TICK


def pin(process: int, core: int) -> None:
    """Keep all threads of a process on one core."""
    for thread in Path(f"/proc/{process}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})
