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


def test_a_key_that_the_output_has_with_other_content_names_its_file_and_line(shards: Path):
    collect()
    changed = orjson.loads(task("4")) | {"responses_create_params": {"input": "other"}}
    (shards / "c.jsonl").write_bytes(b"\n" + orjson.dumps(changed) + b"\n")
    with pytest.raises(InputError, match=r"^shards/c\.jsonl:2: the key '4'"):
        collect()


@pytest.mark.parametrize(
    "out", ["shards/rollouts.jsonl", "shards/../shards/x.jsonl", "shards/a.jsonl", "shards/x.jsonl.zst"]
)
def test_an_output_that_would_be_an_input_is_refused(out: str):
    work = velo.collect("shards/*.jsonl", agent, out=out, progress=False)
    if out.endswith(".zst"):  # its failures would
        with pytest.raises(InputError, match=r"x\.failures\.jsonl"):
            asyncio.run(work)
    else:
        with pytest.raises(InputError, match="input"):
            asyncio.run(work)
    assert ran == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["+input_jsonl_fpath=shards/x*.jsonl", "+output_jsonl_fpath=r.jsonl"], "no file matches"),
        (["+input_jsonl_fpath=shards/*.jsonl"], "output_jsonl_fpath"),
    ],
)
def test_the_command_line_says_what_is_wrong_with_a_pattern(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["collect", *words]) == 2
    said = capsys.readouterr().err
    assert (says in said, len(said.splitlines())) == (True, 1), said


def test_a_file_of_the_very_name_is_one_file(shards: Path):
    Path("odd[1].jsonl").write_bytes(task("odd"))
    run = asyncio.run(velo.collect("odd[1].jsonl", agent, progress=False))
    assert (run.kept, ran) == (1, ["odd"])
