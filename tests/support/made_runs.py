"""Rollouts files for tests: plausible ones, hostile ones, and ones that grow."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import orjson

Json = dict[str, Any]

START = 1_794_775_000.0
HOSTILE = (
    '</div></script><script>alert(1)</script><img src=x onerror="alert(2)"><svg onload=alert(3)>'
    '<a href="javascript:alert(4)">x</a><iframe src="https://evil.example/"></iframe>'
    "<style>body{display:none}</style>{{ 7*7 }}\x00\x1b[2J\x07\u202ereversed\u202c\u2066\u200b\u200f\ufeff\r&amp;"
)
_QUESTIONS = (
    "A shop sells pencils at 15 cents each. What do {a} pencils cost with a discount of {b}%?",
    "What is {b}% of {a}?",
    "A train covers {a} km in {b} hours. How fast does it go on average, in km/h?",
    "Ada has {a} stamps and gives {b} of them to Noor. How many are left?",
    "The sum of two numbers is {a}; their difference is {b}. What is the larger one?",
)
_ERRORS = (
    ("model", "POST http://127.0.0.1:8155/v1/responses: 503 Service Unavailable after 4 tries (request {n})"),
    ("model", "POST http://127.0.0.1:8155/v1/responses: timeout after 120 s"),
    ("verify", "verify: KeyError: 'expected_answer'"),
    ("tool", "tool calculator: ZeroDivisionError: division by zero"),
)


def spans(total_s: float, tokens: int) -> list[Any]:
    """Where the time of a rollout went, as its tree tells it."""
    us = total_s * 1e6
    tool = ["tool:calculator", round(0.57 * us), round(0.018 * us), {"cpu_us": 900}, []]
    return [
        ["queue", 0, round(0.01 * us), {}, []],
        ["model", round(0.01 * us), round(0.558 * us), {"tokens": tokens}, []],
        ["tools", round(0.568 * us), round(0.02 * us), {}, [tool]],
        ["model", round(0.588 * us), round(0.372 * us), {"tokens": 31}, []],
        ["verify", round(0.96 * us), round(0.02 * us), {}, []],
    ]


def rollout(task: int, repeat: int, rng: random.Random, *, skill: float = 0.6, at: float = START) -> Json:
    """One rollout of a calculator task."""
    a, b = 100 + 7 * task % 900, 5 + task % 40
    question = _QUESTIONS[task % len(_QUESTIONS)].format(a=a, b=b)
    hard = (task * 37 % 100) / 100
    right = rng.random() < skill * (1.4 - hard)
    answer = a * b / 100 if right else a * b / 100 + rng.choice((1, -2, 10))
    total = 0.4 + rng.random() * 2.2
    model = total * 0.93
    tokens = rng.randint(80, 260)
    expression = f"{a} * {b} / 100" if right else f"{a} + {b} * {rng.randint(1, 9)}"
    thought = rng.choice(
        (
            f"The user wants a number. I should use the calculator with {expression} and then answer in one sentence.",
            f"First I work out the share: {b} hundredths of {a}. The calculator will not make a slip, so I call it.",
        )
    )
    return {
        "responses_create_params": {
            "input": [
                {"role": "system", "content": "You are a careful assistant. Use the calculator for every sum."},
                {"role": "user", "content": question},
            ],
            "tools": [{"type": "function", "name": "calculator", "description": "evaluates", "parameters": {}}],
            "temperature": 0.7,
        },
        "output": [
            {
                "role": "assistant",
                "reasoning_content": thought,
                "tool_calls": [
                    {"id": "call_0_0", "name": "calculator", "arguments": f'{{"expression": "{expression}"}}'},
                ],
            },
            {"role": "tool", "tool_call_id": "call_0_0", "content": f"{answer:g}", "name": "calculator"},
            {"role": "assistant", "content": f"The calculator gives {answer:g}. So the answer is {answer:g}."},
        ],
        "response": {
            "id": f"resp_{task}_{repeat}",
            "model": "smollm2-135m",
            "status": "completed",
            "content": f"The calculator gives {answer:g}. So the answer is {answer:g}.",
        },
        "usage": {"input_tokens": tokens, "output_tokens": tokens // 3, "total_tokens": tokens + tokens // 3},
        "id": f"task-{task:03}",
        "expected_answer": f"{a * b / 100:g}",
        "reward": 1.0 if right else rng.choice((0.0, 0.0, 0.5)),
        "accuracy": float(right),
        "extracted_answer": f"{answer:g}",
        "meta": {
            "key": f"task-{task:03}/{repeat}",
            "task_index": task,
            "rollout_index": repeat,
            "agent": "calculator_simple_agent",
            "schema": 1,
            "finished_at": at,
            "timing": {
                "queue_s": 0.01 * total, "model_s": model, "tools_s": 0.02 * total, "verify_s": 0.02 * total,
                "total_s": total, "model_calls": 2, "in_flight": 16, "limit": 16, "cpu": 0.3, "lag_s": 0.001,
                "tree": spans(total, tokens),
            },
            "scored": ["reward", "accuracy", "extracted_answer"],
        },
    }  # fmt: skip


def failure(task: int, attempt: int, *, at: float = START) -> Json:
    """One failed attempt."""
    boundary, error = _ERRORS[task % len(_ERRORS)]
    return {
        "key": f"task-{task:03}/0",
        "task_index": task,
        "rollout_index": 0,
        "agent": "calculator_simple_agent",
        "schema": 1,
        "boundary": boundary,
        "error": error.format(n=1000 + task * 17),
        "finished_at": at,
        "timing": {"queue_s": 0.0, "model_s": 1.0, "tools_s": 0.0, "verify_s": 0.0, "total_s": 1.1, "model_calls": 1},
        "partial": [{"role": "assistant", "content": "Let me see. First I"}],
        "attempt": attempt,
    }


def hostile_row(key: str = "hostile/0") -> Json:
    """A rollout in which everything that came from outside is an attack."""
    return {
        "responses_create_params": {
            "input": [{"role": "system", "content": HOSTILE}, {"role": "user", "content": HOSTILE}],
            "tools": [{"name": HOSTILE}],
            HOSTILE: HOSTILE,
        },
        "output": [
            {
                "role": "assistant",
                "reasoning_content": HOSTILE,
                "content": HOSTILE,
                "tool_calls": [
                    {"id": "c", "name": HOSTILE, "arguments": orjson.dumps({HOSTILE: HOSTILE}).decode()},
                    {"id": "d", "name": "broken", "arguments": "{not json " + HOSTILE},
                ],
            },
            {"role": "tool", "tool_call_id": "c", "content": HOSTILE, "name": HOSTILE},
            {"role": "other", "item": {"type": HOSTILE}},
            {"role": "assistant", "content": HOSTILE},
        ],
        "response": {
            "model": HOSTILE,
            "status": "incomplete",
            "incomplete_details": {"reason": HOSTILE},
            "content": HOSTILE,
        },
        "usage": {"total_tokens": 7},
        "expected_answer": HOSTILE,
        HOSTILE: HOSTILE,
        "reward": 0.5,
        "meta": {
            "key": key,
            "agent": HOSTILE,
            "finished_at": START,
            "timing": {"total_s": 1.0, "tree": [[HOSTILE, 0, 9, {HOSTILE: 1}, []]]},
            "scored": [HOSTILE],
        },
    }


def write(path: Path, rows: list[Any]) -> Path:
    """Rows as lines; bytes as they are."""
    path.write_bytes(b"".join((row if isinstance(row, bytes) else orjson.dumps(row)) + b"\n" for row in rows))
    return path


def make_run(
    path: Path, *, tasks: int = 30, repeats: int = 4, skill: float = 0.6, seed: int = 1, failed: int = 9
) -> Path:
    """A whole run: rollouts, failures, and the run file."""
    rng = random.Random(seed)
    rows = []
    for repeat in range(repeats):
        for task in range(tasks):
            at = START + len(rows) * 0.16 + rng.random() * 0.1
            if not (repeat == 0 and task < failed):
                rows.append(rollout(task, repeat, rng, skill=skill, at=at))
    write(path, rows)
    if failed:
        write(
            path.with_name(path.name.replace(".jsonl", ".failures.jsonl")),
            [failure(t, 1 + t % 2) for t in range(failed)],
        )
    run = {"started_at": START, "input": "tasks.jsonl", "limit": None, "repeats": repeats, "finished_at": START + 30,
           "requested": tasks * repeats, "kept": len(rows), "failed": failed, "left": 0, "stopped": None}  # fmt: skip
    record = {"recipe": {}, "config": {}, "versions": {"velodrome": "0.1.0"}, "runs": [run]}
    path.with_name(path.name.replace(".jsonl", ".run.json")).write_bytes(orjson.dumps(record))
    os.utime(path, (START + 30, START + 30))  # it is over
    return path


def rows_of(path: Path) -> list[Json]:
    """The rows of a file, as they are."""
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]
