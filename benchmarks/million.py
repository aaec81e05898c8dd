"""The index on a million rollouts: how fast it is built, in how much memory, and how soon each call answers.

    python -m benchmarks.million [--rows N] [--quick] [--json FILE] [--check]

Rollouts are made up, about 2.5 KB each, with words as uneven as in a real text. The index is built and asked in a
process of its own, so that its memory is its own; the processes that help it count too.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from benchmarks.summary import Check, table

Json = dict[str, Any]

REPEATS = 8
_QUICK = 50_000
_MB = 1e6
_LEAST_MB_S = 100.0
_MOST_MEMORY_MB = 300.0
_MOST_MS = 200.0
_ROUNDS = 9


def vocabulary(chance: random.Random) -> list[str]:
    """Words of made-up syllables; the first are drawn far more often than the last."""
    syllables = [first + second for first in "bcdfghklmnprstvw" for second in "aeiou"]
    return ["".join(chance.choices(syllables, k=chance.randint(1, 4))) for _ in range(20_000)]


def passages(chance: random.Random, words: list[str], length: int, count: int) -> list[str]:
    """Texts of about so many characters."""
    weights = list(itertools.accumulate(1 / (place + 2) for place in range(len(words))))
    found = []
    for _ in range(count):
        text = " ".join(chance.choices(words, cum_weights=weights, k=length // 6))
        found.append(text[:length].capitalize() + ".")
    return found


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
            {"id": f"c{call}", "name": "calculator", "arguments": f'{{"expression":"{number} * {call}"}}'}
            for call in range(tools)
        ]
        results = [
            {"role": "tool", "tool_call_id": f"c{call}", "content": str(number * call), "name": "calculator"}
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


def measure(path: Path) -> Json:
    """Build the index of a file, then ask it everything."""
    from velodrome.read.index import Index

    start = time.perf_counter()
    index = Index(path)
    state = index.refresh(search=False)
    rows_s = time.perf_counter() - start
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    workers = min(4, len(os.sched_getaffinity(0)))
    start = time.perf_counter()
    index.refresh()
    rest_s = time.perf_counter() - start
    calls = {name: _timed(call) for name, call in asked(index, state.rows).items()}
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    index_mb = sum(each.stat().st_size for each in path.parent.glob(f"{path.name}.index.sqlite*")) / _MB
    index.close()
    return {
        "rows": state.rows,
        "failed": state.failed,
        "file_mb": state.size / _MB,
        "rows_s": rows_s,
        "mb_s": state.size / _MB / rows_s,
        "rest_s": rest_s,
        "memory_mb": (own + workers * children) * 1024 / _MB,
        "index_mb": index_mb,
        "calls": calls,
    }


def asked(index: Any, count: int) -> dict[str, Callable[[int], object]]:
    """Every kind of call a viewer makes, by name; each takes the number of the round."""
    from velodrome.read.index import Query, Sort
    from velodrome.read.index.paging import Cursor

    def page(text: str, sort: str = "number") -> Callable[[int], object]:
        query, order = Query.parse(text), Sort.parse(sort)
        return lambda _: index.page(query, order)

    def deep(text: str, sort: str, value: Callable[[int], float | None]) -> Callable[[int], object]:
        query, order = Query.parse(text), Sort.parse(sort)
        return lambda turn: index.page(query, order, after=Cursor(value(turn), (count // 2 + turn,)).encode(order))

    filters = {
        "reward": "reward<1",
        "two numbers": "reward<1 tools>3",
        "rare": "total_s>6",
        "rare pair": "reward=1 tools=5 output_tokens=700 accuracy>0.9",
        "pass rate": "0<pass_rate<1",
        "agent": "agent:other",
        "failed": "state:failed",
        "error": "error:timeout",
        "task": "task:task-77",
        "key": "key:77/3",
        "frequent word": "answer",
        "rare word": f"unit{count // 3}",
        "phrase": '"the answer is"',
        "word and number": "answer reward<1 tools>3",
        "not": "-reward<1 -agent:other",
    }
    found: dict[str, Callable[[int], object]] = {
        "page": page(""),
        "page, deep": deep("", "number", lambda _: None),
        "page by -reward": page("", "-reward"),
        "page by -total_s": page("", "-total_s"),
        "page by reward, deep": deep("", "reward", lambda _: 1.0),
        "page by total_s, deep": deep("", "total_s", lambda turn: 0.4 + turn / 100),
        "page by accuracy": page("", "accuracy"),
        "page by pass_rate": page("", "pass_rate"),
        "page, filter against its order": page("total_s>4", "total_s"),
        "page, two against their order": page("tokens>1000 tools=5", "tokens"),
    }
    for name, text in filters.items():
        found[f"page, {name}"] = page(text)
        found[f"page, {name}, by -total_s"] = page(text, "-total_s")
        query = Query.parse(text)
        found[f"count, {name}"] = lambda _, query=query: index.count(query)  # type: ignore[misc]
    filtered, by_time = Query.parse("reward<1 tools>3"), Sort.parse("-total_s")
    return found | {
        "neighbours": lambda turn: index.neighbours(Query(), by_time, count // 2 + turn),
        "neighbours, filtered": lambda turn: index.neighbours(filtered, by_time, count // 2 + turn),
        "entry": lambda turn: index.entry(count // 3 + turn),
        "row": lambda turn: index.row(count // 3 + turn),
        "find": lambda turn: index.find(f"task-{turn}/3"),
        "task": lambda turn: index.task(f"task-{turn}"),
        "tasks": lambda _: index.tasks(),
        "tasks by pass_rate": lambda _: index.tasks(sort=Sort.parse("-pass_rate")),
        "tasks, filtered": lambda _: index.tasks(Query.parse("0<pass_rate<1"), Sort.parse("mean_reward")),
        "failures": lambda _: index.failures(),
        "histogram of reward": lambda _: index.histogram("reward"),
        "histogram of total_s": lambda _: index.histogram("total_s"),
        "histogram, filtered": lambda _: index.histogram("total_s", query=filtered),
        "series": lambda _: index.series(),
        "state": lambda _: index.state,
        "refresh": lambda _: index.refresh(0.1),
    }


def _timed(call: Callable[[int], object]) -> Json:
    times = []
    for turn in range(_ROUNDS):
        start = time.perf_counter()
        call(turn)
        times.append((time.perf_counter() - start) * 1000)
    return {"median_ms": statistics.median(times), "worst_ms": max(times), "first_ms": times[0]}


def run(count: int, folder: Path) -> Json:
    """Make the files, then measure in a process of its own."""
    path = folder / "rollouts.jsonl"
    start = time.perf_counter()
    write(path, rows(count))
    write(folder / "rollouts.failures.jsonl", failures(max(3, count // 200), count))
    print(f"made {count:,} rollouts, {path.stat().st_size / _MB:,.0f} MB, in {time.perf_counter() - start:.0f} s")
    command = [sys.executable, "-m", "benchmarks.million", "--measure", str(path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found: Json = json.loads(done.stdout)
    return found


def checks(found: Json) -> list[Check]:
    """The figures beside their budgets."""
    worst = max(found["calls"], key=lambda name: found["calls"][name]["worst_ms"])
    return [
        Check("index built", found["mb_s"], _LEAST_MB_S, "MB/s", least=True),
        Check("memory, all processes", found["memory_mb"], _MOST_MEMORY_MB, "MB"),
        Check(f"slowest call ({worst})", found["calls"][worst]["worst_ms"], _MOST_MS, "ms"),
    ]


def report(found: Json) -> None:
    """The figures as text."""
    print(
        f"rows: {found['rows_s']:.1f} s, {found['mb_s']:.0f} MB/s; other indices and search: {found['rest_s']:.1f} s; "
        f"memory {found['memory_mb']:.0f} MB; index {found['index_mb']:,.0f} MB beside {found['file_mb']:,.0f} MB"
    )
    cells = [
        [name, *(f"{call[each]:.1f}" for each in ("median_ms", "worst_ms", "first_ms"))]
        for name, call in found["calls"].items()
    ]
    print(table(["call", "median ms", "worst ms", "first ms"], cells))
    print(table(["what", "value", "budget", ""], [check.cells() for check in checks(found)]))


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true", help=f"{_QUICK:,} rollouts")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a budget is missed")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return 0
    folder = Path(tempfile.mkdtemp(prefix="million-"))
    try:
        found = run(_QUICK if options.quick else options.rows, folder)
    finally:
        shutil.rmtree(folder)
    report(found)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return 0 if not options.check or all(check.kept for check in checks(found)) else 1


if __name__ == "__main__":
    sys.exit(main())
