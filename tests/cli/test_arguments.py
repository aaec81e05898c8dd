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
        ("view r.jsonl --port x", "--port"),
        ("view r.jsonl --port 70000", "--port"),
        ("view r.jsonl --terminal --limit 5", "--limit"),
        ("view r.jsonl --export=", "--export"),
        ("check", "rollouts"),
        ("check r.failures.jsonl", "r.failures.jsonl"),
        ("check r.jsonl --fail-on bad", "--fail-on"),
        ("check r.jsonl r.jsonl", "r.jsonl"),
        ("check r.jsonl ./r.jsonl", "r.jsonl"),
        ("check r.jsonl --only=", "--only"),
        ("check r.jsonl --skip all-zero,", "--skip"),
        ("check r.jsonl --only all-zer", "all-zero"),
        ("check r.jsonl --skip x", "--list"),
        ("check r.jsonl --only schema --skip schema", "skip"),
        ("export sft r.jsonl --to x.jsonl --limit 0", "--limit"),
        ("export sft r.jsonl --to x.jsonl --limit x", "--limit"),
        ("export sft r.jsonl", "--to"),
        ("export sft r.jsonl --to=", "--to"),
        ("export sft . --to x.jsonl", "."),
        ("export sft nowhere.jsonl --to x", "nowhere.jsonl"),
        ("export sfd r.jsonl --to x", '"sft"'),
        ("export zzz r.jsonl --to x", "sharegpt"),
        ("export sft r.jsonl --to x --pairs 2", "pairs"),
        ("export sft r.jsonl --to x --data-source y --uses 1", "data_source, uses"),
        ("export sft r.jsonl --to x --split half", "split"),
        ("export sft r.jsonl --to x --where reward<", "at 7"),
        ("export sft r.jsonl --to x --reasoning loud", "--reasoning"),
        ("export dpo r.jsonl --to x.jsonl --margin nan", "--margin"),
        ("export dpo r.jsonl --to x.jsonl --margin inf", "--margin"),
        ("data", "velo data: which verb? prepare, generate"),
        ("data prepare q.csv --prompt {question}", "--to"),
        ("data prepare q.csv --prompt {question} --to t.txt", "--to"),
        ("data validate .", "."),
        ("import nemo_gym . --to x.jsonl", "."),
        ("import nemo_gym r.jsonl --to x.txt", "--to"),
        ("import nemo_gym r.jsonl --to x.jsonl --as both", "--as"),
        ("show", "FILE"),
        ("profile r.jsonl --what", "--what"),
        ("profile r.jsonl --top=0", "--top"),
        ("profile r.jsonl --top=-1", "--top"),
        ("profile r.jsonl --top=ten", "--top"),
        ("import nemo_gym r.jsonl --to other.jsonl", "give --overwrite to"),
        ("verify +input_jsonl_fpath=r.jsonl --overwritten", "--overwrite"),
        ("envs --what", "--what"),
        ("envs what", "'what'"),
        ("metrics r.jsonl --ci x", "--ci"),
        ("metrics r.jsonl --ci 95", "--ci"),
        ("metrics r.jsonl --k 0", "--k"),
        ("metrics r.jsonl --k 1,x", "--k"),
        ("metrics r.jsonl --pass-at nan", "--pass-at"),
        ("metrics r.jsonl --fields a,,b", "--fields"),
        ("metrics r.jsonl --json --csv", "--csv"),
        ("metrics r.jsonl --bye agent", "--by"),
        ("model lst", "'lst'"),
        ("model serve +config_paths=[m.yaml] +port=99999", "port"),
        ("model serve +config_paths=[m.yaml] +host=0.0.0.0", "host"),
        ("model serve +config_paths=[m.yaml] +hots=::1", '"host"'),
        ("run", "velo run calculator local_model"),
        ("run +num_worker=2", "num_workers"),
        ("run +cors_origins=all", "cors_origins"),
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


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("id,question\n1,\n", 'q.csv:2: "question" is empty, so the prompt asks nothing'),
        ("id,question\n1,  \n", 'q.csv:2: "question" is empty, so the prompt asks nothing'),
        ("id,question\n,What?\n", 'q.csv:2: "id" is empty'),
    ],
)
def test_an_empty_prompt_or_id_is_a_mistake_of_its_row(
    rollouts: Path, capsys: pytest.CaptureFixture[str], table: str, told: str
):
    Path("q.csv").write_text(table)
    assert main(["data", "prepare", "q.csv", "--prompt", "Solve: {question}", "--id", "id", "--to", "t.jsonl"]) == 2
    assert capsys.readouterr().err.splitlines()[0] == f"velo: {told}"
    assert not Path("t.jsonl").exists()


def test_of_several_fields_of_a_prompt_some_may_be_empty(rollouts: Path):
    Path("q.csv").write_text("hint,question\n,What?\n")
    assert main(["data", "prepare", "q.csv", "--prompt", "{hint} {question}", "--to", "t.jsonl"]) == 0
    [task] = map(orjson.loads, Path("t.jsonl").read_bytes().splitlines())
    assert task["responses_create_params"]["input"] == [{"role": "user", "content": " What?"}]


def test_the_statistics_of_no_tasks_have_no_lengths(rollouts: Path, capsys: pytest.CaptureFixture[str]):
    Path("t.jsonl").write_bytes(b"")
    assert main(["data", "validate", "t.jsonl"]) == 2
    out, err = capsys.readouterr()
    assert [line.split()[-1] for line in out.splitlines() if line.startswith("prompt characters")] == ["none"]
    assert err == "velo: t.jsonl: no tasks in it\n"


def test_a_filter_may_begin_with_a_minus(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    rows = [{"output": [], "reward": reward, "meta": {"key": f"t{reward}/0"}} for reward in (0.0, 1.0)]
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    assert main(["view", str(path), "--export", str(tmp_path / "copy"), "--where", "-reward<1"]) == 0
    assert "1 rollout on" in capsys.readouterr().err
