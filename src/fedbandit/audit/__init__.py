"""Attacks on the mechanisms and live sites that protect rewards.

``measure`` bounds the epsilon of any mechanism from below; ``attacks`` and ``as_printed`` hand it theirs. ``pairs``
executes the privacy proof on a live site: an ``executor`` plays random ``scripts``. ``noise_tests`` judges its noise,
and ``suite`` makes the table that ``fedbandit audit`` prints. Tests show that broken mechanisms and sites are caught.
"""

from fedbandit.extras import needs

needs("fedbandit.audit", "sim")

from fedbandit.audit import measure  # noqa: E402

__all__ = ["measure"]


def __dir__() -> list[str]:
    return __all__
