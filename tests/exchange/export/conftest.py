"""Rollouts as a collection leaves them, and a shop that exports them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
import pytest

from velodrome.errors import InputError
from velodrome.exchange.api import export
from velodrome.exchange.export.format import ExportSettings, Unit
from velodrome.exchange.export.formats import FORMATS
from velodrome.exchange.export.pipeline import ExportResult
from velodrome.records.rollout import encode

Json = dict[str, Any]

CALCULATOR = {
    "type": "function",
    "name": "calculator",
    "description": "Work it out",
    "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]},
    "strict": True,
}


def make_row(key: str, reward: float | None = 1.0, answer: str = "36", **fields: Any) -> Json:
    """A rollout with one tool call, of the task its key names."""
    task, _, repeat = key.rpartition("/")
    row: Json = {
        "responses_create_params": {
            "input": [{"role": "user", "content": f"What is {task}?"}],
            "instructions": "Be brief.",
            "tools": [CALCULATOR],
        },
        "output": [
            {
                "role": "assistant",
                "reasoning_content": "A sum.",
                "tool_calls": [{"id": "c1", "name": "calculator", "arguments": '{"expression":"240 * 0.15"}'}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "36.0", "name": "calculator"},
            {"role": "assistant", "content": answer},
        ],
        "response": {"id": f"resp_{key}", "model": "m", "status": "completed", "content": answer},
        "usage": {"input_tokens": 20, "output_tokens": 5, "total_tokens": 25},
        "id": task,
        "expected_answer": "36",
        "reward": reward,
        "accuracy": reward,
        "meta": {
            "key": key,
            "task_index": sum(map(ord, task)),
            "rollout_index": int(repeat),
            "agent": "calculator_agent",
            "schema": 1,
            "finished_at": 1794775197.5,
            "timing": {"queue_s": 0.0, "model_s": 0.5, "tools_s": 0.125, "verify_s": 0.0, "total_s": 0.75},
            "scored": ["reward", "accuracy"],
        },
    }
    return {**row, **fields, "meta": row["meta"]}


PROMPT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is a?"}]
CALLED = {
    "role": "assistant",
    "content": "",
    "reasoning_content": "A sum.",
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "calculator", "arguments": {"expression": "240 * 0.15"}}}
    ],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "36.0", "name": "calculator"}
TOOLS = [{"type": "function", "function": {name: value for name, value in CALCULATOR.items() if name != "type"}}]


class Shop:
    """One folder. Rollouts go in, exports come out."""

    row = staticmethod(make_row)
    prompt, called, result, tools = PROMPT, CALLED, RESULT, TOOLS

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, *rows: Json | bytes, name: str = "rollouts.jsonl") -> Path:
        """A rollouts file; bytes are a line as they stand."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"".join(row if isinstance(row, bytes) else encode(row) for row in rows))
        return path

    def export(self, name: str, *sources: Path, to: str = "out", **options: Any) -> ExportResult:
        """What `velo export` does."""
        return export(name, sources, self.folder / to, **options)

    def refusal(self, name: str, *rows: Json, to: str = "deep/out", **options: Any) -> tuple[str, ...]:
        """Why nothing is exported; and nothing is left of it."""
        source = self.file(*rows)
        before = {path for path in self.folder.rglob("*") if path.suffix != ".sqlite"}
        with pytest.raises(InputError) as caught:
            self.export(name, source, to=to, **options)
        assert {path for path in self.folder.rglob("*") if ".sqlite" not in path.name} == before
        return caught.value.problems

    def answers(self, path: str) -> list[str]:
        """The last words of every conversation."""
        return [record["messages"][-1]["content"] for record in self.records(path)]

    def card(self, path: str) -> str:
        return (self.folder / path).read_text()

    def records(self, path: str) -> list[Any]:
        """The lines of a file, or the rows of a Parquet file."""
        if path.endswith(".parquet"):
            import pyarrow.parquet

            results: list[Any] = pyarrow.parquet.read_table(self.folder / path).to_pylist()
            return results
        return [orjson.loads(line) for line in (self.folder / path).read_bytes().splitlines()]

    def convert(self, name: str, rows: Iterable[Json], *, split: str = "train", **settings: Any) -> list[Json]:
        """The records of one unit; a row that is left out is an error here."""

        def leave_out(row: Json, error: Exception) -> None:
            raise error

        return list(FORMATS[name].start(ExportSettings(**settings), leave_out)(Unit(split, list(rows))))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)
