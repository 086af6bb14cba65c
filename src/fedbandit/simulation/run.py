"""``simulate``: checks a call, runs the engine, and returns a ``Result``."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from math import inf
from types import FunctionType
from typing import Any, Literal, NamedTuple, cast, get_args

import numpy as np
from numpy.typing import NDArray

from fedbandit.checks import InvalidArgument, instance, true_or_false, whole_number
from fedbandit.engine import cpu
from fedbandit.engine.accounting import STATISTICS, Keep, Truth, checked_keep
from fedbandit.engine.compiled import guarded
from fedbandit.engine.late_rewards import LATE_NETWORKS, rounds_of_waiting
from fedbandit.engine.layout import check_size, length_of_record, links_of, settings_of, shares_of, terms_of, world_of
from fedbandit.engine.phases import specialise
from fedbandit.extras import missing
from fedbandit.policies import MAX_HORIZON, Policy
from fedbandit.policies.protocol import Page, Setting, page_on
from fedbandit.policies.registry import WrongPage, check_kind, digest_of, is_built_in, kind_of, label_of
from fedbandit.shares import Shares
from fedbandit.simulation.own_functions import functions_in_words, in_words, refuse_changed_code, try_functions
from fedbandit.simulation.result import Result, result_of
from fedbandit.testing.admission import Admitted, admit, claimed_epsilon
from fedbandit.world.graph import Contacts
from fedbandit.world.problem import Problem

Engine = Literal["auto", "cpu", "cuda", "ray"]

MAX_TRIALS = 10**6
MANY_AGENTS = 20
"""With more of them, one edge per round mixes too slowly for most purposes."""

MAX_RESULT_BYTES = 4 * 2**30

Problems = Problem | Sequence[Problem]
Policies = Policy | Sequence[Policy] | Mapping[str, Policy]
OnProgress = Callable[[int, int], None]


def simulate(
    problem: Problems,
    policies: Policies,
    horizon: int,
    trials: int | range,
    seed: int = 0,
    checkpoints: int | Sequence[int] = 200,
    engine: Engine = "cpu",
    progress: bool | OnProgress = False,
    threads: int | None = None,
    watch_radii: bool = False,
    shares: Shares | None = None,
    keep: Keep = "agents",
) -> Result:
    """Run policies on a problem and record their numbers at the checkpoints.

    The same seed gives bit-identical results, for any number of threads and however the trials
    are split over calls. All policies see the same rewards for the same (trial, agent, arm, pull
    number), the same gossip edges and the same noise draws.

    * ``problem``: one; or several of the same kind: trial number r plays ``problem[r]``.
    * ``policies``: one, several, or a mapping from your own labels.
    * ``horizon``: T, rounds after the initial pull of every arm.
    * ``trials``: their number, or a ``range`` of trial numbers to run a part of a larger experiment, say on another
      machine; ``Result.concat`` joins the parts.
    * ``checkpoints``: the number of times to record, spread evenly over both the linear and the logarithmic
      axis; or the times themselves.
    * ``engine``: "cuda" plays on an NVIDIA GPU, "auto" does if there is one. The last bits of logarithms may differ
      there, and then so may a choice (docs/scale.md). Releases (``Problem.gossip``) spread on a CPU only. "ray" plays
      trials as tasks of the Ray cluster that ``ray.init`` or ``RAY_ADDRESS`` names, else of one that starts on this
      machine. The result is that of "cpu".
    * ``progress``: True for a progress bar, or lines where there is no terminal; or a function of (agent-pulls done,
      total): trials times agents times rounds of all policies. An error that it raises stops the run.
    * ``threads``: default: all cores.
    * ``watch_radii``: also count how often the error of an estimate exceeds its radius (``misses``).
    * ``shares``: a control arm, and the least share of every other arm, for all policies (docs/shares.md).
    * ``keep``: with ``"aggregates"`` the result has mean, least, largest and standard deviation over agents instead of
      an entry for each (docs/scale.md).
    """
    call = check_call(problem, policies, horizon, trials, seed, checkpoints, watch_radii, shares, keep)
    chosen = _engine_for(engine, call.problems[0])
    if chosen == "ray":
        if threads is not None:
            raise InvalidArgument("threads", threads, "left out for engine 'ray': each task has one core")
        from fedbandit.simulation.cluster import simulate_on_cluster

        given: dict[str, Any] = {"problem": problem, "policies": call.policies, "horizon": call.horizon}
        given |= {"seed": call.seed, "checkpoints": checkpoints, "watch_radii": watch_radii}
        given |= {"shares": shares, "keep": keep}
        with _display(progress) as show:
            return simulate_on_cluster(given, call.trials, show)
    if chosen == "cuda" and threads is not None:
        raise InvalidArgument("threads", threads, "left out for a GPU")
    workers = cpu.usable_cores() if threads is None else whole_number("threads", threads, 1, 1024)
    num_agents = call.problems[0].num_agents
    total = len(call.compiled) * len(call.trials) * call.horizon * num_agents
    truths, played_by = [truths_of(p) for p in call.problems], ""
    with _display(progress) as show:

        def on_rounds(rounds: int) -> None:
            show(rounds * num_agents, total)

        if chosen == "cuda":
            from fedbandit.engine.cuda import engine as gpu

            records = gpu.run_trials(truths, call.compiled, call.times, call.trials, call.seed, on_rounds, keep)
            played_by = gpu.description()
        else:
            records = cpu.run_trials(
                truths, call.compiled, call.times, call.trials, call.seed, workers, on_rounds, keep
            )
    for policy, record in zip(call.policies.values(), records, strict=True):
        if policy.page().radius is None:
            record.misses[:] = np.nan  # the policy has no radius
    played = call.problems if isinstance(problem, Sequence) else call.problems[0]
    return result_of(
        played,
        call.policies,
        records,
        call.times,
        call.trials,
        call.horizon,
        call.seed,
        watch_radii,
        shares,
        keep,
        played_by,
    )


def truths_of(problem: Problem) -> list[Truth]:
    """The truth of each period with the same means."""
    return [
        Truth(first, world_of(p), p.gaps.ravel().copy(), p.arm_means.ravel().copy()) for first, p in problem.periods
    ]


class CheckedCall(NamedTuple):
    """A checked call of ``simulate``."""

    problems: list[Problem]  # one, or one for each of the trials
    policies: dict[str, Policy]
    compiled: list[cpu.CompiledPolicy]
    horizon: int
    trials: range
    seed: int
    times: NDArray[np.int64]


def check_call(
    problem: Problems,
    policies: Policies,
    horizon: int,
    trials: int | range,
    seed: int,
    checkpoints: int | Sequence[int],
    watch_radii: bool = False,
    shares: Shares | None = None,
    keep: Keep = "agents",
) -> CheckedCall:
    """Refuse a bad call, with the argument's name, before anything runs."""
    named = _named(policies)
    rounds = whole_number("horizon", horizon, 1, MAX_HORIZON)
    numbers = _trial_numbers(trials)
    problems = _problems(problem, numbers)
    checked_seed = whole_number("seed", seed, 0, 2**64 - 1)
    times = _times(checkpoints, rounds)
    if true_or_false("watch_radii", watch_radii) and problems[0].num_strata:
        hint = "A radius is one of an arm's mean over all decisions, and here each stratum has its own."
        raise InvalidArgument("watch_radii", watch_radii, "False where decisions have strata", hint)
    if watch_radii and problems[0].num_features:
        hint = "A radius is one of an arm's mean over all decisions, and here means depend on features."
        raise InvalidArgument("watch_radii", watch_radii, "False where decisions have features", hint)
    _check_shares(shares, problems[0].num_arms)
    if _own_functions(problems[0]):
        try_functions(problems)
    _check_size(problems[0], len(named), len(numbers), len(times), checked_keep(keep))
    compiled: list[cpu.CompiledPolicy] = []
    for policy in named.values():  # a loop: in some Pythons a comprehension adds a stack level,
        compiled.append(
            compiled_policy(policy, problems[0], rounds, watch_radii, shares=shares)
        )  # and warnings count levels
    _advise(problems[0], list(named.values()), rounds)
    return CheckedCall(problems, named, compiled, rounds, numbers, checked_seed, times)


def _advise(problem: Problem, policies: Sequence[Policy], horizon: int) -> None:
    """Say in one line where gossip will be too slow, or ends before the run does."""
    gossiping = [p for p in policies if p.page().network in ("gossip", "consensus") and not hasattr(p, "links")]
    if not gossiping:
        return
    if isinstance(problem.over_time, Contacts):
        last = int(problem.over_time.times[-1])
        if last < horizon:
            warnings.warn(
                f"The last contact is in round {last:,} of {horizon:,}: nobody gossips after it.", stacklevel=4
            )
    elif problem.edges_per_round == "one" and problem.num_agents > MANY_AGENTS:
        warnings.warn(
            f"{problem.num_agents} agents, one edge per round: each gossips about every {problem.num_agents / 2:.0f} "
            'rounds. With edges_per_round="matching" nearly all gossip in every round.',
            stacklevel=4,
        )


def _check_shares(shares: Shares | None, num_arms: int) -> None:
    if shares is not None:
        instance("shares", shares, Shares, "Shares, or left out")
        try:
            shares.control_among(num_arms)
        except InvalidArgument as error:
            raise error.at("shares") from None


def compiled_policy(
    policy: Policy,
    problem: Problem,
    horizon: int,
    watches: bool = False,
    settings: Sequence[Setting] | None = None,
    shares: Shares | None = None,
) -> cpu.CompiledPolicy:
    """A policy compiled for a problem; refused if the policy cannot handle it.

    ``settings``: what each agent knows of its world, where that is not what the problem tells it.
    """
    check_kind("policy", policy)
    known, which = (settings, None) if settings else settings_of(problem, horizon)
    if shares is not None:
        known = [setting._replace(has_shares=True) for setting in known]
    if (check := getattr(policy, "check", None)) is not None:
        check(known[0])
    if is_built_in(policy):
        own = Admitted(page_on(policy.page(), known[0].gossip, known[0].num_strata), "", {})
    else:
        own = admit(policy, *known)
    page, (kind, links) = own.page, links_of(policy, problem, horizon)
    if own.functions:
        refuse_changed_code(own.functions, partial(WrongPage, kind_of(policy)))
    functions = _own_functions(problem)
    waits = rounds_of_waiting(problem, horizon)
    if waits:
        _refuse_late(policy, page)
    has_releases = problem.gossip == "releases" and page.network == "gossip"
    if page.records and page.network == "gossip" and not has_releases:
        hint = f"{label_of(policy)} has records, which have no averages that links could gossip."
        raise InvalidArgument("gossip", problem.gossip, f"releases for {label_of(policy)}", hint)
    if has_releases:
        length = length_of_record(page, problem.num_arms, problem.num_strata, problem.num_features)
        check_size(problem.num_agents, problem.num_arms, length)
    if problem.gossip == "releases" and page.network == "consensus":
        hint = f"{label_of(policy)} averages over links in its own way: that is the algorithm."
        raise InvalidArgument("gossip", problem.gossip, f"averages for {label_of(policy)}", hint)
    if shares is not None and page.meet is not None:
        hint = f"Agents of {label_of(policy)} count on each other's pulls: leave out shares."
        raise InvalidArgument("shares", shares, f"left out for {label_of(policy)}", hint)
    played = page
    if own.digest and claimed_epsilon(policy) < inf:
        parts: dict[str, Any] = page._asdict()
        copies = {name: guarded(part) for name, part in parts.items() if isinstance(part, FunctionType)}
        played = page._replace(**cast("dict[str, Any]", copies))
    has_strata, has_features = problem.num_strata > 0, problem.num_features > 0
    if page.context == "features" and not has_features:
        hint = f"{label_of(policy)} decides by features."
        raise InvalidArgument("problem", "without features", "one with features, as Problem.linear makes", hint)
    parts_played = (kind, watches, own.digest, waits > 0, shares, has_releases, has_strata, has_features)
    spec = specialise(played, problem.rewards, *parts_played)
    play_rounds = cpu.compiled_rounds(spec, problem.num_agents >= cpu.MANY)
    if own.digest:
        play_rounds = in_words(kind_of(policy), page, known[0], policy.terms(known[0]), play_rounds)
    elif functions:
        play_rounds = functions_in_words(functions, play_rounds)
    return cpu.CompiledPolicy(
        page,
        terms_of(policy, known, which),
        links,
        play_rounds,
        spec,
        waits,
        shares,
        kind_of(policy),
        shares_of(problem) if has_releases else None,
        problem.num_strata,
        problem.num_features,
        problem.rows_of_features,
    )


def _refuse_late(policy: Policy, page: Page) -> None:
    """Refuse late rewards for a page whose network takes the reward of every decision in its own round."""
    if page.network not in LATE_NETWORKS or page.meet is not None:
        how = "meets others in every round" if page.meet is not None else f"has everything {page.network}"
        hint = f"{label_of(policy)} {how}, and takes each reward for there: leave out delays and reward_window."
        raise InvalidArgument("delays", "given", f"left out for {label_of(policy)}", hint)


def _own_functions(problem: Problem) -> dict[str, FunctionType]:
    """The user's functions that a problem has, by the argument's name; refused if they changed since they compiled."""
    found = {"edges_per_round": problem.edges_per_round, "draw": getattr(problem.rewards, "draw", None)}
    functions = {name: function for name, function in found.items() if isinstance(function, FunctionType)}
    for name, function in functions.items():
        fault = partial(InvalidArgument, name, function.__qualname__, "a function that stays as it is")
        refuse_changed_code({function: digest_of(function)}, fault)
    return functions


def _problems(problem: Problems, trials: range) -> list[Problem]:
    """The problem of each trial, or the one for all."""
    several = list(problem) if isinstance(problem, Sequence) else [problem]
    for given in several:
        instance("problem", given, Problem, "a Problem, or several: one per trial")
    if not isinstance(problem, Sequence):
        return several
    if len(several) < trials.stop:
        raise InvalidArgument("problem", f"{len(several)} problems", f"one for each trial (up to {trials.stop})")
    if any(p.kind_of_world != several[0].kind_of_world for p in several):
        raise InvalidArgument("problem", "several problems", "of one kind: they may differ in their means only")
    return several[trials.start : trials.stop]


def _display(progress: bool | OnProgress) -> AbstractContextManager[OnProgress]:
    if callable(progress):
        return nullcontext(progress)
    if progress:
        from fedbandit.progress import progress_bar

        return progress_bar()
    return nullcontext(lambda done, total: None)


def checkpoint_times(horizon: int, count: int) -> NDArray[np.int64]:
    """At most ``count`` times from 1 to ``horizon``, half of them evenly spread, half evenly in log t."""
    if count >= horizon:
        return np.arange(1, horizon + 1)
    geometric = np.geomspace(1, horizon, (count + 1) // 2)
    even = np.linspace(1, horizon, count + 1 - (count + 1) // 2)
    return np.unique(np.rint(np.concatenate([geometric[:-1], even[:-1], [horizon]])).astype(np.int64))


def _named(policies: Policies) -> dict[str, Policy]:
    if isinstance(policies, Mapping):
        named = dict(policies)
    else:
        if isinstance(policies, str):
            raise InvalidArgument("policies", policies, "policies, such as FedBatch(epsilon=1.0), and not a text")
        several = list(policies) if isinstance(policies, Sequence) else [policies]
        for policy in several:
            check_kind("policies", policy)
        named = {label_of(policy): policy for policy in several}
        if len(named) != len(several):
            labels = [label_of(policy) for policy in several]
            twice = next(label for label in labels if labels.count(label) > 1)
            hint = f'Name them: {{"one": {type(several[0]).__name__}(...), "other": ...}}.'
            raise InvalidArgument("policies", f"{twice!r} twice", "policies with different labels", hint)
    if not named:
        raise InvalidArgument("policies", policies, "at least one policy")
    for label in named:
        if not isinstance(label, str) or not label.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument("policies", label, "labelled with texts")
    return named


def _trial_numbers(trials: int | range) -> range:
    if not isinstance(trials, range):
        if isinstance(trials, (tuple, list)):
            raise InvalidArgument("trials", trials, "a number, or a range of trial numbers such as range(0, 50)")
        return range(whole_number("trials", trials, 1, MAX_TRIALS))
    if trials.step != 1 or trials.start < 0 or len(trials) == 0 or trials.stop > MAX_TRIALS:
        raise InvalidArgument("trials", trials, f"a non-empty range of step 1 from 0 to {MAX_TRIALS}")
    return trials


def _times(checkpoints: int | Sequence[int], horizon: int) -> NDArray[np.int64]:
    """The times to record; the horizon itself is always one of them."""
    if not isinstance(checkpoints, (Sequence, np.ndarray)):
        return checkpoint_times(horizon, whole_number("checkpoints", checkpoints, 1, 10**6))
    times = [whole_number("checkpoints", time, 1, horizon) for time in checkpoints]
    if times != sorted(set(times)) or not times:
        raise InvalidArgument("checkpoints", checkpoints, "a number of times, or the times in increasing order")
    if times[-1] != horizon:
        times.append(horizon)
    return np.array(times, np.int64)


def _check_size(problem: Problem, policies: int, trials: int, times: int, keep: Keep) -> None:
    aggregated = keep == "aggregates"
    entries, per_arm = (len(STATISTICS), 8) if aggregated else (problem.num_agents, 4)
    strata = max(problem.num_strata, 1)
    size = policies * trials * times * entries * (per_arm * problem.num_arms * strata + 48 + 8 * problem.num_strata)
    if size > MAX_RESULT_BYTES:
        ways = "run fewer trials at a time" + ("" if aggregated else ', or keep="aggregates"')
        raise InvalidArgument(
            "checkpoints", times, "fewer", f"The result would take {size / 2**30:.0f} GiB; or {ways}."
        )


# ---------------------------------------------------------------- which engine plays


def chosen_engine(engine: Engine) -> Literal["cpu", "cuda", "ray"]:
    """The engine to use; refused if this machine does not have it."""
    if engine not in get_args(Engine):
        raise InvalidArgument("engine", engine, f"one of {', '.join(get_args(Engine))}")
    if engine in ("cpu", "ray"):
        return engine
    reason = why_no_gpu()
    if engine == "auto":
        return "cuda" if reason is None else "cpu"
    if reason is not None:
        raise InvalidArgument("engine", engine, "'cpu' or 'auto' on this machine", reason)
    return "cuda"


def _engine_for(engine: Engine, problem: Problem) -> Literal["cpu", "cuda", "ray"]:
    """The same for a problem: releases spread on a CPU only."""
    if problem.num_strata and engine in ("auto", "cuda"):
        if engine == "cuda":
            raise InvalidArgument("engine", engine, "'cpu', 'ray' or 'auto' where decisions have strata")
        return "cpu"
    if problem.num_features and engine in ("auto", "cuda"):
        if engine == "cuda":
            raise InvalidArgument("engine", engine, "'cpu', 'ray' or 'auto' where decisions have features")
        return "cpu"
    if problem.gossip == "releases" and engine in ("auto", "cuda"):
        if engine == "cuda":
            reason = "What agents hold of each other would not fit beside each other's trials on a GPU."
            raise InvalidArgument("engine", engine, "'cpu', 'ray' or 'auto' where releases spread", reason)
        return "cpu"
    return chosen_engine(engine)


def why_no_gpu() -> str | None:
    """Why ``engine="cuda"`` cannot play here; ``None`` if it can."""
    if missing("cuda"):
        return "pip install 'fedbandit[cuda]' brings numba-cuda."
    from fedbandit.engine.cuda import engine as gpu

    return gpu.why_not()
