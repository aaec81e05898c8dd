"""The index: an SQLite file beside a rollouts file, and the filter language that queries it.

From Python, `matching_lines(path, "reward<1 tools>3")` gives the lines of a file that match a filter.
"""

from velodrome.index.answers import (
    FAILED,
    Bin,
    Entry,
    Group,
    Histogram,
    Page,
    Point,
    Repeats,
    State,
    Task,
    TaskPage,
)
from velodrome.index.index import Index
from velodrome.index.matching import matching_lines
from velodrome.index.query import Query, Sort

__all__ = [
    "FAILED",
    "Bin",
    "Entry",
    "Group",
    "Histogram",
    "Index",
    "Page",
    "Point",
    "Query",
    "Repeats",
    "Sort",
    "State",
    "Task",
    "TaskPage",
    "matching_lines",
]
