"""Moves an application from Azure Personalizer to an agent: rank becomes decide, reward stays reward.

``Ranker`` has the calls that applications of Personalizer make, on top of ``fedbandit.Client``;
docs/from-personalizer.md says what maps to what, and what has no counterpart. The program plays visitors of a shop's
start page:

    python examples/from_personalizer.py --agent http://127.0.0.1:8400
"""

import argparse
import random
import sys
import uuid

from fedbandit import AgentError, Client
from fedbandit.checks import InvalidArgument


class Ranker:
    """Rank and reward under event ids, as with Personalizer."""

    def __init__(self, client):
        """An application with several processes keeps the decisions in its session store, not in memory."""
        self.client, self._decisions = client, {}

    def rank(self, event_id, actions, excluded_actions=()):
        """The action to show. The same event gets the same action again, also after a crash."""
        eligible = [action for action in actions if action not in excluded_actions]
        decision = self.client.decide(eligible=eligible, key=event_id)
        self._decisions[event_id] = decision.id
        return decision.name

    def reward(self, event_id, value):
        """Report the reward of an event; False if its window is over."""
        return self.client.reward(self._decisions[event_id], value)

    def drop(self, event_id):
        """What was ranked was never shown: where Personalizer waits for activate, an agent is told of the rest."""
        self.client.cancel(self._decisions.pop(event_id))


def play(ranker, actions, events, seed=1):
    """Visitors: every third may not see the first action, every tenth never sees the page; who likes it, buys."""
    draw = random.Random(seed)  # noqa: S311 - invented visitors
    shown, dropped = dict.fromkeys(actions, 0), 0
    for visitor in range(events):
        event_id = str(uuid.uuid4())
        excluded = actions[:1] if visitor % 3 == 0 else []
        action = ranker.rank(event_id, actions, excluded)
        if ranker.rank(event_id, actions, excluded) != action:  # such as after a timeout
            raise AssertionError("one event, one action")
        if visitor % 10 == 9:
            ranker.drop(event_id)
            dropped += 1
            continue
        shown[action] += 1
        chance = 0.2 + 0.6 * actions.index(action) / len(actions)
        ranker.reward(event_id, float(draw.random() < chance))
    return shown, dropped


def main():
    """Play, and say what was shown."""
    parser = argparse.ArgumentParser(description="An application of Azure Personalizer, with an agent.")
    parser.add_argument("--agent", default="http://127.0.0.1:8400", metavar="URL")
    parser.add_argument("--token", help="the agent's token, if it has one")
    parser.add_argument("--actions", help="names of arms, with commas; the default: all of the federation")
    parser.add_argument("--events", type=int, default=100)
    options = parser.parse_args()
    with Client(options.agent, options.token) as client:
        actions = options.actions.split(",") if options.actions else list(client.federation().arms)
        shown, dropped = play(Ranker(client), actions, options.events)
    width = max(map(len, shown))
    for action, times in shown.items():
        print(f"{action:<{width}} {times:>6}")
    print(f"{dropped} events were never shown: cancelled")


if __name__ == "__main__":
    try:
        main()
    except InvalidArgument as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except AgentError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
