"""Files that are not rollouts, and terminals that are not UTF-8: every verb says what it has to say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from tests.support.patience import DEADLINE_S
from velodrome.cli.main import main

TASK = {"id": "a", "responses_create_params": {"input": "?"}, "expected_answer": "1"}
FAILURE = {"key": "a/0", "boundary": "model", "error": "401", "partial": [], "attempt": 1, "timing": {}}
EPOCH = {"step": 100, "epoch": 1, "phase": "ppo", "loss": 0.5, "reward_mean": 1.0}
SFT = {"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "1"}]}
DPO = {"prompt": [], "chosen": [], "rejected": []}
NEMO_GYM = {**TASK, "response": {"output": []}, "reward": 1.0}
ROLLOUT = {
    "responses_create_params": {"input": "Où est la gare ? 駅はどこ 😀"},
    "output": [{"role": "assistant", "content": "Là-bas → 🚉"}],
    "reward": 1.0,
    "niveau": "élevé",
    "meta": {"key": "gare-é/0"},
}
READS = {
    "tasks": "velo data validate {} reads it",
    "failed": "velo show {} reads it",
    "metrics": "velo profile {} reads it",
    "sft": "velo import openai_chat {} --to",
    "dpo": "give the rollouts that it was exported from",
    "nemo_gym": "velo import nemo_gym {} --to",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = dict(zip(READS, (TASK, FAILURE, EPOCH, SFT, DPO, NEMO_GYM), strict=True)) | {"good": ROLLOUT}
    for name, row in rows.items():
        (tmp_path / f"{name}.jsonl").write_bytes(2 * (orjson.dumps(row) + b"\n"))
    (tmp_path / "good.metrics.json").write_text("{}")
    return tmp_path


@pytest.mark.parametrize("broken", [b"not JSON", b'{"responses_create_params": {}}', b"7"])
def test_a_file_of_tasks_with_broken_lines_is_still_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], broken: bytes
):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(broken + b"\n" + 3 * (orjson.dumps(TASK) + b"\n") + broken + b"\n")
    assert main(["metrics", str(path)]) == 2
    assert f"velo data validate {path}" in capsys.readouterr().err
    path.write_bytes(broken + b"\n" + 3 * (orjson.dumps(ROLLOUT) + b"\n") + orjson.dumps(TASK) + b"\n")
    assert main(["metrics", str(path)]) == 0
    path.write_bytes(b"policy_model:\n")
    assert main(["metrics", str(path)]) == 2
    assert f"{path}:1: " in capsys.readouterr().err


VERBS = ("metrics", "check", "show", "view", "compare", "export", "profile")
PAIRS = [("metrics", name) for name in sorted(READS)] + [(verb, "tasks") for verb in VERBS[1:]] + [("show", "failed")]


@pytest.mark.parametrize(("verb", "name"), PAIRS)
def test_a_file_of_another_kind_is_refused_with_the_command_that_reads_it(
    folder: Path, capsys: pytest.CaptureFixture[str], verb: str, name: str
):
    file, good = f"{folder / name}.jsonl", str(folder / "good.jsonl")
    words = {
        "compare": [verb, good, file],
        "export": [verb, "sft", file, "--to", str(folder / "out.jsonl")],
        "view": [verb, file, "--export", str(folder / "pages")],
    }
    code = main(words.get(verb, [verb, file]))
    out, err = capsys.readouterr()
    if (verb, name) == ("show", "failed"):
        assert (code, "401" in out) == (0, True)
    else:
        assert (code, out, err.count("\n"), f"{file}:" in err) == (2, "", 1, True)
        assert READS[name].format(file) in err


PRINTED = [
    ["show", "good.jsonl", "--all"],
    ["metrics", "good.jsonl", "--by", "niveau"],
    ["compare", "good.jsonl", "good.jsonl", "--by", "niveau"],
    ["check", "good.jsonl"],
    ["data", "validate", "good.jsonl"],
    ["profile", "good.jsonl"],
    ["show", "né.jsonl"],
]


@pytest.mark.slow
def test_every_verb_prints_on_any_encoding(folder: Path):
    script = f"from velodrome.cli.main import main; print([main(words) for words in {PRINTED}])"
    for encoding in ("ascii", "latin-1"):
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=folder,
            env={**os.environ, "PYTHONIOENCODING": encoding},
            capture_output=True,
            timeout=DEADLINE_S,
        )
        out, err = done.stdout.decode(encoding), done.stderr.decode(encoding)
        codes = orjson.loads(out.splitlines()[-1])
        assert (codes[:2], codes[-1], set(codes) <= {0, 2, 3}) == ([0, 0], 2, True), err
        assert "internal error" not in err
        assert "Traceback" not in err
