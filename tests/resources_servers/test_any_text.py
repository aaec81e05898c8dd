"""Whatever a model writes is scored: no text makes a reader of answers fail, and what is written is read back."""

from __future__ import annotations

import asyncio
import json
import string
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from velodrome.resources_servers.environment import Environment
from velodrome.resources_servers.equivalence_llm_judge.app import EquivalenceLlmJudge
from velodrome.resources_servers.equivalence_llm_judge.judge_prompt import fenced, mark_of
from velodrome.resources_servers.equivalence_rule.app import EquivalenceRule
from velodrome.resources_servers.equivalence_rule.equivalence_numbers import NumberReading, number_in
from velodrome.resources_servers.instruction_following.app import InstructionFollowing
from velodrome.resources_servers.mcqa.app import Mcqa
from velodrome.resources_servers.mcqa.mcqa_letters import EXTRACTIONS, choice
from velodrome.resources_servers.structured_outputs.app import StructuredOutputs
from velodrome.resources_servers.structured_outputs.structured_value import json_text, json_value

Json = dict[str, Any]

HOME = Path(__file__).parents[2] / "velodrome" / "resources_servers"
ENVIRONMENTS: dict[str, type[Environment]] = {
    "mcqa": Mcqa,
    "equivalence_rule": EquivalenceRule,
    "equivalence_llm_judge": EquivalenceLlmJudge,
    "structured_outputs": StructuredOutputs,
    "instruction_following": InstructionFollowing,
}
PIECES = (
    r"\boxed{ } Answer: <answer> </answer> <think> </think> <| |> <!-- --> <system> ``` { } [ ] ( ) $ \frac{1}{2} -"
)
PIECES += (
    " 1 1,234 1e9 1/0 ½ ² % ° km h 2024-02-30 03/04/2024 or and is = ; , . ! ? * # | A B C yes null \n \x00 \ud800 é"
)
TEXTS = st.one_of(
    st.text(st.characters(), max_size=200),
    st.lists(st.sampled_from([*PIECES.split(" "), " "]), max_size=40).map("".join),
    st.lists(st.sampled_from(PIECES.split(" ")), max_size=40).map(" ".join),
)


@cache
def examined(name: str) -> tuple[Environment, list[Json]]:
    owner = ENVIRONMENTS[name]
    settings = {**owner.example_settings(), **({"executor": "inline"} if name == "structured_outputs" else {})}
    lines = (HOME / name / "data" / "example.jsonl").read_text().splitlines()
    return owner(**settings), [json.loads(line) for line in lines]


@pytest.mark.parametrize("name", list(ENVIRONMENTS))
@given(text=TEXTS, number=st.integers(0, 10_000))
def test_any_text_has_a_score_for_any_task(name: str, text: str, number: int) -> None:
    environment, tasks = examined(name)
    response = {"output": [{"type": "message", "role": "assistant", "content": text}]}
    score = asyncio.run(environment.score("1", tasks[number % len(tasks)], response))
    assert 0.0 <= score["reward"] <= 1.0


@given(
    letters=st.lists(st.sampled_from(string.ascii_uppercase[:6]), min_size=2, max_size=6, unique=True),
    joint=st.sampled_from([" ", ", ", " or ", " and ", "/", "; ", "\n"]),
    form=st.sampled_from(["{}", "Answer: {}", "\\boxed{{{}}}", "The answer is {}.", "<answer>{}</answer>"]),
)
def test_several_letters_are_never_a_choice(letters: list[str], joint: str, form: str) -> None:
    options = {letter: f"option number {at}" for at, letter in enumerate(string.ascii_uppercase[:6])}
    assert choice(form.format(joint.join(letters)), options, EXTRACTIONS) is None


@given(value=st.fractions(max_denominator=10**6), comma=st.booleans())
def test_a_number_is_read_back(value: Fraction, comma: bool) -> None:
    text = f"{value.numerator:,}/{value.denominator:,}" if comma else str(value)
    assert number_in(text, NumberReading()) == value


@given(value=st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=4))
def test_a_decimal_is_read_back(value: Any) -> None:
    assert number_in(f"{value:,}", NumberReading()) == Fraction(value)


@given(
    first=st.integers(0, 10**6),
    second=st.integers(0, 10**6),
    joint=st.sampled_from([" or ", ", ", " - ", "-", " to ", "; ", " / 1 or "]),
)
def test_two_numbers_are_never_one(first: int, second: int, joint: str) -> None:
    assert number_in(f"{first}{joint}{second}", NumberReading()) is None


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(value=VALUES, fence=st.booleans())
def test_a_json_value_is_read_back(value: Any, fence: bool) -> None:
    text = json.dumps(value)
    assert json_value(json_text(f"```json\n{text}\n```" if fence else text, around=False), 1 << 20) == value


@given(text=TEXTS)
def test_no_text_ends_its_own_fence(text: str) -> None:
    mark = mark_of(text)
    lines = fenced("A", text, mark).splitlines()
    assert [line for line in lines[1:-1] if not line.startswith("| ")] == []
    assert sum(mark in line for line in lines) == 2
