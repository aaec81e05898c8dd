"""What a model wrote, drawn in a real Chromium: each kind of content, and hostile variants of each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.looking import Looking, look_at
from tests.support.made_pages import call, result, rich_row, row
from tests.support.made_runs import HOSTILE, write
from tests.viewer.test_hostile_content import HOSTILE_TEXTS, NO_LINKS

pytestmark = pytest.mark.slow


def hostile_rows() -> list[dict[str, Any]]:
    """Attacks in every place that is drawn."""
    texts = [*HOSTILE_TEXTS, *(f"**x** {text}" for text in NO_LINKS), "<img src=x onerror='window.hacked=1'>**x**"]
    turns = [{"role": "assistant", "content": f"**drawn** {text}"} for text in texts]
    for text in texts:
        turns += [
            call("c", "tool", code=f"x\n{text}"),
            result("c", "tool", json.dumps({text: [text, {"more": text * 9}]})),
        ]
        diff = f"--- a\n+++ b\n@@ -1 +1 @@\n-{text}\n+{text}\n"
        turns += [result("c", "tool", f"\x1b[31m{text}\x1b[0m"), result("c", "tool", diff)]
    bad = "data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9YWxlcnQoMSk+"
    images = [{"type": "image_url", "image_url": {"url": url}} for url in (bad, "javascript:alert(1)", HOSTILE)]
    question = [{"role": "user", "content": images}]
    return [row(f"hostile-{place}", question, turns[place::4]) for place in range(4)]


@pytest.fixture(scope="module")
def rollouts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("content") / "content.jsonl", [rich_row(), *hostile_rows()])


@pytest.fixture(scope="module")
def look(chromium: Any, rollouts: Path) -> Iterator[Looking]:
    with look_at(chromium, rollouts) as look:
        yield look


def test_each_kind_of_content_is_drawn_and_each_has_a_raw_form(look: Looking):
    """One of each kind is there, has a size, and looks like what it is."""
    look.goto("/run/content/rollout/1")
    page = look.page
    page.evaluate("document.querySelectorAll('.talk details').forEach(each => each.open = true)")
    kinds = ("h5", "ol", "blockquote", "table td.right", "math mfrac", "code", "pre", "a")
    small = [
        kind for kind in kinds if (page.locator(f".rich {kind}").first.bounding_box() or {"height": 0})["height"] < 5
    ]
    assert small == []

    def style(selector: str, name: str) -> Any:
        return page.evaluate("([at, name]) => getComputedStyle(document.querySelector(at))[name]", [selector, name])

    coloured = {style(f".rich {kind}", "color") for kind in ("pre", ".y-k", ".y-c")}
    assert len(coloured) == 3
    assert len({style(f".y-{kind}", "color") for kind in ("gd", "gi", "gh")}) == 3
    assert style(".terminal .t-1", "color") != style(".terminal", "color")
    assert style(".terminal .t-bold", "fontWeight") == "700"
    assert page.locator(".json .j-size").first.inner_text() == "{ 3 keys }"
    images = "[...document.querySelectorAll('.talk img')]"
    page.evaluate(f"Promise.all({images}.map(each => (each.loading = 'eager', each.decode())))")
    assert page.evaluate(f"{images}.map(each => [each.naturalWidth, each.naturalHeight])") == [[3, 2]] * 2
    words = page.inner_text("main")
    assert [name for name in ("wav", "report.pdf", "it costs $5 and $6") if name not in words] == []

    folded = page.locator(".json details details > summary").first
    was = folded.evaluate("each => each.parentElement.open")
    folded.focus()
    look.press("Enter")
    assert folded.evaluate("each => each.parentElement.open") is not was
    last = page.locator("article").last
    last.locator(".as-raw").click()
    assert last.locator(".rich").is_hidden()
    assert "$x^2 - 5x + 6 = 0$" in last.inner_text()
    assert (look.said, look.outside) == ([], [])


def test_no_attack_runs_loads_or_hides_anything(look: Looking):
    for number in range(2, 6):
        look.goto(f"/run/content/rollout/{number}")
        look.page.evaluate("document.querySelectorAll('.talk details').forEach(each => each.open = true)")
        look.page.wait_for_load_state("networkidle")
        assert look.page.evaluate("typeof window.hacked") == "undefined"
        foreign = "main :is(script, iframe, style, link, base, object, embed, meta, template)"
        assert look.page.locator(foreign).count() == 0
        names = "[...document.querySelectorAll('*')].flatMap(each => each.getAttributeNames())"
        assert look.page.evaluate(f"{names}.filter(name => /^on|^style$/.test(name))") == []
        targets = "() => [...document.querySelectorAll('.rich a')].map(each => new URL(each.href).protocol)"
        assert set(look.page.evaluate(targets)) <= {"http:", "https:", "mailto:"}
    assert (look.said, look.outside) == ([], [])
