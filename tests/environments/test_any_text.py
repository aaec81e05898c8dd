"""Whatever a model writes is scored: no text makes a reader of answers fail."""

from __future__ import annotations

import asyncio
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.resources_servers.playing import Json, example_tasks, says
from velodrome.environments.equivalence_llm_judge.app import EquivalenceLlmJudge
from velodrome.environments.equivalence_rule.app import EquivalenceRule
from velodrome.environments.instruction_following.app import InstructionFollowing
from velodrome.environments.structured_outputs.app import StructuredOutputs
from velodrome.resources_servers.environment import Environment
from velodrome.resources_servers.mcqa.app import Mcqa

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
HOSTILE = {
    "megabytes": "answer: " * 500_000,
    "one long line": "7" * 4_000_000,
    "open boxes": "\\boxed{" * 300_000,
    "nested brackets": "[" * 200_000 + "]" * 200_000,
    "commas": ", " * 500_000,
    "nul": "Answer: \x00\x00",
    "expanding characters": "\ufdfa" * 100_000,
    "comments": "<!--" * 100_000,
}
TEXTS = st.one_of(
    st.text(st.characters(), max_size=200),
    st.lists(st.sampled_from([*PIECES.split(" "), " "]), max_size=40).map("".join),
    st.lists(st.sampled_from(PIECES.split(" ")), max_size=40).map(" ".join),
)


@cache
def environment_and_tasks(name: str) -> tuple[Environment, list[Json]]:
    owner = ENVIRONMENTS[name]
    inline = {"executor": "inline"} if name == "structured_outputs" else {}
    return owner(**owner.example_settings(), **inline), [*example_tasks(name).values()]


@pytest.mark.parametrize("name", list(ENVIRONMENTS))
@settings(max_examples=50)
@given(text=TEXTS, number=st.integers(0, 10_000))
def test_any_text_has_a_score_for_any_task(name: str, text: str, number: int):
    environment, tasks = environment_and_tasks(name)
    score = asyncio.run(environment.score("1", tasks[number % len(tasks)], says(text)))
    assert 0.0 <= score["reward"] <= 1.0


@pytest.mark.parametrize("name", list(ENVIRONMENTS))
def test_long_and_broken_texts_earn_nothing(name: str):
    environment, tasks = environment_and_tasks(name)
    scores = {kind: asyncio.run(environment.score("1", tasks[0], says(text))) for kind, text in HOSTILE.items()}
    assert {kind: score["reward"] for kind, score in scores.items()} == dict.fromkeys(HOSTILE, 0.0)
