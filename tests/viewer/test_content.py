"""What a model wrote, drawn: each kind of content, and what is left plain."""

from __future__ import annotations

import base64
import json

from tests.support.drawn_markup import DATA, GIF, JPEG, PNG, WEBP, classes, parsed, png, tags
from velodrome.viewer.content.attached import MOST_ATTACHMENTS, MOST_IMAGE_BYTES, Attachment, attachments
from velodrome.viewer.content.formula import formula
from velodrome.viewer.content.highlighting import code
from velodrome.viewer.content.markdown_text import MOST_TEXT, rich_text
from velodrome.viewer.content.tool_output import tool_result


def test_markdown_is_drawn_and_its_headings_are_below_those_of_the_page():
    text = (
        "# One\n## Two\n### Three\n#### Four\n\na **bold** *soft* ~~gone~~ `code`\nnext line\n\n"
        "- a\n  1. b\n\n> quoted\n\n---\n"
    )
    assert [tag for tag in tags(rich_text(text)) if tag != "div"] == [
        "h4", "h5", "h6", "h6", "p", "strong", "em", "s", "code", "br", "ul", "li", "ol", "li", "blockquote", "p", "hr",
    ]  # fmt: skip


def test_a_table_is_drawn_with_its_alignment_in_a_region_that_a_keyboard_reaches():
    made = rich_text("| a | b | c |\n|:--|--:|:-:|\n| 1 | 2 | 3 |\n")
    page = parsed(made)
    assert [attrs.get("class") for tag, attrs in page.tags if tag in ("th", "td")] == [None, "right", "center"] * 2
    region = next(attrs for tag, attrs in page.tags if attrs.get("class") == "scroll")
    assert (region["tabindex"], region["role"], region["aria-label"]) == ("0", "group", "Table")


def test_code_is_coloured_by_the_name_of_its_language_and_every_character_is_there():
    source = 'def f(x: int) -> str:\n    return f"<{x}>"  # why\n'
    page = parsed(rich_text(f"```python\n{source}```\n"))
    assert "".join(page.text).replace("python", "", 1).strip() == source.strip()
    assert {"y-k", "y-f", "y-b", "y-s", "y-c"} <= classes(code(source, "Python"))
    assert "".join(parsed(code(source, "py")).text) == source
    assert code(source, "brainfuck") is None
    assert code("select 1", "sql") is not None
    assert "y-" not in str(rich_text("```no-such-language\ndef f\n```\n"))


def test_the_forms_of_formulas_are_drawn_and_prices_and_code_are_not_formulas():
    forms = (r"so $x^2$ is", r"so $$x^2$$ is", r"so \(x^2\) is", r"so \[x^2\] is", "$$\nx^2\n- 1\n$$\n")
    for text in (*forms, "\\[\nx^2\n\\]"):
        assert {"math", "msup", "mi", "mn"} <= set(tags(rich_text(text))), text
    assert "boxed" in classes(rich_text(r"$\boxed{42}$"))
    assert tags(rich_text("\\[\\begin{aligned} a &= b \\\\ &= c \\end{aligned}\\]")).count("mtr") == 2
    prices = ("it costs $5 and $6", "from $5 to 6$ a day", "US$5, A$6", r"\$x\$", "a $ b $ c", "$ x $", "`$x^2$`", "$$")
    assert [text for text in prices if "<math" in str(rich_text(text))] == []


def test_a_formula_that_could_do_more_than_show_itself_or_is_broken_is_shown_as_its_source():
    harmful = (r"\href{javascript:alert(1)}{x}", r"\style{color:red}{x}", r"\class{x}{y}", r"\def\a{\a\a}\a")
    harmful += (r"\newcommand{\a}{b}", r"\verb|<b>|")
    broken = (r"\frac{", r"\left( x", "x_1_2", r"\begin{matrix")
    for latex in harmful + broken:
        assert formula(latex) is None, latex
        assert latex in " ".join("".join(parsed(rich_text(f"see \\({latex}\\) here")).text).split())
    assert [formula(latex) for latex in ("{" * 100 + "x" + "}" * 100, "x" * 2001, " ")] == [None] * 3


def test_plain_text_is_left_plain():
    for text in ("", "  \n", "just words", "two\nlines and 2 * 3 < 7 & more", "a_b_c = 4", "x" * (MOST_TEXT + 1)):
        assert rich_text(text) is None


LINKS = [
    ("[a](HTTP://x.org/y)", "HTTP://x.org/y", ""),
    ("see https://x.org/a_b_c(d).", "https://x.org/a_b_c(d", ""),
    ("<a@x.org>", "mailto:a@x.org", ""),
    ("[https://good.org](https://evil.example/)", "https://evil.example/", "(evil.example)"),
    ("[good.org](https://good.org.evil.example/)", "https://good.org.evil.example/", "(good.org.evil.example)"),
    ("https://good.org@evil.example/", "https://good.org@evil.example/", "(evil.example)"),
    ("[support@good.org](mailto:x@evil.example)", "mailto:x@evil.example", "(x@evil.example)"),
    ("![cat](https://x.org/cat.png)", "https://x.org/cat.png", "(image at x.org)"),
]


def test_a_link_leads_where_it_says_or_says_where_it_leads():
    for text, target, said in LINKS:
        page = parsed(rich_text(text))
        assert [link.rstrip("/") for link in page.links()] == [target.rstrip("/")]
        assert ("(" in page.words.replace("(d", ""), said in page.words) == (bool(said), True), text


def test_json_is_a_tree_that_says_its_sizes_and_keeps_numbers_and_repeated_keys():
    text = f'{{"a": 1.10, "a": 12345678901234567890123, "list": {[*range(340)]}, "deep": {{"x": ["{"w" * 80}"]}}}}'
    page = parsed(tool_result(text))
    for words in ("{ 4 keys }", "[ 340 items ]", "1.10", "12345678901234567890123"):
        assert words in page.words
    assert "numbers" in classes(tool_result(text))
    assert tags(tool_result('{"answer": 42}')).count("details") == 0
    assert "10,000 characters are left out here" in parsed(tool_result(json.dumps({"log": "x" * 30_000}))).words


def test_what_is_not_a_tree_or_a_table_of_text_is_left_plain():
    odd = ("", "12", "null", "{}", "[]", "{broken", "[1, 2", '{"a": NaN', "[" * 500 + "]" * 500, "text {}")
    assert [text for text in odd if tool_result(text) is not None] == []
    text = "+----+----+\n| id | no |\n+----+----+\n| 1  | 2  |\n"
    assert "".join(parsed(tool_result(text)).text) == text
    assert tool_result("one | two | words\nand no table\nat all") is None


def test_a_diff_and_terminal_colours_are_coloured_and_no_other_sequence_is_obeyed():
    diff = "some words\ndiff --git a/x b/x\nindex 1..2\n--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@ def f\n same\n-gone\n+come\n"
    assert {"y-gd", "y-gi", "y-gh"} <= classes(tool_result(diff))
    assert "".join(parsed(tool_result(diff)).text) == diff
    assert tool_result("--- a list\n+ of things\n") is None
    assert tool_result("--- \n" * 40_000) is None  # in linear time
    text = "\x1b[1;31mred\x1b[0m \x1b[38;5;1mcube\x1b[m \x1b[30;40mhidden\x1b[0m\x1b[8mconcealed\x1b[0m "
    text += "\x1b[2J\x1b]0;title\x07"
    page = parsed(tool_result(text))
    spans = [attrs["class"] for tag, attrs in page.tags if tag == "span" and attrs["class"] != "odd"]
    assert spans == ["t-bold t-1", "t-0"]
    assert "hidden" in page.words
    assert "concealed" in page.words
    assert "U+001B [2J U+001B ]0;title U+0007" in page.words


DRAWN = Attachment("image", "image", 68, DATA, note="png, 3 × 2")


def image_at(url: str) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": url}}


PARTS = [
    (image_at(DATA), DRAWN),
    ({"type": "input_image", "image_url": DATA}, DRAWN),
    ({"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": PNG}}, DRAWN),
    ({"type": "image", "data": PNG, "mimeType": "image/png"}, DRAWN),
    (
        image_at("https://x.org/a.png"),
        Attachment("image", "x.org", href="https://x.org/a.png", note="not loaded"),
    ),
    (image_at("https://x.org/\u202egnp"), Attachment("image", "x.org", note="not loaded")),
    (image_at("javascript:alert(1)"), Attachment("image", "javascript:alert(1)", note="not loaded")),
    (
        image_at("data:image/svg+xml;base64,PHN2Zz4="),
        Attachment("image", "image", 5, note="not a PNG, JPEG, GIF or WebP image"),
    ),
    (
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}},
        Attachment("file", "a.pdf", 5, note="application/pdf"),
    ),
    (
        {"type": "input_file", "file_id": "file-1"},
        Attachment("file", "file-1", note="its content is not in the file"),
    ),
]


def test_attachments_are_named_and_only_checked_images_are_drawn():
    for part, expected in PARTS:
        assert attachments([{"type": "text", "text": "hi"}, part]) == [expected]
        assert attachments([{"type": "tool_result", "content": [part]}]) == [expected]


def test_images_are_known_by_their_bytes_and_measured_and_those_too_large_or_broken_are_named_only():
    notes = {}
    for data in (GIF, JPEG, WEBP, png(9000, 9000)):
        (image,) = attachments({"type": "image", "data": base64.b64encode(data).decode()})
        notes[image.note] = image.src is not None
    assert notes == {
        "gif, 5 × 4": True,
        "jpeg, 9 × 7": True,
        "webp, 12 × 9": True,
        "too large to draw: png, 9,000 × 9,000": False,
    }
    assert attachments({"type": "image", "data": "A" * (MOST_IMAGE_BYTES * 2)})[0].note == "too large to draw"
    assert attachments({"type": "image", "data": "not base64!"})[0].note == "not base64"
    assert len(attachments([{"type": "image", "data": PNG}] * 500)) == MOST_ATTACHMENTS
    for content in (None, "text", 7, [None, 7, "x", {"type": 7}, {"type": []}, {}], {"type": "image", "source": 7}):
        assert all(each.src is None for each in attachments(content))


def test_images_in_markdown_and_in_json_are_drawn():
    assert tags(rich_text(f"![a cat]({DATA})")).count("img") == 1
    assert tags(tool_result(json.dumps({"shot": DATA}))).count("img") == 1
