"""Text from a model: escaped, bounded, and what cannot be seen is made visible."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support.parsed_page import Page
from velodrome.viewer.parts.safe_text import attribute, folded, plain_line, visible


def test_a_character_that_would_be_obeyed_or_hidden_is_shown_by_its_code():
    for text, code, name in (
        ("\u202e", "U+202E", "right-to-left override"),
        ("\u2066", "U+2066", "left-to-right isolate"),
        ("\x1b", "U+001B", "escape"),
        ("\x00", "U+0000", "null"),
        ("\ufeff", "U+FEFF", "zero width no-break space"),
        ("\u200d", "U+200D", "zero width joiner"),  # beside plain letters it only hides
        ("\U000e0041", "U+E0041", "tag latin capital letter a"),
        ("\ud800", "U+D800", "control character"),
    ):
        assert visible(f"a{text}b") == f'a<span class="odd" title="{name}">{code}</span>b'


def test_what_people_write_stays_as_it_is_and_markup_is_text():
    for text in ("line\nline\ttab", "naïve 漢字 עברית العربية", "👨‍👩‍👧 ❤️", "می‌خواهم", "क्‍ष"):
        assert visible(text) == text
    assert visible("<b onclick='x'>&amp;</b>") == "&lt;b onclick=&#x27;x&#x27;&gt;&amp;amp;&lt;/b&gt;"
    assert (plain_line("a\n\n b\t c", 20), plain_line("x" * 50, 10)) == ("a b c", "x" * 10 + "…")
    assert attribute("a\u202eb\n<i>") == "aU+202Eb <i>"


@given(st.text())
def test_any_text_can_be_sent_and_read_back(text: str):
    shown = visible(text)
    shown.encode()
    page = Page(str(shown))
    assert {tag for tag, _ in page.tags} <= {"span"}
    assert (page.crossed, page.unclosed) == ([], [])


def test_a_long_text_loses_its_middle_and_says_how_much():
    result = folded("a" * 5000 + "b" * 5000 + "c" * 1000)
    assert (result.head, result.hidden, result.tail, result.length) == ("a" * 4000, 6000, "c" * 1000, 11_000)
    whole = folded("x" * 5_000_000, whole=True)  # has its largest size too
    assert (len(whole.head), whole.hidden, len(whole.tail)) == (3_999_000, 1_000_000, 1_000)
