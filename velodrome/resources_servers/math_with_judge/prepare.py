"""Fetch the public data set DAPO-Math-17k and write it as tasks.

    python -m velodrome.resources_servers.math_with_judge.prepare [--output FILE] [--limit N]

The file is complete or absent. The data set repeats its rows a hundred times; each problem is written once.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from velodrome.errors import InputError, TaskError, VelodromeError, blame
from velodrome.records.outfile import write_whole

DATA_SET = "BytedTsinghua-SIA/DAPO-Math-17k"
OUTPUT = "resources_servers/math_with_judge/data/dapo17k_bytedtsinghua_train.jsonl"
BEFORE = "Solve the following math problem step by step."
AFTER = "\n\nRemember to put your answer on its own line"
INSTRUCTION = "Think step by step and put the final answer in \\boxed{}."

Json = dict[str, Any]


def tasks(rows: Iterable[Json]) -> Iterator[Json]:
    """Rows of the data set -> tasks, each problem once."""
    seen_keys: set[int] = set()
    for index, row in enumerate(rows):
        with blame(TaskError, f"row {index}"):
            question = question_of(row["prompt"][0]["content"])
            answer = str(row["reward_model"]["ground_truth"]).strip()
        key = hash((question, answer))
        if key not in seen_keys:
            seen_keys.add(key)
            yield task(question, answer)


def task(question: str, answer: str) -> Json:
    """One problem in the format of an input file."""
    prompt = f"{question}\n\n{INSTRUCTION}"
    return {
        "responses_create_params": {"input": [{"role": "user", "content": prompt}]},
        "question": question,
        "expected_answer": answer,
    }


def question_of(prompt: str) -> str:
    """The problem itself, without the instructions that the data set wraps around it."""
    text = prompt.strip()
    if text.startswith(BEFORE) and "\n\n" in text:
        text = text.split("\n\n", 1)[1]
    return text.rsplit(AFTER, 1)[0].strip()


def load_rows() -> Iterable[Json]:
    """The data set's rows, from its hub or the local cache."""
    try:
        datasets = importlib.import_module("datasets")
    except ImportError as error:
        raise InputError(f"{DATA_SET}: the package datasets is not installed; pip install datasets") from error
    rows: Iterable[Json] = datasets.load_dataset(DATA_SET, split="train")
    return rows


def write(problems: Iterable[Json], output: Path) -> int:
    """Write the tasks and return their number; a failure leaves no partial file."""
    lines = [orjson.dumps(each) + b"\n" for each in problems]
    output.parent.mkdir(parents=True, exist_ok=True)
    write_whole(output, b"".join(lines))
    return len(lines)


def main(argv: list[str] | None = None, load: Callable[[], Iterable[Json]] = load_rows) -> int:
    parser = argparse.ArgumentParser(prog="prepare", description=f"Fetch {DATA_SET} and write it as tasks.")
    parser.add_argument("--output", type=Path, default=Path(OUTPUT), help=f"default: {OUTPUT}")
    parser.add_argument("--limit", type=int, help="write at most so many problems")
    options = parser.parse_args(argv)
    try:
        with blame(TaskError, f"{DATA_SET} cannot be read (is its hub reachable?)"):
            count = write(islice(tasks(load()), options.limit), options.output)
    except VelodromeError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stderr.write(f"{options.output}: {count} problems\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
