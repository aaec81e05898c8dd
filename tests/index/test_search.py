"""What a search finds: words in prompts, answers, reasoning, and in what tools were given and returned."""

from __future__ import annotations

from typing import Any

import pytest
from index_rows import OpenIndex, failure, rollout, write

from velodrome.index import FAILED, Index, Query, Sort
from velodrome.records.rollout import beside


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


def test_a_search_that_is_asked_again_knows_what_has_changed(index_of: OpenIndex):
    index = index_of([rollout("a"), rollout("b", answer="a pear")], [failure("f", error="a pear fell"), failure("g")])
    assert numbers(index, "pear") == [2, FAILED + 1]
    assert (numbers(index, "pear"), index.count(Query.parse("-pear"))) == ([2, FAILED + 1], 2)
    write(beside(index.rollouts, "failures.jsonl"), [failure("f", error="an apple fell", attempt=2)], "ab")
    index.refresh(search=False)  # the row is there, and what it says is not searched yet
    assert numbers(index, "pear") == [2]
    write(index.rollouts, [rollout("c", answer="another pear")], "ab")
    index.refresh()
    assert numbers(index, "pear") == [2, 3]
    assert numbers(index, "-pear") == [1, FAILED + 2, FAILED + 3]


def test_words_that_nearly_all_or_nearly_none_contain_are_found_alike(index_of: OpenIndex):
    said = [("common", "rare") if number % 1000 == 7 else ("common",) for number in range(6000)]
    said[3] = ()
    rows = [rollout(f"t{number}", answer=" ".join(words), reward=number) for number, words in enumerate(said)]
    index = index_of(rows)
    for sort in ("number", "-reward"):
        for word in ("common", "rare", "-common", "-rare"):
            bare = word.removeprefix("-")
            expected = [n for n, words in enumerate(said, 1) if (bare in words) != word.startswith("-")]
            expected = expected[::-1] if sort == "-reward" else expected
            first = index.page(Query.parse(word), Sort.parse(sort), limit=50)
            assert [entry.number for entry in first.entries] == expected[:50], (word, sort)
            again = index.page(Query.parse(word), Sort.parse(sort), after=first.next, limit=50) if first.next else None
            assert (
                [entry.number for entry in again.entries if again] == expected[50:100] if again else len(expected) <= 50
            )
