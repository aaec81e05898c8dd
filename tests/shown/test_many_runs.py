"""Many runs in a real Chromium: picked by keyboard and compared, two transcripts side by side."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.looking import Looking, look_at
from tests.support.made_runs import make_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four runs of the same tasks; one of them deep below."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "deep" / "er").mkdir(parents=True)
    for name, skill in (("a", 0.2), ("b", 0.6), ("deep/er/c", 0.9), ("d", 0.5)):
        make_run(folder / f"{name}.jsonl", skill=skill, seed=len(name) + ord(name[-1]), failed=2)
    return folder


@pytest.fixture(scope="module")
def look(chromium: Any, folder: Path) -> Iterator[Looking]:
    with look_at(chromium, folder) as look:
        yield look
        assert look.said == []
        assert look.outside == []


def test_three_runs_are_picked_by_keyboard_and_compared(look: Looking):
    look.goto("/?sort=name")
    look.sees("4 runs")
    look.press("j", "x", "j", "x", "j")
    assert look.page.url.endswith("/?sort=name&run=a&run=b")  # what is picked is in the address
    look.press("x")
    assert look.words("[data-compare]") == "Compare 3"
    look.press("c")
    assert look.at("/compare").startswith("/compare?")
    look.sees("30 tasks are in all runs")
    look.sees("★")
    assert "Tasks that differ most" in look.words()
    slugs = re.findall(r"run=([\w-]+)", look.page.url)
    assert slugs == ["a", "b", "d"]

    look.press("u")  # back to the list, with the same three
    look.at(r"/\?run=a")
    assert look.page.locator("input[name=run]:checked").count() == 3
    look.press("/")
    look.page.keyboard.type("deep")
    look.press("Enter")
    look.at("q=deep")
    look.sees("1 of 4 runs")
    look.sees("3 picked runs not on this page")


def test_flipped_tasks_are_walked_through_as_pairs_of_transcripts_by_keyboard(look: Looking):
    look.goto("/compare?run=a&run=deep-er-c")
    look.sees("Tasks that flipped")
    look.press("j", "Enter")
    first = look.at(r"/pair\?a=a%3A\d+&b=deep-er-c%3A\d+")
    assert look.page.locator(".pair mark").count() >= 2
    heads = look.words(".pair.heads")
    assert heads.count("Answer") == 2
    look.press("n")
    look.page.wait_for_url(lambda url: "/pair?" in url and not url.endswith(first))
    second = look.page.url
    look.press("p")
    look.at(re.escape(first))
    look.press("n")
    look.page.wait_for_url(second)
    same = look.page.locator("details.pair-same summary").first
    same.click()
    assert "You are a careful assistant" in look.words("details.pair-same[open] .text")

    look.press("t")  # all repeats, and from there two of them
    look.at("/task")
    look.page.get_by_role("button", name="Two transcripts").click()
    look.at(r"/pair\?a=deep-er-c%3A\d+&b=deep-er-c%3A\d+")
    look.press("u")
    look.at("/run/deep-er-c/task")
