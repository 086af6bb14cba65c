"""Own policies for the GPU's kernels (``cuda_simulator.py``): one is sound, others fail long after their dry run."""

from dataclasses import dataclass
from math import log
from typing import NamedTuple

from fedbandit.policies.protocol import ARMS, Count, Fields, Number, Page
from fedbandit.rules.choose import highest

LAST = 60


class Terms(NamedTuple):
    share: float
    last: int  # decision that is as it should be
    last_log: float
    next_log: float


def decide(me, terms, seen, now, draws):
    me.decisions += 1
    return me.decisions % len(me.n) if me.decisions % 5 == 0 else highest(seen.theta)


def decide_beyond(me, terms, seen, now, draws):
    """In one round only: whoever comes back after it goes on as if nothing had been."""
    return 7 if terms.last_log < now.log_t < terms.next_log else highest(seen.theta)


def observe(me, terms, arm, reward, noise):
    me.n[arm] += 1
    me.x_mean[arm] += (reward - me.x_mean[arm]) / me.n[arm]


def published(me, terms, arm):
    return (terms.share * me.x_mean[arm],)


def published_infinite(me, terms, arm):
    return (terms.share * me.x_mean[arm] * (1e308 * 10.0 if me.decisions > terms.last else 1.0),)


def estimate(me, terms, seen, arm):
    return seen.theta[arm]


SOUND = Page(
    knows=Fields(n=Count[ARMS], x_mean=Number[ARMS], decisions=Count),
    averaged=("theta",),
    network="gossip",
    decide=decide,
    observe=observe,
    published=published,
    estimate=estimate,
    radius=None,
)


@dataclass(frozen=True)
class Sound:
    def page(self):
        return SOUND

    def terms(self, setting):
        return Terms(setting.share, LAST, log(LAST + 0.5), log(LAST + 1.5))


@dataclass(frozen=True)
class Beyond(Sound):
    def page(self):
        return SOUND._replace(decide=decide_beyond)


@dataclass(frozen=True)
class Infinite(Sound):
    def page(self):
        return SOUND._replace(published=published_infinite)
