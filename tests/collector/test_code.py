"""Which changes of live code count as changes: of what a class or function names, not of the rest of its file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from velodrome.collector.code import code_digest
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.serving.components import load_file

BASE = """
from velodrome import Environment

WORD = "hi"
LIMIT = 10
calls = 0

def helper(text):
    return WORD in text

class Parent(Environment):
    word: str = "hi"

class Echo(Parent):
    def verify(self, task, response, session=None):
        global calls
        calls += 1
        return float(helper(response.text) and response.text in {"a", "b"})

low, high = lambda text: "hi", 1
"""


def module(folder: Path, text: str) -> Any:
    """The text as a module of the user's; each has a name of its own."""
    path = folder / f"own_{len(list(folder.iterdir()))}.py"
    path.write_text(text)
    return load_file(path, f"{folder.name}_{path.stem}", folder)


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
def test_a_change_of_what_a_class_names_is_a_change(tmp_path: Path, old: str, new: str) -> None:
    assert BASE.count(old) == 1
    one, other = module(tmp_path, BASE), module(tmp_path, BASE.replace(old, new))
    assert code_digest(one.Echo) != code_digest(other.Echo)


def test_the_rest_of_the_file_may_change_and_the_class_may_move_and_run(tmp_path: Path) -> None:
    one, moved = module(tmp_path, BASE), module(tmp_path, "# moved\n\n" + BASE.replace("LIMIT = 10", "LIMIT = 20"))
    before = code_digest(one.Echo)
    assert before is not None
    one.calls = 7
    assert [code_digest(one.Echo), code_digest(moved.Echo)] == [before] * 2
    assert code_digest(one.low) not in (None, code_digest(one.helper))


def test_library_code_has_no_digest() -> None:
    assert [code_digest(SimpleAgent), code_digest(Path), code_digest(len)] == [None] * 3


@pytest.mark.slow
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
