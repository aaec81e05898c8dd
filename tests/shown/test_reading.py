"""One rollout read in a real Chromium: by keyboard, found, folded, raw, through its waterfall, copied, printed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
from looking import Looking, look_at, serious
from made_runs import rollout, write

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


def test_messages_and_tool_calls_are_walked_through_by_keyboard(look: Looking):
    look.goto("/run/r/rollout/5")
    look.press("j", "j", "j")
    assert look.page.evaluate(FOCUS) == "m3"
    look.press("k")
    assert look.page.evaluate(FOCUS) == "m2"
    look.press("]")
    assert look.page.evaluate(FOCUS) == "m3-1"
    look.press("]")
    assert look.page.evaluate(FOCUS) == "m5-1"
    assert in_view(look, "#m5-1")
    look.press("[")
    assert look.page.evaluate(FOCUS) == "m3-1"
    look.press("[")
    assert look.page.evaluate(FOCUS) == "m3-1"
    look.press("?")
    keys = look.words("dialog")
    assert "[ next and previous tool call" in keys
    assert "o fold or unfold all" in keys
    look.press("Escape")
    assert (look.said, look.outside) == ([], [])


def test_long_results_are_folded_and_unfolded(look: Looking):
    look.goto("/run/r/rollout/5")
    look.page.locator("#m3").scroll_into_view_if_needed()
    fold = look.page.locator("#m3 details.fold")
    assert "+ 56 lines" in fold.inner_text()
    assert "file_0_59.txt" not in look.words("#m3")
    fold.locator("summary").click()
    assert "file_0_59.txt" in look.words("#m3")
    look.page.keyboard.press("o")
    assert look.page.locator("details.fold:not([open])").count() == 0
    assert look.words("[data-fold]") == "Fold all"
    look.page.keyboard.press("o")
    assert look.page.locator("details.fold[open]").count() == 0


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


def test_a_text_on_another_part_is_found_by_the_viewer(look: Looking):
    look.goto("/run/r/rollout/4")
    look.page.fill("#find", "needle")
    look.press("Enter")
    look.at("find=needle")
    assert look.words(".find output") == "1 of 1"
    assert look.page.locator("#m501-1 .fold").get_attribute("open") is not None
    [top] = look.page.evaluate("[...CSS.highlights.get('found-here')].map(each => each.getBoundingClientRect().top)")
    assert 0 < top < look.page.viewport_size["height"]


def test_a_permalink_leads_to_its_message_on_whatever_part_it_is(look: Looking):
    look.goto("/run/r/rollout/5#m20")
    look.page.wait_for_function("Math.abs(document.querySelector('#m20').getBoundingClientRect().top) < 80")
    look.goto("/run/r/rollout/4#m312")
    look.at("at=312#m312")
    look.page.wait_for_function("Math.abs(document.querySelector('#m312').getBoundingClientRect().top) < 80")
    look.page.locator("#m313 a.number").click()
    assert look.at("#m313").endswith("at=312#m313")


def test_a_message_is_shown_raw_by_itself_and_all_are_by_an_address(look: Looking):
    look.goto("/run/r/rollout/5")
    message = look.page.locator("#m2")
    assert message.locator("strong").is_visible()
    message.get_by_label("Raw").check()
    look.press("j")  # a key is a key, also from a box that was ticked
    assert look.page.evaluate(FOCUS) == "m3"
    assert not message.locator("strong").is_visible()
    assert "I look at **0**." in look.words("#m2")
    look.page.locator("#m4").focus()
    look.press("r")
    assert "I look at **1**." in look.words("#m4")
    look.press("R")
    look.at("raw=1")
    assert "I look at **2**." in look.words("#m6")
    look.press("R")
    look.at(r"/rollout/5(\?sort=number)?$")
    assert "I look at 2." in look.words("#m6")


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


def test_a_rollout_of_500_messages_is_usable(look: Looking):
    look.goto("/run/r/rollout/4")
    assert look.page.locator(".outline li").count() == 2 * TURNS + 2
    assert look.page.locator("article").count() == 100
    assert look.page.evaluate("document.documentElement.scrollHeight") < 40_000
    size = look.page.evaluate("performance.getEntriesByType('navigation')[0].decodedBodySize")
    assert size < 2_000_000
    look.page.locator(".outline a", has_text="error").press("Enter")
    look.at("#m501$")
    assert look.page.locator(".outline a[aria-current]").first.is_visible()
    assert look.page.get_by_role("link", name="1–100").first.is_visible()
    assert (look.said, look.outside) == ([], [])


def test_links_and_texts_are_copied(look: Looking):
    context = look.chromium.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(f"{look.url}/run/r/rollout/5")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("y")
    page.get_by_role("status").get_by_text("Link copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == f"{look.url}/run/r/key/medium/0#m2"
    page.keyboard.press("a")
    page.get_by_text("Run this one again").click()
    page.get_by_role("button", name="Copy: Run this one again").click()
    page.get_by_role("status").get_by_text("Text copied").wait_for()
    assert re.fullmatch(r"velo rerun \S+/r\.jsonl medium/0", page.evaluate("navigator.clipboard.readText()"))
    with page.expect_download() as download:
        page.get_by_role("link", name="Download Markdown").click()
    assert download.value.suggested_filename == "medium-0.md"
    assert Path(download.value.path()).read_text().startswith("# medium/0\n")
    page.keyboard.press("Escape")
    assert not page.get_by_text("Run this one again").is_visible()
    context.close()


def test_on_paper_everything_is_unfolded_and_nothing_else_is_there(look: Looking):
    look.goto("/run/r/rollout/5")
    look.page.emulate_media(media="print")
    try:
        assert not look.page.locator(".tools").is_visible()
        assert not look.page.locator(".outline").is_visible()
        assert look.page.locator("#m3 .fold .text, #m3 .fold .drawn").first.is_visible()
    finally:
        look.page.emulate_media(media="screen")


def test_without_scripts_it_is_read_found_folded_and_raw(look: Looking):
    context = look.chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{look.url}/run/r/rollout/4")
    page.fill("#find", "needle")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("find=needle"))
    assert "1 found" in page.inner_text(".find")
    page.locator(".outline a.hit").click()
    page.locator("#m501 .fold summary").click()
    assert "the needle is here" in page.inner_text("#m501")
    page.locator("#m502").get_by_label("Raw").check()
    assert "$x^2 = 4$" in page.inner_text("#m502")
    page.locator("details.menu summary").first.click()
    page.get_by_text("Copy as Python").click()
    assert "velo.read(" in page.inner_text(".menu-list")
    page.get_by_text("4×").click()
    assert page.locator(".fall-scroll").evaluate("each => each.scrollWidth > 3 * each.clientWidth")
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_every_screen_and_axe_finds_nothing_serious(look: Looking, scheme: str):
    for way in ("/run/r/rollout/1", "/run/r/rollout/5", "/run/r/rollout/4?at=250&find=file"):
        for width in (1440, 1024, 390):
            page = look.chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page.goto(look.url + way)
            assert page.evaluate("document.documentElement.scrollWidth") == width, (way, width)
            if width != 1024 and way == "/run/r/rollout/5":  # the others are made of the same parts
                if width == 1440:
                    page.keyboard.press("a")
                assert serious(page) == [], (way, width)
            page.close()


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
