"""Who did what, and why: the deed of a person, with the reason that must come with it."""

from dataclasses import dataclass

from fedbandit.agent.core.arms import MAX_REASON, ChangeKind
from fedbandit.checks import InvalidArgument

__all__ = ["REASON", "UNSAID", "Deed", "checked_reason", "needs_reason"]

REASON = f"a text of 1 to {MAX_REASON} printable characters that says why"
"""What is accepted for a reason."""


def needs_reason(kind: ChangeKind) -> bool:
    """Whether a change of an arm needs a reason: each does that concerns patients who are treated already."""
    return kind != "add"


def checked_reason(value: object, required: bool = True) -> str:
    """A reason without blanks around it, or an error."""
    text = value.strip() if isinstance(value, str) else None
    if text is None or len(text) > MAX_REASON or not text.isprintable() or (required and not text):
        accepted = REASON if required else f"{REASON}, or left out"
        raise InvalidArgument("reason", value, accepted)
    return text


@dataclass(frozen=True)
class Deed:
    """What somebody asks for.

    * ``who``: the person's name, or that of a role; empty: not known
    * ``how``: how that is known, in words
    * ``reason``: why
    """

    who: str
    how: str
    reason: str = ""

    def in_words(self) -> str:
        """For the log."""
        return f"by {self.who or self.how}{f': {self.reason}' if self.reason else ''}"


UNSAID = Deed("", "")
"""Of what nobody has asked for: the agent does it by itself."""
