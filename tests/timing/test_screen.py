"""Text that fits a screen: words stay whole, columns stay columns, commands stay commands."""

from __future__ import annotations

import io

from velodrome.timing.screen import columns, fitted, paragraphs, screen_width


def test_a_line_is_wrapped_between_words_below_its_last_column_and_a_wider_word_stays_whole():
    text = "name     some words that go on and on\n  velo: x"
    assert fitted(text, 24) == "name     some words that\n         go on and on\n  velo: x"
    assert fitted(text, None) == text
    path = "/a/long/path/that/nobody/can/break.jsonl"
    assert fitted(f"see {path} now", 20).splitlines() == ["see", f"  {path}", "  now"]


def test_a_command_continues_with_a_backslash_and_its_note_below():
    line = '  velo collect calculator "two words" -o out.jsonl      what it does'
    assert fitted(line, 40).splitlines() == [
        '  velo collect calculator "two words" \\',
        "      -o out.jsonl",
        "      what it does",
    ]


def test_wide_characters_take_two_columns_and_colours_none():
    assert columns("日本") == 4
    assert fitted("日本 日本 日本", 9, hang=0) == "日本 日本\n日本"
    assert fitted("\x1b[1mone two\x1b[0m", 7) == "\x1b[1mone two\x1b[0m"


def test_lines_of_a_paragraph_are_joined_and_indented_ones_kept():
    assert paragraphs("one\ntwo\n\nexamples:\n  three", 40) == "one two\n\nexamples:\n  three"


def test_without_a_terminal_a_line_has_80_columns(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert screen_width(io.StringIO()) == 80
    monkeypatch.setenv("COLUMNS", "61")
    assert screen_width(io.StringIO()) == 61
