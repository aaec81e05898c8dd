"""What a search finds: words in prompts, answers, reasoning, and in what tools were given and returned."""

from __future__ import annotations

from typing import Any

import pytest
from index_rows import OpenIndex, failure, rollout

from velodrome.index import FAILED, Index, Query, Sort


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
        "apple": [1],
        '"ponder the"': [1],
        "weather_report": [1, FAILED + 1],
        "bern": [1, FAILED + 1],
        "city bern sunny": [1, FAILED + 1],
        "sunny apple": [1],
        "halfhearted": [FAILED + 1],
        '"degrees It"': [],  # a phrase does not go from one text into the next
        "-sunny": [2],
    }.items():
        assert numbers(index, where) == expected, where


@pytest.mark.parametrize("where", ["thought", "arguments", "result"])
def test_a_long_text_is_found_by_both_of_its_ends(index_of: OpenIndex, where: str):
    text = "opening " + "x " * 200_000 + "closing"
    index = index_of([rollout("a", output=conversation(**{where: text}))])
    assert [numbers(index, word) for word in ("opening", "closing", "weather_report")] == [[1], [1], [1]]
    assert index.path.stat().st_size < 200_000


def test_arguments_and_results_of_any_type_are_searched_as_far_as_they_are_text(index_of: OpenIndex):
    parts = [{"type": "text", "text": "rainy"}, {"type": "image", "data": "x"}, 5]
    rows = [
        rollout("a", output=conversation(arguments={"place": "Basel"}, result=parts)),
        rollout("b", output=conversation(arguments=None, result={"no": "text"}, thought=[{"text": "listed"}])),
    ]
    index = index_of(rows)
    assert [numbers(index, word) for word in ("basel", "rainy", "listed", "warm")] == [[1], [1], [2], [1, 2]]
