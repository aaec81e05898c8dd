"""Which changes of live code count as changes: what runs does, where it is written does not."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from velodrome.collector.code import code_digest

BASE = """
import re
from velodrome import Environment

WORD = "hi"
calls = 0
seen = []

def helper(text):
    return WORD in text

def make(bonus):
    class Closed(Environment):
        def verify(self, task, response):
            return bonus
    return Closed

class Echo(Environment):
    word: str = "hi"

    def verify(self, task, response, session=None):
        global calls
        calls += 1
        seen.append(calls)
        return float(helper(response.text) and response.text in {"a", "b"})

class Other: ...

low, high = make(0.0), make(1.0)
first, second = lambda text: "hi", \\
    lambda text: "hi"
third = lambda text: "ho"
"""


def module(text: str) -> Any:
    made = ModuleType("made_by_exec")
    exec(compile(text, "<made>", "exec"), made.__dict__)
    return made


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return WORD in text", "return WORD not in text"),
        ('WORD = "hi"', 'WORD = "ho"'),
        ("float(helper", "-float(helper"),
        ("session=None", "session=1"),
        ("word: str", "word: object"),
        ('{"a", "b"}', '{"a", "c"}'),
    ],
)
def test_code_that_runs_differently_is_different(old: str, new: str) -> None:
    assert BASE.count(old) == 1
    assert code_digest(module(BASE).Echo) != code_digest(module(BASE.replace(old, new)).Echo)


def test_the_same_code_elsewhere_or_after_it_ran_is_the_same() -> None:
    made, moved = module(BASE), module("\n\n# moved\n" + BASE.replace("class Other: ...", "class Other: word = 1"))
    before = code_digest(made.Echo)
    made.calls, made.seen[:] = 7, [1, 2, 3]
    assert {before, code_digest(made.Echo), code_digest(moved.Echo)} == {before}
    assert code_digest(made.first) == code_digest(made.second)


def test_closed_over_values_and_functions_are_told_apart() -> None:
    made = module(BASE)
    digests = [code_digest(each) for each in (made.Echo, made.low, made.high, made.first, made.third)]
    assert all(one != other for one, other in combinations(digests, 2))


def test_library_code_has_no_digest() -> None:
    from velodrome.responses_api_agents.simple_agent.app import SimpleAgent

    assert [code_digest(SimpleAgent), code_digest(Path), code_digest(len)] == [None] * 3


def test_a_helper_in_another_file_counts_and_the_digest_is_the_same_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "import aside\nfrom aside import one\ndef two(t): return aside.three(t) + one(t)\n"
    )
    program = "import own; from velodrome.collector.code import code_digest; print(code_digest(own.two))"

    def digest(three: str) -> str:
        (tmp_path / "aside.py").write_text(f"def one(t): return t in {{'x', 'y'}}\ndef three(t): return {three}\n")
        return subprocess.run(
            [sys.executable, "-B", "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout

    assert len({digest("1"), digest("1"), digest("1.5")}) == 2
