"""A mistake in the arguments is one line and exit code 2, whichever verb it is."""

from __future__ import annotations

import os
from pathlib import Path

import orjson
import pytest

from velodrome.cli.main import main
from velodrome.records.rollout import encode, make_rollout


@pytest.fixture
def rollouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    task = {"responses_create_params": {"input": "Hi"}}
    answer = {"role": "assistant", "type": "message", "content": [{"type": "output_text", "text": "x"}]}
    result = {**task, "response": {"output": [answer]}, "reward": 1.0}
    path = Path("r.jsonl")
    path.write_bytes(encode(make_rollout(task, result, {"key": "a/0", "schema": 1})))
    Path("other.jsonl").touch()
    Path("q.csv").write_text("id,question\n1,What?\n")
    Path("r.failures.jsonl").write_text("{}\n")
    Path("m.yaml").write_text("policy_model: {responses_api_models: {scripted_model: {answers: [x]}}}\n")
    return path


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ("view r.jsonl --port 70000", "--port"),
        ("view r.jsonl --export=", "--export"),
        ("check", "rollouts"),
        ("check r.jsonl --fail-on bad", "--fail-on"),
        ("check r.jsonl ./r.jsonl", "r.jsonl"),
        ("check r.jsonl --skip all-zero,", "--skip"),
        ("check r.jsonl --only all-zer", "all-zero"),
        ("check r.jsonl --only schema --skip schema", "skip"),
        ("export sft r.jsonl --to x.jsonl --limit 0", "--limit"),
        ("export sft r.jsonl --to=", "--to"),
        ("export sft nowhere.jsonl --to x", "nowhere.jsonl"),
        ("export sfd r.jsonl --to x", '"sft"'),
        ("export sft r.jsonl --to x --pairs 2", "pairs"),
        ("export sft r.jsonl --to x --where reward<", "at 7"),
        ("export dpo r.jsonl --to x.jsonl --margin nan", "--margin"),
        ("data", "velo data: which verb? prepare, generate"),
        ("data prepare q.csv --prompt {question}", "--to"),
        ("import nemo_gym r.jsonl --to x.jsonl --as both", "--as"),
        ("profile r.jsonl --what", "--what"),
        ("profile r.jsonl --top=0", "--top"),
        ("import nemo_gym r.jsonl --to other.jsonl", "give --overwrite to"),
        ("envs what", "'what'"),
        ("metrics r.jsonl --ci 95", "--ci"),
        ("metrics r.jsonl --k 1,x", "--k"),
        ("metrics r.jsonl --pass-at nan", "--pass-at"),
        ("metrics r.jsonl --json --csv", "--csv"),
        ("metrics r.jsonl --by dificulty", "by=dificulty"),
        ("compare r.jsonl nowhere.jsonl", "nowhere.jsonl"),
        ("compare r.jsonl r.jsonl --by task", "by: "),
        ("model lst", "'lst'"),
        ("model serve +config_paths=[m.yaml] +host=0.0.0.0", "host"),
        ("run", "velo run calculator local_model"),
        ("run +num_worker=2", "num_workers"),
    ],
)
def test_a_wrong_argument_is_one_line_that_names_the_place_and_nothing_is_written(
    rollouts: Path, capsys: pytest.CaptureFixture[str], words: str, place: str
):
    before = sorted(os.listdir())
    assert main(words.split()) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert place in err
    assert sorted(os.listdir()) == before


def test_every_wrong_argument_is_reported_at_once(rollouts: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["export", "dpo", "r.jsonl", "--pairs", "0", "--seed", "x", "--tto", "y"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [flag for line in lines for flag in ("--pairs", "--seed", "--tto", '"--to"') if flag in line.split(" (")[0]]
    assert len(lines) == 4


def test_a_filter_may_begin_with_a_minus(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    rows = [{"output": [], "reward": reward, "meta": {"key": f"t{reward}/0"}} for reward in (0.0, 1.0)]
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    assert main(["view", str(path), "--export", str(tmp_path / "copy"), "--where", "-reward<1"]) == 0
    assert "1 rollout on" in capsys.readouterr().err
