"""What a search finds: words in prompts, answers, reasoning, and what tools got and gave; the filter from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from tests.support.index_rows import OpenIndex, failure, rollout, write
from velodrome.index import FAILED, Index, Query, Sort, matching_lines


def numbers(index: Index, where: str) -> list[int]:
    return [entry.number for entry in index.page(Query.parse(where), Sort()).entries]


def conversation(**changes: Any) -> list[dict[str, Any]]:
    """A turn that thinks and calls a tool, its result, and the answer."""
    says = {"thought": "I ponder the apple", "arguments": '{"city": "Bern"}', "result": "sunny, 23 degrees", **changes}
    call = {"id": "c", "name": "weather_report", "arguments": says["arguments"]}
    return [
        {"role": "assistant", "content": "", "reasoning_content": says["thought"], "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "name": "weather_report", "content": says["result"]},
        {"role": "assistant", "content": "It is warm."},
    ]


def test_words_are_found_wherever_they_were_said(index_of: OpenIndex):
    partial = conversation(thought="a halfhearted idea")
    index = index_of([rollout("a", output=conversation()), rollout("b")], [failure("f", partial=partial)])
    for where, expected in {
        '"ponder the"': [1],
        "weather_report": [1, FAILED + 1],
        "city bern sunny": [1, FAILED + 1],
        "sunny apple": [1],
        "halfhearted": [FAILED + 1],
        '"degrees It"': [],  # a phrase does not go from one text into the next
        "-sunny": [2],
    }.items():
        assert numbers(index, where) == expected, where


def test_long_texts_are_found_by_both_ends_and_values_of_any_type_as_far_as_they_are_text(index_of: OpenIndex):
    text = "opening " + "x " * 200_000 + "closing"
    parts = [{"type": "text", "text": "rainy"}, {"type": "image", "data": "x"}, 5]
    rows = [rollout(where, output=conversation(**{where: text})) for where in ("thought", "arguments", "result")]
    rows += [
        rollout("a", output=conversation(arguments={"place": "Basel"}, result=parts)),
        rollout("b", output=conversation(arguments=None, result={"no": "text"}, thought=[{"text": "listed"}])),
    ]
    index = index_of(rows)
    assert [numbers(index, word) for word in ("opening", "closing")] == [[1, 2, 3], [1, 2, 3]]
    assert index.path.stat().st_size < 600_000
    words = ("weather_report", "basel", "rainy", "listed", "warm")
    assert [numbers(index, word) for word in words] == [[1, 2, 3, 4, 5], [4], [4], [5], [1, 2, 3, 4, 5]]


def test_lines_that_match_come_in_order_without_failures(tmp_path: Path):
    rows = [rollout("a", repeat, reward=float(repeat % 2), tools=repeat) for repeat in range(6)]
    path = write(tmp_path / "r.jsonl", rows)
    write(tmp_path / "r.failures.jsonl", [failure("b")])
    matches = list(matching_lines(path, "reward<1 tools>=2", sort="-tools"))
    assert [(number, orjson.loads(line)) for number, line in matches] == [(5, rows[4]), (3, rows[2])]
    assert [number for number, _ in matching_lines(path, "")] == [1, 2, 3, 4, 5, 6]
