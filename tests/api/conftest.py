"""Rollouts files for the calls that read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from velodrome.records.rollout import encode, make_rollout


def line(key: str, reward: float | None, text: str = "sunny", **fields: object) -> bytes:
    """One line of a rollouts file: a tool call, then the answer."""
    task = {"responses_create_params": {"input": "The weather?"}, "expected_answer": "sunny", **fields}
    output = [
        {"type": "function_call", "call_id": "1", "name": "get_weather", "arguments": '{"city": "Bern"}'},
        {"type": "function_call_output", "call_id": "1", "output": "sunny"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]},
    ]
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    result = {**task, "response": {"output": output, "usage": usage, "model": "m"}, "reward": reward}
    meta = {"key": key, "schema": 1, "agent": "a", "finished_at": 2.0, "timing": {"total_s": 1.0, "model_s": 0.5}}
    return encode(make_rollout(task, result, meta))


@pytest.fixture
def rollouts(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file of rollouts with these rewards, two repeats of each task."""

    def write(
        rewards: Sequence[float] = (1.0, 0.0, 1.0, 1.0), name: str = "rollouts.jsonl", text: str = "sunny"
    ) -> Path:
        path = tmp_path / name
        lines = [line(f"t{at // 2}/{at % 2}", reward, text, score=at) for at, reward in enumerate(rewards)]
        path.write_bytes(b"".join(lines))
        return path

    return write
