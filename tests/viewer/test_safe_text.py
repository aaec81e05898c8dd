"""Text from a model: escaped, bounded, and what cannot be seen is made visible."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parsed_page import Page

from velodrome.viewer.parts.safe_text import attribute, folded, plain_line, visible


def test_markup_is_text():
    assert visible("<b onclick='x'>&amp;</b>") == "&lt;b onclick=&#x27;x&#x27;&gt;&amp;amp;&lt;/b&gt;"


@pytest.mark.parametrize(
    ("text", "code", "name"),
    [
        ("\u202e", "U+202E", "right-to-left override"),
        ("\u2066", "U+2066", "left-to-right isolate"),
        ("\x1b", "U+001B", "escape"),
        ("\x00", "U+0000", "null"),
        ("\x85", "U+0085", "control character"),
        ("\ufeff", "U+FEFF", "zero width no-break space"),
        ("\u200b", "U+200B", "zero width space"),
        ("\U000e0041", "U+E0041", "tag latin capital letter a"),
        ("\ud800", "U+D800", "control character"),
    ],
)
def test_a_character_that_would_be_obeyed_or_hidden_is_shown_by_its_code(text: str, code: str, name: str):
    assert visible(f"a{text}b") == f'a<span class="odd" title="{name}">{code}</span>b'


@pytest.mark.parametrize("text", ["line\nline\ttab", "naïve 漢字 עברית العربية", "👨‍👩‍👧 ❤️", "می‌خواهم", "क्‍ष"])
def test_what_people_write_stays_as_it_is(text: str):
    assert visible(text) == text


def test_a_joiner_beside_plain_letters_only_hides_and_is_shown():
    assert visible("pass\u200dword") == 'pass<span class="odd" title="zero width joiner">U+200D</span>word'


def test_a_flood_of_odd_characters_does_not_become_a_flood_of_markup():
    assert len(visible("\x00" * 1_000_000)) < 2_000
    assert len(visible("\x00a" * 500_000)) < 6_000_000


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
    assert folded("a" * 11_000, whole=True).head == "a" * 11_000
    assert folded("short").hidden == 0


def test_a_whole_text_has_its_largest_size_too():
    result = folded("x" * 5_000_000, whole=True)
    assert (len(result.head), result.hidden, len(result.tail)) == (3_999_000, 1_000_000, 1_000)


def test_a_line_is_one_line_and_a_title_holds_no_markup():
    assert plain_line("a\n\n b\t c", 20) == "a b c"
    assert plain_line("x" * 50, 10) == "x" * 10 + "…"
    assert attribute("a\u202eb\n<i>") == "aU+202Eb <i>"
