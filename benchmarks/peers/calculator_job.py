"""What every peer is given: the tasks of benchmarks/workload.py, a calculator, and how to say what came of it.

It runs on the peer's interpreter, so it has nothing but the standard library.
"""

from __future__ import annotations

import argparse
import json
import resource
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MODEL = "scripted"


@dataclass(frozen=True)
class Question:
    """One task."""

    system: str
    user: str
    answer: str


def calculate(expression: str) -> str:
    """The value of an arithmetic expression."""
    return str(eval(expression, {"__builtins__": {}}))  # the expressions are ours


def read_job() -> argparse.Namespace:
    """The command line of every peer's script; `output` is a folder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--rollouts", type=int, required=True)
    parser.add_argument("--parallel", type=int, required=True)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 65536) if most > 0 else 65536, most))
    return parser.parse_args()


def read_questions(path: Path, count: int) -> list[Question]:
    """The first tasks of the file."""
    with path.open(encoding="utf-8") as lines:
        tasks = [json.loads(line) for line, _ in zip(lines, range(count), strict=False)]
    texts = [[item["content"] for item in task["responses_create_params"]["input"]] for task in tasks]
    return [Question(*pair, task["expected_answer"]) for pair, task in zip(texts, tasks, strict=True)]


def report(rewards: Iterable[float]) -> None:
    """For the benchmark, which compares it with what was to be done."""
    values = list(rewards)
    print("\n" + json.dumps({"rollouts": len(values), "reward": sum(values) / max(1, len(values))}))
