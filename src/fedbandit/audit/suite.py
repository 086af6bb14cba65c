"""What ``fedbandit audit`` does to each policy, and the rows of its table.

A true claim is refuted less than once in ``1 / FALSE_ALARM`` audits: the rows that rest on chance share this
probability equally (a union bound), and executing the proof leaves nothing to chance.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
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
from fedbandit.audit.pairs import SiteFailed, search
from fedbandit.audit.scripts import terms_of
from fedbandit.checks import InvalidArgument, closest, whole_number
from fedbandit.policies import FedUCB
from fedbandit.policies.registry import kind_of
from fedbandit.privacy.noise import GRID, NoiseSource

AUDITED = ("fed_batch", "fed_ucb")
NAMES = {"fed_batch": "FedBatch", "fed_ucb": "Fed_UCB"}
NOISE_RUNS = 1_000  # of a site with eight releases
MINUTES = 1.5
"""How long an audit takes unless somebody asks for more: about half of it are attacks that measure."""

SLICE = 5.0  # seconds of random scripts, after which progress shows
PROCESSES = 2

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
    def verdict(self) -> str:
        """In words."""
        return "could not tell" if self.is_unclear else "REFUTED" if self.refuted else "not refuted"


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


def check_proof(
    label: str,
    terms: Callable[[bytes], Federation],
    epsilon: float,
    seconds: float,
    opened: OpenSite = Site,
    first_seed: int = 0,
) -> AuditRow:
    """Play random scripts for so long, in pairs: noise must hide each change of a reward, at no more than the claim."""
    started = time.perf_counter()
    row = AuditRow(f"site, {label}, the proof", epsilon, None, 0, 0.0)
    try:
        found = search(terms, epsilon, opened, seconds=seconds, first_seed=first_seed)
    except SiteFailed as failure:
        return replace(
            row, seconds=time.perf_counter() - started, reason=f"the site failed: {failure}", is_unclear=True
        )
    row = replace(row, size=found.pairs, seconds=time.perf_counter() - started)
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
    """What one row needs, or a slice of it, as another process can be told it.

    * ``number``: which of the attacks on the policy, or the first seed of a slice
    * ``site``: the configuration whose terms are audited; None: any terms with the policy
    """

    kind: Literal["attack", "proof", "noise"]
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
            jobs.append(replace(some, kind="noise"))
    level = FALSE_ALARM / max(1, len(jobs))
    check_samples(samples, epsilon, level)
    return [replace(job, false_alarm=level) for job in jobs]


def proofs_on(policies: Sequence[str], epsilon: float, site: Path | None = None) -> list[AuditJob]:
    """What executes the proof: a job for each policy, of which slices with other seeds are played."""
    return [AuditJob("proof", policy, epsilon, site=site) for policy in policies]


def run_jobs(
    jobs: Sequence[AuditJob],
    proofs: Sequence[AuditJob],
    minutes: float = MINUTES,
    on_progress: Progress | None = None,
) -> list[AuditRow]:
    """Run all that measures, then proofs until so many minutes are over, a slice of each at least; in two processes.

    Rows are in the order of the jobs.
    """
    started = time.monotonic()
    done: dict[int, AuditRow] = {}
    total = len(jobs)

    def show(rows: int) -> None:
        if on_progress is not None:
            on_progress(min(rows, total), total)

    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(run_job, job): number for number, job in enumerate(jobs)}
        total += round(max(0.0, 30.0 * minutes - SLICE) / SLICE) * PROCESSES if proofs else 0  # about
        for future in as_completed(waiting):
            done[waiting[future]] = future.result()
            show(len(done))
        left = 60.0 * minutes - (time.monotonic() - started)
        slices = [
            replace(job, number=1_000_000 * number)
            for number in range(max(1, int(left * PROCESSES / SLICE / max(1, len(proofs)))))
            for job in proofs
        ]
        total = len(jobs) + len(slices)
        played: dict[int, AuditRow] = {}
        running = {pool.submit(run_job, job): number for number, job in enumerate(slices)}
        for future in as_completed(running):
            if future.cancelled():
                continue
            number = running[future]
            played[number] = future.result()
            show(len(done) + len(played))
            is_late = time.monotonic() - started + 2.0 * SLICE > 60.0 * minutes  # one runs yet, and one is next
            for other, place in running.items():
                is_same = bool(played[number].reason) and place % len(proofs) == number % len(proofs)
                if is_same or (is_late and place >= len(proofs)):  # more of the same would find the same
                    other.cancel()
    of_proof = [
        together([played[number] for number in sorted(played) if number % len(proofs) == place])
        for place in range(len(proofs))
    ]
    return [*(done[number] for number in range(len(jobs))), *of_proof]


def run_job(job: AuditJob) -> AuditRow:
    """Run one job."""
    match job.kind:
        case "attack":
            attack = attacks_on(job.policy, job.epsilon, job.paper)[job.number]
            return run_attack(attack, job.samples, false_alarm=job.false_alarm)
        case "proof":
            label = NAMES.get(job.policy, job.policy)
            terms = terms_of(job.policy, job.epsilon) if job.site is None else _those_of(job.site)
            return check_proof(label, terms, job.epsilon, job.seconds, first_seed=job.number)
        case "noise":
            return check_noise(job.epsilon, NOISE_RUNS, false_alarm=job.false_alarm)


def _those_of(path: Path) -> Callable[[bytes], Federation]:
    """The terms of a site, whatever is drawn."""
    terms = read_config(path).terms

    def always(drawn: bytes) -> Federation:
        return terms

    return always


def of_site(path: Path) -> tuple[str, float]:
    """The policy and the epsilon that the terms of a site claim; refuses those that claim none."""
    terms = read_config(path).terms
    claimed = float(getattr(terms.policy, "epsilon", inf))
    if claimed == inf:
        raise InvalidArgument(
            "policy", kind_of(terms.policy), "one that claims an epsilon", "There is nothing to audit."
        )
    return kind_of(terms.policy), claimed
