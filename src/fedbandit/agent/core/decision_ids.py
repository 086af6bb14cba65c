"""Makes the ids of decisions, which nobody can guess.

Whoever knows an id was handed the decision, or was told by the one who was: only they can report its reward.
"""

import struct
from hashlib import blake2b

__all__ = ["KEY_SIZE", "decision_id"]

KEY_SIZE = 32
"""Bytes of the key in a site's file; the disk draws it when the file is made."""


def decision_id(key: bytes, run: int, epoch: int, number: int, at: float) -> str:
    """The number of the decision, and 128 bits that only the key tells.

    The run is in them: a process that starts with an old file, or a copy, hands out other ids for the same numbers.
    """
    tag = blake2b(struct.pack("<qqqd", run, epoch, number, at), digest_size=16, key=key, person=b"decision")
    return f"{number}-{tag.hexdigest()}"
