"""A folder of runs with something of everything on their pages, and the address of each kind of page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support import small_run
from tests.support.drawn_markup import DATA
from tests.support.made_runs import START, failure, hostile_row, make_run, write
from velodrome.training.assignments import apply
from velodrome.training.loop import run_training
from velodrome.training.settings import RunSettings

Json = dict[str, Any]

SMALL = small_run.SMALL | {
    "supervised.steps": "256", "trainer.total_timesteps": "512", "trainer.checkpoint_interval": "100",
    "evaluator.evaluate_local": "True", "evaluator.epoch_interval": "3", "output.episodes": "2",
}  # fmt: skip
ANSWER = r"""## Working

We solve $x^2 - 5x + 6 = 0$, so

$$x = \frac{5 \pm \sqrt{25 - 24}}{2}$$

and \(x_1 = 3\), \[x_2 = 2.\]

| root | check |
|---:|:---|
| 2 | $4 - 10 + 6 = 0$ |
| 3 | **yes** |

```python
def f(x: float) -> float:
    return x**2 - 5 * x + 6  # a parabola
```

1. a list with `code` and a [link](https://example.org/)
2. it costs $5 and $6

> a quote
"""
DIFF = (
    "diff --git a/f.py b/f.py\n--- a/f.py\n+++ b/f.py\n@@ -1,2 +1,2 @@\n def f(x):\n-    return x\n+    return x + 1\n"
)
COLOURS = "\x1b[1;32mPASSED\x1b[0m test_a.py \x1b[38;5;208mslow\x1b[0m\n\x1b[31mFAILED\x1b[0m test_b.py\n"
TREE = json.dumps({"ok": True, "rows": [{"a": number, "b": [1, 2, 3]} for number in range(40)], "text": "x" * 500})


def call(name: str, tool: str, **arguments: str) -> Json:
    """An assistant's message that thinks and calls a tool."""
    calls = [{"id": name, "name": tool, "arguments": json.dumps(arguments)}]
    return {"role": "assistant", "reasoning_content": "Let me think about **it**.", "tool_calls": calls}


def result(name: str, tool: str, content: Any) -> Json:
    """The result of that call."""
    return {"role": "tool", "tool_call_id": name, "name": tool, "content": content}


def row(key: str, prompt: Any, output: list[Json], **fields: Any) -> Json:
    """A rollout with these messages."""
    second = 1_000_000
    tree = [["model", 0, second, {}, []], ["tools", second, 90_000, {}, [["tool:sh", second, 90_000, {}, []]]]]
    timing = {"model_s": 1.0, "tools_s": 0.1, "verify_s": 0.01, "total_s": 1.2, "model_calls": 2, "tree": tree}
    meta = {"key": f"{key}/0", "agent": "simple_agent", "schema": 1, "scored": ["accuracy"], "finished_at": START}
    usage = {"input_tokens": 10, "output_tokens": 20, "total_tokens": 30}
    own = {"responses_create_params": {"input": prompt}, "output": output, "usage": usage, "reward": 1.0}
    return {**own, "accuracy": 1.0, **fields, "meta": {**meta, "timing": timing}}


def rich_row() -> Json:
    """Every kind of content."""
    parts = [
        {"type": "input_text", "text": "What is in this picture? Solve $x^2=4$."},
        {"type": "input_image", "image_url": DATA},
        {"type": "input_file", "filename": "report.pdf", "file_data": "data:application/pdf;base64,JVBERi0="},
        {"type": "input_audio", "input_audio": {"format": "wav", "data": "UklGRg=="}},
    ]
    prompt = [{"role": "system", "content": "Be *brief*."}, {"role": "user", "content": parts}]
    shot = [{"type": "image_url", "image_url": {"url": DATA}}, {"type": "text", "text": "a picture"}]
    output = [
        call("c1", "python", code="import math\nprint(math.pi)\n"),
        result("c1", "python", TREE),
        call("c2", "sh", command="git diff"),
        result("c2", "sh", DIFF),
        call("c3", "sh", command="pytest"),
        result("c3", "sh", COLOURS),
        call("c4", "camera"),
        result("c4", "camera", shot),
        {"role": "assistant", "content": ANSWER},
    ]
    fields = {f"field_{number}": f"value {number}" for number in range(20)}  # more than fit beside the conversation
    return row("rich", prompt, output, expected_answer="2 and 3", kind="algebra", **fields)


def long_row(messages: int) -> Json:
    """A conversation of so many messages."""
    output = []
    for number in range(messages // 2):
        files = "\n".join(f"-rw-r--r-- 1 root root {size} file_{number}_{size}.txt" for size in range(60))
        output += [call(f"c{number}", "sh", command=f"ls -la {number}"), result(f"c{number}", "sh", files)]
    output.append({"role": "assistant", "content": "The largest is `file_1_59.txt`.\n\nThe answer is **59**."})
    return row(f"long-{messages}", [{"role": "user", "content": "Which file is the largest?"}], output, expected="59")


def make_folder(folder: Path) -> Path:
    """Three runs, one with a rollout of each kind, and two trainings with their episodes."""
    make_run(folder / "baseline.jsonl")
    make_run(folder / "candidate.jsonl", skill=0.9, seed=2, failed=2)
    make_run(folder / "third.jsonl", skill=0.4, seed=3, failed=0)
    write(folder / "rich.jsonl", [rich_row(), long_row(500), hostile_row()])
    write(folder / "rich.failures.jsonl", [failure(3, 1)])
    for name in ("first", "second"):
        run_training(
            apply(RunSettings(run=name), {**SMALL, "output.train_dir": str(folder / "train")}), lambda text: None
        )
        next((folder / "train").glob(f"{name}_*")).rename(folder / "train" / name)
    return folder


PAGES = {
    "runs": "/",
    "run": "/run/baseline",
    "run-rich": "/run/rich",
    "rollouts": "/run/baseline/rollouts",
    "rollouts-filtered": "/run/baseline/rollouts?q=reward%3C1+tools%3E0&sort=-tokens",
    "rollouts-mistake": "/run/baseline/rollouts?q=rewrd%3C1",
    "rollouts-none": "/run/baseline/rollouts?q=reward%3E5",
    "rollout": "/run/baseline/rollout/1",
    "rollout-failed": "/run/baseline/rollout/f1",
    "rollout-rich": "/run/rich/rollout/1",
    "rollout-raw": "/run/rich/rollout/1?raw=1",
    "rollout-long": "/run/rich/rollout/2",
    "rollout-hostile": "/run/rich/rollout/3",
    "tasks": "/run/baseline/tasks",
    "task": "/run/baseline/task?id=task-003",
    "failures": "/run/baseline/failures",
    "compare": "/compare?a=baseline&b=candidate",
    "pair": "/pair?a=baseline:1&b=candidate:1",
    "several": "/compare?run=baseline&run=candidate&run=third",
    "training": "/training/train-first",
    "curves": "/compare?run=train-first&run=train-second",
    "rollout-episode": "/run/train-first-episodes/rollout/1",
    "judgement_page": "/run/baseline/rollout/1/judgement",
    "rollout-judged": "/run/candidate/rollout/2?judge=1",
    "message": "/nothing",
}
STATIC = ("index", "rollouts", "rollout-1", "rollout-2", "tasks", "task-1", "failures")
