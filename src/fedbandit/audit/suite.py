"""What ``fedbandit audit`` does to each policy, and the rows of its table.

A true claim is refuted less than once in ``1 / FALSE_ALARM`` audits: the rows that rest on chance share this
probability equally (a union bound), and executing the proof leaves nothing to chance.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Literal

import numpy as np

from fedbandit.agent.core.site import Site
from fedbandit.audit import attacks
from fedbandit.audit.executor import OpenSite
from fedbandit.audit.measure import FALSE_ALARM, MOST_SAMPLES, SAMPLES, audit, check_samples, lower_bound
from fedbandit.audit.noise_tests import judge_noise, noise_of
from fedbandit.audit.pairs import search
from fedbandit.audit.scripts import terms_of
from fedbandit.checks import InvalidArgument, closest, whole_number
from fedbandit.policies import FedUCB
from fedbandit.privacy.noise import GRID, NoiseSource

AUDITED = ("fed_batch", "fed_ucb")
NAMES = {"fed_batch": "FedBatch", "fed_ucb": "Fed_UCB"}
THOROUGH = 10
"""How many times more samples and runs a thorough audit takes."""

NOISE_RUNS = 1_000  # of a site with eight releases
PROOF_SECONDS = 40.0  # of random scripts, for each policy

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class AuditRow:
    """One row of the table: an attack and what it has shown.

    * ``at_least``: the lower bound on epsilon that is compared with the claim; None where nothing was measured
    * ``size``: samples, runs, or changes of one reward that were tried
    * ``reason``: why the claim is refuted; empty if it is not
    """

    label: str
    claimed: float
    at_least: float | None
    size: int
    seconds: float
    reason: str = ""

    @property
    def refuted(self) -> bool:
        """True refutes the claim; False is inconclusive."""
        return bool(self.reason)

    @property
    def verdict(self) -> str:
        """In words."""
        return "REFUTED" if self.refuted else "not refuted"


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
) -> AuditRow:
    """Carry out an attack, with this probability of refuting a true claim at most."""
    found = audit(
        attack.sample,
        attack.statistic,
        claimed=attack.claimed,
        samples=samples,
        false_alarm=false_alarm,
        on_progress=on_progress,
    )
    reason = "the lower bound exceeds the claim" if found.refuted else ""
    return AuditRow(attack.label, found.claimed, found.at_least, found.samples, found.seconds, reason)


def check_proof(policy: str, epsilon: float, seconds: float, opened: OpenSite = Site, first_seed: int = 0) -> AuditRow:
    """Play random scripts for so long, in pairs: noise must hide each change of a reward, at no more than the claim."""
    started = time.perf_counter()
    found = search(terms_of(policy, epsilon), epsilon, opened, seconds=seconds, first_seed=first_seed)
    words = "" if found.leak is None else found.leak.words
    return AuditRow(
        f"site, {NAMES[policy]}, the proof", epsilon, None, found.pairs, time.perf_counter() - started, words
    )


def check_noise(
    epsilon: float,
    runs: int = NOISE_RUNS,
    opened: OpenSite = Site,
    noise: NoiseSource | None = None,
    false_alarm: float = FALSE_ALARM,
) -> AuditRow:
    """Test the noise that a live site adds, and bound the epsilon of a release that has it.

    The tests and the bound share the probability of a false alarm.
    """
    started = time.perf_counter()
    draws = noise_of(opened, noise or attacks.prefetched(), epsilon, runs)
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
    return AuditRow("site, its noise", epsilon, at_least, runs, time.perf_counter() - started, reason)


# ---------------------------------------------------------------- a whole audit


@dataclass(frozen=True)
class AuditJob:
    """What one row needs, as another process can be told it."""

    kind: Literal["attack", "proof", "noise"]
    policy: str
    epsilon: float
    number: int = 0
    """Which of the attacks on the policy."""
    paper: bool = False
    samples: int = SAMPLES
    thorough: bool = False
    false_alarm: float = FALSE_ALARM


def jobs_on(
    policies: Sequence[str], epsilon: float, paper: bool = False, samples: int | None = None, thorough: bool = False
) -> list[AuditJob]:
    """The whole audit. The jobs that rest on chance share the probability of a false alarm."""
    if samples is None:
        samples = THOROUGH * SAMPLES if thorough else SAMPLES
    samples = whole_number("samples", samples, 2, MOST_SAMPLES)
    jobs: list[AuditJob] = []
    for policy in policies:
        some = AuditJob("attack", policy, epsilon, 0, paper, samples, thorough)
        jobs += [replace(some, number=number) for number in range(len(attacks_on(policy, epsilon, paper)))]
        if not paper:
            jobs += [replace(some, kind="noise")] if policy == "fed_batch" else []
            jobs.append(replace(some, kind="proof"))
    level = FALSE_ALARM / max(1, sum(job.kind != "proof" for job in jobs))
    check_samples(samples, epsilon, level)
    return [replace(job, false_alarm=level) for job in jobs]


def run_jobs(jobs: Sequence[AuditJob], on_progress: Progress | None = None) -> list[AuditRow]:
    """Run all jobs, in two processes; rows in the order of the jobs."""
    done: dict[int, AuditRow] = {}
    with ProcessPoolExecutor(min(2, len(jobs)), mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(run_job, job): number for number, job in enumerate(jobs)}
        for future in as_completed(waiting):
            done[waiting[future]] = future.result()
            if on_progress is not None:
                on_progress(len(done), len(jobs))
    return [done[number] for number in range(len(jobs))]


def run_job(job: AuditJob) -> AuditRow:
    """Run one job."""
    match job.kind:
        case "attack":
            attack = attacks_on(job.policy, job.epsilon, job.paper)[job.number]
            return run_attack(attack, job.samples, false_alarm=job.false_alarm)
        case "proof":
            return check_proof(job.policy, job.epsilon, PROOF_SECONDS * (THOROUGH if job.thorough else 1))
        case "noise":
            runs = NOISE_RUNS * (THOROUGH if job.thorough else 1)
            return check_noise(job.epsilon, runs, false_alarm=job.false_alarm)
