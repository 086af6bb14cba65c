"""A claim of epsilon is checked in the page's source: honest pages pass, and every leak is refused at its line.

Each leak is a change of an honest page of batches, or of one with a tree. Many show only after 150 rounds, after a
restart, for one arm, for a rare value or in a large federation: no dry run would find them.

Can it fail? A leak that is not refused fails here; so does an honest variant that is.
"""

import importlib
import itertools
import os
import re
import sys
from functools import partial

import pytest

from fedbandit import AdaPUCB, FedBatch, FedUCB, Problem, simulate
from fedbandit.engine.layout import setting_of
from fedbandit.policies.registry import WrongPage
from fedbandit.rules import private
from fedbandit.testing.admission import admit, check_epsilon
from fedbandit.world import graph

PROBLEM = Problem.random(3, 8, graph.path(3), 0, reward_range=(0.0, 1.0))
SETTING = setting_of(PROBLEM, 1000)

BATCH = """
import math
import sys
from dataclasses import dataclass
from functools import lru_cache, wraps
from math import inf, sqrt
from typing import NamedTuple

from fedbandit.policies.protocol import ARMS, LEVELS, Count, Fields, Flag, Number, Page, fill_with_normals, uniform
from fedbandit.rules import private
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
    for k in range(len(me.batch_end)):
        me.batch_end[k] = SIZE


def decide(me, terms, seen, now, draws):
    return highest(seen.theta)


def observe(me, terms, arm, reward, noise):
    size, noisy_sum = private.collect(me, terms, arm, reward, noise)
    if size > 0:
        me.x_mean[arm] = noisy_sum / size
        me.batch_end[arm] += SIZE


def published(me, terms, arm):
    return (terms.share * me.x_mean[arm],)


def estimate(me, terms, seen, arm):
    return seen.theta[arm]


PAGE = Page(
    knows=Fields(
        n=Count[ARMS],
        total=Number[ARMS],
        batch_end=Count[ARMS],
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
    noise_due=private.batch_due,
    interval=private.batch_interval,
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
from fedbandit.rules import private
from fedbandit.rules.choose import highest
from fedbandit.rules.mean import clamp, pull_tree_add


class Terms(NamedTuple):
    share: float
    low: float
    high: float
    noise_scale: float
    max_pulls: int


def decide(me, terms, seen, now, draws):
    return highest(seen.theta)


def observe(me, terms, arm, reward, noise):
    noisy_sum = private.collect_in_tree(me, terms, arm, reward, noise)
    me.x_mean[arm] = noisy_sum / me.n[arm]


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
    noise_due=private.tree_due,
    interval=private.tree_interval,
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

OBSERVE = "def observe(me, terms, arm, reward, noise):\n"
COLLECT = "    size, noisy_sum = private.collect(me, terms, arm, reward, noise)\n"
FULL = "    if size > 0:\n"
NEXT = "        me.batch_end[arm] += SIZE\n"
PUBLISHED = "    return (terms.share * me.x_mean[arm],)\n"
PUBLISH = "def published(me, terms, arm):\n"
DECIDED = "    return highest(seen.theta)\n"
BELIEVE = "def estimate(me, terms, seen, arm):\n"
DUE, INTERVAL = "noise_due=private.batch_due", "interval=private.batch_interval"
RAW = "which holds rewards that no noise hides yet"
REWARD = "uses reward outside the rule that it was handed to"
NOISE = "uses noise outside the rule that it was handed to"
FIRST = "must hand its reward and noise to a rule first, and use them nowhere else"
WHOLE = "uses me as a whole"
COUNTS = "only the rule counts rewards"
CALLS = "whose source this check cannot read"


def after(*lines):
    """The rule, then these lines."""
    return COLLECT, COLLECT + "".join(f"    {line}\n" for line in lines)


def helper(text, *lines):
    """A function of its own, and lines after the rule."""
    return OBSERVE + COLLECT, f"{text}\n\n\n{OBSERVE}{COLLECT}" + "".join(f"    {line}\n" for line in lines)


def shown(*lines):
    """What is published, after these lines."""
    return PUBLISHED, "".join(f"    {line}\n" for line in lines) + PUBLISHED


def believing(*lines):
    """A further function of the page."""
    body = "".join(f"    {line}\n" for line in lines)
    return BELIEVE, f"def believe(me, terms, seen, arm):\n{body}\n\n{BELIEVE}"


# What is replaced, by what, words of the refusal, and the line that is named: how far below the first new one; None:
# any. An empty text: what a check before this one says.
LEAKS = {
    # When a leak shows: none of it matters to a check of the source.
    "after 150 rounds": (*shown("if me.n[arm] > 150:", "    return (me.total[arm],)"), RAW, 1),
    "after a restart": (PUBLISHED, "    return (me.x_mean[arm] if me.awake else me.total[arm],)\n", RAW, 0),
    "for arm 5 of 8": (PUBLISHED, "    return (me.total[arm] if arm == 5 else me.x_mean[arm],)\n", RAW, 0),
    "for a rare value": (*after("if reward == 0.123:", "    me.x_mean[arm] = 1e-9"), REWARD, 1),
    "in a federation of 40": (
        DECIDED,
        "    if terms.num_agents == 40:\n        return highest(me.total)\n" + DECIDED,
        RAW,
        1,
    ),
    "in the last digits": (PUBLISHED, "    return (me.x_mean[arm] + 1e-12 * me.total[arm],)\n", RAW, 0),
    "decides by the sum": (DECIDED, "    return highest(me.total)\n", RAW, 0),
    # Rewards outside the rule.
    "sums of its own": (
        COLLECT + FULL,
        "    size, noisy_sum = 0, 0.0\n    me.spare[arm] += clamp(reward, terms.low, terms.high)\n" + FULL,
        FIRST,
        0,
    ),
    "before the rule": (COLLECT, "    me.last = reward\n" + COLLECT, FIRST, 0),
    "the end of a batch moves before the rule": (
        COLLECT,
        "    me.batch_end[arm] = me.n[arm] + 1\n" + COLLECT,
        FIRST,
        0,
    ),
    "after the rule": (*after("me.last = reward"), REWARD, 1),
    "clamped": (*after("me.last += clamp(reward, terms.low, terms.high)"), REWARD, 1),
    "a branch": (*after("if reward > 0.5:", "    me.last = 1.0"), REWARD, 1),
    "a conditional expression": (*after("me.last = 1.0 if reward > 0.5 else 0.0"), REWARD, 1),
    "a loop bound": (*after("for k in range(int(reward)):", "    me.last += 1.0"), REWARD, 1),
    "an index": (*after("me.spare[int(reward * 7)] = 1.0"), REWARD, 1),
    "an error": (*after("me.last = 1.0 / reward"), REWARD, 1),
    "math": (*after("me.last = sqrt(reward)"), REWARD, 1),
    "a tuple": (*after("pair = (reward, 1.0)", "me.last = max(pair)"), REWARD, 1),
    "a walrus": (*after("if (x := reward) > 0.5:", "    me.last = x"), REWARD, 1),
    "a keyword": (*helper("def kept(x):\n    return x", "me.last = kept(x=reward)"), REWARD, None),
    "deleted": (*after("del reward"), "", 1),
    "another meaning": (*after("reward = 0.0"), "gives reward another meaning", 1),
    "me means something else": (*after("me = seen = 1"), "gives me another meaning", 1),
    "a larger reward for the rule": (
        COLLECT,
        "    size, noisy_sum = private.collect(me, terms, arm, reward * 1e9, noise)\n",
        FIRST,
        0,
    ),
    "noise times zero for the rule": (
        COLLECT,
        "    size, noisy_sum = private.collect(me, terms, arm, reward, 0.0 * noise)\n",
        FIRST,
        0,
    ),
    "reward and noise exchanged": (
        COLLECT,
        "    size, noisy_sum = private.collect(me, terms, arm, noise, reward)\n",
        FIRST,
        0,
    ),
    "another arm for the rule": (
        COLLECT,
        "    size, noisy_sum = private.collect(me, terms, 0, reward, noise)\n",
        FIRST,
        0,
    ),
    "keywords for the rule": (
        COLLECT,
        "    size, noisy_sum = private.collect(me, terms, arm, noise=reward, reward=noise)\n",
        FIRST,
        0,
    ),
    "a star": (COLLECT, "    size, noisy_sum = private.collect(me, terms, arm, *(reward, noise))\n", FIRST, 0),
    "the rule in a branch": (
        COLLECT,
        "    size, noisy_sum = 0, 0.0\n    if me.n[arm] < 100:\n    " + COLLECT,
        FIRST,
        0,
    ),
    "the rule twice": (COLLECT, COLLECT + COLLECT, "calls private.collect outside the first line of observe", 1),
    "the rule with another reward": (
        *after("size, noisy_sum = private.collect(me, terms, arm, 1.0, 0.0)"),
        "calls private.collect outside the first line",
        1,
    ),
    "the rule in another function": (
        *believing("private.collect(me, terms, arm, 0.0, 0.0)"),
        "believe calls private.collect outside the first line of observe",
        1,
    ),
    "the tree's rule beside it": (
        *after("me.last = private.collect_in_tree(me, terms, arm, 0.0, 0.0)"),
        "calls private.collect_in_tree outside the first line",
        1,
    ),
    "the rule under another name": (
        OBSERVE + COLLECT,
        "take = private.collect\n\n\n" + OBSERVE + COLLECT + "    size, noisy_sum = take(me, terms, arm, 0.5, 0.0)\n",
        "calls take outside the first line of observe",
        None,
    ),
    "a rule of one's own": (
        OBSERVE + COLLECT,
        "def collect(me, terms, arm, reward, noise):\n    me.last = reward\n    return 1, reward\n\n\n"
        + OBSERVE
        + COLLECT.replace("private.", ""),
        "observe, in collect, must hand its reward",
        None,
    ),
    "a rule that a function wraps": (
        OBSERVE + COLLECT,
        "def collect(me, terms, arm, reward, noise):\n"
        "    size, it = private.collect(me, terms, arm, reward, noise)\n    return size, it + reward\n\n\n"
        + OBSERVE
        + COLLECT.replace("private.", ""),
        "observe, in collect, " + REWARD,
        None,
    ),
    "a rule that a decorator wraps": (
        OBSERVE + COLLECT,
        "def loud(f):\n    @wraps(f)\n    def inner(*a):\n        me = a[0]\n        me.last = a[3]\n"
        "        return f(*a)\n    return inner\n\n\ncollect = loud(private.collect)\n\n\n"
        + OBSERVE
        + COLLECT.replace("private.", ""),
        "",
        None,
    ),
    "observe is decorated": (
        OBSERVE,
        "def loud(f):\n    def observe(me, terms, arm, reward, noise):\n        me.last = reward\n"
        "        return f(me, terms, arm, reward, noise)\n    return observe\n\n\n@loud\n" + OBSERVE,
        "",
        None,
    ),
    "the rule in a loop": (COLLECT, "    for k in range(2):\n    " + COLLECT, FIRST, 0),
    "a while around it": (COLLECT, "    while me.n[arm] < 5:\n    " + COLLECT, FIRST, 0),
    # Noise.
    "noise kept": (*after("me.last = noise"), NOISE, 1),
    "noise compared": (*after("if noise > 1.0:", "    me.last = 1.0"), NOISE, 1),
    "noise taken off again": (
        "        me.x_mean[arm] = noisy_sum / size\n",
        "        me.x_mean[arm] = (noisy_sum - noise) / size\n",
        NOISE,
        0,
    ),
    "noise for the first 100 rewards": (
        DUE,
        "noise_due=due",
        "noise_due must be private.batch_due",
        None,
        "def due(me, terms, arm):\n"
        "    return me.batch_end[arm] if me.n[arm] + 1 == me.batch_end[arm] and me.n[arm] < 100 else 0\n",
    ),
    "one draw after 100 rewards": (
        DUE,
        "noise_due=due",
        "noise_due must be private.batch_due, since observe uses private.collect",
        None,
        "def due(me, terms, arm):\n    return min(private.batch_due(me, terms, arm), 100)\n",
    ),
    "noise is due as in a tree": (DUE, "noise_due=private.tree_due", "noise_due must be private.batch_due", None),
    "noise_due moves the end": (
        DUE,
        "noise_due=due",
        "noise_due must be private.batch_due",
        None,
        "def due(me, terms, arm):\n    end = private.batch_due(me, terms, arm)\n"
        "    me.batch_end[arm] = me.n[arm] + 1\n    return end\n",
    ),
    "two draws": (
        DUE,
        "noise_due=due",
        "noise_due must be private.batch_due",
        None,
        "def due(me, terms, arm):\n    return private.batch_due(me, terms, arm), 0\n",
    ),
    "two levels": (
        INTERVAL,
        "interval=within",
        "interval must be private.batch_interval",
        None,
        "def within(me, terms, arm, end):\n    return me.released[arm] + 1, me.n[arm] % 2\n",
    ),
    "interval moves the end": (
        INTERVAL,
        "interval=within",
        "interval must be private.batch_interval",
        None,
        "def within(me, terms, arm, end):\n    me.batch_end[arm] = 0\n    return me.released[arm] + 1, 0\n",
    ),
    "too little noise": (
        "(setting.high - setting.low) / self.epsilon",
        "0.5 / self.epsilon",
        "claims epsilon=1, but spends 2 on a reward",
        None,
    ),
    "too little noise for some agents": (
        "(setting.high - setting.low) / self.epsilon",
        "(1.0 if setting.degree == 1 else 0.1) / self.epsilon",
        "but spends 10 on a reward",
        None,
    ),
    "too little noise at a live site": ("scale, self.epsilon)", "scale, 1000.0)", "spends 1000 on a reward", None),
    "clamped too wide": (
        "setting.low, setting.high, scale",
        "-1.0, 2.0, scale",
        "rewards are clamped to -1 to 2",
        None,
    ),
    "not clamped": ("setting.low, setting.high, scale", "-inf, inf, scale", "spends inf on a reward", None),
    "clamped to NaN": ("setting.low, setting.high, scale", "inf - inf, 1.0, scale", "terms.low is NaN", None),
    "a whole bound, which rounds others'": (
        "setting.low, setting.high, scale",
        "0 if setting.degree == 1 else 0.9, 1.0, scale",
        "the terms need low and high, floats",
        None,
    ),
    "terms that compute their bound": (
        "def start(",
        "Terms.low = property(lambda it: -1e9)\n\n\ndef start(",
        "the terms compute low",
        None,
    ),
    "terms that look at their caller": (
        "    share: float\n",
        "    share: float\n\n    def __getattribute__(self, name):\n        sys._getframe(1)\n"
        "        return tuple.__getattribute__(self, name)\n\n",
        "the terms compute",
        None,
    ),
    "terms that list other numbers than their fields": (
        "    share: float\n",
        "    share: float\n\n    def __iter__(self):\n        return iter((1.0, 3, -1e9, 1e9, 1.0, 1.0))\n\n",
        "the terms compute __iter__",
        None,
    ),
    "terms that all equal each other": (
        "    share: float\n",
        "    share: float\n\n    def __eq__(self, other):\n        return True\n\n    def __hash__(self):\n"
        "        return 1\n\n",
        "the terms compute __eq__, __hash__",
        None,
    ),
    "a field of the terms that reads another": (
        "def start(",
        "Terms.low = Terms.share\n\n\ndef start(",
        "the terms compute low",
        None,
    ),
    "fields of the terms in another order": (
        "def start(",
        "Terms._fields = ('share', 'num_agents', 'high', 'low', 'noise_scale', 'epsilon_per_release')\n\n\ndef start(",
        "the terms compute high, low",
        None,
    ),
    "terms that describe themselves": (
        "def start(",
        "Terms._asdict = lambda it: {'noise_scale': 1.0}\n\n\ndef start(",
        "the terms compute _asdict",
        None,
    ),
    "other terms for some agents": (
        "def start(",
        "class Others(NamedTuple):\n    share: float\n    num_agents: int\n    noise_scale: float\n    high: float\n"
        "    low: float\n    epsilon_per_release: float\n\n\ndef start(",
        "terms(setting) returns another class for some agents",
        None,
        "        return Terms(",
        "        if setting.degree == 2:\n            return Others(1.0, 3, scale, 1.0, 0.0, 1.0)\n"
        "        return Terms(",
    ),
    # The claim.
    "an epsilon that is a text": (
        "    return (terms.share * me.x_mean[arm],)\n",
        "    return (me.total[arm],)\n",
        "It claims epsilon=1",
        None,
        "    epsilon: float = 1.0\n",
        "    epsilon: str = '1.0'\n",
        "self.epsilon",
        "float(self.epsilon)",
    ),
    "an epsilon that is not a number": (
        "    return (terms.share * me.x_mean[arm],)\n",
        "    return (me.total[arm],)\n",
        "epsilon is nan: it must be a number",
        None,
        "    epsilon: float = 1.0\n",
        "    epsilon: float = inf - inf\n",
        "self.epsilon",
        "1.0",
    ),
    # The fields of the rule.
    "the sum is read": (*shown("x = me.total[arm]"), RAW, 0),
    "the sum as a condition": (*after("if me.total[arm]:", "    me.last = 1.0"), RAW, 1),
    "the sum is set back": (*after("me.total[arm] = 0"), RAW, 1),
    "a large start rounds rewards": (
        "        me.batch_end[k] = SIZE\n",
        "        me.batch_end[k] = SIZE\n        me.total[k] = 1e16\n",
        RAW,
        1,
    ),
    "by a row": (PUBLISHED, "    row = me.total\n    return (row[arm],)\n", RAW, 0),
    "the length of the sum": (*shown("x = len(me.total)"), RAW, 0),
    "a loop over the sum": (*shown("for x in me.total:", "    me.last = x"), RAW, 0),
    "a chain of assignments": (*believing("me.spare[arm] = me.last = me.total[arm]"), RAW, 1),
    "an annotated assignment": (*believing("x: float = me.total[arm]", "me.last = x"), RAW, 1),
    "a loop's target": (*believing("for me.total[arm] in range(2):", "    me.last = 1.0"), RAW, 1),
    "through a helper": (
        PUBLISH + PUBLISHED,
        "def peek(it, arm):\n    return it.total[arm]\n\n\n"
        "def published(me, terms, arm):\n    return (me.x_mean[arm] + 1e-9 * peek(me, arm),)\n",
        "published, in peek, uses it.total",
        1,
    ),
    "through a helper's helper": (
        PUBLISH + PUBLISHED,
        "def look(it, arm):\n    return it.total[arm]\n\n\ndef peek(it, arm):\n    return look(arm=arm, it=it)\n\n\n"
        "def published(me, terms, arm):\n    return (me.x_mean[arm] + 1e-9 * peek(me, arm),)\n",
        "published, in look, uses it.total",
        1,
    ),
    "a sum that a restart forgets": ("total=Number[ARMS]", "total=Number[ARMS].transient", "not transient", None),
    "a count that a restart forgets": ("n=Count[ARMS]", "n=Count[ARMS].transient", "needs n=Count[ARMS]", None),
    "a sum of whole numbers": ("total=Number[ARMS]", "total=Count[ARMS]", "needs total=Number[ARMS]", None),
    "no sum": ("        total=Number[ARMS],\n", "", "needs total=Number[ARMS] in knows", None),
    # Counts of rewards, which name the noise.
    "counts are set back": (*after("if me.n[arm] == 100:", "    me.n[arm] = 0"), COUNTS, 2),
    "counts are changed elsewhere": (*believing("me.n[arm] = 0"), "believe may change me.n: " + COUNTS, 1),
    "counts are added to": (*believing("me.n[arm] += 1"), COUNTS, 1),
    "released is changed": (*believing("me.released[arm] = 0"), "may change me.released", 1),
    "counts by an alias": (*believing("row = me.n", "row[arm] = 0"), COUNTS, 1),
    "counts by a helper": (
        PUBLISH,
        "def clear(row, arm):\n    row[arm] = 0\n    return 0.0\n\n\n" + PUBLISH + "    x = clear(me.n, arm)\n",
        "published, in clear, may change row",
        1,
    ),
    "counts by a helper that returns them": (
        PUBLISH,
        "def same(row):\n    return row\n\n\n" + PUBLISH + "    row = same(me.n)\n    row[arm] = 0\n",
        "published, in same, may change row",
        1,
    ),
    "counts by a choice of rows": (
        *believing("row = me.n if terms.num_agents > 9 else me.k", "row[arm] = 0"),
        COUNTS,
        1,
    ),
    "counts by the larger row": (*believing("row = max(me.n, me.k)", "row[arm] = 0"), COUNTS, 1),
    "counts by a tuple": (*believing("rows = (me.n, me.k)", "rows[0][arm] = 0"), COUNTS, 1),
    "counts by a slice": (
        *believing("row = me.n[0:]", "row[arm] = 0"),
        "takes a slice",
        1,
    ),
    "counts by zip": (*believing("for row in zip(me.n, me.k):", "    me.last = row[0]"), COUNTS, 1),
    "counts by a formula that writes": (
        *believing("fill_with_normals(me.n, seen)"),
        "in fill_with_normals, may change row",
        None,
    ),
    # me under other names.
    "an alias of me": (PUBLISHED, "    known = me\n    return (known.x_mean[arm],)\n", WHOLE, 0),
    "a field by its number": (*shown("if me.n[arm] > 150:", "    return (me[2][arm],)"), WHOLE, 1),
    "a field by its number, in a helper": (
        PUBLISH + PUBLISHED,
        "def peek(it, arm):\n    return it[2][arm]\n\n\ndef published(me, terms, arm):\n"
        "    if me.n[arm] > 150:\n        return (peek(me, arm),)\n" + PUBLISHED,
        "published, in peek, uses it as a whole",
        1,
    ),
    "a field of what is seen": (
        DECIDED,
        "    if me.n[0] > 150:\n        return int(seen[2][0])\n" + DECIDED,
        "uses seen as a whole",
        1,
    ),
    "a sum that is seen": (DECIDED, "    return highest(seen.total)\n", "", None),
    "me is unpacked": (*shown("a, b, c, *d = me"), "", None),
    "me in a tuple": (*shown("pair = (me, 1.0)"), WHOLE, 0),
    "me is returned": (
        PUBLISH,
        "def same(it):\n    return it\n\n\n" + PUBLISH + "    known = same(me)\n",
        "published, in same, uses it as a whole",
        1,
    ),
    "a chosen me": (*shown("x = (me or terms).x_mean[arm]"), "read fields of me, terms and seen by their names", 0),
    "a field of a field": (*shown("x = me.x_mean.base"), "by their names", None),
    "the dict of me": (*shown("x = me.__dict__"), "", None),
    "getattr": (*shown("x = getattr(me, 'total')[arm]"), "", None),
    "vars": (*shown("x = vars(me)"), "", None),
    "locals": (*after("me.last = locals()[SIZE]"), "", None),
    "a frame": (*after("me.last = sys._getframe(0).f_locals[SIZE]"), "", None),
    "a pattern": (*shown("match me:", "    case float(total=row):", "        return (row[arm],)"), "", None),
    "a new axis": (*believing("row = me.x_mean[None]", "row[0, arm] = 0"), "uses None", None),
    "an empty tuple as an index": (*believing("row = me.n[()]", "row[arm] = 0"), "uses an empty tuple", 1),
    "an empty tuple of the module": (
        "SIZE = 10\n",
        "SIZE = 10\nALL = ()\n",
        "uses ALL: a page uses numbers",
        None,
        PUBLISH,
        PUBLISH + "    row = me.n[ALL]\n",
    ),
    "nothing as an index": (
        PUBLISH,
        "def nothing(x):\n    pass\n\n\n" + PUBLISH + "    row = me.n[nothing(1)]\n",
        "uses what nothing returns, which is nothing",
        5,
    ),
    "two stars": (
        PUBLISH,
        "def peek(it):\n    return it\n\n\n" + PUBLISH + "    x = peek(**me)\n",
        "after two stars",
        5,
    ),
    "a class that answers otherwise the second time": (
        PUBLISH,
        "class Sly(type):\n    @property\n    def peek(cls):\n        return estimate\n\n\n"
        "class Box(metaclass=Sly):\n    pass\n\n\n" + PUBLISH + "    x = Box.peek(me, terms, 0, arm)\n",
        "",
        None,
    ),
    "globals that answer otherwise the second time": (
        "PAGE = Page(",
        "class Sly(dict):\n    def __getitem__(self, name):\n        return dict.__getitem__(self, name)\n\n\n"
        "published = type(published)(published.__code__, Sly(globals()), 'published')\n\nPAGE = Page(",
        "no source that this check can read",
        None,
    ),
    "a function that says it is a formula": (
        PUBLISH,
        "def peek(x):\n    return sys._getframe(1).f_locals['me'].total[0]\n\n\n"
        "peek.__module__ = 'fedbandit.rules.mean'\n\n\n" + PUBLISH + "    x = peek(1.0)\n",
        "",
        None,
    ),
    "a page whose parts change": (
        "PAGE = Page(",
        "class Sly(Page):\n    @property\n    def published(self):\n        return published\n\n\nPAGE = Sly(",
        "page() must return a Page",
        None,
    ),
    "the terms are written by a helper": (
        "def start(me, terms):\n",
        "def widen(it):\n    it.low = -99.0\n\n\ndef start(me, terms):\n    if len(me.n) > 20:\n        widen(terms)\n",
        "start, in widen, writes it.low: only what me holds may change",
        1,
    ),
    "fields that answer for others": (
        "PAGE = Page(\n    knows=Fields(",
        "class Sly(Fields):\n    def get(self, name):\n        return dict.get(self, name)\n\n\n"
        "PAGE = Page(\n    knows=Sly(",
        "knows is a Sly",
        None,
    ),
    "a field that equals every other": (
        "PAGE = Page(",
        "class Sly(type(Number)):\n    def __eq__(self, other):\n        return True\n\n    __hash__ = None\n\n\n"
        "PAGE = Page(",
        "knows.n is",
        None,
        "n=Count[ARMS],",
        "n=Sly('count', (ARMS,), False),",
    ),
    # Calls that the check could take for others, and code that it cannot read.
    "a name that a class changes": (
        PUBLISH + PUBLISHED,
        "def __peek(it, k):\n    return 0.0\n\n\ndef _Box__peek(it, k):\n    return it.total[k]\n\n\n"
        "class Box:\n    def published(me, terms, arm):\n        return (__peek(me, arm),)\n\n\n"
        "published = Box.published\n",
        "published has no source that this check can read",
        None,
    ),
    "a reward under a name that a class changes": (
        OBSERVE,
        "__reward = 1.0\n\n\nclass Box:\n    def observe(me, terms, arm, __reward, noise):\n"
        "        x = private.collect(me, terms, arm, __reward, noise)\n        me.last = __reward\n\n\n" + OBSERVE,
        "observe has no source that this check can read",
        None,
        "observe=observe",
        "observe=Box.observe",
    ),
    "a function that says it is of the package": (  # and so is compiled without checks of its indices
        PUBLISH,
        "def peek(it, k):\n    return it.x_mean[k]\n\n\npeek.__module__ = 'fedbandit.policies.gse'\n\n\n"
        + PUBLISH
        + "    if me.n[arm] > 150:\n        return (peek(me, -40),)\n",
        "published, in peek, says that it is of fedbandit.policies.gse, and is not",
        None,
    ),
    "an argument before a slash": (
        *helper("def second(x, /, y):\n    return y", "me.last = second(0.0, 1.0)"),
        "in second, has arguments after a star or before a slash",
        None,
    ),
    "many arguments": (
        *helper("def first(*x):\n    return x[0]", "me.last = first(1.0)"),
        "in first, has arguments after a star",
        None,
    ),
    "a default": (
        *helper("def kept(x, memory=[0.0]):\n    return x", "me.last = kept(me.last)"),
        "has the default [0.0], which keeps state",
        None,
    ),
    "a default that is a function": (
        *helper("def kept(x, f=locals):\n    return f()", "me.last = kept(me.last)"),
        "has the default",
        None,
    ),
    "a function's attribute": (*after("start.kept = reward"), "uses start.kept, which keeps state between calls", 1),
    "a function that says it wraps another": (
        PUBLISH + PUBLISHED,
        "def peek(it, arm):\n    return it.total[arm]\n\n\ndef harmless(it, arm):\n    return 0.0\n\n\n"
        "peek.__wrapped__ = harmless\n\n\ndef published(me, terms, arm):\n    return (peek(me, arm),)\n",
        RAW,
        None,
    ),
    "a cache": (
        PUBLISH,
        "@lru_cache\ndef kept(x):\n    return x\n\n\n" + PUBLISH + "    x = kept(1.0)\n",
        "",
        None,
    ),
    "a closure of one's own len": (
        PUBLISH,
        "def made(len):\n    def peek(it):\n        return len(it)\n    return peek\n\n\n"
        "peek = made(lambda it: it.total[0])\npeek.__module__ = 'fedbandit.policies.gse'\n\n\n"
        + PUBLISH
        + "    x = peek(terms.share)\n",
        "closes over len",
        None,
    ),
    "a lambda": (*after("f = lambda: reward", "me.last = f()"), "", None),
    "a nested function": (*after("def f():", "    return reward", "me.last = f()"), "", None),
    "a comprehension": (*after("x = [reward for _ in range(1)]"), "", None),
    "a generator": (*after("x = sum(reward for _ in range(1))"), "", None),
    "a formatted text": (*after("x = f'{reward}'"), "", None),
    "a global": (*after("global SIZE", "SIZE = reward"), "", None),
    "an exception": (*after("try:", "    x = 1 / reward", "except ZeroDivisionError:", "    me.last = 1.0"), "", None),
    "an assertion": (*after("assert reward < 0.5"), "", None),
    "a list of the module": (*helper("BOX = [0.0]", "BOX[0] = reward"), "", None),
    "a function in a tuple": (*helper("BOX = (len,)", "me.last = BOX[0](reward)"), "", None),
    "a function as an argument": (
        *helper("def call(f, x):\n    return f(x)", "me.last = call(sqrt, 1.0)"),
        "uses sqrt: a page uses numbers",
        None,
    ),
    "a local function": (*after("f = sqrt", "me.last = f(1.0)"), "", None),
    "a tuple that looks at its caller": (
        *helper(
            "class Looks(tuple):\n    def __getitem__(self, k):\n        return sys._getframe(1).f_locals['reward']\n\n"
            "BOX = Looks((1.0, 2.0))",
            "me.last = BOX[0]",
        ),
        "uses BOX",
        None,
    ),
    "a number that looks at its caller": (
        *helper(
            "class Looks(float):\n    def __radd__(self, x):\n        return sys._getframe(1).f_locals['reward']\n\n\n"
            "BOX = Looks(1.0)",
            "me.last = 1 + BOX",
        ),
        "uses BOX",
        None,
    ),
    "a builtin that calls itself math": (
        "SIZE = 10\n",
        "SIZE = 10\nfetch = __import__('operator').attrgetter('total')\n",
        "",
        None,
        PUBLISH + PUBLISHED,
        PUBLISH + "    return (fetch(me)[arm],)\n",
    ),
    "other builtins when it was defined": (
        PUBLISH,
        "import builtins\n\n__builtins__ = {**vars(builtins), 'len': lambda it: it.total[0]}\n\n\n"
        "def peek(it):\n    return len(it)\n\n\n__builtins__ = builtins\n\n\n" + PUBLISH + "    x = peek(me)\n",
        "",
        None,
    ),
}
LEAKY_TREES = {
    "slots that a restart forgets": ("Number[ARMS, LEVELS]", "Number[ARMS, LEVELS].transient", "not transient"),
    "slots are published": (
        "    return (terms.share * me.x_mean[arm],)\n",
        "    return (me.x_mean[arm] - me.slots[arm][0],)\n",
        "published uses me.slots",
    ),
    "slots are cleared": (
        "    me.x_mean[arm] = noisy_sum / me.n[arm]\n",
        "    me.x_mean[arm] = noisy_sum / me.n[arm]\n    me.slots[arm][3] = 0.0\n",
        "observe uses me.slots",
    ),
    "noise as in batches": (
        "noise_due=private.tree_due",
        "noise_due=private.batch_due",
        "noise_due must be private.tree",
    ),
    "other intervals": (
        "interval=private.tree_interval",
        "interval=private.batch_interval",
        "interval must be private",
    ),
    "too few levels": (" * pulls.bit_length()", "", "spends 10 on 10 releases that hold it"),
    "too few levels for the horizon": ("setting.horizon + 1", "3", "spends 5 on 10 releases"),
    "no depth": ("    max_pulls: int\n", "    most: int\n", "the terms have no max_pulls"),
}
HONEST = {
    "as it is": ("", ""),
    "no sum is needed": (
        COLLECT + FULL,
        COLLECT.replace("noisy_sum", "released_sum") + FULL,
        "noisy_sum / size",
        "1.0",
    ),
    "a helper that takes a release": (
        OBSERVE + COLLECT + FULL + "        me.x_mean[arm] = noisy_sum / size\n",
        "def take(it, k, size, x):\n    it.x_mean[k] = x / size\n\n\n"
        + OBSERVE
        + COLLECT
        + FULL
        + "        take(me, arm, x=noisy_sum, size=size)\n",
    ),
    "an observe that calls another": (
        "def published(",
        "def also(me, terms, arm, x, y):\n    observe(me, terms, arm, x, y)\n    me.last += 1.0\n\n\ndef published(",
        "observe=observe",
        "observe=also",
    ),
    "the result as a pair": (COLLECT, COLLECT.replace("size, noisy_sum", "pair") + "    size, noisy_sum = pair\n"),
    "a loop over public numbers": after("me.last = 0.0", "for k in range(len(me.n)):", "    me.last += me.x_mean[k]"),
    "a branch by a release": (NEXT, "        me.batch_end[arm] += SIZE if me.x_mean[arm] > 0.5 else 2 * SIZE\n"),
    "a round robin by counts": (DECIDED, "    return fewest_pulls(me.n, me.n)\n"),
    "the largest count": (DECIDED, "    return 0 if max(me.n) > 2 * min(me.n) else highest(seen.theta)\n"),
    "a number of the terms that is called as the sum is": (
        PUBLISHED,
        "    return (terms.total * me.x_mean[arm],)\n",
        "    share: float\n",
        "    total: float\n",
    ),
    "sums of counts": (DECIDED, "    return sum(me.n) % len(me.n)\n"),
    "an alias of a public row": after("row = me.x_mean", "row[arm] += 0.0"),
    "every tenth": (NEXT, "        me.batch_end[arm] = (me.n[arm] // SIZE + 1) * SIZE\n"),
    "ends chosen elsewhere": (
        NEXT,
        "        me.last = 1.0\n",
        DECIDED,
        "    me.batch_end[0] = me.n[0] + 1\n" + DECIDED,
    ),
    "draws": (DECIDED, "    return int(uniform(draws) * len(me.n))\n"),
    "normal draws": (DECIDED, "    fill_with_normals(me.spare, draws)\n    return highest(me.spare)\n"),
    "a walrus": after("if (x := me.n[arm]) > 3:", "    me.last = x"),
    "an annotation": after("x: float = me.last", "me.last = x"),
    "math by its module": after("me.last = math.sqrt(me.n[arm]) + math.pi"),
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
    old, new, words, offset, *more = LEAKS[leak]
    text = BATCH
    if len(more) == 1:  # a further function
        text = text.replace("PAGE = Page(", f"{more[0]}\n\nPAGE = Page(")
    for before, instead in zip(more[::2], more[1::2], strict=False):
        text = text.replace(before, instead)
    if "believe" in new:
        text = text.replace("    radius=None,\n", "    radius=None,\n    believe=believe,\n")
    found, line = policy(text, old, new)
    with pytest.raises(WrongPage) as refused:
        admit(found, SETTING, SETTING._replace(degree=2))
    said = str(refused.value)
    assert words in said, said
    if offset is not None:
        assert f"line {line + offset})" in said, said


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
    assert not more or more[0] in BATCH
    admit(policy(BATCH.replace(*more) if more else BATCH, old, new)[0], SETTING)


def test_an_honest_tree_passes(policy):
    admit(policy(TREE, "", "")[0], SETTING)


@pytest.mark.parametrize(
    "made",
    [
        partial(FedBatch, 2.0),
        partial(FedBatch, 2.0, "ucb"),
        partial(FedBatch, 2.0, "ucb", radius="proved"),
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


def test_a_rule_with_other_code_is_refused(policy, monkeypatch):
    found, _ = policy(
        BATCH, OBSERVE, "def collect(me, terms, arm, reward, noise):\n    return 1, reward\n\n\n" + OBSERVE
    )
    own = sys.modules[type(found).__module__].collect
    monkeypatch.setattr(private.collect, "__code__", own.__code__)
    with pytest.raises(WrongPage, match="has other code than that of fedbandit"):
        admit(found, SETTING)


def test_a_page_is_read_again_if_only_its_fields_differ(policy):
    page = (
        "FedBatch(self.epsilon).page()._replace(knows=Fields(**{name: field.transient if self.forgets and name == 'n'"
    )
    text = BATCH.replace(
        "        return PAGE", f"        return {page} else field for name, field in KNOWN.items()}}))"
    )
    text = text.replace("        scale =", "        return FedBatch(self.epsilon).terms(setting)\n        scale =")
    text = text.replace("    epsilon: float = 1.0\n", "    epsilon: float = 1.0\n    forgets: bool = False\n")
    known = "KNOWN = {name: field for name, field in FedBatch(1.0).page().knows.items() if name != 'tried'}"
    found, _ = policy(text, "SIZE = 10\n", f"SIZE = 10\nfrom fedbandit import FedBatch\n{known}\n")
    admit(found, SETTING)
    with pytest.raises(WrongPage, match="needs n=Count"):
        admit(type(found)(1.0, True), SETTING)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            PUBLISHED,
            "    if me.n[arm] > 150:\n        return (prefix_noise(me.x_mean, 1 << 20),)\n",
            "reads me.x_mean[20]",
        ),
        (DECIDED, "    if me.n[0] > 150:\n        return fewest_pulls(me.n, me.short)\n", "reads me.short[1]"),
    ],
)
def test_formulas_that_are_handed_a_wrong_index_stop_in_compiled_code(policy, old, new, words):
    """Beyond a row lie the raw sums, and formulas of the package count on valid indices."""
    text = BATCH.replace("import clamp\n", "import clamp, prefix_noise\n").replace(
        "    last=", "    short=Count[1],\n    last="
    )
    found, _ = policy(text, old, new + old)
    admit(found, SETTING)
    with pytest.raises(WrongPage, match=re.escape(words)):
        simulate(PROBLEM, found, horizon=3000, trials=1)
