"""Folders nobody vouches for: pipes in the place of files, odd logs of a training, judgements by thousands."""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import Random

import orjson
import pytest
from made_runs import rollout, write
from viewing import viewing

from velodrome.viewer.parts.judgement_part import MOST_SAID
from velodrome.viewer.parts.pairing import _MOST_WORK, _cost
from velodrome.viewer.runs.training_curves import MOST_PICTURES


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "kind", ["notes.jsonl", "run.json", "metrics.json", "profile.json", "progress.json", "failures.jsonl"]
)
def test_a_pipe_beside_a_run_is_not_waited_for(tmp_path: Path, kind: str):
    write(tmp_path / "x.jsonl", [rollout(0, 0, Random(0))])
    os.mkfifo(tmp_path / f"x.{kind}")
    with viewing(tmp_path) as client:
        for address in ("/?q=x", "/run/x", "/run/x/rollouts", "/run/x/rollout/1"):
            assert client.get(address).status_code == 200


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["metrics.jsonl", "settings.json"])
def test_a_pipe_in_a_training_run_is_not_waited_for(tmp_path: Path, name: str):
    folder = tmp_path / "t"
    folder.mkdir()
    (folder / "settings.json").write_text("{}")
    write(folder / "metrics.jsonl", [{"step": 1, "epoch": 1, "phase": "ppo", "loss": 1.0}])
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with viewing(tmp_path) as client:
        assert client.get("/training/t").status_code == 200


def test_a_training_log_of_any_shape_has_a_page_of_bounded_size(tmp_path: Path):
    folder = tmp_path / "t"
    folder.mkdir()
    (folder / "settings.json").write_text("{}")
    odd = [{"step": step, "phase": [step], "epoch": {}, **{f"m{step}_{n}": n for n in range(50)}} for step in range(9)]
    write(folder / "metrics.jsonl", odd)
    with viewing(tmp_path) as client:
        page = client.get("/training/t")
    assert page.status_code == 200
    assert 0 < page.text.count("<figure") <= MOST_PICTURES


@pytest.mark.parametrize("file", ["", ".", "..", "/", "\x00", None, ["x"]])
def test_a_rerun_of_a_file_with_no_name_is_shown(tmp_path: Path, file: object):
    row = rollout(0, 0, Random(0))
    row["meta"]["rerun_of"] = {"file": file, "key": file, "finished_at": file}
    with viewing(write(tmp_path / "x.jsonl", [row])) as client:
        assert client.get("/run/x/rollout/1").status_code == 200


def test_of_very_many_judgements_of_one_rollout_the_newest_are_shown(tmp_path: Path):
    row = rollout(0, 0, Random(0))
    path = write(tmp_path / "x.jsonl", [row])
    said = [
        {"key": row["meta"]["key"], "by": f"person{n}", "at": time.time() + n, "tags": ["good"]}
        for n in range(MOST_SAID + 50)
    ]
    (tmp_path / "x.notes.jsonl").write_bytes(b"".join(orjson.dumps(each) + b"\n" for each in said))
    with viewing(path) as client:
        page = client.get("/run/x/rollout/1").text
    assert page.count("<b>person") == MOST_SAID
    assert f"person{MOST_SAID + 49}<" in page
    assert "50 more are in the file" in page


def test_words_that_stand_in_both_texts_a_hundred_times_count_as_more_work():
    a, b = ([word for n in range(99) for word in ("the", f"{side}{n}")] for side in "ab")
    assert _cost(a, b) > 5 * len(a) * len(b)
    prose = [f"word{n % 90}" for n in range(150)]
    assert _cost(prose, prose[::-1]) == 150 * 150
    assert _MOST_WORK // _cost(a, b) < 15  # such messages on a page; each takes some hundredths of a second
