"""Rules of the suite itself: no test asserts a duration, and all wait as long as `patience` says for what must come."""

from __future__ import annotations

import re
from pathlib import Path

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
