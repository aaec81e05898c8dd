"""An environment that changes the working directory moves no file of a command and changes no name that it prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from velodrome.cli.streams import as_typed, kept_path

MOVES = """
import os
from velodrome import Environment

class Moves(Environment):
    def verify(self, task, response):
        os.chdir(os.path.dirname(os.path.abspath(__file__)))
        return float(task["id"] == "0")
"""
CONFIG = """
moves: {resources_servers: {moves: {}}}
moves_agent:
  responses_api_agents:
    simple_agent:
      environment: {type: resources_servers, name: moves}
      model: {type: responses_api_models, name: policy_model}
policy_model: {responses_api_models: {scripted_model: {answers: [x]}}}
"""
WORDS = ("+config_paths=[moves.yaml]", "+input_jsonl_fpath=t.jsonl", "+output_jsonl_fpath=r.jsonl", "+embedded=true")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "resources_servers" / "moves").mkdir(parents=True)
    (tmp_path / "resources_servers" / "moves" / "app.py").write_text(MOVES)
    (tmp_path / "moves.yaml").write_text(CONFIG)
    rows = [{"id": name, "responses_create_params": {"input": "?"}} for name in "01"]
    (tmp_path / "t.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return tmp_path


def moved(folder: Path) -> list[str]:
    return [path.name for path in (folder / "resources_servers" / "moves").iterdir() if path.suffix != ""]


def test_a_collection_and_its_trace_are_where_they_were_to_be(velo: Any, folder: Path):
    done = velo("collect", *WORDS, "+trace_path=trace.json")
    assert (done.code, "requested 2 = kept 2 + failed 0  ->  r.jsonl\n" in done.err) == (0, True)
    assert ("removed" in done.err, str(folder) in done.err) == (False, False)
    assert len((folder / "r.jsonl").read_bytes().splitlines()) == 2
    assert "rollout" in (folder / "trace.json").read_text()
    assert moved(folder) == ["app.py"]


def test_only_a_whole_path_is_shown_as_it_was_typed(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder)
    kept_path(Path("r.jsonl"))
    shown = f"{folder}/r.jsonl and \x1b[1m{folder}/r.run.json\x1b[0m, not /mnt{folder}/r.jsonl"
    assert as_typed(shown) == f"r.jsonl and \x1b[1mr.run.json\x1b[0m, not /mnt{folder}/r.jsonl"
