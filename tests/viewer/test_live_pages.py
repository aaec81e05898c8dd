"""A file that grows, is cut, replaced or compressed while it is looked at, and numbers that take their time."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import orjson
from made_runs import rollout, write
from viewing import page_at, viewing, wait_for

from velodrome.records.zst import pack
from velodrome.viewer.measurements import Measurements

Json = dict[str, Any]


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


def test_a_compressed_file_is_read_the_same(tmp_path: Path):
    rows = [rollout(task, 0, Random(task)) for task in range(5)]
    path = tmp_path / "r.jsonl.zst"
    path.write_bytes(b"".join(pack(orjson.dumps(row) + b"\n") for row in rows))
    with viewing(path) as client:
        assert "5 rollouts" in page_at(client, "/run/r/rollouts").words
        assert client.get("/run/r/rollout/4.json").json() == rows[3]
        with path.open("ab") as stream:
            stream.write(pack(orjson.dumps(rollout(9, 0, Random(9))) + b"\n"))
        assert "task-009/0" in wait_for(client, "/run/r/rollouts", "6 rollouts").words


def test_a_large_file_is_measured_by_a_process_of_its_own(run: Path):
    with viewing(run, measurements=Measurements(small_bytes=0)) as client:
        page = wait_for(client, "/run/baseline", "tokens_per_s")
    with viewing(run) as client:
        same = wait_for(client, "/run/baseline", "tokens_per_s")
    assert page.words.partition("Metrics")[2] == same.words.partition("Metrics")[2]


def test_an_empty_file_has_pages_too(tmp_path: Path):
    path = write(tmp_path / "r.jsonl", [])
    with viewing(path) as client:
        assert "0 kept + 0 failed so far" in page_at(client, "/run/r").words
        assert "rollouts" in page_at(client, "/run/r/rollouts").words
        assert "Nothing failed." in page_at(client, "/run/r/failures").words
        assert "No task has a rollout yet." in page_at(client, "/run/r/tasks").words
