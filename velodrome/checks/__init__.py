"""The checks of `velo check`, in one streaming pass.

A check has a name, a severity and a heading in docs/checks.md. It reports nothing for a clean run of any size.
"""

from velodrome.checks.check import SEVERITIES, Finding, Severity
from velodrome.checks.runner import (
    CHECKS,
    WHILE_COLLECTING,
    Checks,
    known_checks,
    read_checks,
    run_checks,
    short,
    worst,
)

__all__ = [
    "CHECKS",
    "SEVERITIES",
    "WHILE_COLLECTING",
    "Checks",
    "Finding",
    "Severity",
    "known_checks",
    "read_checks",
    "run_checks",
    "short",
    "worst",
]
