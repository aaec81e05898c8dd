"""JSON for people and programs: nothing in it can hide or reorder, and every reader takes it."""

from __future__ import annotations

import json
import os

import orjson
import pytest

from velodrome.timing.invisible import printed_json


def test_what_a_terminal_would_obey_is_an_escape_that_reads_back_the_same():
    report = {"name\u202e": ["\x9b2J", "é", float("nan")]}
    printed = printed_json(report)
    assert "\u202e" not in printed
    assert "\x9b" not in printed
    assert orjson.loads(printed) == json.loads(printed) == {"name\u202e": ["\x9b2J", "é", None]}


def test_a_file_name_that_is_no_utf_8_is_told_by_escapes():
    name = os.fsdecode(b"run\xff.jsonl")
    report = {"files": (name, "b"), name: {"deep": [name, 1, None, float("nan"), True]}}
    shown = "run\\udcff.jsonl"
    assert orjson.loads(printed_json(report)) == {
        "files": [shown, "b"],
        shown: {"deep": [shown, 1, None, None, True]},
    }
    with pytest.raises(TypeError):
        printed_json({"a": object()})
