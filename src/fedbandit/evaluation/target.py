"""The policy that is evaluated: a share of every arm, by context if you like; fewer arms divide it among themselves."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from pathlib import Path

from pydantic import Field

from fedbandit.checks import FileError, InvalidArgument, closest, finite_number, shortened
from fedbandit.evaluation.log import Context
from fedbandit.toml_files import Section, checked, read_toml

__all__ = ["Target", "TargetError", "defined", "named", "target"]

ACCEPTED = "'always ARM', 'uniform', or a TOML file with [shares]"


class TargetError(FileError):
    """The file of a policy cannot be used."""


@dataclass(frozen=True)
class Target:
    """A policy that does not learn: ``shares`` has the probability of each arm, and they sum to 1.

    ``strata``: for contexts with these levels other shares; the first that fits counts.
    """

    name: str
    shares: tuple[float, ...]
    strata: tuple[tuple[Context, tuple[float, ...]], ...] = ()

    def among(self, eligible: Sequence[int] | None, context: Context = ()) -> tuple[float, ...] | None:
        """The probability of each arm for a request that may have these; None: it gives none of them."""
        shares = next((it for levels, it in self.strata if set(levels) <= set(context)), self.shares)
        if eligible is None:
            return shares
        total = fsum(shares[k] for k in eligible)
        if total <= 0.0:
            return None
        chosen = [0.0] * len(shares)
        for k in eligible:
            chosen[k] = shares[k] / total
        return tuple(chosen)

    @property
    def given(self) -> tuple[int, ...]:
        """The arms that it gives to anybody."""
        rows = [self.shares, *(shares for _, shares in self.strata)]
        return tuple(k for k in range(len(self.shares)) if any(row[k] > 0.0 for row in rows))


class _Stratum(Section):
    context: dict[str, str]
    shares: dict[str, float | int]


class _File(Section):
    shares: dict[str, float | int]
    strata: list[_Stratum] = Field(default_factory=list[_Stratum])


def target(text: str, arms: Sequence[str], factors: Mapping[str, Sequence[str]] | None = None) -> Target:
    """The policy that a text names: ``always ARM``, ``uniform``, or a file.

    A TOML file has the share of each arm, such as

    ```toml
    [shares]
    insulin = 0.7
    metformin = 0.3
    ```

    Arms that the file does not name are never given. What patients with some levels get instead follows, the first that
    fits:

    ```toml
    [[strata]]
    context = { age = "over 65" }
    shares = { metformin = 1 }
    ```

    ``factors``: those of the log, with their levels that have come; others are refused.
    """
    if (found := named(text, arms)) is not None:
        return found
    path = Path(text)
    if not os.path.lexists(path):
        raise InvalidArgument("policy", text, ACCEPTED, closest(text.strip().partition(" ")[0], ("always", "uniform")))
    _, content = read_toml(path, TargetError)
    file = checked(_File, content, path, TargetError)
    try:
        return defined(path.stem, file.shares, [(it.context, it.shares) for it in file.strata], arms, factors or {})
    except InvalidArgument as error:
        raise TargetError(f"{path}: {error}") from None


def named(text: str, arms: Sequence[str]) -> Target | None:
    """``uniform`` and ``always ARM``, which need no file; None: it is neither."""
    word, _, rest = text.strip().partition(" ")
    if word == "uniform" and not rest:
        return Target("uniform", (1.0 / len(arms),) * len(arms))
    if word == "always" and rest:
        arm = _number("policy", rest.strip(), arms)
        return Target(f"always {arms[arm]}", tuple(float(k == arm) for k in range(len(arms))))
    return None


def defined(
    name: str,
    shares: Mapping[str, float],
    strata: Sequence[tuple[Mapping[str, str], Mapping[str, float]]],
    arms: Sequence[str],
    factors: Mapping[str, Sequence[str]],
) -> Target:
    """The policy with these shares, and with others in some strata."""
    return Target(
        name,
        _shares("shares", shares, arms),
        tuple(
            (_levels(f"strata[{i}].context", context, factors), _shares(f"strata[{i}].shares", others, arms))
            for i, (context, others) in enumerate(strata)
        ),
    )


def _shares(place: str, given: Mapping[str, float], arms: Sequence[str]) -> tuple[float, ...]:
    shares = [0.0] * len(arms)
    for name, share in given.items():
        share = finite_number(f"{place}.{name}", share)
        if not 0.0 <= share <= 1.0:
            raise InvalidArgument(f"{place}.{name}", share, "a number from 0 to 1")
        shares[_number(place, name, arms)] = share
    total = fsum(shares)
    if abs(total - 1.0) > 1e-9:
        raise InvalidArgument(place, f"{total:.12g} in all", "numbers that sum to 1")
    return tuple(share / total for share in shares)


def _levels(place: str, given: Mapping[str, str], factors: Mapping[str, Sequence[str]]) -> Context:
    """Levels that some decision has: a misspelt one would give its patients what all others get."""
    if not given:
        raise InvalidArgument(place, {}, "one factor or more, with its level; [shares] is for all others")
    for name, level in given.items():
        if name not in factors:
            accepted = f"one of the log's: {', '.join(factors)}" if factors else "left out: the log has no contexts"
            raise InvalidArgument(f"{place}.{name}", level, accepted, closest(name, factors))
        if level not in factors[name]:
            accepted = f"a level that some decision has: {', '.join(factors[name])}"
            raise InvalidArgument(f"{place}.{name}", level, accepted, closest(level, factors[name]))
    return tuple(sorted(given.items()))


def _number(argument: str, name: str, arms: Sequence[str]) -> int:
    if name not in arms:
        raise InvalidArgument(argument, name, f"an arm: {shortened(', '.join(arms), 400)}", closest(name, arms))
    return arms.index(name)
