"""Clean rollouts, and every problem that can be planted in them."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from velodrome.checks import Checks, Finding
from velodrome.records.facts import RowFacts
from velodrome.records.rollout import encode

Row = dict[str, Any]
Rows = list[Any]  # rollouts; bytes stand for themselves
Plant = Callable[[Rows], None]

SENTENCE = "so we divide the total by each part then add what is left and check it once more against the first"
WORDS = SENTENCE.split()
TOOLS = [{"type": "function", "name": "calculator"}, {"type": "function", "name": "search"}]


def rollout(number: int, repeats: int, chance: random.Random, pass_rate: float) -> Row:
    """One clean rollout: a tool call, its result, an answer of its own."""
    task, repeat = divmod(number, repeats)
    answer = " ".join(chance.choices(WORDS, k=chance.randint(20, 60)))
    arguments = json.dumps({"expression": f"{task} * {chance.randint(2, 900)}"})
    model_s = chance.uniform(0.5, 3.0)
    return {
        "responses_create_params": {"input": f"What is {task} times itself?", "tools": TOOLS},
        "output": [
            {"role": "assistant", "tool_calls": [{"id": "c", "name": "calculator", "arguments": arguments}]},
            {"role": "tool", "tool_call_id": "c", "content": str(task * task), "name": "calculator"},
            {"role": "assistant", "reasoning_content": answer[::-1], "content": answer},
        ],
        "response": {"id": "r", "model": "m", "status": "completed", "content": answer},
        "usage": {"input_tokens": 30, "output_tokens": 60, "total_tokens": 90},
        "id": f"t{task}",
        "expected_answer": str(task * task),
        "reward": float(chance.random() < pass_rate),
        "meta": {
            "key": f"t{task}/{repeat}",
            "finished_at": 1.7e9 + number,
            "timing": {"model_s": model_s, "tools_s": 0.001, "verify_s": 0.01, "total_s": model_s + 0.02},
            "scored": ["reward"],
        },
    }


def clean(count: int = 200, repeats: int = 4, seed: int = 1, pass_rate: float = 0.5) -> list[Row]:
    chance = random.Random(seed)
    return [rollout(number, repeats, chance, pass_rate) for number in range(count)]


def scored(key: str, reward: float | None = 1.0, *, agent: str = "a", **fields: Any) -> Row:
    """A rollout that is no more than a key, a reward and the fields it is about."""
    row = {"responses_create_params": {"input": "x"}, "output": [], "reward": reward, **fields}
    return {**row, "meta": {"key": key, "agent": agent}}


def write(path: Path, rows: Rows, failures: Rows = ()) -> Path:
    path.write_bytes(b"".join(row if isinstance(row, bytes) else encode(row) for row in rows))
    if failures:
        beside = path.with_name(path.name.replace(".jsonl", ".failures.jsonl"))
        beside.write_bytes(b"".join(row if isinstance(row, bytes) else encode(row) for row in failures))
    return path


def findings_of(rows: Rows, **options: Any) -> list[Finding]:
    checks = Checks(**options)
    for row in rows:
        checks.add(RowFacts(row))
    return checks.findings()


def names(findings: list[Finding]) -> list[str]:
    return [finding.name for finding in findings]


def answered(row: Row, text: Any) -> None:
    row["response"]["content"] = row["output"][-1]["content"] = text


def each(first: int, last: int | None, change: Callable[[Row], Any]) -> Plant:
    """Change some of the rows."""

    def plant(rows: Rows) -> None:
        for row in rows[first:last]:
            change(row)

    return plant


def rewarded(reward: float, first: int = 0) -> Plant:
    return each(first, None, lambda row: row.update(reward=reward))


def stopped(reason: str) -> Plant:
    own = {"metadata": {"stop": reason}} if reason == "max_steps" else {"incomplete_details": {"reason": reason}}
    details = {"status": "incomplete", **own}
    return each(10, 25, lambda row: row["response"].update(details))


def tool_says(first: int, last: int, text: str) -> Plant:
    return each(first, last, lambda row: row["output"][1].update(name="search", content=text))


def timed(last: int, **times: Any) -> Plant:
    return each(0, last, lambda row: row["meta"]["timing"].update(times))


def line_with(row: Row, fields: str) -> bytes:
    """The row as a line with more fields, which need not be JSON."""
    return encode(row)[:-2] + f",{fields}}}\n".encode()


def said_again(row: Row, text: str) -> None:
    row["output"][-1]["content"] += text


def paragraph(row: Row) -> None:
    text = f"In the case of {row['id']}, {SENTENCE}. {' '.join(WORDS[::-1])}. {SENTENCE.title()}."
    said_again(row, "\n\n" + "\n\n".join([text] * 40))


def two_calls(row: Row) -> None:
    calls = row["output"][0]["tool_calls"]
    calls[:] = [*calls, {"id": "d", "name": "search", "arguments": "{}"}] * 10


all_zero, never, always = rewarded(0.0), rewarded(0.0, 40), rewarded(1.0, 40)
truncated = stopped("max_output_tokens")


def nan(rows: Rows) -> None:
    for index, reward in ((3, "NaN"), (4, "-Infinity"), (5, "true"), (6, '"1.0"')):
        rows[index] = re.sub(rb'"reward":[\d.]+', f'"reward":{reward}'.encode(), encode(rows[index]))
    del rows[7]["reward"]


def infinite(rows: Rows) -> None:
    for index, fields in ((2, '"score":NaN'), (8, '"score":-Infinity,"speed":1e999'), (9, '"a":{"b":NaN},"c":[NaN]')):
        rows[index] = line_with(rows[index], fields)


def beyond_ten(rows: Rows) -> None:
    rows[9]["reward"], rows[11]["reward"], rows[12]["reward"] = 10.5, -1e6, 10.0


def far_off(rows: Rows) -> None:
    for row in rows:
        row["reward"] = 0.3 + 0.01 * (len(row["response"]["content"]) % 11)
    rows[20]["reward"] = 7.0


def longer_is_better(rows: Rows) -> None:
    for row in rows:
        row["reward"] = round(len(row["response"]["content"]) / 300, 3)


def deferred(rows: Rows) -> None:
    for row in rows[:7]:
        row["reward"] = None
        row["meta"]["verification"] = "deferred"


def empty(rows: Rows) -> None:
    for row, text in zip(rows[:8], ["", None, " \n", [], "", "", "", ""], strict=True):
        answered(row, text)


def errors(rows: Rows) -> None:
    for row, text in zip(rows[2:5], ["ERROR", "FAILED", "Traceback (most recent call last):\n  File"], strict=True):
        answered(row, text)


def refusals(rows: Rows) -> None:
    for row in rows[:11]:
        answered(row, f"I'm sorry, but I can't help with {row['id']}.")
    rows[11]["output"][-1]["refusal"] = "No."


def collapsed(rows: Rows) -> None:
    for index, row in enumerate(rows):
        row["output"] = rows[index - index % 4]["output"]


def same_tasks(rows: Rows) -> None:
    for row in rows[100:120]:
        row["responses_create_params"], row["expected_answer"] = rows[0]["responses_create_params"], "0"


def bad_times(rows: Rows) -> None:
    rows[0]["meta"]["timing"]["total_s"] = -1.0
    rows[1]["meta"]["timing"]["verify_s"] = "long"
    rows[2]["meta"]["timing"]["model_s"] = None
    del rows[3]["meta"]["timing"]
    del rows[4]["meta"]["timing"]["total_s"]


def slow(rows: Rows) -> None:
    for index in (50, 60, 70, 80, 90):
        rows[index]["meta"]["timing"]["total_s"] = 100.0 + index


def uncounted(rows: Rows) -> None:
    for row, usage in zip(rows[:4], [None, {}, {"total_tokens": 0}, {"total_tokens": "many"}], strict=True):
        row["usage"] = usage


def garbage(rows: Rows) -> None:
    rows[5:5] = [b"{\n", b"[1]\n", b"\xff\xfe\n", b"5\n"]


def odd_rows(rows: Rows) -> None:
    rows[1:1] = [b"{}\n", b'{"meta":5,"output":"x","response":[]}\n']


def twice(rows: Rows) -> None:
    rows += [*rows[:6], rows[0]]


CALLED = "calculate\x1b[2J"
CIRCLES = " Wait, I should check this once more." * 30
FIRST = [1, 2, 3, 4, 5]
# A name, the severity it is reported with, the plant, how many there are, the first lines, and what else it brings.
PLANTS: list[tuple[str, str, Plant, int, list[int], set[str]]] = [
    ("all-zero", "error", all_zero, 200, FIRST, {"never-passes"}),
    ("all-one", "error", rewarded(1), 200, FIRST, {"always-passes"}),
    ("constant-reward", "error", rewarded(0.25), 200, FIRST, {"never-passes"}),
    ("bad-reward", "error", nan, 5, [4, 5, 6, 7, 8], set()),
    ("not-finite", "warning", infinite, 2, [3, 9], set()),
    ("reward-outliers", "warning", beyond_ten, 2, [10, 12], set()),
    ("reward-outliers", "warning", far_off, 1, [21], set()),
    ("reward-length", "warning", longer_is_better, 200, [], set()),
    ("deferred", "info", deferred, 7, FIRST, set()),
    ("empty-answers", "warning", empty, 8, FIRST, set()),
    ("error-answers", "warning", errors, 3, [3, 4, 5], set()),
    ("truncated", "warning", truncated, 15, [11, 12, 13, 14, 15], set()),
    ("out-of-steps", "warning", stopped("max_steps"), 15, [11, 12, 13, 14, 15], set()),
    ("refusals", "warning", refusals, 12, FIRST, set()),
    ("repetition", "warning", each(0, 10, lambda row: said_again(row, CIRCLES)), 10, FIRST, set()),
    ("repetition", "warning", each(0, 60, paragraph), 60, FIRST, set()),
    ("failing-tools", "error", tool_says(5, 25, "error: the index is not there"), 20, [6, 7, 8, 9, 10], set()),
    ("failing-tools", "error", tool_says(0, 60, "HTTPError: 500 Internal Server Error"), 60, FIRST, set()),
    ("unknown-tools", "warning", each(0, 6, lambda row: row["output"][0]["tool_calls"][0].update(name=CALLED)), 6,
     FIRST, set()),
    ("repeated-calls", "warning", each(30, 45, lambda row: row["output"][0]["tool_calls"].__imul__(3)), 15,
     [31, 32, 33, 34, 35], set()),
    ("repeated-calls", "warning", each(0, 60, two_calls), 60, FIRST, set()),
    ("never-passes", "warning", never, 40, [41, 45, 49, 53, 57], set()),
    ("always-passes", "warning", always, 40, [41, 45, 49, 53, 57], set()),
    ("same-answers", "warning", collapsed, 50, [1, 5, 9, 13, 17], set()),
    ("duplicate-tasks", "warning", same_tasks, 5, [101, 105, 109, 113, 117], set()),
    ("bad-times", "warning", bad_times, 5, FIRST, set()),
    ("slow-rollouts", "warning", slow, 5, [91, 81, 71, 61, 51], set()),
    ("slow-verification", "warning", timed(200, verify_s=4.0), 200, FIRST, set()),
    ("retries", "warning", timed(70, retries=2, rate_limited=1), 70, FIRST, set()),
    ("no-token-counts", "info", uncounted, 4, [1, 2, 3, 4], set()),
    ("no-token-ids", "warning", each(2, 5, lambda row: row["output"][0].update(generation_token_ids=None)), 3,
     [3, 4, 5], set()),
    ("no-token-ids", "warning", each(2, 5, lambda row: row["output"][0].update(generation_token_ids=[7])), 3,
     [3, 4, 5], set()),
    ("unreadable-lines", "error", garbage, 4, [6, 7, 8, 9], set()),
    ("schema", "error", odd_rows, 2, [2, 3], {"bad-reward", "empty-answers", "bad-times", "no-token-counts"}),
    ("duplicate-keys", "error", twice, 7, [201, 202, 203, 204, 205], set()),
    ("no-rollouts", "warning", list.clear, 0, [], set()),
]  # fmt: skip
