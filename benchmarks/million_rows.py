"""Made-up rollouts, about 2.5 KB each, with words as uneven as in a real text; eight repeats of every task."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import orjson

REPEATS = 8
KINDS = ("algebra", "geometry", "number theory", "probability", "word problem")
_TOOLS = ("calculator", "search", "browse", "python")


def vocabulary(chance: random.Random) -> list[str]:
    """Words of made-up syllables; the first are drawn far more often than the last."""
    syllables = [first + second for first in "bcdfghklmnprstvw" for second in "aeiou"]
    return ["".join(chance.choices(syllables, k=chance.randint(1, 4))) for _ in range(20_000)]


def passages(chance: random.Random, words: list[str], length: int, count: int) -> list[str]:
    """Texts of about so many characters."""
    weights = list(itertools.accumulate(1 / (place + 2) for place in range(len(words))))
    result = []
    for _ in range(count):
        text = " ".join(chance.choices(words, cum_weights=weights, k=length // 6))
        result.append(text[:length].capitalize() + ".")
    return result


def _tool(number: int, call: int) -> str:
    """Which tool is called; some are called far less often than others."""
    return _TOOLS[(number >> 2 * call & 3) & (number >> 5)]


def rows(count: int, seed: int = 7) -> Iterator[bytes]:
    """So many lines of a rollouts file."""
    chance = random.Random(seed)
    words = vocabulary(chance)
    prompts, thoughts, answers = (passages(chance, words, length, 3000) for length in (460, 340, 330))
    for number in range(count):
        task = number // REPEATS
        skill = (task * 2654435761 % 1000) / 1000
        model_s = chance.expovariate(1.5)
        tools = chance.randrange(6)
        calls = [
            {"id": f"c{call}", "name": _tool(number, call), "arguments": f'{{"expression":"{number} * {call}"}}'}
            for call in range(tools)
        ]
        results = [
            {"role": "tool", "tool_call_id": f"c{call}", "content": f"got{number * call}", "name": _tool(number, call)}
            for call in range(tools)
        ]
        answer = f"{chance.choice(answers)} The answer is unit{number}."
        tokens = chance.randrange(40, 900)
        yield orjson.dumps(
            {
                "responses_create_params": {
                    "input": [{"role": "user", "content": f"Task {task}. {prompts[task % len(prompts)]}"}],
                    "temperature": 1.0,
                },
                "output": [
                    {"role": "assistant", "reasoning_content": chance.choice(thoughts), "tool_calls": calls},
                    *results,
                    {"role": "assistant", "content": answer},
                ],
                "response": {"id": f"resp_{number}", "model": "made-up", "status": "completed", "content": answer},
                "usage": {"input_tokens": 200, "output_tokens": tokens, "total_tokens": 200 + tokens},
                "id": f"task-{task}",
                "expected_answer": str(number),
                "kind": KINDS[task % len(KINDS)],
                "difficulty": task % 10,
                "reward": float(chance.random() < skill),
                "accuracy": round(chance.random(), 3),
                "meta": {
                    "key": f"task-{task}/{number % REPEATS}",
                    "task_index": task,
                    "rollout_index": number % REPEATS,
                    "agent": "calculator_simple_agent" if number % 3 else "other_agent",
                    "schema": 1,
                    "finished_at": 1_790_000_000 + number / 60,
                    "timing": {
                        "queue_s": 0.0,
                        "model_s": round(model_s, 6),
                        "tools_s": 0.002 * tools,
                        "verify_s": 0.001,
                        "total_s": round(model_s + 0.01, 6),
                        "model_calls": 2,
                    },
                    "scored": ["reward", "accuracy"],
                },
            },
            option=orjson.OPT_APPEND_NEWLINE,
        )


def failures(count: int, kept: int) -> Iterator[bytes]:
    """So many lines of a failures file, of a few kinds."""
    for number in range(count):
        what = ("timeout after 30 s", "401 Unauthorized", "connection reset")[number % 3]
        yield orjson.dumps(
            {
                "key": f"task-{kept // REPEATS + number}/0",
                "task_index": number,
                "agent": "calculator_simple_agent",
                "boundary": "model",
                "error": f"POST http://127.0.0.1:{8000 + number % 50}/v1/responses: {what}",
                "finished_at": 1_790_000_000 + number,
                "timing": {"total_s": 30.0},
                "partial": [],
                "attempt": 1,
            },
            option=orjson.OPT_APPEND_NEWLINE,
        )


def write(path: Path, lines: Iterator[bytes]) -> None:
    """The lines as a file, some thousands at a time."""
    with path.open("wb") as stream:
        while block := list(itertools.islice(lines, 5000)):
            stream.write(b"".join(block))
