"""What no text can do when it is drawn: run, load, link astray, hide, lose a word, or take long."""

from __future__ import annotations

import json
import re

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.drawn_markup import DATA, parsed
from tests.support.made_runs import HOSTILE
from velodrome.viewer.content.formula import formula
from velodrome.viewer.content.highlighting import LANGUAGES, MOST_CODE, code
from velodrome.viewer.content.markdown_text import MOST_TEXT, rich_text
from velodrome.viewer.content.tool_output import MOST_RESULT, tool_result

NO_LINKS = [
    "[x](JaVaScRiPt:alert(1))",
    "[x](java\tscript:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](javascript&colon;alert(1))",
    "[x](\x01javascript:alert(1))",
    "[x](<javascript:alert(1)>)",
    "<javascript:alert(1)>",
    "[x](data:text/html,<script>alert(1)</script>)",
    "[x](file:///etc)",
    "[x](/run/other)",
    "[x](//evil.example)",
    "[x](#m1)",
    "[x][1]\n\n[1]: javascript:alert(1)",
    "[x](https:evil)",
    "[x]: https://evil\n",
    "[^1]\n\n[^1]: note",
    "![x](data:image/svg+xml,<svg onload=alert(1)>)",
    "![x](data:image/png;base64,AAAA)",
    "<a href='https://x'>y</a>",
    "[x](http://a\u202eb)",
    "[x](ftp://x.org)",
]


def test_what_is_not_of_the_web_is_no_link_and_no_image_and_its_words_are_there():
    for text in NO_LINKS:
        page = parsed(rich_text(f"**b** {text}"))
        assert [tag for tag, _ in page.tags if tag == "img"] == [], text
        assert [link for link in page.links() if "://x" not in link and link != "https://evil"] == [], text
        assert re.search(r"x|note|alert", page.words), text


HOSTILE_TEXTS = [
    HOSTILE,
    f"# {HOSTILE}\n\n> {HOSTILE}\n\n- {HOSTILE}\n\n| {HOSTILE} | b |\n|---|---|\n| c | d |\n",
    f"```html\n{HOSTILE}\n```\n\n`{HOSTILE}`\n\n    {HOSTILE}\n",
    f"```{HOSTILE.replace('`', '')}\nx\n```\n",
    f"[{HOSTILE}](https://x.org '{HOSTILE}') ![{HOSTILE}](https://x.org)",
    f"$\\text{{{HOSTILE}}}$ \\({HOSTILE}\\) $${HOSTILE}$$",
    "<svg><script>alert(1)</script></svg><math><annotation-xml encoding=text/html><img src=x onerror=alert(1)>",
    "<style>*{display:none}</style><link rel=stylesheet href=//evil><base href=//evil><meta http-equiv=refresh>",
    "<details open ontoggle=alert(1)><template><noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "&lt;script&gt; &#60;script&#62; &#x202e; &#0; \\<script>",
]


BOMBS = {
    "brackets": "[" * MOST_TEXT,
    "images": "![" * (MOST_TEXT // 2),
    "links": "[a](" * (MOST_TEXT // 4),
    "quotes": ">" * MOST_TEXT,
    "lists": "- " * (MOST_TEXT // 2),
    "deep list": "\n".join("  " * depth + "- a" for depth in range(190)),
    "ticks": "`" * MOST_TEXT,
    "stars": "*a_ " * (MOST_TEXT // 4),
    "dollars": "$" * MOST_TEXT,
    "formulas": "$x$ " * (MOST_TEXT // 4),
    "columns": "|a" * 15_000 + "\n" + "|-" * 15_000 + "|\n",
    "cells": "|a" * 200 + "|\n" + "|-" * 200 + "|\n" + "|\n" * 3_000,
    "nested brackets": "**x** " + "[" * 13 + "a" + "]" * 13,
    "angles": "<" * MOST_TEXT,
    "lines": "a\n" * (MOST_TEXT // 2),
    "long": "*a* " * MOST_TEXT,
}


def test_a_text_made_to_be_slow_is_not_parsed_and_a_crowded_one_is_drawn_in_bounds_or_not_at_all():
    assert [name for name, text in BOMBS.items() if rich_text(text) is not None] == []
    crowded = ("[a](https://x.org) " * 2_000, "https://x.org " * 2_800, "*a* " * 2_900, "# \n" * 3_900)
    for text in (*crowded, "é\u200b " * 5_000):
        made = rich_text(text) or ""
        assert len(made) <= 10_100 + 20 * len(text)
        assert made.count("<a ") <= 300


def test_code_made_to_be_slow_is_not_coloured():
    slow = ("\n" * 300, "a " * MOST_CODE, "x" * 2_001, " " * 250 + "x", "/* " * 300, "<!-- " * 300)
    assert [text[:9] for text in slow if code(text, "java") is not None] == []
    for language in ("java", "csharp", "c#"):  # with their own lexers this does not end
        assert (code("public a b\n" * 1_500, language) or "").count("y-k") == 1_500
    for language in ("go", "perl"):  # whose lexers are quadratic
        made = [code('x = "[\\""\n' * lines, language) for lines in (300, 1_000)]
        assert (made[0] is None, made[1]) == (False, None)
    assert [name for name in sorted(set(LANGUAGES.values())) if code("x = 1", name) is None] == []


def test_a_result_with_too_many_nodes_colours_or_lines_is_left_plain():
    assert tool_result(json.dumps([{"a": {"b": 1}}] * 4_000)) is None
    assert tool_result("\x1b[1ma" * 6_000) is None
    assert tool_result("--- a\n+++ b\n@@ -1,9999 +1 @@\n" + "-\n" * MOST_CODE) is None
    assert tool_result("[" + "1, " * MOST_RESULT + "1]") is None


MARKS = [
    "**", "*", "_", "`", "```\n", "~~", "[", "](", ")", "![", "](https://x.org)", "$", "$$", "\\(", "\\)", "\\[", "\\]",
    "|", "\n|-|-|\n", "\n", "\n\n", "# ", "> ", "- ", "1. ", "<", ">", "<script>", "</div>", "<img src=x onerror=y>",
    "&lt;", "&#x3c;", "\\", "\\frac{", "}", "^", "_{", "javascript:", "data:image/png;base64,", DATA, "http://",
    "\x1b[31m", "\x1b[0m", "\x1b[", "\u202e", "\x00", "{", '{"a": ', '"', ",", "[1,2]", "@@ -1 +1 @@\n", "--- a\n",
    "+++ b\n", "\t", "style=", "word",
]  # fmt: skip
TEXTS = st.lists(st.one_of(st.sampled_from(MARKS), st.text(max_size=6)), max_size=40).map("".join)


@settings(max_examples=100)
@given(TEXTS)
@example("[a](https://x.org 'onclick=alert(1)')")
@example("$\\text{</math><script>}$")
def test_any_text_becomes_only_what_is_allowed(text: str):
    for made in (
        rich_text(text),
        rich_text(f"**x** {text}"),
        tool_result(text),
        tool_result(f"\x1b[1m{text}"),
        formula(text),
    ):
        if made is not None:
            parsed(made)
    for language in ("python", "html", "json", "bash", "latex"):
        made = code(text, language)
        if made is not None:
            parsed(made)


@settings(max_examples=50)
@given(st.lists(st.text("abcdefgäλ0123456789.,;:", min_size=1, max_size=8), min_size=1, max_size=30), st.integers(0, 3))
def test_no_word_is_lost(words: list[str], form: int):
    line = " ".join(words)
    text = [
        f"**{line}** x",
        f"# x {line}\n\n- x {line}\n> x {line}",
        f"```python\n{line}\n```",
        f"| x | y |\n|---|---|\n| {line} | y |\n",
    ][form]
    shown = "".join(parsed(rich_text(text)).text)
    assert [word for word in words if word not in shown] == []


@settings(max_examples=50)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text("abc <&\"'é", max_size=20),
        lambda each: st.lists(each, max_size=4) | st.dictionaries(st.text("abc<", max_size=5), each, max_size=4),
        max_leaves=30,
    )
)
def test_every_text_and_number_of_json_is_in_its_tree(value: object):
    text = json.dumps(value)
    made = tool_result(text)
    if made is None:
        assert not isinstance(value, list | dict) or not value
        return
    shown = "".join(parsed(made).text)
    for leaf in re.findall(r"-?\d+", json.dumps(value, ensure_ascii=False)):
        assert leaf in shown
    for word in re.findall(r"[abc]+", json.dumps(value, ensure_ascii=False).replace("false", "")):
        assert word in shown
