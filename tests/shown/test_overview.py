"""The overview and the list in a real Chromium: marks are clicked, columns chosen, everything by keyboard as well."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from looking import CONTRAST, UNNAMED, Looking, look_at
from made_runs import make_run
from trace_viewer import keep_screenshot

pytestmark = pytest.mark.slow

RUN = "/run/baseline"
FOLDED = "() => document.querySelectorAll('main details').forEach(each => each.open = true)"
# A row of the list is as high as one line of text and what is around it.
ONE_LINE = """
() => [...document.querySelectorAll('tr[data-row]')].filter(row => row.getBoundingClientRect().height > 44).length
"""


@pytest.fixture(scope="module")
def look(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Looking]:
    path: Path = make_run(tmp_path_factory.mktemp("runs") / "baseline.jsonl")
    with look_at(chromium, path) as look:
        look.goto(RUN)
        look.sees("Rollout Total")
        look.sees("mean reward with it")
        yield look


def amount(text: str) -> str:
    found = re.findall(r"([\d,]+) (?:rollout|failure)", text)
    assert found, text
    return str(found[-1])


@pytest.mark.parametrize("kind", ["bars", "curve", "bubbles"])
def test_a_mark_that_is_clicked_opens_the_list_of_its_rollouts(look: Looking, kind: str):
    look.goto(RUN)
    mark = look.page.locator(f"svg.picture.{kind} a").last
    said = amount(mark.get_attribute("aria-label"))
    mark.scroll_into_view_if_needed()
    mark.click()
    look.at("/rollouts\\?q=")
    look.sees(f"{said} rollouts match" if said != "1" else "1 rollout matches")


def test_the_table_behind_a_picture_is_the_way_by_keyboard(look: Looking):
    look.goto(RUN)
    look.page.locator(".plot summary").first.focus()
    look.press("Enter", "Tab", "Tab")
    link = look.page.evaluate("document.activeElement.closest('.behind tr').innerText")
    look.press("Enter")
    look.at("/rollouts\\?q=reward")
    look.sees(f"{link.split()[-1]} rollouts match")


def test_rewards_are_shown_by_the_field_that_is_chosen(look: Looking):
    look.goto(RUN)
    look.page.select_option("#by-field", "tokens")
    look.page.get_by_role("button", name="Show").press("Enter")
    assert look.at("by=") == f"{RUN}?by=tokens#by"
    row = look.page.locator(".by-field tbody tr").first
    count = row.locator("td").first.inner_text()
    row.locator("a").click()
    look.sees(f"{count} rollouts match")


def test_columns_are_chosen_sorted_by_and_kept_on_the_way_to_a_rollout_and_back(look: Looking):
    look.goto(f"{RUN}/rollouts?q=reward%3C1")
    assert look.page.evaluate(ONE_LINE) == 0
    look.page.locator(".chooser summary").press("Enter")
    for name in ("answer", "turns", "tools", "outcome"):
        look.page.get_by_label(name, exact=True).uncheck()
    look.page.get_by_label("extracted_answer", exact=True).press("Space")
    look.page.get_by_role("button", name="Show these").press("Enter")
    cols = "reward%2Cprompt%2Cexpected%2Ckey%2Cextracted_answer%2Ctokens%2Ctotal_s"
    address = look.at("cols=reward%2C|cols=reward&")
    heads = [each.strip() for each in look.page.locator("thead th").all_inner_texts()]
    assert sorted(heads) == sorted(["reward", "prompt", "expected", "key", "extracted_answer", "tokens", "time"])
    assert "q=reward" in address
    look.page.get_by_role("link", name="extracted_answer").click()
    assert cols in look.at("sort=extracted_answer")
    answers = look.page.locator("td[data-label=extracted_answer]").all_inner_texts()
    assert answers == sorted(answers)
    look.press("j", "j", "Enter")
    look.at("/rollout/")
    look.press("u")
    assert cols in look.at("/rollouts\\?")
    key = look.page.locator("td[data-label=key]").first
    key.click(click_count=3)
    assert look.page.evaluate("getSelection().toString().trim()") == key.inner_text()


@pytest.mark.parametrize(("name", "way"), [("overview", f"{RUN}?by=tokens"), ("list", f"{RUN}/rollouts?sort=-tokens")])
def test_the_pages_are_readable_at_every_width_in_light_and_dark(look: Looking, name: str, way: str):
    for scheme in ("light", "dark"):
        page = look.open(scheme, "desktop")
        page.goto(look.url + way)
        page.wait_for_selector(".pending", state="detached")
        page.evaluate(FOLDED)
        for width in (1440, 1024, 390):
            page.set_viewport_size({"width": width, "height": 900})
            keep_screenshot(page, f"{name}-{scheme}-{width}.png", full_page=True)
            assert page.evaluate("document.documentElement.scrollWidth") == width, (name, scheme, width)
        page.set_viewport_size({"width": 1440, "height": 900})
        assert page.evaluate(CONTRAST) == []
        assert page.evaluate(UNNAMED) == 0
        found = Axe().run(page).response["violations"]
        assert [(each["id"], each["nodes"][0]["html"][:200]) for each in found] == []
        page.close()
    assert look.said == []
    assert look.outside == []
