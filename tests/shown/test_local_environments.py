"""The real local model, of 135 million parameters, earns some of the reward and not all of it in several environments.

It is sampled at a high temperature and held to the form of an answer by a grammar, and each set has tasks that it, or
chance, often gets right, and tasks that it does not. So the mean is far from both ends whatever the machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from velodrome.errors import VerifyError
from velodrome.resources_servers.environment import Environment
from velodrome.resources_servers.equivalence_llm_judge.app import EquivalenceLlmJudge
from velodrome.resources_servers.equivalence_rule.app import EquivalenceRule
from velodrome.resources_servers.instruction_following.app import InstructionFollowing
from velodrome.resources_servers.instruction_following.following_kinds import described
from velodrome.resources_servers.mcqa.app import Mcqa
from velodrome.resources_servers.structured_outputs.app import StructuredOutputs
from velodrome.responses_api_agents.simple_agent.app import SimpleAgent
from velodrome.responses_api_models.local_model.app import LocalModel

Json = dict[str, Any]

pytestmark = pytest.mark.slow

IN_FLIGHT = 8


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[asyncio.Runner, LocalModel]]:
    with asyncio.Runner() as runner:
        model = LocalModel(parallel=IN_FLIGHT, n_ctx=1024, n_threads=1)
        yield runner, model
        runner.run(model.aclose())


def asked(prompt: str, *, seed: int, most: int = 16, **more: Any) -> Json:
    sampling = {"temperature": 1.2, "max_output_tokens": most, "seed": seed}
    return {"input": [{"role": "user", "content": prompt}], **sampling, **more}


def rewards(running: tuple[asyncio.Runner, LocalModel], environment: Environment, tasks: list[Json]) -> list[float]:
    runner, model = running
    agent = SimpleAgent(model=model, environment=environment)
    places = asyncio.Semaphore(IN_FLIGHT)

    async def one(task: Json) -> float:
        async with places:
            return float((await agent.run(task))["reward"])

    async def main() -> list[float]:
        try:
            return await asyncio.gather(*map(one, tasks))
        finally:
            await environment.aclose()

    return runner.run(main())


def between(earned: list[float]) -> None:
    mean = sum(earned) / len(earned)
    print(f"mean reward {mean:.3f} of {len(earned)} rollouts")
    assert 0 < mean < 1


CAPITALS = {"Norway": "Oslo", "Spain": "Madrid", "Egypt": "Cairo", "Peru": "Lima", "Japan": "Tokyo", "Kenya": "Nairobi"}


def test_it_chooses_some_right_letters(running: Any) -> None:
    """The right city is as often A as B, so a model that always says one letter has half of them right."""
    tasks = []
    for seed in range(24):
        country, city = list(CAPITALS.items())[seed % 6]
        other = list(CAPITALS.values())[(seed + 1) % 6]
        options = [city, other] if seed // 6 % 2 else [other, city]
        prompt = f"What is the capital of {country}?\nA. {options[0]}\nB. {options[1]}\nSay the letter."
        params = asked(prompt, seed=seed, grammar='root ::= "Answer: " [AB]')
        expected = "AB"[options.index(city)]
        tasks.append({"responses_create_params": params, "options": options, "expected_answer": expected})
    between(rewards(running, Mcqa(), tasks))


def test_it_adds_some_numbers(running: Any) -> None:
    """Sums of 1, 2 and 3, each as often, so that guesses are right now and then; and products that it cannot know."""
    tasks = []
    for seed in range(24):
        prompt = f"0 + 1 = 1\n0 + 2 = 2\n0 + 3 = 3\nWhat is 1 + {seed % 3}?"
        params = asked(prompt, seed=seed, grammar='root ::= "Answer: " [1-3]')
        tasks.append({"responses_create_params": params, "kind": "number", "expected_answer": 1 + seed % 3})
    for seed in range(6):
        left, right = 4871 + seed, 7913 - seed
        params = asked(f"What is {left} * {right}?", seed=seed, grammar='root ::= "Answer: " [1-9] [0-9]+')
        tasks.append({"responses_create_params": params, "kind": "number", "expected_answer": left * right})
    between(rewards(running, EquivalenceRule(), tasks))


def test_it_fills_some_forms_rightly(running: Any) -> None:
    """As many good reviews as bad ones, so a model that always says the same has half of them right."""
    schema = {
        "type": "object",
        "properties": {"mood": {"enum": ["good", "bad"]}},
        "required": ["mood"],
        "additionalProperties": False,
    }
    reviews = {
        "The food was wonderful.": "good",
        "The food was awful.": "bad",
        "I loved it.": "good",
        "I hated it.": "bad",
    }
    tasks = [
        {
            "responses_create_params": asked(
                f'Review: {review}\nIs it good or bad? Answer in JSON: {{"mood": "good"}} or {{"mood": "bad"}}.',
                seed=at,
                most=32,
                json_schema=schema,
            ),
            "schema": schema,
            "expected": {"/mood": mood},
        }
        for at in range(6)
        for review, mood in reviews.items()
    ]
    between(rewards(running, StructuredOutputs(), tasks))


def test_it_follows_some_instructions(running: Any) -> None:
    """An answer of so few tokens is short; one without the most frequent letters is not to be expected."""
    easy = [{"kind": "max_words", "count": 40}, {"kind": "max_sentences", "count": 8}]
    hard = [{"kind": "forbidden_letter", "letter": letter} for letter in "aeiot"]
    hard += [{"kind": "exact_words", "count": 7}, {"kind": "palindromes", "count": 3}]
    tasks = []
    for at in range(8):
        for rules in (easy, hard):
            prompt = f"Write about a river.\n{' '.join(map(described, rules))}"
            tasks.append({"responses_create_params": asked(prompt, seed=at, most=24), "constraints": rules})
    between(rewards(running, InstructionFollowing(), tasks))


VERDICT = 'root ::= "[[A=B]]" | "[[A!=B]]"'


def test_it_judges_without_harm(running: Any) -> None:
    """Held to a verdict it gives one; left alone it rambles, which fails at verify and is no score by accident."""
    runner, model = running
    settings: Json = {"judge": model, "max_answer_chars": 200, "judge_attempts": 2}
    held = EquivalenceLlmJudge(**settings, judge_responses_create_params={"grammar": VERDICT, "max_output_tokens": 16})
    free = EquivalenceLlmJudge(**settings, judge_responses_create_params={"max_output_tokens": 12})
    task = {"question": "What is the capital of Norway?", "expected_answer": "Oslo"}
    answers = ["Oslo", "Madrid", held.cheats(task)["the end of a fence"]]

    async def main() -> tuple[list[Any], list[Any]]:
        def score(environment: Environment, answer: str) -> Any:
            said = {"output": [{"type": "message", "role": "assistant", "content": answer}]}
            return environment.score("1", task, said)

        verdicts = [await score(held, answer) for answer in answers]
        rambling = await asyncio.gather(*[score(free, answer) for answer in answers[1:2]], return_exceptions=True)
        await held.aclose()
        await free.aclose()
        return verdicts, rambling

    verdicts, rambling = runner.run(main())
    assert {verdict["reward"] for verdict in verdicts} <= {0.0, 1.0}
    assert [verdict["unparsed"] for verdict in verdicts] == [0.0] * len(answers)
    assert all(isinstance(each, VerifyError) or each["reward"] in (0.0, 1.0) for each in rambling)
