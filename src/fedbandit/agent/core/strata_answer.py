"""Answers the question of a federation for each stratum, in words for a physician, and says whether strata matter.

Each stratum has an answer like that of all patients (``core.answer``), from the estimates of its own. What daily looks
can produce is not known of this model: so an answer is settled only where releases of the stratum alone prove it
(``core.cells``).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fedbandit.agent.core.answer import Answer, Belief, answer_of, in_percent
from fedbandit.agent.core.context import Factors

__all__ = ["StratumAnswer", "answers_of_strata", "words_of_strata"]

OPEN = 0.9
"""Below this chance the words call it open whether strata matter."""


@dataclass(frozen=True)
class StratumAnswer:
    """What is known of a stratum; rows have an entry for each arm.

    * ``frequency``: how much of all patients it is, as far as sites have measured that
    * ``theta``, ``errors``: the estimates, and their standard deviations
    """

    stratum: int
    frequency: float
    answer: Answer
    theta: tuple[float | None, ...]
    errors: tuple[float | None, ...]


def answers_of_strata(
    belief: Belief,
    theta: Sequence[Sequence[float | None]],
    errors: Sequence[Sequence[float | None]],
    frequencies: Sequence[float],
    status: Sequence[Sequence[str]],
) -> tuple[StratumAnswer, ...]:
    """Of each stratum; ``belief`` is that of all patients, all else has a row for each stratum."""
    return tuple(
        StratumAnswer(
            s,
            frequencies[s],
            answer_of(belief._replace(theta=means, deviation=spreads, status=status[s]))._replace(settled=False),
            tuple(means),
            tuple(spreads),
        )
        for s, (means, spreads) in enumerate(zip(theta, errors, strict=True))
    )


def words_of_strata(
    belief: Belief, factors: Factors, strata: Sequence[StratumAnswer], answer: Answer, matters: float
) -> str:
    """Who should get what, such as "Over 65: metformin, 91 % sure; all others: insulin, 84 % sure".

    ``answer``: that of all patients; ``matters``: the chance that strata change anything.
    """
    leaders = [it.answer.leader for it in strata]
    if answer.chance is None or any(it.answer.chance is None for it in strata):
        return answer.words  # too little is known, or there is nothing to compare
    groups: dict[int, list[int]] = {}
    for s, leader in enumerate(leaders):
        groups.setdefault(leader or 0, []).append(s)
    sure = {k: in_percent(min(strata[s].answer.chance or 0.0 for s in members)) for k, members in groups.items()}
    if len(groups) == 1:
        (leader,) = groups
        said = f"{belief.names[leader]} is best so far for everybody on average {belief.whose}"
        said += f" (at least {sure[leader]} sure in each stratum)."
    else:
        each = sorted(groups.items(), key=lambda it: (len(it[1]), it[1]))
        parts = [f"{factors.in_words(members)}: {belief.names[k]}, {sure[k]} sure" for k, members in each[:-1]]
        last, members = each[-1]
        whom = "all others" if len(members) > 1 else factors.in_words(members)
        parts.append(f"{whom}: {belief.names[last]}, {sure[last]} sure")
        said = f"Best so far on average {belief.whose}. {'; '.join(parts)[:1].upper()}{'; '.join(parts)[1:]}."
    return f"{said} {_whether_they_matter(matters)} {_whether_settled(factors, strata)}"


def _whether_settled(factors: Factors, strata: Sequence[StratumAnswer]) -> str:
    settled = [it.stratum for it in strata if it.answer.settled]
    if not settled:
        return "This is not settled, and is not about one patient."
    if len(settled) == len(strata):
        return "This is settled, and is not about one patient."
    return f"So far this is settled for {factors.in_words(settled)} alone, and is not about one patient."


def _whether_they_matter(matters: float) -> str:
    if matters >= OPEN:
        return f"What is known of patients beforehand matters ({in_percent(matters)} sure)."
    if matters <= 1.0 - OPEN:
        return f"What is known of patients beforehand does not matter ({in_percent(1.0 - matters)} sure)."
    return f"Whether what is known of patients beforehand matters is open ({in_percent(matters)} for it)."
