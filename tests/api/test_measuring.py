"""`velo.metrics`, `compare`, `check` and `export` give what their verbs give, from files, rows and memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import velodrome as velo
from velodrome.cli.main import main

Write = Callable[..., Path]


def printed(capsys: pytest.CaptureFixture[str], *words: object) -> object:
    assert main([str(word) for word in words]) in (0, 3)
    return json.loads(capsys.readouterr().out)


def test_metrics_are_those_of_the_verb(rollouts: Write, capsys: pytest.CaptureFixture[str]):
    path = rollouts()
    assert velo.metrics(path) == printed(capsys, "metrics", path)
    by_task = velo.metrics(path, by="task", k=[1, 2])
    assert json.loads(json.dumps(by_task)) == printed(capsys, "metrics", path, "--by", "task", "--k", "1,2", "--json")


def test_metrics_of_filtered_rows_and_of_rollouts_in_memory(rollouts: Write):
    rows = velo.read(rollouts())
    assert velo.metrics(rows)["reward"] == 0.75
    assert velo.metrics(rows.where("reward<1"))["reward"] == 0.0
    assert velo.metrics(list(rows)) == velo.metrics([row.row for row in rows]) == velo.metrics(rows)


def test_a_comparison_is_that_of_the_verb(rollouts: Write, capsys: pytest.CaptureFixture[str]):
    a, b = rollouts(), rollouts([1.0] * 4, name="b.jsonl")
    result = velo.compare(a, b)
    assert json.loads(json.dumps(result)) == printed(capsys, "compare", a, b, "--json")
    assert isinstance(result["verdict"], str)


def test_findings_are_those_of_the_verb(rollouts: Write, capsys: pytest.CaptureFixture[str]):
    path = rollouts([0.0] * 40)
    findings = velo.check(path)
    report = printed(capsys, "check", path, "--json")
    assert isinstance(report, dict)
    assert [finding.as_json() for finding in findings] == report["findings"]
    assert (findings.rollouts, findings.failed, findings.worst) == (40, 0, report["worst"])
    assert [finding.name for finding in velo.check(path, only=["all-zero"])] == ["all-zero"]
    assert "all-zero" not in [finding.name for finding in velo.check(path, skip=["all-zero"])]


def test_a_profile_is_that_of_the_verb(rollouts: Write, capsys: pytest.CaptureFixture[str]):
    path = rollouts()
    assert json.loads(json.dumps(velo.profile(path))) == printed(capsys, "profile", path, "--json")
    assert velo.profile(velo.read(path).where("reward<1"))["rollouts"] == 1
    untimed = velo.profile([{"reward": 1.0, "output": [], "meta": {"key": "a/0"}}])
    assert (untimed["rollouts"], untimed["rows"]) == (0, 1)


def test_a_mistake_is_an_input_error_that_names_the_place(rollouts: Write):
    path = rollouts()
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: velo.metrics(path, by=""), "by"),
        (lambda: velo.metrics(path, k=[0]), "k"),
        (lambda: velo.compare(path, "none.jsonl"), "none.jsonl"),
        (lambda: velo.check(path, only=["all-zeros"]), "all-zero"),
        (lambda: velo.export("sfd", path, "x.jsonl"), "sft"),
        (lambda: velo.export("sft", path, "x.jsonl", pairs=1), "pairs"),
    ]
    for call, word in calls:
        with pytest.raises(velo.errors.InputError, match=word):
            call()
