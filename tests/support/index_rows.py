"""Rollouts to put into files, small ones and odd ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import orjson

from velodrome.index import Index

Json = dict[str, Any]
OpenIndex = Callable[..., Index]  # the fixtures `opened` and `index_of`


def rollout(task: str = "a", repeat: int = 0, **fields: Any) -> Json:
    """A row as the collector writes it. `prompt`, `answer`, `tools`, `tokens`, `timing`, … find their places."""
    answer, tools = fields.pop("answer", "it is 36"), fields.pop("tools", 0)
    calls = [{"id": f"c{call}", "name": "calculator", "arguments": "{}"} for call in range(tools)]
    tokens = fields.pop("tokens", 39)
    meta = {
        "key": f"{task}/{repeat}",
        "task_index": 0,
        "rollout_index": repeat,
        "agent": fields.pop("agent", "solver"),
        "schema": 1,
        "finished_at": fields.pop("finished_at", 1_790_000_000.0),
        "timing": {"queue_s": 0.0, "model_s": 0.5, "tools_s": 0.0, "verify_s": 0.0, "total_s": 0.75}
        | fields.pop("timing", {}),
    } | fields.pop("meta", {})
    return {
        "responses_create_params": {
            "input": [{"role": "user", "content": fields.pop("prompt", "What is 15% of 240?")}]
        },
        "output": [{"role": "assistant", "tool_calls": calls}, {"role": "assistant", "content": answer}],
        "response": {"id": "r", "model": "m", "status": "completed", "content": answer},
        "usage": {"input_tokens": 26, "output_tokens": tokens - 26, "total_tokens": tokens},
        "reward": 1.0,
        **fields,
        "meta": meta,
    }


def failure(task: str = "a", repeat: int = 0, **fields: Any) -> Json:
    """A line of the failures file."""
    return {
        "key": f"{task}/{repeat}",
        "task_index": 0,
        "rollout_index": repeat,
        "agent": "solver",
        "schema": 1,
        "boundary": "model",
        "error": "POST http://127.0.0.1:8155/v1/responses: 401 Unauthorized",
        "finished_at": 1_790_000_001.0,
        "timing": {"total_s": 0.25},
        "partial": [],
        "attempt": 1,
        **fields,
    }


def write(path: Path, rows: Iterable[Json | bytes], mode: str = "wb") -> Path:
    """The rows as lines of a file; bytes as they are."""
    with path.open(mode) as stream:
        for row in rows:
            stream.write(row if isinstance(row, bytes) else orjson.dumps(row) + b"\n")
    return path


def both_ways(page_of: Callable[..., Any]) -> tuple[list[Any], list[Any]]:
    """All entries of a list, from its first page on, and from its last page back."""
    page = page_of()
    assert page.previous is None
    forward = list(page.entries)
    while page.next:
        page = page_of(since=page.next)
        forward += page.entries
    backward = list(page.entries)
    while page.previous is not None:
        page = page_of(since=page.previous)
        backward = [*page.entries, *backward]
    return forward, backward
