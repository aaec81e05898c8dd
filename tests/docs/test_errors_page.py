"""Errors, boundaries and exit codes are documented."""

from __future__ import annotations

import inspect
import re
from typing import get_args

from pages import headings, read, rows, section

from velodrome import errors
from velodrome.cli import collect


def error_classes() -> list[type[errors.VelodromeError]]:
    classes = [thing for _, thing in inspect.getmembers(errors, inspect.isclass)]
    return [thing for thing in classes if issubclass(thing, errors.VelodromeError)]


def test_every_error_has_a_heading():
    assert {kind.__name__ for kind in error_classes()} <= set(headings(read("errors.md")))


def test_every_boundary_is_documented_with_the_error_that_carries_it():
    carried = {kind.boundary: kind.__name__ for kind in error_classes() if kind.__base__ is errors.RolloutError}
    documented = rows(section(read("errors.md"), "Boundaries"))
    assert {name: re.sub(r"\[(\w+)\].*", r"\1", value) for name, value in documented.items()} == carried
    assert carried.keys() == set(get_args(errors.Boundary))


def test_every_exit_code_is_documented():
    line = collect.VERB.more.partition("exit code:")[2].partition("\n\n")[0]
    assert list(rows(section(read("errors.md"), "Exit codes"))) == re.findall(r"\d+", line)
