"""Every kind of page in a real Chromium: axe-core finds nothing serious, and nothing is wider than the screen.

`make browser` looks at more pages, in light and dark, at three widths, in static copies, too.
VELODROME_SCREENSHOTS=folder keeps what they look like.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.looking import Looking, look_at, serious
from tests.support.made_pages import PAGES, STATIC, make_folder
from tests.support.trace_viewer import keep_screenshot
from velodrome.cli.main import main

pytestmark = pytest.mark.slow

WIDTHS = (1440, 1024, 390)
SCREENSHOTS = os.environ.get("VELODROME_SCREENSHOTS")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
# What is wider than its place although nothing lets a reader scroll to the rest of it.
CUT_OFF = """
() => [...document.querySelectorAll('main *')].filter(each => {
  const box = each.getBoundingClientRect(), style = getComputedStyle(each);
  if (!box.width || !each.checkVisibility() || each.closest('.unseen, svg, math, dialog')) return false;
  const inner = '.scroll, pre, table, [tabindex="0"], .repeats, .outline, details:not([open])';
  const within = each.parentElement?.closest(inner);
  return !within && box.right > innerWidth + 1 && style.position !== 'fixed';
}).slice(0, 5).map(each => each.tagName + '.' + each.className + ': ' + each.textContent.slice(0, 40))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def look(chromium: Any, folder: Path) -> Iterator[Looking]:
    with look_at(chromium, folder) as look:
        yield look


@pytest.fixture(scope="module")
def copy(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("copies") / "copy"
    assert main(["view", str(folder / "rich.jsonl"), "--export", str(to)]) == 0
    return to


def judged(chromium: Any, address: str, name: str) -> None:
    """Look at a page six times; the first two by axe."""
    for scheme in ("light", "dark"):
        page = chromium.new_page(viewport={"width": WIDTHS[0], "height": 900}, color_scheme=scheme)
        try:
            page.goto(address)
            page.wait_for_selector(".pending", state="detached")
            page.keyboard.press("Tab")
            if page.locator("a.skip").count():  # a profile has none: it has no navigation to skip
                assert page.evaluate("document.activeElement.className") in ("skip", ""), name
            for width in WIDTHS if scheme == "light" or SCREENSHOTS else ():
                page.set_viewport_size({"width": width, "height": 900})
                keep_screenshot(page, f"{name}-{scheme}-{width}.png", full_page=True)
                assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, scheme, width)
                assert page.evaluate(CUT_OFF) == [], (name, scheme, width)
            page.set_viewport_size({"width": WIDTHS[0], "height": 900})
            assert serious(page, runOnly=RULES) == [], (name, scheme)
        finally:
            page.close()


KINDS = {name.partition("-")[0]: name for name in reversed(PAGES)}  # the first page of each template


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_of_the_viewer_is_accessible_and_fits(look: Looking, kind: str):
    page = look.page
    page.set_viewport_size({"width": WIDTHS[-1], "height": 900})
    look.goto(PAGES[KINDS[kind]])
    page.wait_for_selector(".pending", state="detached")
    assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[-1]
    assert page.evaluate(CUT_OFF) == []
    page.set_viewport_size({"width": WIDTHS[0], "height": 900})
    assert serious(page, runOnly=RULES) == []
    assert look.outside == []


@pytest.mark.browser
@pytest.mark.parametrize("name", PAGES)
def test_each_page_of_the_viewer_fits_at_every_width_and_is_accessible_in_light_and_dark(
    look: Looking, chromium: Any, name: str
):
    judged(chromium, look.url + PAGES[name], name)


@pytest.mark.browser
@pytest.mark.parametrize("name", STATIC)
def test_a_page_of_a_copy_is_accessible_and_fits(chromium: Any, copy: Path, name: str):
    judged(chromium, (copy / f"{name}.html").as_uri(), f"copy-{name}")


@pytest.mark.browser
def test_a_profile_page_is_accessible_and_fits(chromium: Any, folder: Path, tmp_path: Path):
    assert main(["profile", str(folder / "baseline.jsonl"), "--html", str(tmp_path / "profile.html")]) == 0
    judged(chromium, (tmp_path / "profile.html").as_uri(), "profile")
