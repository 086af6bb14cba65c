"""Changes of the arms between simulated agents: the message that carries them, and signatures without certificates.

A simulated signature is a code that only the simulation makes: a test that forges a change cannot sign it.
"""

from dataclasses import dataclass
from hashlib import blake2b
from hmac import compare_digest

from fedbandit.agent.core.arm_changes import ArmChange, Proof, Sign

__all__ = ["ArmNews", "is_signed", "simulated_signature"]


@dataclass(frozen=True)
class ArmNews:
    """All changes that an agent knows, on their way to a neighbour."""

    sender: str
    receiver: str
    changes: tuple[ArmChange, ...]


def simulated_signature(name: str) -> Sign:
    """Signs as the agent of this name."""

    def sign(content: bytes) -> Proof:
        return name.encode(), blake2b(content, key=f"key of {name}".encode()[:64]).digest()

    return sign


def is_signed(change: ArmChange) -> bool:
    """Whether the site that a change names has signed it."""
    return compare_digest(simulated_signature(change.by)(change.content)[1], change.signature)
