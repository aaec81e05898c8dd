"""NeMo Gym's own rollouts are refused by every reader, with the way in; converted, they have all their numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.planted import clean, write
from velodrome.cli.main import main
from velodrome.index import Index


def theirs(task: int) -> dict[str, Any]:
    """A rollout as NeMo Gym writes it: items, usage and tools under `response`."""
    said = [{"type": "output_text", "text": "It is 2.", "annotations": []}]
    output = [
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}', "id": "fc_1"},
        {"type": "function_call_output", "call_id": "c1", "output": "2"},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": said},
    ]
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    return {
        "responses_create_params": {"input": [{"role": "user", "content": f"What is {task} + 1?"}], "tools": []},
        "response": {"id": "resp_1", "object": "response", "model": "m", "output": output, "usage": usage},
        "reward": 1.0,
        "expected": "2",
    }


def test_readers_name_the_line_and_the_import_and_an_index_leaves_it_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path, foreign = tmp_path / "r.jsonl", tmp_path / "theirs.jsonl"
    write(path, [*clean(2, 1), theirs(0)])
    write(foreign, [theirs(task) for task in range(3)])
    config = "+config_paths=[resources_servers/calculator/configs/calculator.yaml]"
    for command, place in (
        (["metrics", str(path)], f"{path}:3: "),
        (["verify", str(foreign), config], f"{foreign}:1: "),
    ):
        assert main(command) == 2
        out, err = capsys.readouterr()
        assert (out, "velo import nemo_gym" in err, place in err) == ("", True, True), command
    index = Index(path)
    state = index.refresh()
    assert (state.rows, state.unreadable) == (2, 1)
