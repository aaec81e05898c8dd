"""Under CI=true nothing is skipped but what the platform cannot do: anything else that is missing is a failure."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest

PLATFORM = (
    "sealed memory is Linux's",
    "sandboxes are Linux's",
    "waits for a process that is not its child",
    "there is a CUDA device",
    "only root on Debian may install",
    "which is not here",  # a newer interpreter
    "only for Python 3.11 on Linux x86_64 and Python 3.12 on Linux x86_64",  # mettagrid's wheels
    "in make interop",  # a program that takes gigabytes
    "make test installs it with a C compiler",  # it fails under CI=true if it cannot
)


def _refuse_skip(report: Any) -> None:
    if report.outcome != "skipped" or hasattr(report, "wasxfail") or os.environ.get("CI") != "true":
        return
    reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    if not reason.endswith(PLATFORM):
        report.outcome, report.longrepr = "failed", f"skipped under CI=true: {reason}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, None]:
    outcome = yield
    _refuse_skip(outcome.get_result())


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, None]:
    outcome = yield
    _refuse_skip(outcome.get_result())
