"""A web shop's A/B test: each visitor sees one of the variants; a purchase is the reward and may come late.

The shop is a small web server beside an agent. It asks the agent which variant to show, reports 1 when the visitor
buys, and 0 for visitors who have not bought after a while. Purchases come earlier than their absence is known: so the
federation needs a ``reward_window`` that is longer than the shop's patience (docs/privacy.md). While the agent is down
it shows its usual page. Run it, then open http://127.0.0.1:8000:

    python examples/web_shop.py --agent http://127.0.0.1:8400
"""

import argparse
import sys
import threading
import time
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from fedbandit import AgentError, Client
from fedbandit.checks import InvalidArgument


class Shop:
    """Keeps visitors who have not bought yet. Each visit's reward is reported once: 1 or 0."""

    def __init__(self, agent, patience):
        """``patience``: seconds after which a visitor no longer buys."""
        self.agent, self.patience = agent, patience
        self._waiting = {}  # id of the decision -> when the page was shown
        self._lock = threading.Lock()

    def visit(self):
        """Return the decision for a new visitor, or None if the agent is down: the shop stays open."""
        try:
            decision = self.agent.decide()
        except AgentError:
            return None
        with self._lock:
            self._waiting[decision.id] = time.monotonic()
        return decision

    def buy(self, visit):
        """Record a purchase; False if this visit is unknown, over or already paid for."""
        with self._lock:
            known = self._waiting.pop(visit, None) is not None
        if known:
            self._report(visit, 1.0)
        return known

    def give_up(self):
        """Report 0 for visitors who have not bought in time; return their number."""
        before = time.monotonic() - self.patience
        with self._lock:
            over = [visit for visit, shown in self._waiting.items() if shown <= before]
            for visit in over:
                del self._waiting[visit]
        for visit in over:
            self._report(visit, 0.0)
        return len(over)

    def _report(self, visit, value):
        try:
            self.agent.reward(visit, value)  # retries by itself; idempotent
        except AgentError as error:
            print(f"reward of {visit} not reported: {error}", file=sys.stderr)


def make_server(shop, port):
    """The shop's pages."""

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self):
            if urlsplit(self.path).path != "/":  # browsers also request /favicon.ico: not a visit
                self._answer(404, "There is no such page.")
                return
            decision = shop.visit()
            variant, visit = (decision.name, decision.id) if decision else ("the usual page", "")
            button = f'<button name="visit" value="{escape(visit)}">Buy</button>'
            self._answer(200, f'<h1>{escape(variant)}</h1><form method="post" action="/buy">{button}</form>')

        def do_POST(self):
            if self.path != "/buy":
                self._answer(404, "There is no such page.")
                return
            length = min(int(self.headers.get("Content-Length") or 0), 1000)
            visit = parse_qs(self.rfile.read(length).decode()).get("visit", [""])[0]
            known = shop.buy(visit)
            self._answer(200 if known else 404, "Thank you!" if known else "This offer is over.")

        def _answer(self, status, page):
            body = f"<!doctype html><title>Shop</title>{page}".encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            """Say nothing."""

    try:
        return ThreadingHTTPServer(("127.0.0.1", port), Pages)
    except OSError as error:
        raise OSError(f"port {port}: {error.strerror}") from None


def main():
    """Serve until Ctrl-C."""
    parser = argparse.ArgumentParser(description="A web shop that learns which page sells.")
    parser.add_argument("--agent", default="http://127.0.0.1:8400", metavar="URL")
    parser.add_argument("--token", help="the agent's token, if it has one")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--patience", type=float, default=600.0, help="seconds after which a visitor no longer buys")
    options = parser.parse_args()
    with Client(options.agent, options.token) as agent:
        shop, window = Shop(agent, options.patience), None
        try:
            window = agent.state().federation.reward_window
        except AgentError as error:
            print(f"without the agent every visitor sees the usual page: {error}", file=sys.stderr)
        with make_server(shop, options.port) as web:
            threading.Thread(target=give_up_now_and_then, args=(shop,), daemon=True).start()
            if window is not None and window <= options.patience:
                print(f"epsilon needs a reward_window above {options.patience:g} s, not {window:g} s", file=sys.stderr)
            print(f"open http://127.0.0.1:{web.server_port}", flush=True)
            try:
                web.serve_forever()
            except KeyboardInterrupt:
                print("closed")


def give_up_now_and_then(shop):
    """Give up on visitors who have not bought, for as long as the shop is open."""
    while True:
        time.sleep(min(shop.patience / 4, 10.0))
        shop.give_up()


if __name__ == "__main__":
    try:
        main()
    except (OSError, OverflowError, InvalidArgument) as error:  # a port in use, or none; an option
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
