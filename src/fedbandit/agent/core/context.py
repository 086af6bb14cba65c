"""What is known of a patient before an arm is chosen: the factors of the terms, their levels, and strata of those.

A stratum is a combination of levels, one of each factor. Its number follows from the terms alone: factors are taken in
the order of their names, levels in that of the terms, and the last factor changes fastest.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from fedbandit.checks import MAX_STRATA, InvalidArgument, closest, instance, listed

__all__ = ["UNKNOWN", "Factor", "Factors"]

MOST_LETTERS = 40

MOST_NAMED = 4
"""Strata, or levels, that are named of several."""

UNKNOWN = "unknown"
"""The level that stands for missing values, and for those that a factor does not know; without it they are refused."""


class Factor(NamedTuple):
    """Something that is known of each patient, such as the age group."""

    name: str
    levels: tuple[str, ...]

    def level(self, value: object) -> int:
        """The number of the level of a value; None: it is missing."""
        if value is not None and not isinstance(value, str):
            raise InvalidArgument(self.name, value, self._accepted)
        if value in self.levels:
            return self.levels.index(value)
        if UNKNOWN not in self.levels:
            raise InvalidArgument(self.name, value, self._accepted, closest(value, self.levels) if value else "")
        return self.levels.index(UNKNOWN)

    @property
    def _accepted(self) -> str:
        return f"one of {', '.join(self.levels)}"


@dataclass(frozen=True)
class Factors:
    """The factors of a federation, in the order of their names: equal terms number strata alike."""

    factors: tuple[Factor, ...]

    def __post_init__(self) -> None:
        """Check the factors."""
        if not self.factors:
            raise InvalidArgument("context", {}, "at least one factor with its levels, or left out")
        for name, levels in self.factors:
            _check_name("context", name, "names of factors")
            if len(levels) < 2 or len(set(levels)) < len(levels):
                raise InvalidArgument(f"context.{name}", list(levels), "two or more different levels")
            for k, level in enumerate(levels):
                _check_name(f"context.{name}[{k}]", level, "a level")
        names = [it.name for it in self.factors]
        if len(set(names)) < len(names):
            raise InvalidArgument("context", names, "different factors")
        if self.num_strata > MAX_STRATA:
            shown = " x ".join(str(len(it.levels)) for it in self.factors)
            says = f"{shown} = {self.num_strata} strata"
            raise InvalidArgument("context", says, f"at most {MAX_STRATA} combinations of levels")
        object.__setattr__(self, "factors", tuple(sorted(self.factors)))

    @staticmethod
    def of(given: Mapping[str, Sequence[str]]) -> "Factors":
        """From the levels of each factor, by name."""
        for name, levels in given.items():
            if isinstance(levels, str) or not isinstance(levels, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidArgument(f"context.{name}", levels, "a list of two or more different levels")
        return Factors(tuple(Factor(name, tuple(levels)) for name, levels in given.items()))

    @property
    def num_strata(self) -> int:
        """How many combinations of levels there are."""
        return prod(len(it.levels) for it in self.factors)

    @property
    def plain(self) -> dict[str, list[str]]:
        """The levels of each factor, as in the terms."""
        return {it.name: list(it.levels) for it in self.factors}

    def stratum(self, context: Mapping[str, str | None]) -> int:
        """The number of the stratum of a patient of whom this is known."""
        names = [it.name for it in self.factors]
        instance("context", context, Mapping, f"an object with some of {', '.join(names)}")
        for name in context:
            if name not in names:
                accepted = f"left out: the factors are {', '.join(names)}"
                raise InvalidArgument(f"context.{name}", context[name], accepted, closest(str(name), names))
        number = 0
        for factor in self.factors:
            try:
                number = number * len(factor.levels) + factor.level(context.get(factor.name))
            except InvalidArgument as error:
                raise error.at("context") from None
        return number

    def levels(self, stratum: int) -> dict[str, str]:
        """The level of each factor in a stratum."""
        found: dict[str, str] = {}
        for factor in reversed(self.factors):
            stratum, level = divmod(stratum, len(factor.levels))
            found[factor.name] = factor.levels[level]
        return {it.name: found[it.name] for it in self.factors}

    def label(self, stratum: int) -> str:
        """A stratum in words, such as "over 65, impaired"; a level that says nothing alone has its factor's name."""
        levels = self.levels(stratum)
        return ", ".join(self.name_of(it, levels[it.name]) for it in self.factors)

    def with_levels(self, argument: str, levels: Mapping[str, str]) -> tuple[int, ...]:
        """The numbers of the strata with these levels, whatever those of all other factors are."""
        names = [it.name for it in self.factors]
        known = {it.name: it.levels for it in self.factors}
        if not levels:
            raise InvalidArgument(argument, dict(levels), f"a level of at least one of {', '.join(names)}")
        for name, level in levels.items():
            if name not in known:
                raise InvalidArgument(f"{argument}.{name}", level, f"a level of one of {', '.join(names)}")
            if level not in known[name]:
                accepted, hint = f"one of {', '.join(known[name])}", closest(str(level), known[name])
                raise InvalidArgument(f"{argument}.{name}", level, accepted, hint)
        return tuple(s for s in range(self.num_strata) if levels.items() <= self.levels(s).items())

    def common_levels(self, strata: Collection[int]) -> dict[str, str] | None:
        """The levels that these strata have in common, if no others have all of them; None: there are none such."""
        first, *others = [self.levels(s) for s in sorted(strata)]
        common = {name: level for name, level in first.items() if all(it[name] == level for it in others)}
        is_whole = bool(common) and self.with_levels("levels", common) == tuple(sorted(strata))
        return common if is_whole else None

    def in_words(self, strata: Collection[int]) -> str:
        """Some strata in the fewest words: the levels of one factor, if these are all that have them."""
        for factor in self.factors:
            levels = {self.levels(s)[factor.name] for s in strata}
            whole = [s for s in range(self.num_strata) if self.levels(s)[factor.name] in levels]
            if len(levels) < len(factor.levels) and whole == sorted(strata):
                named = [level for level in factor.levels if level in levels]
                return listed([self.name_of(factor, level) for level in named], MOST_NAMED)
        return listed([f"({it})" if "," in it else it for it in map(self.label, sorted(strata))], MOST_NAMED)

    def labelled(self, argument: str, label: object) -> int:
        """The number of the stratum with this label."""
        if label not in self.labels:
            raise InvalidArgument(argument, label, f"one of {'; '.join(self.labels)}", closest(str(label), self.labels))
        return self.labels.index(label)

    def name_of(self, factor: Factor, level: str) -> str:
        """A level in words, with the name of its factor where it says nothing alone."""
        is_clear = level != UNKNOWN and sum(level in it.levels for it in self.factors) == 1
        return level if is_clear else f"{factor.name} {level}"

    @property
    def labels(self) -> tuple[str, ...]:
        """Those of all strata, by number."""
        return tuple(map(self.label, range(self.num_strata)))


def _check_name(argument: str, text: object, what: str) -> None:
    is_fine = isinstance(text, str) and text == text.strip() and text.isprintable() and 0 < len(text) <= MOST_LETTERS
    if not is_fine:
        accepted = f"{what} of 1 to {MOST_LETTERS} printable characters, without blanks around it"
        raise InvalidArgument(argument, text, accepted)
