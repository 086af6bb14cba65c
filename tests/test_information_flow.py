"""A claim of epsilon is proved from the page's source: honest pages pass, and every leak is refused at its line.

Each leak is a change of an honest page of batches, or of one with a tree. Many show only after 150 rounds, after a
restart, for one arm, for a rare value or in a large federation: no dry run would find them.

Can it fail? A leak that is not refused fails here; so does an honest variant that is.
"""

import importlib
import itertools
import os
import sys
from functools import partial

import pytest

from fedbandit import AdaPUCB, FedBatch, FedUCB, Problem
from fedbandit.engine.layout import setting_of
from fedbandit.policies.registry import WrongPage
from fedbandit.testing.admission import admit, check_epsilon
from fedbandit.world import graph

SETTING = setting_of(Problem.random(3, 8, graph.path(3), 0, reward_range=(0.0, 1.0)), 1000)

BATCH = """
from dataclasses import dataclass
from math import inf, sqrt
from typing import NamedTuple

from fedbandit.policies.protocol import ARMS, LEVELS, Count, Fields, Flag, Number, Page
from fedbandit.rules.batch import released
from fedbandit.rules.choose import fewest_pulls, highest
from fedbandit.rules.mean import clamp

SIZE = 10


class Terms(NamedTuple):
    share: float
    num_agents: int
    low: float
    high: float
    noise_scale: float
    epsilon_per_release: float


def start(me, terms):
    for k in range(len(me.end)):
        me.end[k] = SIZE


def decide(me, terms, seen, now, draws):
    return highest(seen.theta)


def noise_due(me, terms, arm):
    return me.end[arm] if me.n[arm] + 1 == me.end[arm] else 0


def interval(me, terms, arm, end):
    return me.released[arm] + 1, 0


def observe(me, terms, arm, reward, noise):
    me.total[arm] += clamp(reward, terms.low, terms.high)
    me.n[arm] += 1
    if me.n[arm] == me.end[arm]:
        me.x_mean[arm] = released(me.total[arm], noise, me.n[arm] - me.released[arm])
        me.total[arm] = 0
        me.released[arm] = me.n[arm]
        me.end[arm] += SIZE


def published(me, terms, arm):
    return (terms.share * me.x_mean[arm],)


def estimate(me, terms, seen, arm):
    return seen.theta[arm]


PAGE = Page(
    knows=Fields(
        n=Count[ARMS],
        total=Number[ARMS],
        end=Count[ARMS],
        released=Count[ARMS],
        x_mean=Number[ARMS],
        spare=Number[ARMS],
        k=Count[ARMS],
        table=Count[ARMS, 4],
        last=Number,
        awake=Flag.transient,
    ),
    averaged=("theta",),
    network="gossip",
    start=start,
    decide=decide,
    observe=observe,
    published=published,
    estimate=estimate,
    radius=None,
    noise_due=noise_due,
    interval=interval,
)


@dataclass(frozen=True)
class Own:
    epsilon: float = 1.0

    def page(self):
        return PAGE

    def terms(self, setting):
        scale = (setting.high - setting.low) / self.epsilon
        return Terms(setting.share, setting.num_agents, setting.low, setting.high, scale, self.epsilon)
"""

TREE = """
from dataclasses import dataclass
from typing import NamedTuple

from fedbandit.policies.protocol import ARMS, LEVELS, Count, Fields, Number, Page
from fedbandit.rules.choose import highest
from fedbandit.rules.mean import clamp, pull_tree_add, trailing_zeros


class Terms(NamedTuple):
    share: float
    low: float
    high: float
    noise_scale: float
    max_pulls: int


def decide(me, terms, seen, now, draws):
    return highest(seen.theta)


def noise_due(me, terms, arm):
    return me.n[arm] + 1


def interval(me, terms, arm, end):
    return (end & (end - 1)) + 1, trailing_zeros(end)


def observe(me, terms, arm, reward, noise):
    me.total[arm] += clamp(reward, terms.low, terms.high)
    me.n[arm] += 1
    me.x_mean[arm] = (me.total[arm] + pull_tree_add(me.slots[arm], me.n[arm], noise)) / me.n[arm]


def published(me, terms, arm):
    return (terms.share * me.x_mean[arm],)


def estimate(me, terms, seen, arm):
    return seen.theta[arm]


PAGE = Page(
    knows=Fields(n=Count[ARMS], total=Number[ARMS], x_mean=Number[ARMS], slots=Number[ARMS, LEVELS]),
    averaged=("theta",),
    network="gossip",
    decide=decide,
    observe=observe,
    published=published,
    estimate=estimate,
    radius=None,
    noise_due=noise_due,
    interval=interval,
)


@dataclass(frozen=True)
class Own:
    epsilon: float = 1.0

    def page(self):
        return PAGE

    def terms(self, setting):
        width, pulls = setting.high - setting.low, setting.horizon + 1
        return Terms(setting.share, setting.low, setting.high, width * pulls.bit_length() / self.epsilon, pulls)
"""

ADD = "    me.total[arm] += clamp(reward, terms.low, terms.high)\n"
RELEASE = "released(me.total[arm], noise, me.n[arm] - me.released[arm])"
RESET = "        me.total[arm] = 0\n"
COUNT = "    me.n[arm] += 1\n"
PUBLISHED = "    return (terms.share * me.x_mean[arm],)\n"
DECIDED = "    return highest(seen.theta)\n"
DUE = "    return me.end[arm] if me.n[arm] + 1 == me.end[arm] else 0\n"
OBSERVE = "def observe(me, terms, arm, reward, noise):\n"
BELIEVE = "def estimate(me, terms, seen, arm):\n"
RELEASES = "    if me.n[arm] == me.end[arm]:\n"
RAW = "which holds rewards that no noise hides yet"

# What is replaced, by what, words of the refusal, and the line that is named, if it is not the first new one.
LEAKS = {
    # Those that a test by playing accepted.
    "after 150 rounds": (PUBLISHED, "    if me.n[arm] > 150:\n        return (me.total[arm],)\n" + PUBLISHED, RAW, 1),
    "after a restart": (PUBLISHED, "    return (me.x_mean[arm] if me.awake else me.total[arm],)\n", RAW),
    "for arm 5 of 8": (PUBLISHED, "    return (me.total[arm] if arm == 5 else me.x_mean[arm],)\n", RAW),
    "for a rare value": (ADD, ADD + "    if reward == 0.123:\n        me.x_mean[arm] = 1e-9\n", "compares a reward", 1),
    "in a federation of 40": (
        DECIDED,
        "    if terms.num_agents == 40:\n        return highest(me.total)\n" + DECIDED,
        RAW,
        1,
    ),
    "noise for the first 100 rewards": (
        DUE,
        "    return me.end[arm] if me.n[arm] + 1 == me.end[arm] and me.n[arm] < 100 else 0\n",
        "adds noise where noise_due may have asked for none",
        None,
    ),
    "one draw after 100 rewards": (
        DUE,
        "    return min(me.end[arm], 100) if me.n[arm] + 1 == me.end[arm] else 0\n",
        "return 0, or the number of the next reward",
        None,
    ),
    # Control flow and counts.
    "a branch": (COUNT, COUNT + "    if reward > 0.5:\n        me.last = 1.0\n", "compares a reward", 1),
    "a conditional expression": (COUNT, COUNT + "    me.last = 1.0 if reward > 0.5 else 0.0\n", "compares a reward", 1),
    "a sum as a condition": (COUNT, COUNT + "    if me.total[arm]:\n        me.last = 1.0\n", "decides by rewards", 1),
    "counts": (COUNT, "    me.n[arm] += 1 + (reward > 0.5)\n", "compares a reward"),
    "counts by int": (COUNT, "    me.n[arm] += int(reward)\n", "hands a reward to int"),
    "a loop bound": (
        COUNT,
        COUNT + "    for k in range(int(reward)):\n        me.last += 1.0\n",
        "uses a reward inside a loop",
        1,
    ),
    "a while": (
        COUNT,
        COUNT + "    while me.total[arm] > me.last:\n        me.last += 1.0\n",
        "uses me.total inside a loop",
        1,
    ),
    "an index": (COUNT, COUNT + "    me.spare[int(reward * 7)] = 1.0\n", "hands a reward to int", 1),
    "an index that is a reward": (COUNT, COUNT + "    me.spare[reward] = 1.0\n", "uses a reward as an index", 1),
    "an error": (COUNT, COUNT + "    me.last = 1.0 / reward\n", "computes / with a reward", 1),
    "math": (COUNT, COUNT + "    me.last = sqrt(reward)\n", "hands a reward to sqrt", 1),
    "noise_due": (DUE, "    return me.n[arm] + 1 if me.total[arm] > 5.0 else 0\n", RAW),
    "the size of a batch": ("        me.end[arm] += SIZE\n", "        me.end[arm] += SIZE + int(reward)\n", "to int"),
    # Where rewards are kept.
    "raw": (ADD, "    me.total[arm] += reward\n", "keeps a reward in me.total[arm] that is not clamped"),
    "half clamped": (ADD, "    me.total[arm] += max(reward, terms.low)\n", "that is not clamped"),
    "clamped to what it computes": (
        ADD,
        "    me.total[arm] += clamp(reward, terms.low - me.n[arm], terms.high)\n",
        "the bounds are numbers of the terms",
        None,
    ),
    "clamped too wide": (
        ADD,
        "    me.total[arm] += clamp(reward, -1.0, 2.0)\n",
        "spends 3 on a reward: rewards are clamped to -1 to 2",
        None,
    ),
    "not clamped": (
        ADD,
        "    me.total[arm] += clamp(reward, -inf, inf)\n",
        "spends inf on a reward",
        None,
    ),
    "the first reward": (
        COUNT,
        COUNT + "    if me.n[arm] == 1:\n        me.x_mean[arm] = reward\n",
        "keeps a reward in me.x_mean[arm] that is not clamped",
        2,
    ),
    "the first reward, clamped": (
        COUNT,
        COUNT + "    if me.n[arm] == 1:\n        me.x_mean[arm] = clamp(reward, terms.low, terms.high)\n",
        "sets me.x_mean[arm] to another number than 0",
        None,
    ),
    "the last reward": (COUNT, COUNT + "    me.last = reward\n", "keeps a reward in me.last", 1),
    "of all arms together": (
        COUNT,
        COUNT + "    me.last += clamp(reward, terms.low, terms.high)\n",
        "under [arm]",
        1,
    ),
    "under another arm": (
        COUNT,
        COUNT + "    me.spare[0] += clamp(reward, terms.low, terms.high)\n",
        "under [arm]",
        1,
    ),
    "by an alias": (
        PUBLISHED,
        "    known = me\n    return (known.total[arm],)\n",
        RAW,
        1,
    ),
    "by a row": (PUBLISHED, "    row = me.total\n    return (row[arm],)\n", RAW),
    "through a helper": (
        "def published(me, terms, arm):\n" + PUBLISHED,
        "def peek(it, arm):\n    return it.total[arm]\n\n\n"
        "def published(me, terms, arm):\n    return (me.x_mean[arm] + 1e-9 * peek(me, arm),)\n",
        "published, in peek, reads me.total",
        1,
    ),
    "in the last digits": (PUBLISHED, "    return (me.x_mean[arm] + 1e-12 * me.total[arm],)\n", RAW),
    "in the last digits of the sum": (
        RELEASE,
        "released(me.total[arm], noise, 1.0) + 1e-12 * me.total[arm]",
        "computes * with rewards that no noise hides yet",
    ),
    "decides by the sum": (DECIDED, "    return highest(me.total)\n", RAW),
    "rounded by a large number": (
        ADD,
        "    me.total[arm] += clamp(reward, terms.low, terms.high) + 1e16\n",
        "computes + with rewards that no noise hides yet",
    ),
    "rounded by a large start": (RESET, "        me.total[arm] = 1e16\n", "to another number than 0"),
    "a tuple": (COUNT, COUNT + "    pair = (reward, 1.0)\n    me.last = max(pair)\n", "to max", 2),
    "a tuple in a loop": (
        COUNT,
        COUNT + "    pair = (reward, 1.0)\n    for x in pair:\n        me.last = x\n",
        "inside a loop",
        2,
    ),
    "a function of the same name": (
        "def noise_due(me, terms, arm):\n" + DUE,
        "def full(n):\n    return n % 10\n\n\nis_full = full\n\n\ndef full(n):\n    return n % 2\n\n\n"
        "def noise_due(me, terms, arm):\n    return me.n[arm] + 1 if is_full(me.n[arm]) == 9 else 0\n",
        "adds noise where noise_due may have asked for none",
        None,
    ),
    "an unsigned arm": (
        "    if me.n[arm] == me.end[arm]:\n",
        "    if me.n[arm] == me.end[arm] or arm - 1 < 0:\n",
        "adds noise where noise_due may have asked for none",
        None,
    ),
    "a default": (
        "def observe(me, terms, arm, reward, noise):\n",
        "def kept(x, memory=[0.0]):\n    return x\n\n\n"
        "def observe(me, terms, arm, reward, noise):\n    me.last = kept(me.last)\n",
        "has the default [0.0], which keeps state",
        None,
    ),
    "a function's attribute": (
        COUNT,
        COUNT + "    noise_due.kept = reward\n",
        "uses noise_due.kept, which keeps state between calls",
        1,
    ),
    # Noise.
    "noise times zero": (RELEASE, "me.total[arm] + 0.0 * noise", "computes * with noise"),
    "noise made small": (RELEASE, "me.total[arm] + noise / 1000.0", "computes / with noise"),
    "noise taken off again": (RELEASE, "me.total[arm] + noise - noise", "computes - with noise"),
    "noise kept": (COUNT, COUNT + "    me.last = noise\n", "keeps noise in me.last", 1),
    "noise used twice": (
        RELEASE,
        "me.total[arm] + noise\n        me.last = clamp(reward, terms.low, terms.high) + noise",
        "uses the same noise a second time",
        1,
    ),
    "noise on the mean": (RELEASE, "me.total[arm] / SIZE + noise / SIZE", "computes / with rewards"),
    "noise compared": (COUNT, COUNT + "    if noise > 1.0:\n        me.last = 1.0\n", "compares noise", 1),
    "the sum is kept": (RESET, "", "releases rewards that me.total still holds afterwards", None),
    "the sum is kept sometimes": (
        RESET,
        "        if me.n[arm] < 100:\n            me.total[arm] = 0\n",
        "releases rewards that me.total still holds afterwards",
        None,
    ),
    "two sums": (
        ADD,
        ADD + "    me.spare[arm] += clamp(reward, terms.low, terms.high)\n",
        "adds one reward to two sums, me.spare and me.total",
        None,
    ),
    "a copy of the sum": (
        RESET,
        "        me.spare[arm] = me.total[arm]\n" + RESET,
        "releases rewards that me.spare still holds afterwards",
        None,
    ),
    "one reward twice": (
        ADD,
        ADD + ADD,
        "adds the same rewards twice",
        1,
    ),
    "no noise due": (
        "    if me.n[arm] == me.end[arm]:\n",
        "    if me.n[arm] == me.end[arm] or me.n[arm] == 7:\n",
        "adds noise where noise_due may have asked for none",
        None,
    ),
    "noise_due counts otherwise": (
        COUNT,
        "    if me.n[arm] < 1000:\n        me.n[arm] += 1\n",
        "where observe adds 1 to me.n[arm] on every path",
        None,
    ),
    "noise_due changes what observe tests": (
        DUE,
        "    due = me.end[arm] if me.n[arm] + 1 == me.end[arm] else 0\n"
        "    me.end[arm] = me.n[arm] + 1\n    return due\n",
        "noise_due may change me.end",
        1,
    ),
    "counts are changed elsewhere": (
        "def estimate(me, terms, seen, arm):\n",
        "def believe(me, terms, seen, arm):\n    me.n[arm] = 0\n\n\ndef estimate(me, terms, seen, arm):\n",
        "nothing else writes it",
        None,
    ),
    "a count that a restart forgets": ("n=Count[ARMS]", "n=Count[ARMS].transient", "nothing else writes it", None),
    "two levels": (
        "    return me.released[arm] + 1, 0\n",
        "    return me.released[arm] + 1, me.n[arm] % 2\n",
        "the level 0",
        None,
    ),
    "two draws": (DUE, "    return me.n[arm] + 1, 0\n", "asks for two draws", None),
    "too little noise": (
        "(setting.high - setting.low) / self.epsilon",
        "0.5 / self.epsilon",
        "claims epsilon=1, but spends 2 on a reward",
        None,
    ),
    "too little noise for some agents": (
        "(setting.high - setting.low) / self.epsilon",
        "(1.0 if setting.degree == SETTING_DEGREE else 0.1) / self.epsilon",
        "but spends 10 on a reward",
        None,
    ),
    "too little noise at a live site": ("scale, self.epsilon)", "scale, 1000.0)", "spends 1000 on a reward", None),
    # Calls that the check could take for others.
    "an argument before a slash": (
        OBSERVE + ADD,
        "def second(x, /, y):\n    return y\n\n\n" + OBSERVE + ADD + "    me.last = second(0.0, reward)\n",
        "calls second in a way that this check cannot follow",
        None,
    ),
    "a function that says it wraps another": (
        "def published(me, terms, arm):\n" + PUBLISHED,
        "def peek(it, arm):\n    return it.total[arm]\n\n\ndef harmless(it, arm):\n    return 0.0\n\n\n"
        "peek.__wrapped__ = harmless\n\n\ndef published(me, terms, arm):\n    return (peek(me, arm),)\n",
        RAW,
        None,
    ),
    "a call in a chain of comparisons": (
        OBSERVE + ADD + COUNT,
        "def bump(it, arm):\n    it.n[arm] += 1\n    return 1\n\n\n"
        + OBSERVE
        + ADD
        + "    if 0 < bump(me, arm) < 5:\n        me.last = 1.0\n    me.n[arm] -= 1\n",
        "nothing else writes it",
        None,
    ),
    "a call in an index": (
        OBSERVE + ADD + COUNT,
        "def bump(it, arm):\n    it.n[arm] += 1\n    return 0\n\n\n"
        + OBSERVE
        + ADD
        + "    me.spare[bump(me, arm)] += 1.0\n    me.n[arm] -= 1\n",
        "calls a function inside what it adds to",
        None,
    ),
    # Rows and fields under other names: in compiled code a slice is a view, and me[2] is a field.
    "a slice": (
        BELIEVE,
        "def believe(me, terms, seen, arm):\n    if me.n[arm] > 100:\n        row = me.n[0:]\n"
        "        row[arm] = 0\n\n\n" + BELIEVE,
        "uses a slice, None or ...",
        2,
    ),
    "a new axis": (
        BELIEVE,
        "def believe(me, terms, seen, arm):\n    if me.n[arm] > 100:\n        row = me.n[None]\n"
        "        row[0, arm] = 0\n\n\n" + BELIEVE,
        "uses a slice, None or ...",
        2,
    ),
    "a new axis by a function": (
        BELIEVE,
        "def nothing(x):\n    pass\n\n\ndef believe(me, terms, seen, arm):\n    if me.n[arm] > 100:\n"
        "        row = me.n[nothing(1)]\n        row[0, arm] = 0\n\n\n" + BELIEVE,
        "uses what nothing returns, which is nothing",
        None,
    ),
    "all of a row": (
        OBSERVE + ADD + COUNT,
        "def clear(row, arm):\n    row[arm] = 0\n\n\n"
        + OBSERVE
        + ADD
        + COUNT
        + "    if me.n[arm] > 100:\n        clear(me.n[...], arm)\n",
        "as an index",
        None,
    ),
    "a field by its number": (
        PUBLISHED,
        "    if me.n[arm] > 150:\n        return (me[2][arm],)\n" + PUBLISHED,
        "uses me as a whole",
        1,
    ),
    "a field by its number, in a helper": (
        "def published(me, terms, arm):\n" + PUBLISHED,
        "def peek(it, arm):\n    copy = it\n    return copy[2][arm]\n\n\ndef published(me, terms, arm):\n"
        "    if me.n[arm] > 150:\n        return (peek(me, arm),)\n" + PUBLISHED,
        "published, in peek, uses copy as a whole",
        2,
    ),
    "a field by its number, in a loop": (
        COUNT,
        COUNT + "    for j in range(3):\n        if me.n[arm] > 150:\n            me.last = me[2][j]\n",
        "uses me as a whole",
        3,
    ),
    "a field of what is seen": (
        DECIDED,
        "    if me.n[0] > 150:\n        return int(seen[2][0])\n" + DECIDED,
        "uses seen as a whole",
        1,
    ),
    "a pattern": (
        PUBLISHED,
        "    match me:\n        case float(total=row):\n            return (row[arm],)\n" + PUBLISHED,
        "",
        None,
    ),
    "a row that a loop names": (
        OBSERVE + ADD + COUNT,
        "def put(row, i, x):\n    row[i] = x\n\n\n"
        + OBSERVE
        + ADD
        + COUNT
        + "    for j in range(1):\n        row = me.k\n    me.k[arm] = me.n[arm] * 3\n    x = me.k[arm]\n"
        "    put(row, arm, 0)\n    if me.k[arm] != x and me.n[arm] > 100:\n        me.last = reward\n",
        "keeps a reward in me.last",
        None,
    ),
    "a row that a function returns": (
        OBSERVE + ADD + COUNT,
        "def put(row, i, x):\n    row[i] = x\n\n\ndef same(row):\n    return row\n\n\n"
        + OBSERVE
        + ADD
        + COUNT
        + "    row = same(me.k)\n    me.k[arm] = me.n[arm] * 3\n    x = me.k[arm]\n    put(row, arm, 0)\n"
        "    if me.k[arm] != x and me.n[arm] > 100:\n        me.last = reward\n",
        "keeps a reward in me.last",
        None,
    ),
    "rows of rows": (
        DUE,
        "    due = me.table[arm][0]\n    for a, row in enumerate(me.table):\n        if me.n[arm] > 100:\n"
        "            row[0] = 0\n    return me.n[arm] + 1 if due == 0 else 0\n",
        "noise_due may change me.table",
        1,
    ),
    # Numbers that compiled code computes otherwise: they wrap around, round, or are NaN.
    "NaN": (
        ADD,
        "    me.total[arm] += min(max(reward * (inf if me.n[arm] > 100 else 1.0), terms.low), terms.high)\n",
        "which may give NaN",
    ),
    "a sum that wraps around": (
        COUNT,
        COUNT + "    if me.n[arm] >= 0 and me.n[arm] + 9223372036854775807 < 0:\n        me.last = reward\n",
        "keeps a reward in me.last",
        2,
    ),
    "a product that wraps around": (
        COUNT,
        COUNT + "    if 4611686018427387904 * 4 == 0:\n        me.last = reward\n",
        "keeps a reward in me.last",
        2,
    ),
    "products that wrap around": (
        COUNT,
        COUNT + "    x = abs(1000 * me.n[arm])\n" + 6 * "    x = abs(1000 * x)\n"
        "    if x >= 0 and x + 1000 < 0:\n        me.last = reward\n",
        "keeps a reward in me.last",
        None,
    ),
    "a count that wraps around": (
        COUNT,
        COUNT + "    x = me.k[arm] + 1000\n    me.k[arm] = x\n    if me.k[arm] != x:\n        me.last = reward\n",
        "keeps a reward in me.last",
        4,
    ),
    "a number that rounds": (
        COUNT,
        COUNT
        + "    me.last = 9007199254740993\n    if me.last - 9007199254740992 != 1:\n        me.x_mean[arm] = reward\n",
        "keeps a reward in me.x_mean",
        3,
    ),
    "whole for some agents": (
        "setting.num_agents,",
        "setting.num_agents if setting.degree == SETTING_DEGREE else 0.5,",
        "terms of the same types",
        None,
    ),
    "unknown code": (
        COUNT,
        COUNT + "    me.last = OWN[0](reward)\n",
        "",
        None,
    ),
}
LEAKY_TREES = {
    "the sum is set back": (
        "    me.n[arm] += 1\n",
        "    me.n[arm] += 1\n    if me.n[arm] == 100:\n        me.total[arm] = 0\n",
        "a tree needs the sum of all rewards",
    ),
    "noise of some rewards only": (
        "    me.x_mean[arm] = (",
        "    if me.n[arm] > 1:\n        me.x_mean[arm] = (",
        "at every reward",
    ),
    "slots that a restart forgets": ("Number[ARMS, LEVELS]", "Number[ARMS, LEVELS].transient", "after a restart"),
    "slots are published": (
        "    return (terms.share * me.x_mean[arm],)\n",
        "    return (me.x_mean[arm] - me.slots[arm][0],)\n",
        "published reads me.slots",
    ),
    "slots are read": (
        "    me.n[arm] += 1\n",
        "    me.n[arm] += 1\n    me.x_mean[arm] = me.slots[arm][3]\n",
        "reads me.slots, which holds noise",
    ),
    "slots are cleared": (
        "    me.n[arm] += 1\n",
        "    me.n[arm] += 1\n    me.slots[arm][3] = 0.0\n",
        "keeps noise in me.slots",
    ),
    "another count": ("me.slots[arm], me.n[arm], noise", "me.slots[arm], 1, noise", "another number than that of the"),
    "other intervals": ("(end & (end - 1)) + 1, trailing", "end, trailing", "as its tree needs"),
    "too few levels": (" * pulls.bit_length()", "", "spends 10 on 10 releases that hold it"),
}
HONEST = {
    "as it is": ("", ""),
    "min and max": (ADD, "    me.total[arm] += min(max(reward, terms.low), terms.high)\n"),
    "max and min": (ADD, "    me.total[arm] += max(terms.low, min(terms.high, reward))\n"),
    "scaled before the clamp": (
        ADD,
        "    me.total[arm] += min(1.0, max(0.0, (reward - terms.low) / (terms.high - terms.low)))\n",
    ),
    "the square": (ADD, "    me.total[arm] += min(1.0, max(0.0, reward * reward))\n"),
    "a local copy": (
        "    if me.n[arm] == me.end[arm]:\n        me.x_mean[arm] = " + RELEASE,
        "    total = me.total[arm]\n    is_full = me.n[arm] == me.end[arm]\n    if is_full:\n"
        "        me.x_mean[arm] = (noise + total) / SIZE",
    ),
    "asks noise_due": (
        ADD + COUNT + "    if me.n[arm] == me.end[arm]:\n",
        "    due = noise_due(me, terms, arm)\n" + ADD + COUNT + "    if due > 0:\n",
    ),
    "a helper": (
        "def observe(me, terms, arm, reward, noise):\n" + ADD,
        "def take(it, fixed, k, x):\n    it.total[k] += clamp(x, fixed.low, fixed.high)\n\n\n"
        "def observe(me, terms, arm, reward, noise):\n    take(me, terms, arm, reward)\n",
    ),
    "a loop over public numbers": (
        COUNT,
        COUNT + "    me.last = 0.0\n    for k in range(len(me.total)):\n        me.last += me.x_mean[k]\n",
    ),
    "a branch by a release": (
        "        me.end[arm] += SIZE\n",
        "        me.end[arm] += SIZE if me.x_mean[arm] > 0.5 else 2 * SIZE\n",
    ),
    "a round robin by counts": (DECIDED, "    return fewest_pulls(me.n, me.n)\n"),
    "rewards dropped": (ADD, "    if me.n[arm] > 3:\n    " + ADD),
    "an alias of a row": (ADD, "    row = me.total\n    row[arm] += clamp(reward, terms.low, terms.high)\n"),
    "a count since the release": (
        DUE + "\n\ndef interval",
        "    return me.n[arm] + 1 if me.k[arm] + 1 == SIZE else 0\n\n\ndef interval",
        COUNT + RELEASES,
        COUNT + "    me.k[arm] += 1\n    if me.k[arm] == SIZE:\n        me.k[arm] = 0\n",
    ),
    "set back before the first": (ADD, "    if me.n[arm] == me.released[arm]:\n        me.total[arm] = 0.0\n" + ADD),
    "locals": (
        ADD + COUNT,
        "    x = max(terms.low, min(reward, terms.high))\n    s = me.total[arm] + x\n    count = me.n[arm] + 1\n"
        "    me.total[arm] = s\n    me.n[arm] = count\n",
    ),
    "noise_due with a local": (
        DUE,
        "    end = 0\n    if me.n[arm] + 1 == me.end[arm]:\n        end = me.n[arm] + 1\n    return end\n",
    ),
    "every tenth": (
        DUE,
        "    return me.n[arm] + 1 if (me.n[arm] + 1) % SIZE == 0 else 0\n",
        RELEASES,
        "    if me.n[arm] % SIZE == 0:\n",
    ),
    "NaN becomes a bound": (ADD, "    me.total[arm] += min(terms.high, max(terms.low, reward * inf))\n"),
    "moved to a second sum": (
        COUNT,
        COUNT + "    if me.n[arm] == 5:\n        me.spare[arm] = me.total[arm]\n        me.total[arm] = 0\n",
    ),
}


@pytest.fixture
def policy(tmp_path, monkeypatch):
    """A page with a change; and the line on which it begins."""
    numbers, names = itertools.count(), []

    def changed(text, old, new):
        assert old in text, old
        name = f"flow_{next(numbers)}_{os.getpid()}_{tmp_path.name.replace('-', '_')}"
        (tmp_path / f"{name}.py").write_text(text.replace(old, new, 1))
        monkeypatch.syspath_prepend(str(tmp_path))
        importlib.invalidate_caches()
        names.append(name)
        return importlib.import_module(name).Own(), text[: text.index(old)].count("\n") + 1

    yield changed
    for name in names:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("leak", LEAKS)
def test_a_leak_is_refused_at_its_line(policy, leak):
    old, new, words, *offset = LEAKS[leak]
    text = BATCH.replace("SIZE = 10", "SIZE = 10\nSETTING_DEGREE = 1\nOWN = (len,)")
    if "believe" in new:
        text = text.replace("    radius=None,\n", "    radius=None,\n    believe=believe,\n")
    found, line = policy(text, old, new)
    with pytest.raises(WrongPage) as refused:
        admit(found, SETTING, SETTING._replace(degree=2))
    said = str(refused.value)
    assert words in said, said
    if offset != [None]:
        assert f"line {line + sum(offset)})" in said, said
        assert f"{type(found).__module__}.py" in said or "(line" in said, said


@pytest.mark.parametrize("leak", LEAKY_TREES)
def test_a_leaking_tree_is_refused(policy, leak):
    old, new, words = LEAKY_TREES[leak]
    found, _ = policy(TREE, old, new)
    with pytest.raises(WrongPage) as refused:
        admit(found, SETTING)
    assert words in str(refused.value), refused.value


@pytest.mark.parametrize("variant", HONEST)
def test_an_honest_page_passes(policy, variant):
    old, new, *more = HONEST[variant]
    admit(policy(BATCH.replace(*more) if more else BATCH, old, new)[0], SETTING)


def test_an_honest_tree_passes(policy):
    admit(policy(TREE, "", "")[0], SETTING)


@pytest.mark.parametrize(
    "made",
    [
        partial(FedBatch, 2.0),
        partial(FedBatch, 2.0, "ucb"),
        partial(FedBatch, 2.0, "ucb", radius="safe"),
        partial(FedBatch, 2.0, "kl"),
        partial(FedBatch, 0.5, catches_up=True),
        partial(FedUCB, 1.0),
        partial(AdaPUCB, 1.0),
    ],
)
def test_policies_of_the_package_keep_their_epsilon(made):
    check_epsilon(made(), SETTING)


def test_code_that_is_not_its_source_is_refused(policy):
    found, _ = policy(BATCH, "", "")
    module = sys.modules[type(found).__module__]
    module.published.__code__ = (lambda me, terms, arm: (me.total[arm],)).__code__
    with pytest.raises(WrongPage, match="no source that this check can read"):
        admit(found, SETTING)
