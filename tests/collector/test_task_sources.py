"""Tasks in several files: read in order, checked whole, and a problem names its file and line."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

import velodrome as velo
from velodrome.cli.main import main
from velodrome.errors import InputError

Json = dict[str, Any]


def task(name: str) -> bytes:
    return orjson.dumps({"id": name, "responses_create_params": {"input": name}}) + b"\n"


async def agent(task: Json) -> Json:
    ran.append(task["id"])
    return {"output": "fine", "reward": 1.0}


ran: list[str] = []


@pytest.fixture(autouse=True)
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    ran.clear()
    folder = tmp_path / "shards"
    folder.mkdir()
    (folder / "b.jsonl").write_bytes(task("3") + b"\n\n")
    (folder / "a.jsonl").write_bytes(task("1") + task("2") + b"\n")
    (folder / "empty.jsonl").touch()
    (folder / "c.jsonl").write_bytes(b"\n" + task("4"))
    return folder


def collect(**settings: Any) -> velo.Run:
    return asyncio.run(velo.collect("shards/*.jsonl", agent, out="r.jsonl", parallel=1, progress=False, **settings))


def test_files_of_a_pattern_are_read_in_the_order_of_their_names(shards: Path):
    run = collect(limit=3)
    assert (run.requested, ran) == (3, ["1", "2", "3"])
    (shards / "d.jsonl").write_bytes(task("5"))
    assert collect().kept == 5
    assert ran == ["1", "2", "3", "4", "5"]


def test_every_problem_names_its_file_and_line_before_anything_runs(shards: Path):
    (shards / "c.jsonl").write_bytes(b"\n" + task("4") + b"broken\n")
    (shards / "b.jsonl").write_bytes(task("3") + b'\n{"id": 7}\n')
    with pytest.raises(InputError) as caught:
        collect()
    places = [line.split(": ")[0] for line in caught.value.problems]
    assert (places, ran) == (["shards/b.jsonl:3", "shards/c.jsonl:3"], [])
    assert not Path("r.jsonl").exists()


@pytest.mark.parametrize("out", ["shards/../shards/x.jsonl", "shards/a.jsonl", "shards/x.jsonl.zst"])
def test_an_output_that_would_be_an_input_is_refused(out: str):
    named = r"x\.failures\.jsonl" if out.endswith(".zst") else "input"  # its failures would be one
    with pytest.raises(InputError, match=named):
        asyncio.run(velo.collect("shards/*.jsonl", agent, out=out, progress=False))
    assert ran == []


def test_a_pattern_that_no_file_matches_is_one_clear_line(capsys: pytest.CaptureFixture[str]):
    assert main(["collect", "+input_jsonl_fpath=shards/x*.jsonl", "+output_jsonl_fpath=r.jsonl"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "no file matches" in line


def test_a_file_of_the_very_name_is_one_file(shards: Path):
    Path("odd[1].jsonl").write_bytes(task("odd"))
    run = asyncio.run(velo.collect("odd[1].jsonl", agent, progress=False))
    assert (run.kept, ran) == (1, ["odd"])


def test_a_task_of_a_stream_whose_id_the_output_has_with_other_content_fails_or_gets_a_key_of_its_own(tmp_path: Path):
    def keys(text: str, **settings: Any) -> tuple[list[str], int]:
        tasks = iter([{"id": "a", "responses_create_params": {"input": text}}])
        run = asyncio.run(velo.collect(tasks, agent, out=tmp_path / "r.jsonl", progress=False, **settings))
        return [row["meta"]["key"].split("@")[0] for row in run.rollouts], run.failed

    assert keys("one") == (["a/0"], 0)
    assert keys("two") == (["a/0"], 1)
    for _ in range(2):
        assert keys("two", allow_mixed=True) == (["a/0", "a"], 0)
