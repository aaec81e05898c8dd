"""NeMo Gym's own rollouts are refused by every reader, with the way in; converted, they have all their numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from planted import clean, write

from velodrome.cli.main import main
from velodrome.index import Index
from velodrome.records.rollout import encode


def theirs(task: int) -> dict[str, Any]:
    """A rollout as NeMo Gym writes it: items, usage and tools under `response`."""
    call = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}', "id": "fc_1"}
    said = [{"type": "output_text", "text": "It is 2.", "annotations": []}]
    return {
        "responses_create_params": {"input": [{"role": "user", "content": f"What is {task} + 1?"}], "tools": []},
        "response": {
            "id": "resp_1",
            "object": "response",
            "model": "m",
            "output": [
                call,
                {"type": "function_call_output", "call_id": "c1", "output": "2"},
                {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": said},
            ],
            "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
        },
        "reward": 1.0,
        "expected": "2",
    }


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    path = tmp_path / "theirs.jsonl"
    path.write_bytes(b"".join(encode(theirs(task)) for task in range(3)))
    return path


def test_a_verification_refuses_them_and_names_the_import(foreign: Path, capsys: pytest.CaptureFixture[str]):
    config = "+config_paths=[resources_servers/calculator/configs/calculator.yaml]"
    assert main(["verify", str(foreign), config]) == 2
    out, err = capsys.readouterr()
    assert (out, "velo import nemo_gym" in err, f"{foreign}:1: " in err) == ("", True, True)


def test_imported_they_have_their_tokens_and_tool_calls(foreign: Path, capsys: pytest.CaptureFixture[str]):
    ours = foreign.parent / "ours.jsonl"
    assert main(["import", "nemo_gym", str(foreign), "--to", str(ours)]) == 0
    capsys.readouterr()
    assert main(["metrics", str(ours)]) == 0
    metrics = orjson.loads(capsys.readouterr().out)
    assert (metrics["rollouts/kept"], metrics["tokens/total"], metrics["avg_tool_calls"]) == (3, 45, 1.0)


def test_one_among_ours_is_named_with_its_line_and_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = write(tmp_path / "r.jsonl", [*clean(2, 1), theirs(0)])
    assert main(["metrics", str(path)]) == 2
    assert f"{path}:3: " in capsys.readouterr().err
    index = Index(path)
    state = index.refresh()
    assert (state.rows, state.unreadable) == (2, 1)
    index.close()
