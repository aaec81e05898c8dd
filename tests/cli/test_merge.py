"""`velo merge`: shards as one file, with the guarantees of a collection."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

import velodrome as velo
from velodrome.cli.main import main
from velodrome.index.judgements import Judgements, make_judgement, save_judgement

Json = dict[str, Any]
TASKS = [{"id": f"t{number}", "responses_create_params": {"input": f"{number}"}} for number in range(9)]
ran: list[str] = []


async def agent(task: Json) -> Json:
    ran.append(task["id"])
    if task["id"] in broken:
        raise ValueError("no luck")
    return {"output": f"answer {task['id']}", "reward": 1.0}


broken: set[str] = set()


def collect(out: str, tasks: list[Json], **settings: Any) -> velo.Run:
    return asyncio.run(velo.collect(tasks, agent, out=out, parallel=1, progress=False, **settings))


def lines(path: str) -> list[bytes]:
    return Path(path).read_bytes().splitlines()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two shards; of the second, one rollout failed."""
    monkeypatch.chdir(tmp_path)
    ran.clear()
    broken.clear()
    collect("a.jsonl", TASKS[:4])
    broken.add("t5")
    collect("b.jsonl", TASKS[4:8])
    broken.clear()
    ran.clear()
    return tmp_path


def merge(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Json, str]:
    code = main(["merge", *words])
    printed = capsys.readouterr()
    return code, json.loads(printed.out) if printed.out else {}, printed.err


def test_shards_become_one_file_that_a_collection_continues(capsys: pytest.CaptureFixture[str]):
    before = {path: path.read_bytes() for path in Path().iterdir()}
    code, counts, _ = merge(capsys, "all.jsonl", "a.jsonl", "b.jsonl")
    assert (code, counts) == (
        0,
        {"rollouts": 7, "repeated": 0, "failures": 1, "left_out": 0, "to": "all.jsonl"},
    )
    assert lines("all.jsonl") == [*lines("a.jsonl"), *lines("b.jsonl")]
    assert lines("all.failures.jsonl") == lines("b.failures.jsonl")
    run = orjson.loads(Path("all.run.json").read_bytes())
    assert [entry["output"] for entry in run["runs"]] == ["a.jsonl", "b.jsonl"]
    assert {path: path.read_bytes() for path in before} == before
    result = collect("all.jsonl", TASKS)
    assert (result.kept, result.failed, ran) == (9, 0, ["t5", "t8"])
    assert velo.metrics("all.jsonl")["rollouts/kept"] == 9


def test_of_two_rollouts_with_one_key_the_first_is_taken_and_that_is_reported(capsys: pytest.CaptureFixture[str]):
    collect("other.jsonl", TASKS[2:5])
    code, counts, said = merge(capsys, "all.jsonl", "a.jsonl", "other.jsonl")
    assert (code, counts["rollouts"], counts["repeated"]) == (0, 5, 2)
    assert said.startswith("2 rollouts have the key of one before them")
    assert lines("all.jsonl") == [*lines("a.jsonl"), lines("other.jsonl")[2]]


def test_two_tasks_with_one_id_are_an_error(capsys: pytest.CaptureFixture[str]):
    changed = {**TASKS[0], "responses_create_params": {"input": "something else"}}
    collect("other.jsonl", [changed], repeats=2)
    code, _, said = merge(capsys, "all.jsonl", "a.jsonl", "other.jsonl")
    assert (code, "other.jsonl:1: the id 't0' is that of another task" in said) == (2, True), said
    assert not list(Path().glob("*all*"))


def test_a_line_that_is_not_whole_or_not_a_rollout_is_left_out_and_reported(capsys: pytest.CaptureFixture[str]):
    whole = Path("a.jsonl").read_bytes()
    Path("a.jsonl").write_bytes(b'{"not": "a rollout"}\n' + whole[:-40])
    code, counts, said = merge(capsys, "all.jsonl", "a.jsonl", "b.jsonl")
    assert (code, counts["rollouts"], counts["left_out"]) == (0, 6, 2)
    assert ("a.jsonl:1: " in said, "a.jsonl:5: " in said) == (True, True), said
    assert lines("all.jsonl") == [*whole.splitlines()[:3], *lines("b.jsonl")]


def test_shards_made_with_other_settings_are_merged_only_if_that_is_asked_for(capsys: pytest.CaptureFixture[str]):
    collect("hot.jsonl", TASKS[8:], params={"temperature": 1.0})
    code, _, said = merge(capsys, "all.jsonl", "a.jsonl", "hot.jsonl")
    assert (code, "--allow-mixed" in said, "temperature" in said) == (2, True, True), said
    assert merge(capsys, "all.jsonl", "a.jsonl", "hot.jsonl", "--allow-mixed")[0] == 0


def test_from_python_with_a_pattern_and_compressed_it_is_the_same(capsys: pytest.CaptureFixture[str]):
    Path("torn.jsonl").write_bytes(lines("a.jsonl")[0][:-40])
    _, counts, said = merge(capsys, "printed.jsonl.zst", "[ab]*.jsonl", "torn.jsonl")
    result = velo.merge("all.jsonl", (Path(shard) for shard in ("a.jsonl", "b.jsonl", "torn.jsonl")))
    assert {"notes": said.splitlines(), **counts} == {**vars(result), "to": "printed.jsonl.zst"}
    assert (result.rollouts, result.left_out) == (7, 1)
    assert collect("printed.jsonl.zst", TASKS).kept == 9  # what is compressed is continued, too
    assert ran == ["t5", "t8"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["a.jsonl", "b.jsonl"], "give another output|there already"),
        (["all.failures.jsonl", "a.jsonl"], "belongs to a run's rollouts"),
        (["all.notes.jsonl.zst", "a.jsonl"], "belongs to a run's rollouts"),
        (["all.jsonl", "missing.jsonl"], "missing.jsonl: no such file"),
        (["used.jsonl", "a.jsonl"], "used.run.json: there already"),
        (["all.jsonl", "b.failures.jsonl"], "a failures file"),
        (["all.jsonl", "a.jsonl", "notes.jsonl"], "notes.jsonl: no rollout in it, but 2 other lines"),
        (["all.jsonl", "none-*.jsonl"], "none-.*: no file matches"),
    ],
)
def test_what_cannot_be_merged_is_one_clear_line(words: list[str], says: str, capsys: pytest.CaptureFixture[str]):
    Path("used.run.json").write_text("{}")
    Path("notes.jsonl").write_text('{"a": 1}\n[]\n')
    before = {path: path.read_bytes() for path in Path().iterdir()}
    code, _, said = merge(capsys, *words)
    assert (code, len(said.splitlines()), bool(re.search(says, said))) == (2, 1, True), said
    assert {path: path.read_bytes() for path in Path().iterdir()} == before


def test_what_people_said_goes_along_and_the_last_word_stays_the_last(capsys: pytest.CaptureFixture[str]):
    first, second = make_judgement("t0/0", "anna", rating=1), make_judgement("t0/0", "anna", rating=5)
    save_judgement(Path("b.jsonl"), replace(first, at=100.0))
    save_judgement(Path("a.jsonl"), replace(second, at=200.0))
    save_judgement(Path("a.jsonl"), replace(first, key="t4/0", at=50.0))
    assert merge(capsys, "all.jsonl", "?.*jsonl")[0] == 0  # the notes files match, too
    notes = Judgements(Path("all.notes.jsonl")).refresh()
    assert (notes.known, {each.key: each.rating for each in notes}) == (3, {"t4/0": 1, "t0/0": 5})
    assert merge(capsys, "more.jsonl", "all.jsonl", "a.jsonl")[0] == 0
    assert Judgements(Path("more.notes.jsonl")).refresh().known == 3
    Path("new.notes.jsonl").write_text("mine")
    assert merge(capsys, "new.jsonl", "a.jsonl")[0] == 2
    assert Path("new.notes.jsonl").read_text() == "mine"


@pytest.mark.parametrize("content", [b"", b"\x8f\xff{\n\x00\n", b"a text\n", b'{"half'])
def test_files_without_a_rollout_make_no_output(capsys: pytest.CaptureFixture[str], content: bytes):
    Path("bad.jsonl").write_bytes(content)
    code, _, said = merge(capsys, "all.jsonl", "bad.jsonl")
    assert (code, "no rollout in" in said, list(Path().glob("*all*"))) == (2, True, [])
    garbage = content.endswith(b"\n")  # a shard that was killed early is empty, or has one torn line
    assert merge(capsys, "all.jsonl", "a.jsonl", "bad.jsonl")[0] == (2 if garbage else 0)
