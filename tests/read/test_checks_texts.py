"""What a text gives away, and how numbers are spread."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from velodrome.read.checks.spread import Spread
from velodrome.read.checks.texts import is_error, is_refusal, is_tool_error, runs_in_circles


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60), st.floats(0, 1))
def test_a_quantile_is_within_a_tenth(numbers: list[float], share: float):
    spread = Spread()
    spread.extend(numbers)
    exact = sorted(numbers)[int(share * (len(numbers) - 1))]
    assert spread.quantile(share) == pytest.approx(exact, rel=0.1, abs=2e-16)
    assert spread.count == len(numbers) == spread.outside(1e9, 1e9)
    assert spread.outside(-2e6, 2e6) == 0


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "I’m sorry, I cannot answer.",
        "Sorry, but I won't do this.",
        "I cannot assist with that request.",
        "  I am unable to provide this.",
        "As an AI language model, I can't create that.",
        "Unfortunately, I'm not able to open links.",
        "I must respectfully decline.",
        "I apologize, but I cannot fulfill this request.",
    ],
)
def test_a_refusal_is_seen(text: str):
    assert is_refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "I cannot find a smaller number, so the answer is 3.",
        "I can help with that.",
        "I'm sorry to hear that. The answer is 36.",
        "Sorry is the word that rhymes.",
        "As an AI, I think the answer is 4.",
        "The user said: I'm sorry, but I can't help with that.",
        "Unfortunately, the number is not prime.",
    ],
)
def test_an_answer_is_no_refusal(text: str):
    assert not is_refusal(text)


def test_an_error_in_place_of_an_answer_is_told_from_an_answer_about_errors():
    assert [
        is_error(text) for text in ("ERROR", "FAILED", " ERROR\n", "ERROR: no", "Traceback (most recent call last)")
    ] == [True] * 5
    assert [is_error(text) for text in ("Error handling is hard.", "error", "ERRORS", "It FAILED", "36")] == [False] * 5


def test_a_tool_error_is_told_from_a_result():
    assert [is_tool_error(text) for text in ("error: no", "Error: x", '{"error": 1}', "  Traceback (most recent")] == [
        True
    ] * 4
    assert [
        is_tool_error(text)
        for text in ("36.0", "", "[]", '{"result": "error"}', "The error is 3", '{"error": null, "x": 1}', "Errors: 0")
    ] == [False] * 7


def test_text_that_runs_in_circles_is_told_from_text_that_does_not():
    prose = " ".join(f"Step {n}: we add {n * n} to {n * 7} and get {n * n + n * 7}." for n in range(100))
    grid = "\n".join(" ".join("0" * 10) for _ in range(10))
    table = "\n".join(f"| {n} | {n * 3} | yes | no |" for n in range(80))
    assert [runs_in_circles(text) for text in (prose, prose + grid, table, prose + "." * 40, "x")] == [False] * 5
    period = "".join(random.Random(1).choices("abcdefgh ", k=240))
    turning = (prose + "and so on, " * 100, "No. " * 500, prose + "!" * 2000, period * 9, "0 " * 2000)
    assert [runs_in_circles(text) for text in turning] == [True] * 5
