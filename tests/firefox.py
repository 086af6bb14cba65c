"""A stock Firefox without a window, driven over Marionette, its own protocol: no driver or package is needed."""

import json
import socket
import subprocess
import time
from contextlib import contextmanager

PREFERENCES = {
    "ui.prefersReducedMotion": 1,
    "app.normandy.enabled": False,
    "app.update.auto": False,
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "toolkit.telemetry.enabled": False,
}


class Firefox:
    """One tab; scripts run in the page, and return what they return."""

    def __init__(self, line):
        self._line, self._id = line.makefile("rwb"), 0
        self._read()  # it says hello
        self.version = self.ask("WebDriver:NewSession")["capabilities"]["browserVersion"]

    def _read(self):
        size = b""
        while (digit := self._line.read(1)) != b":":
            assert digit, "Firefox has gone"
            size += digit
        return json.loads(self._line.read(int(size)))

    def ask(self, command, **parameters):
        """Send a command of WebDriver."""
        self._id += 1
        message = json.dumps([0, self._id, command, parameters]).encode()
        self._line.write(b"%d:%s" % (len(message), message))
        self._line.flush()
        _, _, error, result = self._read()
        assert error is None, error
        return result

    def open(self, url, width):
        """Open a page, in a window of this width; Firefox has none below 450 pixels."""
        self.ask("WebDriver:SetWindowRect", width=width, height=900)
        self.ask("WebDriver:Navigate", url=url)

    def run(self, script):
        """The value of a script that ends with ``return``; a promise is awaited."""
        return self.ask("WebDriver:ExecuteScript", script=script, args=[], sandbox=None)["value"]

    def wait(self, condition, within=30.0):
        """Wait until an expression is true."""
        until = time.monotonic() + within
        while not self.run(f"return Boolean({condition})"):
            assert time.monotonic() < until, condition
            time.sleep(0.1)


@contextmanager
def firefox(program, folder, scheme):
    """A Firefox with a fresh profile in ``folder``, in a light or dark system."""
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
    themes = {"ui.systemUsesDarkTheme": int(scheme == "dark"), "marionette.port": port}
    lines = [f'user_pref("{name}", {json.dumps(value)});\n' for name, value in (PREFERENCES | themes).items()]
    (folder / "user.js").write_text("".join(lines))
    command = [program, "--headless", "--no-remote", "--marionette", "--profile", str(folder)]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with _connected(port, running) as line:
            yield Firefox(line)
    finally:
        running.terminate()
        running.wait(30)


def _connected(port, running, within=60.0):
    until = time.monotonic() + within
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=60)
        except ConnectionRefusedError:
            assert time.monotonic() < until, "Firefox does not listen"
            assert running.poll() is None, "Firefox has ended"
            time.sleep(0.2)
