"""`velo policy` as it is typed: what it prints, and one line and exit code 2 for a mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.small_run import trained
from velodrome.cli.main import main


def typed(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(["policy", *map(str, words)])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_run_is_shown_evaluated_and_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    result = trained(tmp_path, evaluator__evaluate_local=True, evaluator__epoch_interval=4)
    run = tmp_path / "small"
    code, out, _ = typed(capsys, "show", run)
    shown = json.loads(out)
    assert (code, shown["env"], shown["step"], shown["run"]) == (0, "extractor_hub_10", 1024, str(result.folder))
    names = {name: one for one in shown["kept"] for name in one["names"]}
    assert set(names) == {"best", "supervised", "last", "ppo"}
    assert names["last"]["evaluation"] == result.evaluation
    assert names["supervised"]["step"] == 512

    code, out, _ = typed(capsys, "eval", run, "--episodes", 4)
    assert code == 0
    assert json.loads(out).items() >= {**(result.evaluation or {}), "step": 1024, "env": "extractor_hub_10"}.items()
    sampled = json.loads(typed(capsys, "eval", run, "--which", "taught", "--episodes", 4, "--sampled")[1])
    assert (sampled["step"], sampled["actions"]) == (512, "sampled")

    code, out, _ = typed(capsys, "export", run, "--which", "best", "-o", tmp_path / "p.onnx")
    assert (code, json.loads(out)["file"]) == (0, str(tmp_path / "p.onnx"))
