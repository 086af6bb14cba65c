"""A web shop's A/B test: each visitor sees one of the variants; a purchase is the reward, and comes late or never.

The shop is a small web server beside an agent. It asks the agent which variant to show, and reports 1 when the visitor
buys. It never reports 0: a shop that gives up on a visitor after a while tells by the time of its report that there was
no purchase. Instead the federation agrees how long a purchase counts, and what counts without one (docs/privacy.md):

    [federation]
    arms = ["large picture", "long description"]
    rewards = [0, 1]
    reward_window = "30 minutes"
    default_reward = 0

The shop refuses other terms. While the agent is down, or takes longer than a second, it shows its usual page. Run it,
then open http://127.0.0.1:8000:

    python examples/web_shop.py --agent http://127.0.0.1:8400
"""

import argparse
import sys
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from fedbandit import AgentError, Client
from fedbandit.agent.client import Forbidden, Unauthorised, UnknownDecision
from fedbandit.checks import InvalidArgument


class Shop:
    """Remembers nothing: who has not bought when the window ends counts as 0, by the federation's terms."""

    def __init__(self, agent):
        """The terms are checked before the first visitor."""
        self.agent, self._checked = agent, False

    def check(self):
        """Refuse terms under which times would tell of purchases, or no purchase would count as one."""
        terms = self.agent.federation()
        if terms.reward_window == 0.0:
            raise InvalidArgument("reward_window", 0, "the time in which visitors buy, such as '30 minutes'")
        if terms.default_reward != 0.0:
            raise InvalidArgument("default_reward", terms.default_reward, "0: no purchase")
        self._checked = True

    def visit(self):
        """Return the decision for a new visitor, or None if the agent is down: the shop stays open."""
        try:
            if not self._checked:
                self.check()
            return self.agent.decide()  # asked again by itself, with the same key: a visitor is one decision
        except (AgentError, InvalidArgument):
            return None

    def buy(self, visit):
        """Sell, and report it; False if there was no such visit. Buying twice counts once."""
        if not visit:
            return True  # from the usual page: nobody learns from it
        try:
            if not self.agent.reward(visit, 1.0):  # retries by itself; idempotent
                print(f"sold to {visit} after its window: it does not count", file=sys.stderr)
        except UnknownDecision:
            return False
        except AgentError as error:
            print(f"reward of {visit} not reported: {error}", file=sys.stderr)
        return True


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
    options = parser.parse_args()
    with Client(options.agent, options.token, timeout=0.5, deadline=1.0) as agent:  # no visitor waits longer
        shop = Shop(agent)
        try:
            shop.check()
        except (Forbidden, Unauthorised) as error:
            raise InvalidArgument("token", "the one given" if options.token else None, f"accepted: {error}") from None
        except AgentError as error:
            print(f"without the agent every visitor sees the usual page: {error}", file=sys.stderr)
        with make_server(shop, options.port) as web:
            print(f"open http://127.0.0.1:{web.server_port}", flush=True)
            try:
                web.serve_forever()
            except KeyboardInterrupt:
                print("closed")


if __name__ == "__main__":
    try:
        main()
    except (OSError, OverflowError, InvalidArgument) as error:  # a port in use, or none; an option, or other terms
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
