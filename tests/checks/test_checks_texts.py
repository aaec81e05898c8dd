"""What a text gives away."""

from __future__ import annotations

import random

from velodrome.checks.texts import is_error, is_refusal, is_tool_error, runs_in_circles
from velodrome.checks.tools import loops

REFUSALS = [
    "I’m sorry, I cannot answer.",
    "Sorry, but I won't do this.",
    "  I am unable to provide this.",
    "As an AI language model, I can't create that.",
    "Unfortunately, I'm not able to open links.",
    "I must respectfully decline.",
    "I apologize, but I cannot fulfill this request.",
]
ANSWERS = [
    "I cannot find a smaller number, so the answer is 3.",
    "I'm sorry to hear that. The answer is 36.",
    "Sorry is the word that rhymes.",
    "As an AI, I think the answer is 4.",
    "The user said: I'm sorry, but I can't help with that.",
    "Unfortunately, the number is not prime.",
]


def test_a_refusal_is_told_from_an_answer():
    assert [text for text in REFUSALS + ANSWERS if is_refusal(text)] == REFUSALS


def test_an_error_in_place_of_an_answer_is_told_from_an_answer_about_errors():
    errors = ["ERROR", "FAILED", " ERROR\n", "ERROR: no", "Traceback (most recent call last)"]
    answers = ["Error handling is hard.", "error", "ERRORS", "It FAILED", "36"]
    assert [text for text in errors + answers if is_error(text)] == errors


def test_text_that_runs_in_circles_is_told_from_text_that_does_not():
    prose = " ".join(f"Step {n}: we add {n * n} to {n * 7} and get {n * n + n * 7}." for n in range(100))
    grid = "\n".join(" ".join("0" * 10) for _ in range(10))
    table = "\n".join(f"| {n} | {n * 3} | yes | no |" for n in range(80))
    assert [runs_in_circles(text) for text in (prose, prose + grid, table, prose + "." * 40, "x")] == [False] * 5
    period = "".join(random.Random(1).choices("abcdefgh ", k=240))
    turning = (prose + "and so on, " * 100, "No. " * 500, prose + "!" * 2000, period * 9, "0 " * 2000)
    assert [runs_in_circles(text) for text in turning] == [True] * 5


def test_a_paragraph_said_over_and_over_is_told_from_one_that_comes_back():
    chance = random.Random(2)

    def words(count: int) -> str:
        return " ".join("".join(chance.choices("abcdefgh", k=5)) for _ in range(count)) + ".\n"

    for period in (50, 60, 300, 1200):  # words of six characters
        said = words(period)
        assert [runs_in_circles(words(300) + said * times) for times in (2, 4, 6, 40)] == [False, False, True, True]
    counted = "".join(f"Attempt {number}: {said}" for number in range(7, 14))
    assert runs_in_circles(counted)
    chorus, grid = words(60), "0 1 0 1 1 0 1 0\n" * 200
    song = "".join(words(60) + chorus for _ in range(4))
    code = "".join(
        f"def test_{number}():\n    value = make({number})\n    assert value.ok\n\n\n" for number in range(80)
    )
    assert [runs_in_circles(text) for text in (song, code)] == [False] * 2
    assert runs_in_circles(grid)


def test_of_a_megabyte_only_a_page_is_read():
    said, between = "".join(f"said {n} " for n in range(60)), "".join(f"between {n} " for n in range(20_000))
    assert runs_in_circles(said * 1000)
    assert not runs_in_circles(said * 1000 + between + said)
    assert not is_tool_error(" " * 1_000_000 + "Error: no such file")
    for text in ("a" * 1_000_000 + "b" + "a" * 199, ("a" * 150 + "b") * 10_000 + "c" * 31, "ab " * 400_000 + "x" * 250):
        assert runs_in_circles(text) == runs_in_circles(text[-100_000:])


TOOL_ERRORS = [
    "error: no",
    '{"error": 1}',
    "  Traceback (most recent",
    "requests.exceptions.HTTPError: 404 Client Error: Not Found for url: http://127.0.0.1/",
    "ValueError('no such column')",
    "TimeoutException: after 30 s",
    "500 Internal Server Error",
    "HTTP/1.1 502 Bad Gateway",
    "HTTP error 429: slow down",
    "Request failed with status code 404",
    "Tool call failed: no such file",
    '{"query": "x", "error": "the index is not there"}',
    '{"isError": true, "content": []}',
    '{"status": "error", "message": "no"}',
    '\n {"error": "no"}',
]
RESULTS = [
    "",
    "The error is 3",
    "Errors: 0",
    '{"result": "error"}',
    '{"error": null, "x": 1}',
    "TypeError is raised when an operation is applied to an object of the wrong type.",
    "The HTTPError class is in urllib.error: 500 means the server failed.",
    "404 results found",
    "HTTP 404 is what a server says of a page that is not there.",
    '{"value": 3.2, "error": 0.01}',
    '{"error": {}, "rows": []}',
    '{"text": "an \'error\' in passing"}',
    '{"rows": [{"level": "error"}], "status": "ok"}',
    "The request failed before; this time it is 36.",
    "exceptions are listed in chapter 4",
]


def test_the_error_of_a_tool_is_told_from_a_result_that_mentions_errors():
    assert [text for text in TOOL_ERRORS + RESULTS if is_tool_error(text)] == TOOL_ERRORS


def test_calls_that_take_turns_are_a_loop_and_a_way_of_working_is_not():
    turns = ["AAA", "ABABAB", "xABCABCABCx", "ABCDABCDABCD"]
    others = ["AAB", "ABAB", "ABACAD", "ABCABC", "ABCDEABCDEABCDE", "AABBAABB"]
    assert [calls for calls in turns + others if loops([(name, "{}") for name in calls])] == turns
