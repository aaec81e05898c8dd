"""`velo data prepare` with folders that `datasets` saved or reads, without a hub."""

from __future__ import annotations

from pathlib import Path

import datasets
import orjson
import pytest

from tests.interop.hugging_face import stay_offline
from velodrome.cli.main import main

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stay_offline(monkeypatch, tmp_path)


@pytest.mark.parametrize("kind", ["saved", "files"])
def test_a_local_data_set_becomes_tasks(tmp_path: Path, kind: str):
    """`velo data prepare` with a folder that `datasets` saved, and with one that it loads files from."""
    rows = datasets.Dataset.from_dict({"question": ["1 + 1?", "2 + 2?"], "answer": [2, 4]})
    folder = tmp_path / "set"
    if kind == "saved":
        datasets.DatasetDict({"train": rows, "test": rows.select([0])}).save_to_disk(str(folder))
    else:
        folder.mkdir()
        rows.to_parquet(str(folder / "train.parquet"))
        rows.select([0]).to_parquet(str(folder / "test.parquet"))
    for source, count in ((str(folder), 2), (f"hf:{folder}:test", 1)):
        to = tmp_path / f"{count}.jsonl"
        assert main(["data", "prepare", source, "--to", str(to), "--prompt", "{question}", "--answer", "answer"]) == 0
        tasks = [orjson.loads(line) for line in to.read_bytes().splitlines()]
        first = {"input": [{"role": "user", "content": "1 + 1?"}]}
        assert tasks[0] == {"responses_create_params": first, "expected_answer": "2"}
        assert len(tasks) == count
