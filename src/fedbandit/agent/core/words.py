"""The words in which a federation speaks to people, and what it has planned: terms that change no number.

All sites agree on them like on every term: a report that names a plan shows what was planned before the first patient.
"""

from dataclasses import dataclass
from datetime import date

from fedbandit.checks import InvalidArgument, instance, whole_number

__all__ = ["Plan", "Words", "plural"]

MOST_LETTERS, MOST_TEXT = 40, 1000

VOWELS = "aeiou"


def plural(word: str) -> str:
    """Of a regular English noun."""
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return f"{word}es"
    if word.endswith("y") and word[-2:-1] not in (*VOWELS, ""):
        return f"{word[:-1]}ies"
    return f"{word}s"


@dataclass(frozen=True)
class Words:
    """Nouns in the singular.

    * ``arm``: what is given, such as "treatment"
    * ``reward``: what is hoped for, such as "success"
    * ``failure``: what a patient without a reward has, where rewards are 0 or 1; "": there is no word for it
    """

    arm: str = "arm"
    reward: str = "reward"
    failure: str = ""

    def __post_init__(self) -> None:
        """Check the words."""
        for name in ("arm", "reward", "failure"):
            word: str = getattr(self, name)
            instance(name, word, str, "a noun")
            is_fine = word == word.strip() and word.isprintable() and len(word) <= MOST_LETTERS
            if not is_fine or (not word and name != "failure"):
                raise InvalidArgument(name, word, f"a noun in the singular, of at most {MOST_LETTERS} letters")

    def per_patients(self, difference: float, low: float, high: float) -> str:
        """What a difference of mean rewards is in patients: if negative "about 2 more failures per 100 patients"."""
        size, is_worse = abs(difference), difference < 0.0
        if (low, high) != (0.0, 1.0):
            return f"about {100.0 * size:.2g} {'less' if is_worse else 'more'} {self.reward} per 100 patients"
        word, more = (self.failure, is_worse) if self.failure else (self.reward, not is_worse)
        how = "more" if more else "fewer"
        for people in (100, 1000):
            count = round(people * size)
            if people * size >= 0.95:
                return f"about {count:,} {how} {word if count == 1 else plural(word)} per {people:,} patients"
        return f"at most 1 {how} {word} per 1,000 patients"


@dataclass(frozen=True)
class Plan:
    """What was planned; nothing in it stops anything by itself.

    * ``question``: what the federation is to find out
    * ``starts``: the day of the first patient, as in "2026-03-02"
    * ``patients``: how many over all sites
    * ``stops``: the stopping rule, in words
    """

    question: str = ""
    starts: str = ""
    patients: int | None = None
    stops: str = ""

    def __post_init__(self) -> None:
        """Check the plan."""
        for name in ("question", "starts", "stops"):
            text: str = getattr(self, name)
            instance(name, text, str, "text")
            if len(text) > MOST_TEXT or not text.isprintable():
                raise InvalidArgument(name, text, f"a text of at most {MOST_TEXT} printable characters, on one line")
        if self.starts:
            try:
                date.fromisoformat(self.starts)
            except ValueError:
                raise InvalidArgument("starts", self.starts, "a day such as 2026-03-02") from None
        if self.patients is not None:
            object.__setattr__(self, "patients", whole_number("patients", self.patients, 1, 10**12))
