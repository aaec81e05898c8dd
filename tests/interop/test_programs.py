"""The docs name the versions that are tried and measured."""

from __future__ import annotations

import re

import pytest

from tests.interop.programs import PROGRAMS, ROOT, of_the_suite

PAGE = (ROOT / "docs" / "interop.md").read_text(encoding="utf-8")
MEASURED = ["verifiers", "verifiers_tool_env", "inspect"]


@pytest.mark.parametrize("name", of_the_suite(large=True))
def test_the_page_has_the_version_that_is_tried(name):
    for requirement in PROGRAMS[name].needs:
        package, version = re.split(r"(?:\[.*])?==", requirement)
        assert re.search(rf"^\| {re.escape(package)} \| [^|]*\b{re.escape(version)}\b", PAGE, re.MULTILINE), requirement


@pytest.mark.parametrize("name", MEASURED)
def test_the_page_on_performance_has_the_version_that_is_measured(name):
    figures = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert f"| {PROGRAMS[name].needs[0].replace('==', ' ')}" in figures
