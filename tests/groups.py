"""Which worker runs a test: those that compile the same page share one."""

import re

import pytest


def of_pages(cases, slow=()):
    """Cases of such a table as parameters of a test; those in ``slow`` run in ``make test-all`` only."""
    return [pytest.param(it, marks=[of_page(it), *([pytest.mark.slow] if it in slow else [])]) for it in cases]


def of_page(policy):
    """A mark for tests of a policy's page, by the name that a table of cases has for it."""
    (kind, *_) = re.split("[_, ]", policy.removeprefix("fed_"))
    return pytest.mark.xdist_group(f"page of {kind}")
