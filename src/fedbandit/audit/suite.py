"""The attacks that ``fedbandit audit`` runs on each policy, and the rows of its table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedbandit.audit.attacks import Attack, on_batches, on_tree
from fedbandit.audit.live_sites import on_delays, on_fed_batch, on_fed_ucb
from fedbandit.audit.measure import SAMPLES, Finding, audit
from fedbandit.checks import InvalidArgument, closest
from fedbandit.policies import FedUCB

__all__ = ["AUDITED", "Row", "attacks_on", "run_attacks"]

AUDITED = ("fed_batch", "fed_ucb")


@dataclass(frozen=True)
class Row:
    """An attack and what it found."""

    attack: Attack
    finding: Finding

    @property
    def as_expected(self) -> bool:
        """A real claim holds, a known-bad variant is caught."""
        return self.finding.holds != self.attack.known_bad

    @property
    def verdict(self) -> str:
        """In words."""
        if self.attack.known_bad:
            return "NOT CAUGHT" if self.finding.holds else "caught"
        return "not broken" if self.finding.holds else "BROKEN"


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
    attacks: Sequence[Attack], samples: int = SAMPLES, on_progress: Callable[[int, int], None] | None = None
) -> list[Row]:
    """Carry out attacks one after the other."""
    sizes = [attack.samples or samples for attack in attacks]
    rows: list[Row] = []
    for position, attack in enumerate(attacks):
        before = sum(sizes[:position])

        def show(done: int, _: int, before: int = before) -> None:
            if on_progress is not None:
                on_progress(before + done, sum(sizes))

        found = audit(
            attack.sample, attack.statistic, claimed=attack.claimed, samples=sizes[position], on_progress=show
        )
        rows.append(Row(attack, found))
    return rows
