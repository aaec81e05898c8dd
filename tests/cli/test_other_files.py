"""Files that are not rollouts, and terminals that are not UTF-8: every verb says what it has to say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from patience import DEADLINE_S

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
    rows = {
        "tasks": TASK,
        "failed": FAILURE,
        "metrics": EPOCH,
        "sft": SFT,
        "dpo": DPO,
        "nemo_gym": NEMO_GYM,
        "good": ROLLOUT,
    }
    for name, row in rows.items():
        (tmp_path / f"{name}.jsonl").write_bytes(2 * (orjson.dumps(row) + b"\n"))
    (tmp_path / "good.metrics.json").write_text("{}")
    return tmp_path


@pytest.mark.parametrize("broken", [b"not JSON", b'{"responses_create_params": {}}', b'{"input": 5}', b"7"])
def test_a_file_of_tasks_with_broken_lines_is_still_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], broken: bytes
):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(broken + b"\n" + 3 * (orjson.dumps(TASK) + b"\n") + broken + b"\n")
    assert main(["metrics", str(path)]) == 2
    assert f"velo data validate {path}" in capsys.readouterr().err
    path.write_bytes(broken + b"\n" + 3 * (orjson.dumps(ROLLOUT) + b"\n"))
    assert main(["metrics", str(path)]) == 0


@pytest.mark.parametrize(
    ("verb", "name"),
    [
        (verb, name)
        for verb in ("metrics", "check", "show", "view", "compare", "export", "profile")
        for name in sorted(READS)
        if (verb, name) != ("profile", "metrics")
    ],
)
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
        return
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert f"{file}:" in err
    assert READS[name].format(file) in err


def test_what_is_made_from_rollouts_is_named_as_that(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["metrics", str(folder / "good.metrics.json")]) == 2
    assert "made from rollouts, and none itself; give the .jsonl beside it" in capsys.readouterr().err


def test_a_file_without_a_rollout_has_no_metrics(folder: Path, capsys: pytest.CaptureFixture[str]):
    (folder / "model.yaml").write_text("policy_model:\n  answers: [1]\n")
    assert main(["metrics", str(folder / "model.yaml")]) == 2
    out, err = capsys.readouterr()
    assert (out, "model.yaml: no rollouts in it" in err, "model.yaml:1: " in err) == ("", True, True)


def test_what_cannot_be_shown_is_said_for_what_it_is(folder: Path, capsys: pytest.CaptureFixture[str]):
    (folder / "empty.jsonl").write_text("")
    assert (main(["show", str(folder)]), main(["show", str(folder / "empty.jsonl")])) == (2, 2)
    assert capsys.readouterr().err == (
        f"velo: {folder}: not a regular file\nvelo: {folder / 'empty.jsonl'}: no rollouts in it\n"
    )


def test_one_task_among_rollouts_is_no_reason_to_refuse_them(folder: Path, capsys: pytest.CaptureFixture[str]):
    with (folder / "good.jsonl").open("ab") as stream:
        stream.write(orjson.dumps(TASK) + b"\n")
    assert main(["metrics", str(folder / "good.jsonl")]) == 0


VERBS = [
    ["show", "good.jsonl", "--all"],
    ["metrics", "good.jsonl", "--by", "niveau"],
    ["metrics", "good.jsonl", "--by", "niveau", "--json"],
    ["compare", "good.jsonl", "good.jsonl", "--by", "niveau"],
    ["check", "good.jsonl"],
    ["data", "validate", "good.jsonl"],
    ["show", "né.jsonl"],
]


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_every_verb_prints_on_any_encoding(folder: Path, encoding: str):
    environ = {**os.environ, "PYTHONIOENCODING": encoding}
    script = "import sys; from velodrome.cli.main import main; code = main(sys.argv[1:]); sys.exit(code)"
    for words in VERBS:
        done = subprocess.run(
            [sys.executable, "-c", script, *words], cwd=folder, env=environ, capture_output=True, timeout=DEADLINE_S
        )
        out, err = done.stdout.decode(encoding), done.stderr.decode(encoding)
        assert done.returncode in (0, 2, 3), (words, err)
        assert "fault of its own" not in err, (words, err)
        assert "Traceback" not in err, (words, err)
        if words[-1] == "--json":
            assert [group["group"] for group in orjson.loads(out)["groups"]] == ["élevé"]
