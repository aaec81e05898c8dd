"""People judge rollouts in real browsers: by keyboard, and two at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.looking import Looking, look_at
from tests.support.made_runs import make_run
from velodrome.index.judgements import Judgements, notes_file

pytestmark = pytest.mark.slow

PLACE = "/run/baseline/rollout/1"
KEY = "task-009/0"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("judged") / "baseline.jsonl")


@pytest.fixture(scope="module")
def look(chromium: Any, run: Path) -> Iterator[Looking]:
    with look_at(chromium, run, "--as", "anna") as look:  # type: ignore[arg-type]  # a flag is a word like a path
        yield look


@pytest.fixture(autouse=True)
def unjudged(run: Path) -> None:
    notes_file(run).unlink(missing_ok=True)


def said(run: Path, key: str = KEY) -> dict[str, tuple[tuple[str, ...], str, int | None]]:
    return {each.by: (each.tags, each.note, each.rating) for each in Judgements(notes_file(run)).refresh().of(key)}


def keys(page: Any, *pressed: str) -> None:
    for key in pressed:
        page.keyboard.press(key)


def settled(page: Any, words: str) -> None:
    page.locator("[data-said]", has_text=words).wait_for()


def test_one_rollout_after_the_other_is_judged_by_keyboard_alone(look: Looking, run: Path):
    look.goto(PLACE)
    page = look.page
    keys(page, "4")
    page.get_by_label("4 of 5").wait_for()
    assert said(run) == {"anna": ((), "", 4)}
    keys(page, "e")
    page.keyboard.type("lucky goo")
    keys(page, "Tab")
    page.keyboard.type("It guessed,")
    keys(page, "Shift+Enter")
    page.keyboard.type("and was right.")
    keys(page, "Enter")
    settled(page, "and was right.")
    assert said(run) == {"anna": (("lucky", "goo"), "It guessed,\nand was right.", 4)}
    keys(page, "g", "x", "0")
    page.get_by_label("4 of 5").wait_for(state="detached")
    assert said(run) == {"anna": (("lucky", "goo", "bad"), "It guessed,\nand was right.", None)}
    keys(page, "n")
    look.at("/rollout/2$")
    keys(page, "e")
    page.keyboard.type("luc")
    options = page.eval_on_selector_all("#judge-known option", "all => all.map(each => each.value)")
    assert options == ["bad", "goo", "lucky"]
    page.keyboard.type("ky, b")
    options = page.eval_on_selector_all("#judge-known option", "all => all.map(each => each.value)")
    assert options == ["lucky, bad", "lucky, goo"]
    keys(page, "Enter")
    settled(page, "lucky")
    keys(page, "u")
    look.at("/rollouts$")
    look.goto("/run/baseline/rollouts?q=tag:lucky")
    look.sees("2 rollouts match")
    look.goto(PLACE)
    keys(page, "?")
    helped = page.inner_text("#help")
    assert "rate from 1 to 5" in helped
    assert "judge: tags and a note" in helped
    assert (look.said, look.outside) == ([], [])
