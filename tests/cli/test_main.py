"""Verbs, exit codes, and who is told what: stdout is the result, stderr the conversation."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import orjson
import pytest
from patience import DEADLINE_S

from velodrome.cli import main as cli
from velodrome.errors import InputError, ServerError, StorageError


@pytest.mark.parametrize("argv", [[], ["-h"], ["--help"], ["help"], ["-v"]])
def test_without_a_verb_the_verbs_are_listed(capsys: pytest.CaptureFixture[str], argv: list[str]):
    assert cli.main(argv) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for verb, text in cli.VERBS.items():
        assert f"  {verb:<10} {text}\n" in out


@pytest.mark.parametrize("verb", sorted(cli.VERBS))
def test_every_verb_has_help_with_examples(capsys: pytest.CaptureFixture[str], verb: str):
    try:
        code = cli.main([verb, "--help"])
    except SystemExit as left:  # argparse
        code = int(left.code or 0)
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    assert out.startswith(f"usage: velo {verb}")
    assert "examples:" in out


def test_a_verb_nobody_knows_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]):
    assert (cli.main(["colect"]), cli.main(["zzz"])) == (2, 2)
    assert capsys.readouterr().err == (
        "velo: no verb 'colect'; did you mean 'collect'?\nvelo: no verb 'zzz'; see velo --help\n"
    )


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.strip().replace(".", "").isalnum()


def ends(error: BaseException | int) -> Callable[[Sequence[str]], int]:
    """What a verb does: it returns a code or raises."""

    def run(argv: Sequence[str]) -> int:
        if isinstance(error, int):
            return error
        raise error

    return run


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        (3, 3, ""),
        (InputError("a.yaml: one", "b.yaml: two"), 2, "velo: a.yaml: one\nvelo: b.yaml: two\n"),
        (StorageError("the disk is full"), 1, "velo: the disk is full\n"),
        (ServerError("gone"), 1, "velo: gone\n"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 0, ""),
        (ZeroDivisionError("by 0"), 1, "velo: a fault of its own: ZeroDivisionError: by 0; -v shows where\n"),
    ],
)
def test_every_way_to_end_has_an_exit_code_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    end: BaseException | int,
    code: int,
    said: str,
):
    monkeypatch.setitem(sys.modules, "velodrome.cli.probe", SimpleNamespace(run=ends(end)))
    assert cli.guarded("probe", [], verbose=False) == code
    assert capfd.readouterr().err == said


def test_v_shows_where_a_fault_of_ours_is(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    monkeypatch.setitem(sys.modules, "velodrome.cli.probe", SimpleNamespace(run=ends(ZeroDivisionError("by 0"))))
    assert cli.guarded("probe", [], verbose=True) == 1
    assert 'File "' in capfd.readouterr().err


def test_v_may_stand_anywhere_and_is_not_handed_to_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "none.jsonl"
    assert cli.main(["metrics", "-v", str(path), "--verbose"]) == 2
    assert capsys.readouterr().err == f"velo: {path}: no such file\n"


MODEL = """
policy_model:
  responses_api_models:
    scripted_model:
      answers: ["{answer}"]
"""
CALCULATOR = "resources_servers/calculator/configs/calculator.yaml"


def velo(cwd: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "velodrome.cli.main", *argv]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=DEADLINE_S)


def collect(cwd: Path, *more: str) -> subprocess.CompletedProcess[str]:
    paths = f"+config_paths=[{CALCULATOR},model.yaml]"
    files = ("+input_jsonl_fpath=t.jsonl", "+output_jsonl_fpath=r.jsonl")
    return velo(cwd, "collect", paths, "+embedded=true", *files, *more)


def write_tasks(cwd: Path, answers: Sequence[str]) -> None:
    rows = [
        {"id": str(number), "expected_answer": answer, "responses_create_params": {"input": "?"}}
        for number, answer in enumerate(answers)
    ]
    (cwd / "t.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    (cwd / "model.yaml").write_text(MODEL.format(answer="It is 36"))


def test_a_collection_prints_metrics_on_stdout_and_its_account_on_stderr(tmp_path: Path):
    write_tasks(tmp_path, ["36", "37", "not a number"])
    first = collect(tmp_path)
    assert (first.returncode, orjson.loads(first.stdout)["reward"]) == (3, 0.5)
    assert "requested 3 = kept 2 + failed 1  ->  r.jsonl\n" in first.stderr
    assert "Traceback" not in first.stderr
    assert orjson.loads((tmp_path / "r.metrics.json").read_bytes()) == orjson.loads(first.stdout)
    assert orjson.loads(velo(tmp_path, "metrics", "r.jsonl").stdout) == orjson.loads(first.stdout)


LOUD = """
from velodrome import Environment

class Loud(Environment):
    def verify(self, task, response):
        print("looking at", task["id"])
        return 1.0
"""
LOUD_AGENT = """
loud: {resources_servers: {loud: {entrypoint: app.py}}}
agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: loud}
      model_server: {type: responses_api_models, name: policy_model}
"""


def test_what_an_environment_prints_is_kept_out_of_the_metrics(tmp_path: Path):
    write_tasks(tmp_path, ["36"])
    (tmp_path / "loud.yaml").write_text(LOUD_AGENT)
    (tmp_path / "resources_servers" / "loud").mkdir(parents=True)
    (tmp_path / "resources_servers" / "loud" / "app.py").write_text(LOUD)
    done = collect(tmp_path, "+config_paths=[loud.yaml,model.yaml]")
    assert (done.returncode, orjson.loads(done.stdout)["reward"]) == (0, 1.0)
    assert "looking at 0" in done.stderr


def test_a_mistake_on_the_command_line_is_exit_code_two_and_one_line_each(tmp_path: Path):
    write_tasks(tmp_path, ["36"])
    done = collect(tmp_path, "+num_repeats=0", "+max_wall_s=soon")
    assert (done.returncode, done.stdout) == (2, "")
    assert sorted(line.split(":")[1].strip() for line in done.stderr.splitlines()) == ["max_wall_s", "num_repeats"]
    assert not (tmp_path / "r.jsonl").exists()


def test_an_agent_by_number_is_a_name_nobody_has(tmp_path: Path):
    write_tasks(tmp_path, ["36"])
    done = collect(tmp_path, "+agent_name=123")
    assert (done.returncode, done.stderr) == (
        2,
        "velo: agent_name: no agent is called '123'; there are: calculator_simple_agent\n",
    )
