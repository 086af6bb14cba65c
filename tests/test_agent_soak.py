"""Memory, file, descriptors and log stay bounded, however long an agent runs."""

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fedbandit.local.processes import LocalFederation
from process_faults import Told, an_application
from processes import terms

WARM, SOAK = 30.0, 120.0


def used(federation, name):
    """Resident memory in MB, descriptors, size of the state in MB, lines of the log."""
    process = Path("/proc") / str(federation.process(name))
    status = (process / "status").read_text()
    memory = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1000.0
    size = sum(path.stat().st_size for path in federation.state_file(name).parent.iterdir()) / 1e6
    return memory, len([*(process / "fd").iterdir()]), size, len(federation.log(name).read_text().splitlines())


@pytest.mark.slow
def test_nothing_grows(tmp_path):
    """Full load for two minutes, a window, room for 1,000 decisions, a neighbour that dies and returns all the time."""
    windowed = replace(terms(3), reward_window=1.0)
    federation = LocalFederation(tmp_path, windowed, [("north", "east"), ("south", "north")])
    config = federation.config("north")
    config.write_text(config.read_text() + "\n[decisions]\nkeep = 1000\n")
    told, stop = Told(), threading.Event()
    with federation:
        application = threading.Thread(target=an_application, args=(federation.url("north"), told, 1, stop, 0.0))
        application.start()
        try:
            seen = []
            for seconds in (WARM, SOAK):
                until = time.monotonic() + seconds
                while time.monotonic() < until:
                    federation.kill("east")
                    time.sleep(1.0)
                    federation.start("east")
                    federation.wait_ready("east")
                    time.sleep(2.0)
                seen.append(used(federation, "north"))
        finally:
            stop.set()
            application.join()
    (memory, descriptors, size, _), (memory_then, descriptors_then, size_then, lines) = seen
    print(f"{len(told.acknowledged)} rewards: {seen}")  # noqa: T201
    assert len(told.acknowledged) > 5_000
    assert memory_then < memory + 5.0
    assert descriptors_then <= descriptors + 5
    assert size_then < size + 1.0
    assert lines < 200
