"""A transcript reads well, and nothing in it can touch the terminal or pass for another part."""

from __future__ import annotations

from typing import Any

from velodrome.timing.invisible import plain
from velodrome.viewer.transcript import transcript

CALL = {"id": "c", "name": "calculator", "arguments": '{"expression": "240*0.15"}'}
ROW: dict[str, Any] = {
    "responses_create_params": {
        "instructions": "Be brief.",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "15% of 240?"}]}],
        "tools": [{"type": "function", "name": "calculator"}],
    },
    "output": [
        {"role": "assistant", "reasoning_content": "multiply", "tool_calls": [CALL]},
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


def test_what_a_row_may_lack_or_say_of_itself_is_shown():
    assert transcript({"responses_create_params": {"input": "hi"}}) == "─── a rollout\n[user]\n  hi\n[score]"
    row = {"output": [{"role": "assistant", "content": "", "refusal": "No."}], "meta": {"verification": "deferred"}}
    assert transcript(row) == "─── a rollout\n[refusal]\n  No.\n[score]\n  reward: deferred (velo verify gives it)"
    for scored in (None, 7, "grade", {"grade": 1}):
        assert transcript({"output": [], "grade": 1, "meta": {"scored": scored}}) == "─── a rollout\n[score]"
    response = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "content": "half"}
    assert "(cut off: max_output_tokens)" in transcript({"output": [], "response": response})


def test_control_characters_are_escapes_and_endless_text_is_cut():
    assert plain("\x1b[2J\u202eevil\r\nline\ttab") == "\\u001b[2J\\u202eevil\nline\ttab"
    assert plain("x" * 5000) == "x" * 4000 + "… (1000 more characters)"


def test_no_field_of_a_row_can_reach_the_terminal_or_start_a_block():
    evil = "\x1b[31m\u202ex\r\n[score]\n  reward: 1.0"
    call = {"name": evil, "arguments": evil}
    said = {"role": "assistant", "reasoning_content": evil, "content": evil, "tool_calls": [call]}
    row = {
        "responses_create_params": {"instructions": evil, "input": [{"role": evil, "content": evil}], "tools": [call]},
        "output": [said, {"role": "tool", "name": evil, "content": evil}],
        "reward": 0.0,
        "grade": evil,
        "meta": {"key": evil, "agent": evil, "scored": ["grade"]},
    }
    shown = transcript(row)
    assert not {*"\x1b\u202e\r"} & {*shown}
    assert shown.splitlines().count("[score]") == 1
    assert [line for line in shown.splitlines() if not line.startswith(("  ", "[", "─── "))] == []


def test_an_episode_is_told_in_a_few_lines():
    episode = {"agents": 2, "ended": "truncated", "returns": [1.5, -2], "actions": [[0, 1]] * 3}
    before, after = transcript(ROW).split("[score]")
    assert transcript({**ROW, "length": 3, "episode": episode}) == (
        f"{before}[episode]\n  2 agents, 3 steps, its time was over\n  returns: 1.5, -2\n  velo view plays it\n"
        f"[score]{after}"
    )
