"""The index: an SQLite file beside a rollouts file, and the filter language that queries it.

From Python, `matching_lines(path, "reward<1 tools>3")` gives the lines of a file that match a filter.
"""

from velodrome.index.answer_types import (
    FAILED,
    Entry,
    FailureGroup,
    Page,
    Repeats,
    Spread,
    State,
    TaskSummary,
)
from velodrome.index.index import Index, matching_lines
from velodrome.index.query import Query, Sort

__all__ = [
    "FAILED",
    "Entry",
    "FailureGroup",
    "Index",
    "Page",
    "Query",
    "Repeats",
    "Sort",
    "Spread",
    "State",
    "TaskSummary",
    "matching_lines",
]
