"""A file that grows, is cut, replaced or compressed while it is looked at; very many repeats, and none."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import orjson

from tests.support.made_runs import rollout, write
from tests.support.viewing import page_at, viewing, wait_for


def test_a_file_that_grows_is_followed_and_the_pulse_says_so(run: Path):
    with viewing(run) as client:
        before = client.get("/run/baseline/pulse").json()
        with run.open("ab") as stream:
            stream.write(orjson.dumps(rollout(77, 0, Random(5))) + b"\n" + b'{"half a line')
        wait_for(client, "/run/baseline", "112 kept")
        after = client.get("/run/baseline/pulse").json()
        assert (before["rows"], after["rows"], before["version"] != after["version"]) == (111, 112, True)
        assert "task-077/0" in page_at(client, "/run/baseline/rollout/112").words
        with run.open("ab") as stream:
            stream.write(b" is garbage now\n")
        wait_for(client, "/run/baseline/rollouts", "baseline.jsonl:113")


def test_a_file_that_is_cut_replaced_or_gone_gives_right_pages_or_a_note(run: Path, tmp_path: Path):
    lines = run.read_bytes().splitlines(keepends=True)
    with viewing(run) as client:
        page_at(client, "/run/baseline/rollout/100")
        run.write_bytes(b"".join(lines[:10]))
        wait_for(client, "/run/baseline/rollouts", "19 rollouts")
        assert "no rollout" in page_at(client, "/run/baseline/rollout/100", 404).words
        assert "read again from the start" in page_at(client, "/run/baseline").words
        other = write(tmp_path / "new.jsonl", [rollout(5, 9, Random(5))])
        other.replace(run)
        wait_for(client, "/run/baseline/rollout/1", "task-005/9")
        run.unlink()
        for address in ("/run/baseline", "/run/baseline/rollouts", "/run/baseline/failures", "/"):
            assert client.get(address).status_code < 400
        write(run, [rollout(6, 8, Random(5))])
        wait_for(client, "/run/baseline/rollouts", "task-006/8")


def test_an_empty_file_has_pages_too(tmp_path: Path):
    path = write(tmp_path / "r.jsonl", [])
    with viewing(path) as client:
        assert "0 kept + 0 failed so far" in page_at(client, "/run/r").words
        assert "rollouts" in page_at(client, "/run/r/rollouts").words
        assert "Nothing failed." in page_at(client, "/run/r/failures").words
        assert "No task has a rollout yet." in page_at(client, "/run/r/tasks").words


REPEATS = 2_105


def test_a_task_of_thousands_of_repeats_is_counted_whole_and_every_repeat_can_be_reached(tmp_path: Path):
    rows = []
    for repeat in range(REPEATS):
        row = {"output": [{"role": "assistant", "content": "x"}], "reward": float(repeat >= 2000)}
        rows.append(row | {"meta": {"key": f"t/{repeat}", "rollout_index": repeat}})
    with viewing(write(tmp_path / "r.jsonl", rows)) as client:
        for since, repeats in (("", [0, 1]), ("&since=2100", [2100, 2101]), ("&since=999999", [0, 1])):
            page = page_at(client, f"/run/r/task?id=t{since}")
            assert "passed 105 of 2,105" in page.words
            assert [int(each) for each in re.findall(r"repeat (\d+)", page.words)][:2] == repeats
            assert any("since=2112" in link for link in page.links()) is False
        assert "/run/r/task?id=t&since=12" in page.links()
