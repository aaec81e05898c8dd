"""Rules of the suite itself: no test asserts a duration, and all wait as long as `patience` says for what must come."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import DEADLINE_S

HERE = Path(__file__).parent
OWN_DEADLINE = re.compile(
    r"\btimeout=\d{2,}|asyncio\.timeout\(\d{2,}|wait_for\(.*, \d{2,}\)|\.(?:wait|join|result)\(\d{2,}"
)
DURATION = re.compile(r"assert .*(?:monotonic|perf_counter|thread_time|process_time)\(\) - ")


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(HERE)}:{number}: {line.strip()}"
        for path in sorted(HERE.rglob("*.py"))
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if pattern.search(line)
    ]


def test_a_deadline_that_only_ends_a_hang_is_the_one_of_patience():
    assert lines_with(OWN_DEADLINE) == []


def test_no_test_asserts_how_long_something_took():
    assert lines_with(DURATION) == []


NODE = re.compile(r"`(tests/[^`:]+\.py)::([^`]+)`")


def test_each_test_that_a_promise_names_exists():
    named = NODE.findall((HERE / "PROMISES.md").read_text())
    assert len(named) > 200
    functions: dict[str, set[str]] = {}
    for path, _ in named:
        tree = ast.parse((HERE.parent / path).read_text()) if (HERE.parent / path).exists() else ast.Module([], [])
        functions[path] = {
            node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
    assert [f"{path}::{test}" for path, test in named if test.split("::")[-1] not in functions[path]] == []


SKIPPING = """
import pytest

def test_lacks_something():
    pytest.importorskip("no_such_package")

@pytest.mark.skipif(True, reason="only root on Debian may install")
def test_of_another_platform(): ...
"""


@pytest.mark.parametrize(("ci", "failed"), [("true", "1 failed, 1 skipped"), ("", "2 skipped")])
def test_under_ci_a_skip_is_a_failure_unless_the_platform_cannot(tmp_path: Path, ci: str, failed: str):
    (tmp_path / "test_skipping.py").write_text(SKIPPING)
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.skips", "test_skipping.py"]
    alone = {**os.environ, "CI": ci, "PYTHONPATH": str(HERE.parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **alone}, capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert failed in done.stdout
