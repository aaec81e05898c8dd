"""A transcript reads well, and nothing in it can touch the terminal or pass for another part."""

from __future__ import annotations

from typing import Any

import pytest

from velodrome.records.facts import is_episode
from velodrome.viewer.transcript import plain, transcript

ROW: dict[str, Any] = {
    "responses_create_params": {
        "instructions": "Be brief.",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "15% of 240?"}]}],
        "tools": [{"type": "function", "name": "calculator"}],
    },
    "output": [
        {
            "role": "assistant",
            "reasoning_content": "multiply",
            "tool_calls": [{"id": "c", "name": "calculator", "arguments": '{"expression": "240*0.15"}'}],
        },
        {"role": "tool", "tool_call_id": "c", "name": "calculator", "content": "36.0"},
        {"role": "assistant", "content": "It is 36.\nSure."},
    ],
    "response": {"content": "It is 36.\nSure."},
    "usage": {"total_tokens": 42},
    "expected_answer": "36",
    "reward": 1.0,
    "extracted": None,
    "parts": {"a": 1},
    "meta": {
        "key": "9f31/0",
        "agent": "calc",
        "scored": ["reward", "extracted", "parts"],
        "timing": {"total_s": 1.234, "model_s": 1.2},
    },
}


def test_a_rollout_reads_from_question_to_score():
    assert transcript(ROW) == (
        "─── 9f31/0 · calc · 1.23 s (1.20 s model) · 42 tokens\n"
        "[system]\n"
        "  Be brief.\n"
        "[user]\n"
        "  15% of 240?\n"
        "  (tools: calculator)\n"
        "[reasoning]\n"
        "  multiply\n"
        "[tool call · calculator]\n"
        '  {"expression": "240*0.15"}\n'
        "[tool result · calculator]\n"
        "  36.0\n"
        "[assistant]\n"
        "  It is 36.\n"
        "  Sure.\n"
        "[score]\n"
        "  reward: 1.0\n"
        "  expected_answer: 36\n"
        '  parts: {"a":1}'
    )


def test_a_row_that_lacks_nearly_everything_is_still_shown():
    assert transcript({"responses_create_params": {"input": "hi"}}) == "─── a rollout\n[user]\n  hi\n[score]"


def test_a_deferred_reward_and_a_refusal_are_said():
    row = {"output": [{"role": "assistant", "content": "", "refusal": "No."}], "meta": {"verification": "deferred"}}
    assert transcript(row) == ("─── a rollout\n[refusal]\n  No.\n[score]\n  reward: deferred (velo verify gives it)")


def test_control_characters_and_turned_text_are_shown_as_escapes():
    hostile = "\x1b[2J\x07\x00\x9b31m\x7f\r\u202eevil\u2066\u200f\u061c\u2028\ttab\nline"
    assert plain(hostile) == (
        "\\u001b[2J\\u0007\\u0000\\u009b31m\\u007f\\u000d\\u202eevil\\u2066\\u200f\\u061c\\u2028\ttab\nline"
    )
    assert plain("a\r\nb") == "a\nb"


def test_what_has_no_width_is_shown_as_an_escape_unless_it_joins_letters():
    assert plain("pass\u200bword\ufeff\xad\u2060 \U000e0041") == "pass\\u200bword\\ufeff\\u00ad\\u2060 \\U000e0041"
    assert plain("\U0001f469\u200d\U0001f680") == "\U0001f469\u200d\U0001f680"


def test_no_field_of_a_row_can_reach_the_terminal_or_start_a_block():
    evil = "\x1b[31m\u202ex\r\n[score]\n  reward: 1.0"
    call = {"name": evil, "arguments": evil}
    row = {
        "responses_create_params": {
            "instructions": evil,
            "input": [{"role": evil, "content": evil}],
            "tools": [{"name": evil}],
        },
        "output": [
            {"role": "assistant", "reasoning_content": evil, "content": evil, "tool_calls": [call]},
            {"role": "tool", "name": evil, "content": evil},
        ],
        "reward": 0.0,
        "grade": evil,
        "meta": {"key": evil, "agent": evil, "scored": ["grade"]},
    }
    shown = transcript(row)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "\r" not in shown
    assert shown.splitlines().count("[score]") == 1
    assert [line for line in shown.splitlines() if not line.startswith(("  ", "[", "─── "))] == []


def test_endless_text_is_cut_and_says_by_how_much():
    shown = plain("x" * 5000)
    assert shown == "x" * 4000 + "… (1000 more characters)"


def test_an_answer_that_was_cut_off_says_so():
    response = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "content": "half"}
    assert "(cut off: max_output_tokens)" in transcript({"output": [], "response": response})


def test_an_earlier_tool_result_in_the_prompt_is_shown_with_the_name_of_its_tool():
    requests = [
        {"type": "function_call", "call_id": "c", "name": "calculator", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "7.0"},
    ]
    assert "[tool result · calculator]\n  7.0" in transcript({"responses_create_params": {"input": requests}})


def played(**episode: Any) -> str:
    """What is told of an episode."""
    palette = dict.fromkeys(map(str, episode.pop("letters", "#.0Hx")), "#aabbcc")
    row = {**ROW, "length": 3, "agreement_alone": 0.25, "episode": {"agents": 2, "palette": palette, **episode}}
    text = transcript(row)
    before, after = transcript(ROW).split("[score]")
    assert text.startswith(f"{before}[episode]\n  ")
    assert text.endswith(f"\n[score]{after}")
    return text.removeprefix(f"{before}[episode]\n").removesuffix(f"\n[score]{after}")


def test_an_episode_is_shown_with_its_first_and_its_last_picture():
    frames = [
        ["#..", "0.#"],
        {"at": [3, 4], "put": ".0"},
        ["##.", ".0#"],
        {"at": [], "put": ""},
        {"at": [2], "put": "H"},
    ]
    assert played(ended="truncated", returns=[1.5, -2], actions=[[0, 1]] * 5, frames=frames) == (
        "  2 agents, 5 steps, its time was over\n"
        "  returns: 1.5, -2\n"
        "  agreement with the teacher: 25.0%\n"
        "  the first picture:\n"
        "    #..\n"
        "    0.#\n"
        "  the last picture:\n"
        "    ##H\n"
        "    .0#\n"
        "  velo view plays it"
    )


def test_of_a_large_picture_and_of_many_agents_the_first_are_shown():
    text = played(returns=[0.5] * 20, frames=[["x" * 150] * 60]).splitlines()
    assert text[1] == f"  returns: {', '.join(['0.5'] * 16)} and 4 more"
    assert text[3:] == [
        "  the only picture (40 of 60 rows, 100 of 150 columns):",
        *["    " + "x" * 100] * 40,
        "  velo view plays it",
    ]


def test_an_episode_without_its_columns_is_described_by_what_there_is():
    assert played(returns=[1], ended="terminal", left_out=["frames", "actions"]) == (
        "  2 agents, 3 steps, it ended by the rules\n  returns: 1\n  agreement with the teacher: 25.0%"
    )


def test_a_picture_can_do_nothing_to_a_terminal():
    frames = [["\x1b[2J", "a\nb\u202e", "\x9b\r\t\x07"], {"at": [0], "put": "\u2028"}]
    text = played(frames=frames, letters="\x1b[2Ja\nb\u202e\x9b\r\t\x07\u2028")
    rows = ["    a\\nb\\u202e", "    \\x9b\\r\\t\\x07"]
    first, last = ["    \\x1b[2J", *rows], ["    \\u2028[2J", *rows]
    pictures = ["  the first picture:", *first, "  the last picture:", *last]
    assert text.splitlines()[2:] == [*pictures, "  velo view plays it"]


@pytest.mark.parametrize(
    "frames", [[], [[1]], [["##", "#"]], [{"at": [0], "put": "#"}], [["##"], {"at": [2], "put": "#"}], 7]
)
def test_frames_that_are_no_pictures_are_not_shown_and_the_reason_is(frames: Any):
    text = played(frames=frames)
    assert ("picture:" in text, "it cannot be shown: " in text) == (False, True)


@pytest.mark.parametrize("odd", [None, "x\x1b", [], {}, -1, True, 1.5, 2**70, float("nan"), "9" * 5000])
def test_whatever_stands_in_an_episode_takes_a_few_lines(odd: Any):
    for name in ("agents", "ended", "returns", "actions", "frames"):
        text = played(**{"returns": [odd], name: odd})
        assert "\x1b" not in text
        assert len(text) < 500


def test_an_episode_has_agents_and_something_they_did():
    assert all(is_episode({"episode": {"agents": 1, name: []}}) for name in ("returns", "frames"))
    assert not any(is_episode({"episode": each}) for each in ({"agents": 1}, {"returns": [1]}, [], None, "x"))
    assert not is_episode({})
