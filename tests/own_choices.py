"""Own policies that are asked about some of the arms (``test_choice.py``): at live sites only."""

from dataclasses import dataclass
from typing import NamedTuple

from fedbandit import FedBatch
from fedbandit.policies.protocol import ARMS, Count, Fields, Number, Page, uniform
from fedbandit.rules.choose import highest


class Terms(NamedTuple):
    share: float
    explore: float


def decide(me, terms, seen, now, draws):
    u = uniform(draws)
    if u < terms.explore:
        return int(u / terms.explore * len(me.n))
    return highest(seen.theta)


def chance(me, terms, seen, now, arm):
    by_luck = terms.explore / len(me.n)
    return by_luck + (1.0 - terms.explore if arm == highest(seen.theta) else 0.0)


def observe(me, terms, arm, reward, noise):
    me.n[arm] += 1
    me.x_mean[arm] += (reward - me.x_mean[arm]) / me.n[arm]


def published(me, terms, arm):
    return (terms.share * me.x_mean[arm],)


def estimate(me, terms, seen, arm):
    return seen.theta[arm]


def in_turn(me, terms, seen, now, draws):
    me.turn += 1
    return me.turn % len(me.n)


def the_second(me, terms, seen, now, draws):
    return 2 if me.n[0] > 9 else 0


GREEDY = Page(
    knows=Fields(n=Count[ARMS], x_mean=Number[ARMS]),
    averaged=("theta",),
    network="gossip",
    decide=decide,
    observe=observe,
    published=published,
    estimate=estimate,
    radius=None,
    chance=chance,
)
PAGES = {
    "greedy": GREEDY,
    "silent": GREEDY._replace(chance=None),
    "in turn": GREEDY._replace(knows=Fields(n=Count[ARMS], x_mean=Number[ARMS], turn=Count), decide=in_turn),
    "absent arm": GREEDY._replace(decide=the_second),
}


@dataclass(frozen=True)
class Own:
    """One of the pages above."""

    page_name: str
    explore: float = 0.3

    def page(self):
        return PAGES[self.page_name]

    def terms(self, setting):
        return Terms(setting.share, self.explore)


def half_as_wide(me, terms, seen, now, draws):
    u = uniform(draws)
    return int(u * u * len(me.n))


@dataclass(frozen=True)
class Inherited:
    """FedBatch's chances, and other draws."""

    epsilon: float

    def page(self):
        return FedBatch(self.epsilon).page()._replace(decide=half_as_wide, on_releases=None)

    def terms(self, setting):
        return FedBatch(self.epsilon).terms(setting)
