"""What another policy would have gained, estimated from a site's log: docs/evaluate.md."""

from fedbandit.evaluation.estimates import Estimate, Evaluation, by_stratum, evaluate
from fedbandit.evaluation.log import Log, LogError, LoggedDecision, read_log
from fedbandit.evaluation.target import Target, target

__all__ = [
    "Estimate",
    "Evaluation",
    "Log",
    "LogError",
    "LoggedDecision",
    "Target",
    "by_stratum",
    "evaluate",
    "read_log",
    "target",
]
