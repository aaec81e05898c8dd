"""The index: an SQLite file beside a rollouts file, and the filter language that is asked of it."""

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
]
