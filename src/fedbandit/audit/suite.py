"""What ``fedbandit audit`` does to each policy, and the rows of its table.

A true claim is refuted less than once in ``1 / FALSE_ALARM`` audits: the rows that rest on chance share this
probability equally (a union bound), and executing the proof leaves nothing to chance.
"""

import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from math import inf
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

import numpy as np

from fedbandit.agent.core.federation import Federation
from fedbandit.agent.core.site import Site
from fedbandit.agent.process.config import read_config
from fedbandit.audit import attacks
from fedbandit.audit.executor import OpenSite
from fedbandit.audit.measure import FALSE_ALARM, MOST_SAMPLES, SAMPLES, audit, check_samples, lower_bound
from fedbandit.audit.noise_tests import judge_noise, noise_of
from fedbandit.audit.one_run import Guesses, audit_run, live_run, simulated_run
from fedbandit.audit.pairs import SiteFailed, search
from fedbandit.audit.random_scripts import Dice, TermsFrom, terms_of
from fedbandit.checks import InvalidArgument, closest, whole_number
from fedbandit.policies import FedUCB
from fedbandit.policies.registry import kind_of
from fedbandit.privacy.noise import GRID, NoiseSource

AUDITED = ("fed_batch", "fed_ucb")
NAMES = {"fed_batch": "FedBatch", "fed_ucb": "Fed_UCB"}
NOISE_RUNS, FEWEST_RUNS = 1_000, 100  # of a site with eight releases
MEASURED = 0.5
"""The share of that time for what measures."""

SLICE = 5.0  # seconds of random scripts, after which progress shows
PROCESSES = 2
CANARIES = 3_000
"""Coins of an audit of one run: they show three quarters of an epsilon of 1."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class AuditRow:
    """One row of the table: an attack and what it has shown.

    * ``at_least``: the lower bound on epsilon that is compared with the claim; None where nothing was measured
    * ``size``: samples, runs, or pairs of scripts that differ in one reward
    * ``reason``: why the claim is refuted, or why nobody can tell; empty if it is not
    * ``script``: the shortest script that leaks, a line for each event, and what an observer sees
    """

    label: str
    claimed: float
    at_least: float | None
    size: int
    seconds: float
    reason: str = ""
    is_unclear: bool = False
    script: tuple[str, ...] = ()

    @property
    def refuted(self) -> bool:
        """True refutes the claim; False is inconclusive."""
        return bool(self.reason) and not self.is_unclear

    @property
    def words(self) -> str:
        """The bound that the verdict uses, in a sentence."""
        bound = "nothing measured" if self.at_least is None else f"at least {shown_bound(self)}"
        return f"{bound}, {'broken' if self.refuted else 'not broken'} at the claimed epsilon {self.claimed:g}"

    @property
    def verdict(self) -> str:
        """In words."""
        return "could not tell" if self.is_unclear else "REFUTED" if self.refuted else "not refuted"


def shown_bound(row: AuditRow) -> str:
    """The lower bound with two digits, or as many as show on which side of the claim it lies."""
    if row.at_least is None:
        return "-"
    digits = 2
    while (float(f"{row.at_least:.{digits}f}") > row.claimed) != (row.at_least > row.claimed):
        digits += 1
    return f"{row.at_least:.{digits}f}"


def attacks_on(policy: str, epsilon: float, paper: bool = False) -> list[attacks.Attack]:
    """The attacks on a policy's mechanism and on a live site; ``paper``: on Algorithm 4 as printed."""
    if policy not in AUDITED:
        raise InvalidArgument("policy", policy, " or ".join(AUDITED), closest(policy, AUDITED))
    if paper:
        if policy != "fed_ucb":
            raise InvalidArgument("paper", paper, "given with fed_ucb, the paper's policy")
        from fedbandit.audit.as_printed import on_fed_ucb_as_printed  # loads the simulator

        return [on_fed_ucb_as_printed(FedUCB(epsilon, paper=True))]
    if policy == "fed_batch":
        return [
            attacks.on_batches(epsilon),
            attacks.on_batches(epsilon, later=True),
            attacks.on_fed_batch(epsilon),
            attacks.on_fed_batch(epsilon, later=True),
            attacks.on_fed_batch(epsilon, restarts=1),
            attacks.on_delays(epsilon),
        ]
    return [attacks.on_tree(epsilon), attacks.on_fed_ucb(epsilon)]


def run_attack(
    attack: attacks.Attack,
    samples: int = SAMPLES,
    on_progress: Progress | None = None,
    false_alarm: float = FALSE_ALARM,
    seconds: float = inf,
) -> AuditRow:
    """Carry out an attack, with this probability of refuting a true claim at most."""
    found = audit(
        attack.sample,
        attack.statistic,
        claimed=attack.claimed,
        samples=samples,
        false_alarm=false_alarm,
        seconds=seconds,
        on_progress=on_progress,
    )
    reason = "the lower bound exceeds the claim" if found.refuted else ""
    return AuditRow(attack.label, found.claimed, found.at_least, found.samples, found.seconds, reason)


def check_proof(
    label: str,
    terms: TermsFrom,
    epsilon: float,
    seconds: float,
    opened: OpenSite = Site,
    first: int = 0,
) -> AuditRow:
    """Play random scripts for so long, in pairs: noise must hide each change of a reward, at no more than the claim."""
    started = time.process_time()
    row = AuditRow(f"site, {label}, the proof", epsilon, None, 0, 0.0)
    try:
        found = search(terms, epsilon, opened, seconds=seconds, first=first)
    except SiteFailed as failure:
        return replace(
            row, seconds=time.process_time() - started, reason=f"the site failed: {failure}", is_unclear=True
        )
    row = replace(row, size=found.pairs, seconds=time.process_time() - started)
    if found.leak is None:
        return row
    return replace(row, reason=found.leak.words, script=tuple(found.leak.in_words()))


def together(rows: Sequence[AuditRow]) -> AuditRow:
    """One row of slices of one proof: a leak decides, then a failure; where no pair was played nobody can tell."""
    first = next((it for it in rows if it.refuted), None) or next((it for it in rows if it.is_unclear), rows[0])
    pairs, seconds = sum(it.size for it in rows), sum(it.seconds for it in rows)
    if not pairs and not first.reason:
        return replace(first, seconds=seconds, reason="no pair of scripts was played", is_unclear=True)
    return replace(first, size=pairs, seconds=seconds)


def check_noise(
    epsilon: float,
    runs: int = NOISE_RUNS,
    opened: OpenSite = Site,
    noise: NoiseSource | None = None,
    false_alarm: float = FALSE_ALARM,
    seconds: float = inf,
) -> AuditRow:
    """Test the noise that a live site adds, and bound the epsilon of a release that has it.

    The tests and the bound share the probability of a false alarm. After these CPU seconds no more runs are made than
    ``FEWEST_RUNS``.
    """
    started, source = time.process_time(), noise or attacks.prefetched()
    draws = noise_of(opened, source, epsilon, min(runs, FEWEST_RUNS))
    while len(draws) < runs and time.process_time() - started < seconds:
        draws = np.concatenate([draws, noise_of(opened, source, epsilon, min(runs - len(draws), FEWEST_RUNS))])
    runs = len(draws)
    p_value, flaw = judge_noise(draws, epsilon)
    # Readings differ from whole numbers in their last digits, which must not tell the worlds apart. A release that is
    # missing, or off the grid, has a p-value of 0 already.
    half, known = runs // 2, np.round(np.nan_to_num(draws))
    world_0 = np.array([attacks.log_ratio(z, 0, GRID, epsilon) for z in known[:half].ravel()])
    world_1 = np.array([attacks.log_ratio(z + GRID, 0, GRID, epsilon) for z in known[half:].ravel()])
    at_least = lower_bound(world_0, world_1, 1.0 - false_alarm / 2.0)
    reason = "the lower bound exceeds the claim" if at_least > epsilon else ""
    if p_value < false_alarm / 2.0:
        reason = f"noise: {flaw}"
    return AuditRow("site, its noise", epsilon, at_least, runs, time.process_time() - started, reason)


def check_one_run(
    label: str,
    run: Callable[[int], Guesses],
    epsilon: float,
    false_alarm: float = FALSE_ALARM,
    canaries: int = CANARIES,
    seconds: float = inf,
) -> AuditRow:
    """Guess the coins of one run."""
    found = audit_run(run, claimed=epsilon, false_alarm=false_alarm, canaries=canaries, seconds=seconds)
    reason = "the lower bound exceeds the claim" if found.refuted else ""
    return AuditRow(label, epsilon, found.at_least, found.samples, found.seconds, reason)


# ---------------------------------------------------------------- a whole audit


@dataclass(frozen=True)
class AuditJob:
    """What one row needs, or a slice of it, as another process can be told it.

    * ``number``: which of the attacks on the policy, or the first seed of a slice
    * ``site``: the configuration whose terms are audited; None: any terms with the policy
    """

    kind: Literal["attack", "proof", "noise", "one run", "one simulated run"]
    policy: str
    epsilon: float
    number: int = 0
    paper: bool = False
    samples: int = SAMPLES
    false_alarm: float = FALSE_ALARM
    seconds: float = SLICE
    site: Path | None = None


def jobs_on(policies: Sequence[str], epsilon: float, paper: bool = False, samples: int = SAMPLES) -> list[AuditJob]:
    """What measures. All that rests on chance shares the probability of a false alarm."""
    samples = whole_number("samples", samples, 2, MOST_SAMPLES)
    jobs: list[AuditJob] = []
    for policy in policies:
        some = AuditJob("attack", policy, epsilon, 0, paper, samples)
        jobs += [replace(some, number=number) for number in range(len(attacks_on(policy, epsilon, paper)))]
        if policy == "fed_batch":
            jobs += [
                replace(some, kind="noise"),
                replace(some, kind="one run"),
                replace(some, kind="one simulated run"),
            ]
    level = FALSE_ALARM / max(1, len(jobs))
    check_samples(samples, epsilon, level)
    return [replace(job, false_alarm=level) for job in jobs]


def proofs_on(policies: Sequence[str], epsilon: float, site: Path | None = None) -> list[AuditJob]:
    """What executes the proof: a job for each policy, of which slices with other seeds are played."""
    return [AuditJob("proof", policy, epsilon, site=site) for policy in policies]


def run_jobs(
    jobs: Sequence[AuditJob],
    proofs: Sequence[AuditJob],
    minutes: float,
    on_progress: Progress | None = None,
) -> list[AuditRow]:
    """Run all that measures, then proofs, in two processes: so many minutes of each process's CPU time.

    What else a machine does then changes how long it takes, and hardly how much is looked at. Each part has a share of
    that time, and of each proof a slice is played at least. Rows are in the order of the jobs. ``on_progress`` gets
    seconds.
    """
    budget = 60.0 * minutes * PROCESSES
    waiting = [*enumerate(jobs)]
    places = range(len(jobs), len(jobs) + len(proofs))
    played: dict[int, list[AuditRow]] = {place: [] for place in range(len(jobs) + len(proofs))}
    spent: dict[int, float] = {}  # by each process, its start counted
    slices = 0

    def next_job(allotted: float) -> tuple[int, AuditJob] | None:
        nonlocal slices
        used = sum(spent.values()) + allotted
        if waiting:  # what one part leaves of its share is for those that follow
            place, job = waiting.pop(0)
            return place, replace(job, seconds=max(0.0, MEASURED * budget - used) / (len(waiting) + 1))
        left = budget - used
        for _ in proofs:
            place, number = places[slices % len(proofs)], slices // len(proofs)
            slices += 1
            is_open = not any(row.reason for row in played[place])  # more of the same would find the same
            if is_open and (number == 0 or left >= SLICE):
                seconds = min(SLICE, max(left, 1.0))
                return place, replace(proofs[place - len(jobs)], number=1_000_000 * number, seconds=seconds)
        return None

    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        running: dict[Future[tuple[AuditRow, int, float]], tuple[int, AuditJob]] = {}
        while True:
            while len(running) < PROCESSES:
                job = next_job(sum(it.seconds for _, it in running.values()))
                if job is None:
                    break
                running[pool.submit(_run_in_process, job[1])] = job
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                row, process, seconds = future.result()
                played[running.pop(future)[0]].append(row)
                spent[process] = seconds
            if on_progress is not None:
                on_progress(round(min(sum(spent.values()), budget)), round(budget))
    return [played[place][0] if place < len(jobs) else together(played[place]) for place in played]


def _run_in_process(job: AuditJob) -> tuple[AuditRow, int, float]:
    """The row, and how much CPU time this process has taken in all."""
    return run_job(job), os.getpid(), time.process_time()


def run_job(job: AuditJob) -> AuditRow:
    """Run one job."""
    match job.kind:
        case "attack":
            attack = attacks_on(job.policy, job.epsilon, job.paper)[job.number]
            return run_attack(attack, job.samples, false_alarm=job.false_alarm, seconds=job.seconds)
        case "proof":
            label = NAMES.get(job.policy, job.policy)
            terms = terms_of(job.policy, job.epsilon) if job.site is None else _those_of(job.site)
            return check_proof(label, terms, job.epsilon, job.seconds, first=job.number)
        case "noise":
            return check_noise(job.epsilon, NOISE_RUNS, false_alarm=job.false_alarm, seconds=job.seconds)
        case "one run":
            source, seeds = attacks.prefetched(), count(secrets.randbits(60))
            live = partial(_live_run, job.epsilon, source, seeds)
            label = "one run of live sites"
            return check_one_run(label, live, job.epsilon, job.false_alarm, seconds=job.seconds)
        case "one simulated run":
            seeds = count(secrets.randbits(60))
            simulated = partial(_simulated_run, job.epsilon, seeds)
            return check_one_run("one run of the simulator", simulated, job.epsilon, job.false_alarm)


def _live_run(epsilon: float, source: NoiseSource, seeds: Iterator[int], coins: int) -> Guesses:
    return live_run(epsilon, coins, next(seeds), source)


def _simulated_run(epsilon: float, seeds: Iterator[int], coins: int) -> Guesses:
    return simulated_run(epsilon, coins, next(seeds))


def _those_of(path: Path) -> TermsFrom:
    """The terms of a site, whatever is drawn."""
    terms = read_config(path).terms

    def always(dice: Dice) -> Federation:
        return terms

    return always


def of_site(path: Path) -> tuple[str, float]:
    """The policy and the epsilon that the terms of a site claim; refuses those that claim none."""
    terms = read_config(path).terms
    claimed = float(getattr(terms.policy, "epsilon", inf))
    claimed += 0.0 if terms.evaluation is None else terms.evaluation.epsilon
    if claimed == inf:
        raise InvalidArgument(
            "policy", kind_of(terms.policy), "one that claims an epsilon", "There is nothing to audit."
        )
    return kind_of(terms.policy), claimed
