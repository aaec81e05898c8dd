"""What a model wrote, drawn in a real Chromium: each kind of content; hostile and huge variants of each; static copies.

VELODROME_SCREENSHOTS=folder keeps what it looks like.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from drawn_markup import DATA, PNG
from looking import CONTRAST, Looking, keep, look_at, serious, web_server
from made_runs import HOSTILE, START, write
from test_hostile_content import BOMBS, HOSTILE_TEXTS, NO_LINKS

from velodrome.viewer.static_copy import write_copy
from velodrome.viewer.viewed_file import opened

pytestmark = pytest.mark.slow

MARKDOWN = r"""
# The plan
We compare **two** *ways*; see [the notes](https://example.org/notes) and https://example.org/a_b_c.

1. Solve \(x^2 = 4\), so $x = \pm 2$.
2. Integrate:
   $$\int_0^1 x^2\,dx = \left[\frac{x^3}{3}\right]_0^1 = \frac{1}{3}$$
   - a point
   - another, with `code` in it

| method | error | time |
|:-------|------:|-----:|
| Euler  | 0.120 | 1.2 s |
| RK4    | 0.003 | 4.8 s |

> It costs $5 and $6, which is no formula.

```python
def solve(x: float) -> str:
    # a comment
    return f"{x ** 2:.3f}" if x > 0 else None
```

```sql
SELECT name, count(*) FROM runs WHERE reward > 0.5 GROUP BY name ORDER BY 2 DESC LIMIT 10; -- the best
```

\[
\begin{aligned}
a &= \sum_{i=1}^n i \\
  &= \frac{n(n+1)}{2}
\end{aligned}
\]

The answer is $\boxed{42}$.
"""
TREE = {
    "status": "ok",
    "rows": [{"name": f"run {place}", "reward": place / 8, "tags": ["a", "b"]} for place in range(3)],
    "numbers": [*range(340)],
    "log": "a long line of a log\n" * 60,
    "nested": {"deep": {"deeper": {"deepest": "here, at the end of a rather long way down the tree"}}},
}
DIFF = """diff --git a/app.py b/app.py
index 83db48f..bf3a1c2 100644
--- a/app.py
+++ b/app.py
@@ -1,4 +1,4 @@ def main():
 import sys
-print("old")
+print("new, and a line that is so long that it needs to be scrolled to on any screen that is not wide")
 sys.exit(0)
"""
TERMINAL = (
    "\x1b[1m===== test session starts =====\x1b[0m\n\x1b[32m.\x1b[0m\x1b[31mF\x1b[0m\n"
    "\x1b[38;5;196mE   assert 1 == 2\x1b[0m\n"
    "\x1b[41;97m 1 failed \x1b[0m \x1b[2J\x1b[7m q \x1b[0m \x1b[30;40mnot hidden\x1b[0m\n"
    + "".join(
        f"\x1b[{code}m {code} \x1b[0m" for code in (*range(30, 38), *range(40, 48), *range(90, 98), *range(100, 108))
    )
)
TABLE = "+------+-------+\n| id   | name  |\n+------+-------+\n| 1    | Ada   |\n+------+-------+\n"


def row(key: str, question: Any, *turns: Any) -> dict[str, Any]:
    return {
        "responses_create_params": {"input": [{"role": "user", "content": question}]},
        "output": list(turns),
        "response": {"model": "m", "status": "completed"},
        "reward": 0.5,
        "meta": {"key": key, "finished_at": START, "timing": {"total_s": 1.0}},
    }


def called(result: Any, **arguments: Any) -> list[Any]:
    call = {"id": "c", "name": "tool", "arguments": orjson.dumps(arguments).decode()}
    return [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": result}]


def rich_row() -> dict[str, Any]:
    """One of each kind."""
    parts = [
        {"type": "text", "text": "What is in this *picture*?"},
        {"type": "image_url", "image_url": {"url": DATA}},
        {"type": "image_url", "image_url": {"url": "https://example.org/far.png"}},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "file", "file": {"filename": "paper.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}},
    ]
    return row(
        "rich/0",
        parts,
        {"role": "assistant", "content": MARKDOWN},
        *called(orjson.dumps(TREE).decode(), code="import os\nfor name in os.listdir('.'):\n    print(name)  # all"),
        *called(DIFF, query="SELECT 1\nFROM runs"),
        *called(TERMINAL, command="pytest -q \\\n  tests"),
        *called(TABLE),
        *called([{"type": "text", "text": "a screenshot"}, {"type": "image", "data": PNG, "mimeType": "image/png"}]),
        *called(orjson.dumps({"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}]}).decode()),
        {
            "role": "assistant",
            "content": f"Drawn inline: ![a dot]({DATA}) and far away: ![far](https://example.org/x.png)",
        },
    )


def hostile_rows() -> list[dict[str, Any]]:
    """Attacks in every place that is drawn."""
    texts = [*HOSTILE_TEXTS, *(f"**x** {text}" for text in NO_LINKS), "<img src=x onerror='window.hacked=1'>**x**"]
    turns = [{"role": "assistant", "content": f"**drawn** {text}"} for text in texts]
    for text in texts:
        turns += called(orjson.dumps({text: [text, {"more": text * 9}]}).decode(), code=f"x\n{text}")
        turns += called(f"\x1b[31m{text}\x1b[0m") + called(f"--- a\n+++ b\n@@ -1 +1 @@\n-{text}\n+{text}\n")
    bad = "data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9YWxlcnQoMSk+"
    images = [{"type": "image_url", "image_url": {"url": url}} for url in (bad, "javascript:alert(1)", HOSTILE)]
    return [row(f"hostile/{place}", images, *turns[place::4]) for place in range(4)]


def bomb_row() -> dict[str, Any]:
    """Everything that was made to be slow."""
    turns: list[Any] = [{"role": "assistant", "content": f"{text}\nthe end of {name}"} for name, text in BOMBS.items()]
    for text in ("[" * 50_000, '{"a":' * 5_000, "\x1b[1m" * 20_000, "x " * 30_000, "/*" * 9_000):
        turns += called(text, code=text + "\n", sql=text + "\n")
    return row("bombs/0", "Go.", *turns)


@pytest.fixture(scope="module")
def rollouts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("content") / "content.jsonl", [rich_row(), *hostile_rows(), bomb_row()])


@pytest.fixture(scope="module")
def look(chromium: Any, rollouts: Path) -> Iterator[Looking]:
    with look_at(chromium, rollouts) as look:
        yield look


def all_drawn(page: Any) -> None:
    """One of each kind is there, has a size, and looks like what it is."""
    page.evaluate("document.querySelectorAll('.talk details').forEach(each => each.open = true)")
    for selector in (
        "h4",
        "ol ol, ol ul",
        "blockquote",
        "table td.right",
        "math mfrac",
        "math mtr",
        "math .boxed",
        "code",
    ):
        box = page.locator(f".rich {selector}").first.bounding_box()
        assert box, selector
        assert box["height"] > 5, selector
    assert page.locator("math").count() == 5

    def style(selector: str, name: str) -> str:
        return str(
            page.evaluate("([at, name]) => getComputedStyle(document.querySelector(at))[name]", [selector, name])
        )

    plain = style(".rich pre", "color")
    for kind in ("k", "s", "c", "f"):
        assert style(f".rich .y-{kind}", "color") != plain, kind
    assert style("math .boxed", "borderTopStyle") == "solid"
    assert len({style(f".d-{kind}", "backgroundColor") for kind in ("added", "removed", "hunk")}) == 3
    assert style(".terminal .t-1", "color") != style(".terminal", "color")
    assert style(".terminal .t-bold", "fontWeight") == "700"
    assert page.locator(".json .j-size").first.inner_text() == "{ 5 keys }"
    assert "[ 340 items ]" in page.inner_text(".json")
    assert page.locator("pre.as-is").inner_text() == TABLE
    assert page.locator(".call .y-k").count() >= 3
    images = "[...document.querySelectorAll('.talk img')]"
    page.evaluate(f"Promise.all({images}.map(each => (each.loading = 'eager', each.decode())))")
    assert page.evaluate(f"{images}.map(each => [each.naturalWidth, each.naturalHeight])") == [[3, 2]] * 4
    words = page.inner_text("main")
    for name in ("example.org", "audio", "wav", "paper.pdf", "application/pdf", "It costs $5 and $6", "not hidden"):
        assert name in words, name


def test_each_kind_of_content_is_drawn_and_each_has_a_raw_form(look: Looking):
    look.goto("/run/content/rollout/1")
    all_drawn(look.page)
    summary = look.page.locator(".json details details > summary").first
    was = summary.evaluate("each => each.parentElement.open")
    summary.focus()
    look.press("Enter")
    assert summary.evaluate("each => each.parentElement.open") is not was
    long = look.page.locator(".diff")
    long.focus()
    look.press("ArrowRight")
    long.evaluate("async (each) => { while (!each.scrollLeft) await new Promise(requestAnimationFrame); }")
    look.page.locator("#m2 .as-raw").click()
    assert look.page.locator("#m2 .rich").is_hidden()
    assert "$\\boxed{42}$" in look.page.inner_text("#m2")
    assert (look.said, look.outside) == ([], [])


def test_what_is_drawn_fits_the_screen_can_be_read_and_axe_finds_nothing_serious(look: Looking):
    keep(look, "content", "/run/content/rollout/1")
    for scheme in ("light", "dark"):
        page = look.open(scheme, "desktop")
        page.goto(f"{look.url}/run/content/rollout/1")
        page.evaluate("document.querySelectorAll('.talk details').forEach(each => each.open = true)")
        assert page.evaluate(CONTRAST) == [], scheme
        assert serious(page) == [], scheme
        page.close()


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


def test_texts_made_to_be_slow_are_all_there_as_text(look: Looking):
    look.goto("/run/content/rollout/6")
    words = look.page.text_content("main") or ""
    assert [name for name in BOMBS if f"the end of {name}" not in words] == []
    assert look.page.evaluate("document.querySelectorAll('*').length") < 20_000
    assert look.said == []


@pytest.fixture(scope="module")
def copy(rollouts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy") / "copy"
    with opened(rollouts) as source:
        write_copy(source, folder)
    return folder


@pytest.fixture(scope="module")
def site(copy: Path) -> Iterator[str]:
    """The copy on a web server."""
    with web_server(copy) as address:
        yield address


@pytest.mark.parametrize("way", ["files", "web server"])
def test_a_static_copy_has_the_look_the_keys_and_all_that_is_drawn(chromium: Any, copy: Path, site: str, way: str):
    root = copy.as_uri() if way == "files" else site
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    said: list[str] = []
    outside: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: request.url.startswith(root) or outside.append(request.url))
    page.goto(f"{root}/rollout-1.html")
    all_drawn(page)
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    page.locator("#m2 .as-raw").click()
    assert page.locator("#m2 .rich").is_hidden()
    page.keyboard.press("n")
    page.wait_for_url("**/rollout-2.html")
    assert page.evaluate("typeof window.hacked") == "undefined"
    page.goto(f"{root}/index.html")
    page.get_by_role("link", name="Rollouts").first.click()
    page.wait_for_url("**/rollouts.html")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/rollout-1.html")
    favicon = [url for url in outside if not url.endswith("/favicon.ico")]
    assert ([text for text in said if "favicon" not in text], favicon) == ([], [])
    page.close()
