"""Checks a policy of your own, in your own tests: ``check_policy``."""

from fedbandit.extras import needs

needs("fedbandit.testing", "sim")

from fedbandit.testing.own_policy import check_policy  # noqa: E402  # what it imports is not in the base

__all__ = ["check_policy"]


def __dir__() -> list[str]:
    return __all__
