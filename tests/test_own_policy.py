"""A policy from outside the package runs everywhere, never stale; a wrong one is refused in words.

Can it fail? Bugs that were planted, and what noticed:

| bug | noticed by |
|---|---|
| the driver's closure has the hash of our sources only | the edited file, which plays its old constant from the cache |
| no guard in compiled code | the arm beyond the rows, which is played |
"""

import importlib
import itertools
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from fedbandit import FedBatch, InvalidArgument, Problem, Tape, replay, simulate
from fedbandit.engine.layout import setting_of
from fedbandit.experiments.experiment import ExperimentError, read_experiment, read_sweep
from fedbandit.experiments.sweep import run_all
from fedbandit.policies.registry import WrongPage, kind_of, label_of, source_hash
from fedbandit.testing.admission import admit
from fedbandit.world import graph

PROBLEM = Problem.random(3, 3, graph.path(3), 0)
SETTING = setting_of(PROBLEM, 100)

GREEDY = '''
"""Gossiped epsilon-greedy."""

from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

from fedbandit.policies.protocol import ARMS, Count, Fields, Number, Page, uniform
from fedbandit.rules.choose import highest

BONUS = 0.0


class Terms(NamedTuple):
    share: float
    explore: float


def bonus(n):
    return BONUS / sqrt(n)


def decide(me, terms, seen, now, draws):
    u = uniform(draws)
    if u < terms.explore:
        return int(u / terms.explore * len(me.n))
    for k in range(len(me.n)):
        me.belief[k] = seen.theta[k] + bonus(me.n[k])
    return highest(me.belief)


def observe(me, terms, arm, reward, noise):
    me.n[arm] += 1
    me.x_mean[arm] += (reward - me.x_mean[arm]) / me.n[arm]


def published(me, terms, arm):
    return (terms.share * me.x_mean[arm],)


def estimate(me, terms, seen, arm):
    return seen.theta[arm]


def radius(me, terms, seen, now, arm):
    return sqrt(now.log_t / me.n[arm])


PAGE = Page(
    knows=Fields(n=Count[ARMS], x_mean=Number[ARMS], belief=Number[ARMS].transient),
    averaged=("theta",),
    network="gossip",
    decide=decide,
    observe=observe,
    published=published,
    estimate=estimate,
    radius=radius,
)


@dataclass(frozen=True)
class Greedy:
    explore: float = 0.1

    def page(self):
        return PAGE

    def terms(self, setting):
        return Terms(setting.share, self.explore)
'''


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Write a module, import it, and forget it afterwards."""
    names, times = [], itertools.count(10**18, 10**10)

    def write(name, text):
        monkeypatch.syspath_prepend(str(tmp_path))
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        os.utime(path, ns=(1, next(times)))  # never taken from the bytecode of another version
        names.append(name)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    yield write
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def greedy(tmp_path_factory):
    """One own policy for all tests here: compiled once."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "greedy_module.py").write_text(GREEDY)
    sys.path.insert(0, str(folder))
    yield importlib.import_module("greedy_module")
    sys.path.remove(str(folder))


# ---------------------------------------------------------------- it runs


def test_it_runs_in_simulate_and_replay(greedy):
    few, many = greedy.Greedy(0.05), greedy.Greedy(0.9)
    assert label_of(few) == "Greedy(explore=0.05)"
    assert kind_of(few) == "greedy_module:Greedy"
    result = simulate(PROBLEM, [few, many], 3000, 4, threads=1)
    regret = result.summary()["regret"]
    assert regret[label_of(few)] < 0.5 * regret[label_of(many)]
    described = result.experiment["policies"][label_of(few)]
    assert described == {"kind": "greedy_module:Greedy", "source": source_hash(few), "explore": 0.05}
    assert result.dataset.equals(simulate(PROBLEM, [few, many], 3000, 4, threads=3).dataset)
    trace = replay(Tape.random(graph.path(3), 3, 50), few)
    assert set(np.unique(trace.arms)) <= {0, 1, 2}


@pytest.mark.slow
def test_it_runs_in_experiment_files_and_sweeps(tmp_path):
    (tmp_path / "swept_greedy.py").write_text(GREEDY)
    file = tmp_path / "experiment.toml"
    file.write_text(
        'graph = "path"\nnum_agents = 3\nhorizon = 300\ntrials = 2\n[problem]\nnum_arms = 3\n'
        '[[policies]]\nkind = "swept_greedy:Greedy"\nexplore = [0.1, 0.2]\n'
    )
    try:
        experiments = read_sweep(file)
        assert list(experiments[0].policies) == ["Greedy(explore=0.1)", "Greedy(explore=0.2)"]
        results = run_all(experiments, tmp_path / "out")
        assert [r.experiment["policies"]["Greedy(explore=0.1)"]["kind"] for r in results] == ["swept_greedy:Greedy"]
        kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.nc")}
        again = run_all(read_sweep(file), tmp_path / "out")
        assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.nc")} == kept
        assert all(a.dataset.equals(b.dataset) for a, b in zip(results, again, strict=True))
        (tmp_path / "swept_greedy.py").write_text(GREEDY + "\n# edited\n")
        with pytest.raises(ExperimentError, match="has not changed since it was loaded"):
            read_sweep(file)
    finally:
        sys.modules.pop("swept_greedy", None)
        if str(tmp_path) in sys.path:
            sys.path.remove(str(tmp_path))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("nowhere_at_all:Greedy", "in a module that lies beside the file"),
        ("greedy_module:Greed", "greedy_module has no Greed. Did you mean 'Greedy'"),
        ("greedy_module:Terms", "a frozen dataclass"),
        ("fedbandit.policies:FedBatch", "'fed_batch', the name of the built-in policy"),
        ("../x:Y", "module:Class, such as"),
        ("json.nothing:X", "in a module that lies"),
    ],
)
def test_a_file_that_names_no_policy(greedy, tmp_path, kind, words):
    file = tmp_path / "experiment.toml"
    file.write_text(f'graph = "path:2"\nhorizon = 10\n[problem]\nnum_arms = 2\n[[policies]]\nkind = "{kind}"\n')
    with pytest.raises(ExperimentError, match=words):
        read_experiment(file)


def test_parameters_are_those_of_the_dataclass(greedy, tmp_path):
    file = tmp_path / "experiment.toml"
    file.write_text(
        'graph = "path:2"\nhorizon = 10\n[problem]\nnum_arms = 2\n'
        '[[policies]]\nkind = "greedy_module:Greedy"\nexplor = 0.1\n'
    )
    with pytest.raises(ExperimentError, match=r"one of kind, label, explore, not 'explor'.* Did you mean 'explore'"):
        read_experiment(file)


def test_two_modules_of_one_name_are_refused(greedy, tmp_path):
    (tmp_path / "greedy_module.py").write_text(GREEDY)
    file = tmp_path / "experiment.toml"
    file.write_text(
        'graph = "path:2"\nhorizon = 10\n[problem]\nnum_arms = 2\n[[policies]]\nkind = "greedy_module:Greedy"\n'
    )
    try:
        with pytest.raises(ExperimentError, match="Another module of that name is loaded already"):
            read_experiment(file)
    finally:
        sys.path.remove(str(tmp_path))


def test_composition_with_a_built_in_policy(written):
    module = written(
        "composed_module",
        textwrap.dedent("""
            from dataclasses import dataclass
            from fedbandit import FedBatch

            @dataclass(frozen=True)
            class Wary:
                epsilon: float = 1.0

                def page(self):
                    return FedBatch(self.epsilon).page()

                def terms(self, setting):
                    return FedBatch(self.epsilon, first_batch=3).terms(setting)
        """),
    )
    tape = Tape.random(graph.path(3), 3, 60, reward_range=(0.0, 1.0))
    assert np.array_equal(replay(tape, module.Wary()).arms, replay(tape, FedBatch(1.0, first_batch=3)).arms)


# ---------------------------------------------------------------- never stale

RUN = """
import sys; sys.path.insert(0, sys.argv[1])
from fedbandit import Problem, graph, simulate
from edited_greedy import Greedy
print(simulate(Problem.random(3, 3, graph.path(3), 0), Greedy(), 500, 2, threads=1).summary()["regret"].iloc[0])
"""


@pytest.mark.slow
def test_an_edited_file_never_runs_stale(tmp_path):
    """A constant, a helper in another file, and back: compiled code of an earlier version is not reused."""

    def run(text, helper):
        (tmp_path / "edited_greedy.py").write_text(text)
        (tmp_path / "greedy_helper.py").write_text(helper)
        ran = subprocess.run(
            [sys.executable, "-c", RUN, str(tmp_path)],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        )
        return float(ran.stdout)

    split = GREEDY.replace("def bonus(n):\n    return BONUS / sqrt(n)\n", "").replace(
        "from fedbandit.rules.choose", "from greedy_helper import bonus\nfrom fedbandit.rules.choose"
    )
    helper = "from math import sqrt\nBONUS = 0.0\ndef bonus(n):\n    return BONUS / sqrt(n)\n"
    first = run(split, helper)
    assert run(split, helper.replace("BONUS = 0.0", "BONUS = 5.0")) != first
    assert run(split, helper) == first


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("BONUS = 0.0", "BONUS = 0"),
        ("BONUS / sqrt(n)", "BONUS * sqrt(n)"),
        ("seen.theta[k] + bonus", "seen.theta[k] - bonus"),
        ("belief=Number[ARMS].transient", "belief=Number[ARMS]"),
        ('"gossip"', '"consensus"'),
    ],
)
def test_the_digest_changes_with_whatever_is_compiled(written, old, new):
    def digest(text):
        sys.modules.pop("digest_one", None)
        return admit(written("digest_one", text).Greedy(), SETTING).digest

    plain = digest(GREEDY)
    assert digest("# moved down\n" + GREEDY) == plain
    assert digest(change(old, new)) != plain


def test_a_constant_that_changes_while_it_runs_is_refused(written):
    module = written("shifting_greedy", GREEDY)
    simulate(PROBLEM, module.Greedy(), 10, 1)
    module.BONUS = 5.0
    with pytest.raises(WrongPage, match="has changed since it was compiled"):
        simulate(PROBLEM, module.Greedy(), 10, 1)


def test_the_source_hash_covers_helpers_of_terms(written):
    def hashed(helper):
        written("hash_helper", helper)
        weighs = change("BONUS = 0.0", "from hash_helper import weigh\nBONUS = 0.0")
        module = written("hashed_greedy", weighs.replace("setting.share,", "weigh(setting.share),"))
        found = source_hash(module.Greedy())
        for name in ("hashed_greedy", "hash_helper"):
            del sys.modules[name]
        return found

    assert hashed("def weigh(x):\n    return x\n") != hashed("def weigh(x):\n    return 2.0 * x\n")


# ---------------------------------------------------------------- wrong pages, in words


def change(old, new):
    assert old in GREEDY, old
    return GREEDY.replace(old, new)


BODY = "    me.n[arm] += 1\n"
WRONG = {
    "typo in a field": (
        change("me.x_mean[arm] += (", "me.x_maen[arm] += ("),
        r"observe reads me\.x_maen; the page knows tried, n, x_mean, belief\. Did you mean 'x_mean'\?",
    ),
    "typo in the terms": (
        change("terms.share * me", "terms.shar * me"),
        r"published reads terms\.shar; the terms are share, explore\. Did you mean 'share'",
    ),
    "typo in radius": (change("now.log_t", "now.logt"), r"radius reads now\.logt; now has log_t"),
    "seen, not me": (change("seen.theta[k] +", "me.theta[k] +"), r"decide reads me\.theta, which is seen\.theta"),
    "typo in a function": (
        change("return highest(", "return highst("),
        r"decide uses highst, which its module does not define\. Did you mean 'highest'",
    ),
    "a list appended": (
        change(BODY, BODY + "    me.belief.append(1.0)\n"),
        r"observe uses me\.belief\.append: a row has a fixed length",
    ),
    "a list made": (change(BODY, BODY + "    kept = [reward]\n"), r"observe makes a list: declare a row in KNOWS"),
    "a comprehension": (
        change("return highest(me.belief)", "return highest([x for x in me.belief])"),
        r"decide (makes a list|defines a function \(or a comprehension\))",
    ),
    "a dict made": (change(BODY, BODY + "    kept = {1: reward}\n"), r"observe makes a dict"),
    "a float index": (
        change("me.n[arm] += 1", "me.n[arm / 1] += 1"),
        r"observe reads me\.n\[0\.0\]: an index is a whole number",
    ),
    "beyond the rows": (
        change(BODY, BODY + "    me.n[arm + 1] += 1\n"),
        r"observe reads me\.n\[3\], beyond its row: indices go from 0 to 2",
    ),
    "a negative index": (change("me.n[arm] += 1", "me.n[arm - 1] += 1"), r"observe reads me\.n\[-1\], beyond its row"),
    "a slice": (
        change(BODY, BODY + "    me.belief[0:1] = 0.0\n"),
        r"observe takes a slice: write a loop over entries",
    ),
    "a row overwritten": (change(BODY, BODY + "    me.belief = 0.0\n"), r"observe writes me\.belief, which is a row"),
    "global state": (change(BODY, "    global BONUS\n    BONUS = 1.0\n" + BODY), r"observe changes a global variable"),
    "a list of the module": (
        change(BODY, BODY + "    HISTORY[0] = reward\n").replace("BONUS = 0.0", "BONUS = 0.0\nHISTORY = [0.0]"),
        r"observe uses HISTORY, a list of its module, which can change",
    ),
    "a dict of the module": (
        change(BODY, BODY + "    HISTORY[0] = reward\n").replace("BONUS = 0.0", "BONUS = 0.0\nHISTORY = {}"),
        r"observe uses HISTORY, a dict",
    ),
    "its own randomness": (
        change("u = uniform(draws)", "u = random.random()").replace("from math", "import random\nfrom math"),
        r"decide uses random\.random: a page has no randomness of its own: use uniform\(draws\)",
    ),
    "numpy's randomness": (
        change("u = uniform(draws)", "u = np.random.random()").replace("from math", "import numpy as np\nfrom math"),
        r"decide uses np\.random\.random: a page has no randomness of its own",
    ),
    "numpy": (
        change("return highest(me.belief)", "return np.argmax(me.belief)").replace(
            "from math", "import numpy as np\nfrom math"
        ),
        r"decide uses np\.argmax: a page uses plain numbers and math",
    ),
    "a clock": (
        change("u = uniform(draws)", "u = time.time() % 1.0").replace("from math", "import time\nfrom math"),
        r"decide uses time\.time: a page has no clock",
    ),
    "a print": (change(BODY, BODY + "    print(reward)\n"), r"observe uses print: a page has no input or output"),
    "an import": (change(BODY, "    import math\n" + BODY), r"observe has an import: import at the top"),
    "a try": (
        change(BODY, "    try:\n        me.n[arm] += 1\n    except IndexError:\n        pass\n"),
        r"observe has a try statement",
    ),
    "a with": (
        change(BODY, "    with draw:\n        me.n[arm] += 1\n").replace("BONUS = 0.0", "BONUS = 0.0\ndraw = 1"),
        r"observe has a with statement",
    ),
    "a raise": (change(BODY, BODY + "    if reward > 9.0:\n        raise ValueError\n"), r"observe raises an error"),
    "a text": (change(BODY, BODY + "    mode = 'fast'\n"), r"observe uses the text 'fast'"),
    "a formatted text": (change(BODY, BODY + "    mode = f'{reward}'\n"), r"observe formats a text"),
    "too many published": (
        change("return (terms.share * me.x_mean[arm],)", "return terms.share * me.x_mean[arm], 1.0"),
        r"published returns .* for arm 0, not a tuple of 1, one number for each of theta",
    ),
    "no tuple published": (
        change("return (terms.share * me.x_mean[arm],)", "return terms.share * me.x_mean[arm]"),
        r"published returns [\d.]+ for arm 0, not a tuple of 1",
    ),
    "no such arm": (
        change("return highest(me.belief)", "return len(me.n)"),
        r"decide returns 3, not an arm: a whole number from 0 to 2",
    ),
    "returns nothing": (change("return highest(me.belief)", "highest(me.belief)"), r"decide returns None, not an arm"),
    "a float arm": (
        change("return int(u / terms.explore * len(me.n))", "return u / terms.explore * len(me.n)"),
        r"decide returns [\d.]+, not an arm",
    ),
    "writes to the terms": (
        change(BODY, BODY + "    terms.explore = 0.0\n"),
        r"observe writes terms\.explore: only what me holds may change",
    ),
    "writes to seen": (
        change("    u = uniform(draws)", "    seen.theta[0] = 0.0\n    u = uniform(draws)"),
        r"decide writes seen\.theta\[0\]: only what me holds",
    ),
    "reads a neighbour": (
        change("seen.theta[k] +", "seen[1].theta[k] +"),
        r"decide reads seen\[1\]: a function sees one agent, never a neighbour",
    ),
    "computes with now": (
        change("now.log_t", "now"),
        r"radius computes with now, which is no number: it has now\.log_t, now\.root_log_t \(line \d+\)",
    ),
    "adds to now": (
        change("seen.theta[k] +", "now + seen.theta[k] +"),
        r"decide computes with now, which is no number: it has now\.log_t",
    ),
    "hands now to math": (
        change("sqrt(now.log_t / me.n[arm])", "sqrt(now)"),
        r"radius computes with now, which is no number",
    ),
    "computes with a row": (
        change("terms.share * me.x_mean[arm]", "terms.share * me.x_mean"),
        r"published computes with the whole row me\.x_mean: name an entry, such as me\.x_mean\[arm\]",
    ),
    "reads the draws": (change("u = uniform(draws)", "u = draws.u"), r"decide reads draws\.u: write uniform\(draws\)"),
    "a mutable default": (
        change("def bonus(n):", "def bonus(n, kept=[0.0]):"),
        r"decide, in bonus, has the default \[0\.0\], which keeps state",
    ),
    "a closure": (
        change(
            "PAGE = Page(",
            "def made(c):\n    def observe(me, terms, arm, reward, noise):\n        me.n[arm] += c\n"
            "    return observe\n\nPAGE = Page(",
        ).replace("observe=observe", "observe=made(1)"),
        r"observe closes over c: put numbers into the terms",
    ),
    "another page each time": (
        change("        return PAGE", "        return PAGE._replace(estimate=lambda me, terms, seen, arm: 0.0)"),
        r"page\(\) returns another page each time",
    ),
    "other terms each time": (
        change("Terms(setting.share, self.explore)", "Terms(setting.share, random.random())").replace(
            "from math", "import random\nfrom math"
        ),
        r"terms\(setting\) returns other numbers each time",
    ),
    "a dict for KNOWS": (
        change(
            "knows=Fields(n=Count[ARMS], x_mean=Number[ARMS], belief=Number[ARMS].transient)",
            "knows={'n': Count[ARMS]}",
        ),
        r"knows is a dict: write Fields",
    ),
    "a bool in the terms": (
        change("Terms(setting.share, self.explore)", "Terms(setting.share, True)"),
        r"terms\.explore must be an int or a float, not the bool True: write int",
    ),
    "terms are a dict": (
        change("Terms(setting.share, self.explore)", "{'share': 1.0}"),
        r"terms\(setting\) must return a NamedTuple of numbers",
    ),
    "NaN in the terms": (
        change("Terms(setting.share, self.explore)", "Terms(setting.share, float('nan'))"),
        r"terms\.explore is NaN",
    ),
    "an unknown network": (
        change('"gossip"', '"gosip"'),
        r"network must be one of gossip, .*, not 'gosip'\. Did you mean 'gossip'",
    ),
    "too few arguments": (
        change("def decide(me, terms, seen, now, draws)", "def decide(me, terms, seen, draws)"),
        r"decide\(me, terms, seen, draws\) must take 5 arguments without defaults: decide\(me, terms, seen, now, dr",
    ),
    "a name twice": (change('averaged=("theta",)', 'averaged=("x_mean",)'), r"averaged and knows both name x_mean"),
    "recursion": (
        change("    return BONUS / sqrt(n)", "    return bonus(n - 1) if n > 1 else BONUS"),
        r"decide: bonus calls itself: write a loop",
    ),
    "a fraction in a Count": (
        change("me.n[arm] += 1", "me.n[arm] += 0.5"),
        r"observe writes 0\.5 to me\.n\[0\], which is a Count of whole numbers",
    ),
    "NaN": (
        change("me.x_mean[arm] += (reward - me.x_mean[arm]) / me.n[arm]", "me.x_mean[arm] = inf - inf").replace(
            "import sqrt", "import inf, sqrt"
        ),
        r"observe writes NaN to me\.x_mean\[0\]",
    ),
    "no number": (
        change("me.x_mean[arm] += (reward - me.x_mean[arm]) / me.n[arm]", "me.x_mean[arm] = None"),
        r"observe writes None to me\.x_mean\[0\], which is a Number",
    ),
    "a division by zero": (
        change(
            "me.x_mean[arm] += (reward - me.x_mean[arm]) / me.n[arm]",
            "me.x_mean[arm] = reward / (me.n[arm] - me.n[arm])",
        ),
        r"observe divides by zero \(line \d+\)",
    ),
    "noise without a scale": (
        change("    radius=radius,\n", "    radius=radius,\n    noise_due=estimate_due,\n").replace(
            "PAGE = Page(", "def estimate_due(me, terms, arm):\n    return me.n[arm] + 1\n\n\nPAGE = Page("
        ),
        r"noise_due asks for noise, but the terms have no noise_scale",
    ),
    "a missing function": (
        change("estimate=estimate", "estimate=None"),
        r"estimate is missing: it must be a plain function estimate\(me, terms, seen, arm\)",
    ),
    "a generator": (change("    return seen.theta[arm]", "    yield seen.theta[arm]"), r"estimate is a generator"),
    "n_max redeclared": (
        change("Fields(n=Count[ARMS],", "Fields(n_max=Count[ARMS], n=Count[ARMS],"),
        r"Fields\.n_max must be left out",
    ),
    "tried redeclared": (
        change("Fields(n=Count[ARMS],", "Fields(tried=Count[ARMS], n=Count[ARMS],"),
        r"Fields\.tried must be left out",
    ),
    "a field that is none": (
        change("Fields(n=Count[ARMS],", "Fields(h={}, n=Count[ARMS],"),
        r"Fields\.h must be a Count, Number or Flag",
    ),
    "not frozen": (change("@dataclass(frozen=True)", "@dataclass"), r"must be a frozen dataclass"),
    "no dataclass": (
        change("@dataclass(frozen=True)\n", "").replace("    explore: float = 0.1\n", "    explore = 0.1\n"),
        r"must be a frozen dataclass",
    ),
    "not hashable": (
        change(
            "explore: float = 0.1",
            "explore: float = 0.1\n    kept: list = None\n"
            "    def __post_init__(self):\n        object.__setattr__(self, 'kept', [])",
        ),
        r"hashable: its parameters are numbers and texts",
    ),
    "a branch that no dry run takes": (
        change(
            "    u = uniform(draws)", "    if now.log_t > 100.0:\n        return me.totl[0]\n    u = uniform(draws)"
        ),
        r"decide reads me\.totl; the page knows",
    ),
    "fails by itself": (
        change("    return BONUS / sqrt(n)", "    return BONUS / sqrt(-1.0 - n)"),
        r"decide fails with ValueError: math domain error \(line \d+\)",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_page_is_refused_in_words(written, case):
    text, words = WRONG[case]
    name = f"wrong_{list(WRONG).index(case)}"
    with pytest.raises(InvalidArgument, match=words) as refused:
        admit(written(name, text).Greedy(), SETTING)
    assert "numba" not in str(refused.value).lower()


def test_the_right_page_is_not_refused(written):
    admit(written("right_page", GREEDY).Greedy(), SETTING)


# ---------------------------------------------------------------- what only compiled code finds


def test_what_the_compiler_refuses_is_said_in_words(written):
    """A variable has one type in compiled code."""
    two_types = "    pair = (1.0,)\n    if reward > 0.0:\n        pair = (1.0, 2.0)\n    me.n[arm] += len(pair)\n"
    module = written("uncompiled", change(BODY, two_types))
    with pytest.raises(WrongPage, match=r"uncompiled:Greedy: observe cannot be compiled: Cannot unify.*pair") as said:
        simulate(PROBLEM, module.Greedy(), 10, 1)
    assert len(str(said.value)) < 300


def test_an_arm_beyond_the_rows_stops_the_run(written):
    """Only from round 200 on, where no dry run has been; and no function of the page stumbles over that arm."""
    late = change("    u = uniform(draws)", "    if now.log_t > 5.3:\n        return 7\n    u = uniform(draws)")
    late = late.replace("    me.n[arm] += 1\n", "    if arm > 2:\n        return\n    me.n[arm] += 1\n")
    late = late.replace("    return (terms", "    if arm > 2:\n        return (0.0,)\n    return (terms")
    module = written("beyond_rows", late)
    with pytest.raises(WrongPage, match=r"decide returns 7, not an arm from 0 to 2 \(round 201, agent 0\)"):
        simulate(PROBLEM, module.Greedy(), 1000, 2)


LATE = {
    "an index beyond a row": (
        "        me.belief[me.n[arm]] = 1.0\n",
        r"observe writes me\.belief\[\d+\], beyond its row: indices go from 0 to 2",
    ),
    "an index far beyond": (
        "        me.belief[1000000] = 1.0\n",
        r"observe writes me\.belief\[1000000\], beyond its row: indices go from 0 to 2",
    ),
    "a division by zero": ("        me.belief[0] = 1.0 / (me.n[arm] - me.n[arm])\n", "observe divides by zero"),
    "an infinite mean": ("        me.x_mean[arm] = reward * 1e308 * 1e308\n", "theta of arm . infinite or NaN|inf"),
}


@pytest.mark.parametrize(
    "case", [it if it == "an index beyond a row" else pytest.param(it, marks=pytest.mark.slow) for it in LATE]
)
def test_what_goes_wrong_late_stops_the_run(written, case):
    """After 100 rewards of an arm, where no dry run has been: no memory is overwritten, nothing runs on."""
    body, words = LATE[case]
    late = change("    me.n[arm] += 1\n", f"    me.n[arm] += 1\n    if me.n[arm] > 100:\n{body}")
    module = written(f"late_{list(LATE).index(case)}", late)
    with pytest.raises(WrongPage, match=words):
        simulate(PROBLEM, module.Greedy(), 1000, 2)


def test_an_arm_is_a_whole_number_in_every_branch(written):
    late = change("    u = uniform(draws)", "    if now.log_t > 5.3:\n        return 1.7\n    u = uniform(draws)")
    with pytest.raises(WrongPage, match=r"decide must return a whole number, the arm: it returns a float64"):
        simulate(PROBLEM, written("half_arm", late).Greedy(), 10, 1)


def test_the_digest_follows_modules_of_modules(tmp_path, monkeypatch):
    package = tmp_path / "deep_constants"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "inner.py").write_text("EXPLORE = 0.9\n")
    text = change("    u = uniform(draws)", "    u = uniform(draws) * deep_constants.inner.EXPLORE")
    (tmp_path / "deep_page.py").write_text(
        text.replace("from math import sqrt", "from math import sqrt\nimport deep_constants.inner")
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    policy = importlib.import_module("deep_page").Greedy()
    before = admit(policy, SETTING).digest
    monkeypatch.setattr("deep_constants.inner.EXPLORE", 0.1)
    assert admit(policy, SETTING).digest != before


def test_a_claim_needs_noise_and_a_range(written):
    claimed = change("    explore: float = 0.1\n", "    explore: float = 0.1\n    epsilon: float = 1.0\n")
    with pytest.raises(WrongPage, match=r"claims epsilon=1 and asks for no noise.* give it another name"):
        simulate(PROBLEM, written("claims", claimed).Greedy(), 10, 1)


def test_a_repeated_call_costs_next_to_nothing(greedy, monkeypatch):
    admit(greedy.Greedy(), SETTING)
    monkeypatch.setattr("fedbandit.testing.admission.dry_run", None)
    admit(greedy.Greedy(), SETTING)


def test_a_policy_is_an_instance():
    with pytest.raises(InvalidArgument, match=r"FedBatch is a class: write FedBatch\(\.\.\.\)"):
        simulate(PROBLEM, FedBatch, 10, 1)
