"""Which worker runs a test: those that compile the same page share one."""

import re

import pytest


def of_page(policy):
    """A mark for tests of a policy's page, by the name that a table of cases has for it."""
    (kind, *_) = re.split("[_, ]", policy.removeprefix("fed_"))
    return pytest.mark.xdist_group(f"page of {kind}")
