"""The tables of docs/export.md: every column is the result of a test."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.interop.law import columns
from tests.interop.test_templates import TEMPLATES

HERE = Path(__file__).parent


def held() -> set[str]:
    """The readers' names that tests give to `hold`."""
    calls = [
        node
        for path in HERE.glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "hold"
    ]
    return {call.args[0].value for call in calls if isinstance(call.args[0], ast.Constant)}


@pytest.mark.parametrize(("table", "readers"), [("readers", held()), ("templates", set(TEMPLATES))])
def test_the_columns_of_a_table_are_those_that_a_test_holds(table: str, readers: set[str]):
    assert columns(table).keys() == readers
