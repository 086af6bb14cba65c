"""Differential privacy for real rewards, independent of the simulator.

``noise`` draws, ``ledger`` accounts for every draw, ``mechanism`` plays the page of a policy with them.
"""

from fedbandit.privacy import ledger, mechanism, noise

__all__ = ["ledger", "mechanism", "noise"]


def __dir__() -> list[str]:
    return __all__
