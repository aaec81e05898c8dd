"""One rollout read in a real Chromium: by keyboard, found, through its waterfall, from a copy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from tests.support.looking import Looking, look_at
from tests.support.made_runs import rollout, write
from velodrome.viewer.static_copy import write_copy
from velodrome.viewer.viewed_file import opened

pytestmark = pytest.mark.slow

TURNS = 250
FOCUS = "document.activeElement.id"


def long_row() -> dict[str, Any]:
    """A rollout of 501 messages and 500 spans; every tenth result is long, the last one has a needle."""
    made: list[Any] = []
    for turn in range(TURNS):
        arguments = orjson.dumps({"command": f"ls folder/{turn}"}).decode()
        made.append(
            {
                "role": "assistant",
                "content": f"I look at **{turn}**.",
                "tool_calls": [{"id": "c", "name": "sh", "arguments": arguments}],
            }
        )
        lines = 60 if turn % 10 == 0 else 3
        text = "\n".join(f"-rw-r--r-- file_{turn}_{line}.txt" for line in range(lines))
        made.append({"role": "tool", "tool_call_id": "c", "content": text})
    made[-1]["content"] = "error: not a haystack\n" * 40 + "the needle is here"
    made.append({"role": "assistant", "content": "It is `file_1_59.txt`. $x^2 = 4$"})
    tree = [["model", turn * 200_000, 150_000, {"tokens": 9}, []] for turn in range(TURNS + 1)]
    tree += [["tool:sh", turn * 200_000 + 150_000, 50_000, {}, []] for turn in range(TURNS)]
    return {
        "responses_create_params": {"input": [{"role": "user", "content": "Which file is the *largest*?"}]},
        "output": made,
        "response": {"content": "It is `file_1_59.txt`. $x^2 = 4$", "model": "m", "status": "completed"},
        "usage": {"total_tokens": 30},
        "reward": 1.0,
        "accuracy": 1.0,
        "expected": "file_1_59.txt",
        "meta": {
            "key": "long/0",
            "scored": ["reward", "accuracy"],
            "timing": {"total_s": TURNS * 0.2 + 0.15, "tree": tree},
        },
    }  # fmt: skip


@pytest.fixture(scope="module")
def look(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Looking]:
    """A browser on a viewer over a long rollout and short ones."""
    path = tmp_path_factory.mktemp("reading") / "r.jsonl"
    short = [rollout(task, 0, Random(task)) for task in range(3)]
    medium = long_row()
    medium["output"] = [*medium["output"][:41], *medium["output"][-2:]]
    medium["meta"] = {"key": "medium/0", "scored": ["reward", "accuracy"]}
    with look_at(chromium, write(path, [*short, long_row(), medium])) as look:
        yield look


def place(look: Looking, selector: str) -> float:
    """How far below the top of the window something is."""
    top: float = look.page.locator(selector).first.evaluate("each => each.getBoundingClientRect().top")
    return top


def in_view(look: Looking, selector: str) -> bool:
    return -1 <= place(look, selector) < look.page.viewport_size["height"]


def test_find_counts_goes_on_and_back_and_opens_what_is_folded(look: Looking):
    look.goto("/run/r/rollout/5")
    look.press("/")
    assert look.page.evaluate(FOCUS) == "find"
    look.page.keyboard.type("FILE_0_5")
    assert look.words(".find output") == "11 found"  # 5, and 50 to 59, folded
    look.press("Enter")
    assert look.words(".find output") == "1 of 11"
    assert look.page.locator("#m3 details.fold").get_attribute("open") is not None
    look.press("Enter", "Enter")
    assert look.words(".find output") == "3 of 11"
    look.press("Shift+Enter")
    assert look.words(".find output") == "2 of 11"
    assert look.page.evaluate("CSS.highlights.get('found').size") == 11
    look.page.get_by_role("button", name="Previous match").click()
    look.page.get_by_role("button", name="Previous match").click()
    assert look.words(".find output") == "11 of 11"
    look.page.fill("#find", "nowhere at all")
    assert look.words(".find output") == "none"


def test_every_span_is_in_the_waterfall_and_a_click_goes_to_what_it_made(look: Looking):
    look.goto("/run/r/rollout/4")
    assert look.page.locator(".waterfall rect").count() == 2 * TURNS + 1
    width = "document.querySelector('.waterfall').getBoundingClientRect().width"
    before = look.page.evaluate(width)
    look.press("+", "+")
    assert look.page.evaluate(width) == pytest.approx(16 * before, rel=0.01)
    look.press("-", "-")
    assert look.page.evaluate(width) == pytest.approx(before, rel=0.01)
    look.page.locator(".waterfall a").nth(3).click()  # the fourth call of the model
    look.at("#m8$")
    assert in_view(look, "#m8")
    look.page.locator(".waterfall a").last.click()
    look.at("at=501#m501-1$")
    assert in_view(look, "#m501-1")


def test_a_copy_is_read_from_its_file(look: Looking, tmp_path: Path):
    path = write(tmp_path / "r.jsonl", [long_row(), rollout(1, 0, Random(1))])
    with opened(path) as source:
        write_copy(source, tmp_path / "copy")
    page = look.chromium.new_page()
    page.goto((tmp_path / "copy" / "rollout-1.html").as_uri())
    assert page.locator("article").count() == 2 * TURNS + 2
    page.keyboard.press("/")
    page.keyboard.type("needle")
    page.keyboard.press("Enter")
    assert page.inner_text(".find output") == "1 of 1"
    assert page.locator("#m501-1 .fold").get_attribute("open") is not None
    page.keyboard.press("Escape")
    page.keyboard.press("R")
    page.locator("#m2").scroll_into_view_if_needed()  # what is far from the screen is not laid out, and has no text
    page.wait_for_function("document.querySelector('#m2').innerText.includes('I look at **0**.')")
    page.locator(".waterfall a").last.click()
    page.wait_for_url(re.compile("#m501-1$"))
    page.keyboard.press("n")
    page.wait_for_url(re.compile("rollout-2.html"))
    page.keyboard.press("u")
    page.wait_for_url(re.compile("rollouts.html"))
    page.keyboard.press("?")
    assert "find in this rollout" not in page.inner_text("dialog")
    page.close()
