"""What ``fedbandit audit`` does to each policy and to broken sites, and the rows of its tables.

A true claim is called broken less than once in ``1 / FALSE_ALARM`` audits: rows that rest on chance share this
probability equally (a union bound), and executing the proof leaves nothing to chance.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from itertools import chain
from multiprocessing import get_context
from typing import Literal

import numpy as np

from fedbandit.agent.core.site import Site
from fedbandit.audit.attacks import Attack, log_ratio, on_batches, on_tree
from fedbandit.audit.broken_sites import broken_sites
from fedbandit.audit.coupling import changes_of
from fedbandit.audit.live_sites import on_delays, on_fed_batch, on_fed_ucb
from fedbandit.audit.measure import FALSE_ALARM, MOST_SAMPLES, SAMPLES, audit, fewest_samples, lower_bound
from fedbandit.audit.noise_tests import suspicion
from fedbandit.audit.site_scripts import random_scripts, scripts_of
from fedbandit.audit.target import Target, attack_on, find_leak, noise_of
from fedbandit.checks import InvalidArgument, closest, whole_number
from fedbandit.policies import FedUCB
from fedbandit.privacy.noise import GRID

__all__ = [
    "AUDITED",
    "Job",
    "Row",
    "attack_broken",
    "attacks_on",
    "broken_jobs",
    "check_noise",
    "check_proof",
    "jobs_on",
    "run_attacks",
    "run_jobs",
]

AUDITED = ("fed_batch", "fed_ucb")
NAMES = {"fed_batch": "FedBatch", "fed_ucb": "Fed_UCB"}
THOROUGH = 10
"""How many times more samples and runs a thorough audit takes."""

NOISE_RUNS = 1_000  # of a site with eight releases
RANDOM_SCRIPTS = 50  # for a thorough audit
NUM_KNOWN_BAD = 5
LEAK_SAMPLES = 500  # enough to show a certain leak as an epsilon of 4

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Row:
    """An attack and what it found.

    * ``at_least``: the lower bound on epsilon, with 95 % confidence; None where nothing was measured
    * ``size``: samples, runs, or changes of one reward that were tried
    * ``caught_by``: what gave it away; empty if the claim holds
    * ``known_bad``: the claim is false on purpose
    """

    label: str
    claimed: float
    at_least: float | None
    size: int
    seconds: float
    caught_by: str = ""
    known_bad: bool = False

    @property
    def holds(self) -> bool:
        """Whether the claim survived: False is as good as a proof, True is none."""
        return not self.caught_by

    @property
    def as_expected(self) -> bool:
        """A real claim holds, a known-bad variant is caught."""
        return self.holds != self.known_bad

    @property
    def verdict(self) -> str:
        """In words."""
        if self.known_bad:
            return "NOT CAUGHT" if self.holds else "caught"
        return "not broken" if self.holds else "BROKEN"


def attacks_on(policy: str, epsilon: float, paper: bool = False) -> list[Attack]:
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
            on_batches(epsilon),
            on_batches(epsilon, later=True),
            on_fed_batch(epsilon),
            on_fed_batch(epsilon, later=True),
            on_fed_batch(epsilon, loads=1),
            on_delays(epsilon),
        ]
    return [on_tree(epsilon), on_fed_ucb(epsilon)]


def run_attacks(
    attacks: Sequence[Attack],
    samples: int = SAMPLES,
    on_progress: Progress | None = None,
    false_alarm: float = FALSE_ALARM,
) -> list[Row]:
    """Carry out attacks one after the other, each with this probability of a false alarm at most."""
    sizes = [attack.samples or samples for attack in attacks]
    rows: list[Row] = []
    for position, attack in enumerate(attacks):
        before = sum(sizes[:position])

        def show(done: int, _: int, before: int = before) -> None:
            if on_progress is not None:
                on_progress(before + done, sum(sizes))

        found = audit(
            attack.sample,
            attack.statistic,
            claimed=attack.claimed,
            samples=sizes[position],
            false_alarm=false_alarm,
            on_progress=show,
        )
        caught = "" if found.holds else "measured"
        rows.append(
            Row(attack.label, found.claimed, found.lower_bound, found.samples, found.seconds, caught, attack.known_bad)
        )
    return rows


def check_proof(policy: str, epsilon: float, thorough: bool = False, target: Target | None = None) -> Row:
    """Change every reward of several runs in turn: the noise must hide each change, at no more than the claim."""
    started, target = time.perf_counter(), target or Target(f"site, {NAMES[policy]}, the proof")
    scripts = list(scripts_of(policy, epsilon).values())
    if thorough:
        scripts += random_scripts(policy, epsilon, RANDOM_SCRIPTS)
    leak = find_leak(target, scripts, epsilon)
    size = sum(1 for _ in chain(*(changes_of(script) for script in scripts)))
    return Row(target.label, epsilon, None, size, time.perf_counter() - started, leak.words if leak else "")


def check_noise(
    epsilon: float, runs: int = NOISE_RUNS, target: Target | None = None, false_alarm: float = FALSE_ALARM
) -> Row:
    """Test the noise that a live site adds, and bound the epsilon of a release that has it.

    The tests and the bound share the probability of a false alarm.
    """
    started, target = time.perf_counter(), target or Target("site, its noise")
    draws = noise_of(target, epsilon, runs)
    chance, what = suspicion(draws, epsilon)
    half, known = runs // 2, np.nan_to_num(draws)  # what is missing is suspect already
    world_0 = np.array([log_ratio(z, 0, GRID, epsilon) for z in known[:half].ravel()])
    world_1 = np.array([log_ratio(z + GRID, 0, GRID, epsilon) for z in known[half:].ravel()])
    at_least = lower_bound(world_0, world_1, 0.95)
    sure = lower_bound(world_0, world_1, 1.0 - false_alarm / 2.0)
    caught = what if chance < false_alarm / 2.0 else "measured" if sure > epsilon else ""
    return Row(target.label, epsilon, at_least, runs, time.perf_counter() - started, caught)


def attack_broken(target: Target, epsilon: float = 1.0, false_alarm: float = FALSE_ALARM) -> Row:
    """Do to a broken site what is done to the one that ships, and measure what it leaks."""
    started = time.perf_counter()
    leak = None if target.open_site is Site else find_leak(target, scripts_of("fed_batch", epsilon).values(), epsilon)
    if leak is None:
        found = check_noise(epsilon, NOISE_RUNS // 2, target, false_alarm)
        at_least, size, caught = found.at_least, found.size, found.caught_by and f"noise: {found.caught_by}"
    else:
        attack = attack_on(target, leak, epsilon)
        measured = audit(attack.sample, attack.statistic, claimed=epsilon, samples=LEAK_SAMPLES)
        at_least, size, caught = measured.lower_bound, measured.samples, f"proof: {leak.what}"
    return Row(target.label, epsilon, at_least, size, time.perf_counter() - started, caught, known_bad=True)


# ---------------------------------------------------------------- a whole audit


@dataclass(frozen=True)
class Job:
    """One row of the tables, in words that another process understands: what is done, to what, and how thoroughly."""

    kind: Literal["attack", "proof", "noise", "broken", "known bad"]
    number: int = 0
    policy: str = ""
    epsilon: float = 1.0
    paper: bool = False
    samples: int = SAMPLES
    thorough: bool = False
    false_alarm: float = FALSE_ALARM


def jobs_on(
    policies: Sequence[str], epsilon: float, paper: bool = False, samples: int | None = None, thorough: bool = False
) -> list[Job]:
    """All that is done to what ships. Those jobs that rest on chance share the probability of a false alarm."""
    if samples is None:
        samples = THOROUGH * SAMPLES if thorough else SAMPLES
    samples = whole_number("samples", samples, 2, MOST_SAMPLES)
    jobs: list[Job] = []
    for policy in policies:
        some = Job("attack", 0, policy, epsilon, paper, samples, thorough)
        jobs += [replace(some, number=number) for number in range(len(attacks_on(policy, epsilon, paper)))]
        if not paper:
            jobs += [replace(some, kind="noise")] if policy == "fed_batch" else []
            jobs.append(replace(some, kind="proof"))
    level = FALSE_ALARM / max(1, sum(job.kind != "proof" for job in jobs))
    if samples < fewest_samples(epsilon, level):
        raise InvalidArgument(
            "samples",
            samples,
            f"at least {fewest_samples(epsilon, level)}",
            f"Fewer cannot contradict epsilon {epsilon:g}.",
        )
    return [replace(job, false_alarm=level) for job in jobs]


def broken_jobs() -> list[Job]:
    """Every broken variant: each claims epsilon 1."""
    return [
        *(Job("broken", number) for number in range(len(broken_sites()))),
        *(Job("known bad", number) for number in range(NUM_KNOWN_BAD)),
    ]


def run_jobs(jobs: Sequence[Job], on_progress: Progress | None = None, workers: int = 2) -> list[Row]:
    """Do all jobs, in so many processes; rows in their order."""
    done: dict[int, Row] = {}
    with ProcessPoolExecutor(min(workers, len(jobs)), mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(run_job, job): number for number, job in enumerate(jobs)}
        for future in as_completed(waiting):
            done[waiting[future]] = future.result()
            if on_progress is not None:
                on_progress(len(done), len(jobs))
    return [done[number] for number in range(len(jobs))]


def run_job(job: Job) -> Row:
    """Do one job."""
    match job.kind:
        case "attack":
            attack = attacks_on(job.policy, job.epsilon, job.paper)[job.number]
            return run_attacks([attack], job.samples, false_alarm=job.false_alarm)[0]
        case "proof":
            return check_proof(job.policy, job.epsilon, job.thorough)
        case "noise":
            runs = NOISE_RUNS * (THOROUGH if job.thorough else 1)
            return check_noise(job.epsilon, runs, false_alarm=job.false_alarm)
        case "broken":
            return attack_broken(broken_sites()[job.number])
        case "known bad":
            from fedbandit.audit.known_bad import known_bad  # loads the simulator

            return run_attacks([known_bad()[job.number]])[0]
