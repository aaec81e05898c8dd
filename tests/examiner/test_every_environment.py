"""Every built-in environment keeps every rule of `velo test`; a copy with one planted fault per rule does not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.broken_copies import broken
from velodrome.examiner.catalogue import catalogue
from velodrome.examiner.examination import RULES, examine_subject
from velodrome.examiner.subject import Subject, named_subject

NAMES = [entry.name for entry in catalogue(Path("/nonexistent")) if entry.origin == "built in"]
SLOW = {"code_gen", "mcp_tools", "python_tool", "terminal"}  # a process of its own for each rollout
LONG = {"math_with_judge", "reasoning_gym"}  # whose tasks take long to score
MARKED = [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in NAMES]
SHORT = "text_to_sql"


def subject_of(name: str) -> Subject:
    if name == "reasoning_gym":
        why = "reasoning-gym is not installed: make test installs it with a C compiler"
        pytest.importorskip("reasoning_gym", reason=why)
    return named_subject(name)


@pytest.mark.parametrize("name", MARKED)
def test_a_built_in_environment_keeps_every_rule(name: str):
    tasks, sample = (1, 4) if name in SLOW else (3, 4) if name in LONG else (12, 8)
    subject = subject_of(name)
    tasks = len(subject.rows) if name == "workplace" else tasks
    report = asyncio.run(examine_subject(subject, strict=True, max_tasks=tasks, sample=sample))
    assert report.passed, f"\n{report}"
    assert list(report.rules) == list(RULES)
    assert len(subject.rows) >= 10


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    "name", [each if each == SHORT else pytest.param(each, marks=pytest.mark.chaos) for each in NAMES]
)
def test_a_copy_with_a_planted_fault_is_found_by_its_rule(name: str, rule: str):
    copy = broken(subject_of(name), rule)
    report = asyncio.run(examine_subject(copy, only=[rule], max_tasks=2 if rule == "sessions" else 1))
    assert report.failed == [rule], f"\n{report}"
    assert report.rules[rule].findings[0].seen
