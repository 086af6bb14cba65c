"""The policy that is evaluated: a share of every arm, which a request with fewer arms divides among those."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from pathlib import Path

from fedbandit.checks import FileError, InvalidArgument, closest, finite_number, shortened
from fedbandit.toml_files import Section, checked, read_toml

__all__ = ["Target", "TargetError", "target"]

ACCEPTED = "'always ARM', 'uniform', or a TOML file with [shares]"


class TargetError(FileError):
    """The file of a policy cannot be used."""


@dataclass(frozen=True)
class Target:
    """A policy that does not learn: ``shares`` has the probability of each arm, and they sum to 1."""

    name: str
    shares: tuple[float, ...]

    def among(self, eligible: Sequence[int] | None) -> tuple[float, ...] | None:
        """The probability of each arm for a request that may have these; None: it gives none of them."""
        if eligible is None:
            return self.shares
        total = fsum(self.shares[k] for k in eligible)
        if total <= 0.0:
            return None
        chosen = [0.0] * len(self.shares)
        for k in eligible:
            chosen[k] = self.shares[k] / total
        return tuple(chosen)


class _File(Section):
    shares: dict[str, float | int]


def target(text: str, arms: Sequence[str]) -> Target:
    """The policy that a text names: ``always ARM``, ``uniform``, or a file.

    A TOML file has the share of each arm, such as

    ```toml
    [shares]
    insulin = 0.7
    metformin = 0.3
    ```

    Arms that the file does not name are never given.
    """
    word, _, rest = text.strip().partition(" ")
    if word == "uniform" and not rest:
        return Target("uniform", (1.0 / len(arms),) * len(arms))
    if word == "always" and rest:
        arm = _number("policy", rest.strip(), arms)
        return Target(f"always {arms[arm]}", tuple(float(k == arm) for k in range(len(arms))))
    path = Path(text)
    if not os.path.lexists(path):
        raise InvalidArgument("policy", text, ACCEPTED, closest(word, ("always", "uniform")))
    _, content = read_toml(path, TargetError)
    given = checked(_File, content, path, TargetError).shares
    shares = [0.0] * len(arms)
    try:
        for name, share in given.items():
            share = finite_number(f"shares.{name}", share)
            if not 0.0 <= share <= 1.0:
                raise InvalidArgument(f"shares.{name}", share, "a number from 0 to 1")
            shares[_number("shares", name, arms)] = share
        if abs(fsum(shares) - 1.0) > 1e-9:
            raise InvalidArgument("shares", f"{fsum(shares):.12g} in all", "numbers that sum to 1")
    except InvalidArgument as error:
        raise TargetError(f"{path}: {error}") from None
    total = fsum(shares)
    return Target(path.stem, tuple(share / total for share in shares))


def _number(argument: str, name: str, arms: Sequence[str]) -> int:
    if name not in arms:
        raise InvalidArgument(argument, name, f"an arm: {shortened(', '.join(arms), 400)}", closest(name, arms))
    return arms.index(name)
