"""Tests with a program that is not installed say so."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from tests.interop.programs import Absent


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, Any, Any]:
    return (yield from _present())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, Any, Any]:
    return (yield from _present())


def _present() -> Generator[None, Any, Any]:
    try:
        return (yield)
    except Absent as absent:
        pytest.skip(str(absent))
