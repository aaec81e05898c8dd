"""Verbs, exit codes, and who is told what: stdout is the result, stderr the conversation."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from velodrome.cli import main as cli
from velodrome.errors import InputError, ServerError, StorageError


@pytest.mark.parametrize("argv", [[], ["-h"], ["--help"], ["help"], ["-v"]])
def test_without_a_verb_the_verbs_are_listed(velo: Any, argv: list[str]):
    done = velo(*argv)
    assert (done.code, done.err) == (0, "")
    assert [verb for verb in cli.VERBS if f"\n  {verb} " not in done.out] == []


@pytest.mark.parametrize("verb", sorted(cli.VERBS))
def test_every_verb_has_help_with_examples(velo: Any, verb: str):
    done = velo(verb, "--help")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"usage: velo {verb}")
    assert "examples:" in done.out


def test_a_verb_nobody_knows_is_answered_with_the_nearest(velo: Any):
    near, far = velo("colect"), velo("zzz")
    assert (near.code, '"collect"' in near.err) == (2, True)
    assert (far.code, "velo --help" in far.err) == (2, True)


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
        (
            ZeroDivisionError("by 0"),
            1,
            "velo: internal error: ZeroDivisionError: by 0; run with -v for the traceback\n",
        ),
    ],
)
def test_every_way_to_end_has_an_exit_code_and_a_traceback_only_of_a_fault_of_ours_with_v(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    end: BaseException | int,
    code: int,
    said: str,
):
    monkeypatch.setitem(cli.VERBS, "probe", cli.VerbEntry("cli.probe", ""))
    monkeypatch.setitem(sys.modules, "velodrome.cli.probe", SimpleNamespace(run=ends(end)))
    assert cli.run_verb("probe", [], verbose=False) == code
    assert capfd.readouterr().err == said
    assert cli.run_verb("probe", [], verbose=True) == code
    assert ('File "' in capfd.readouterr().err) == isinstance(end, ZeroDivisionError)


def test_v_may_stand_anywhere_and_is_not_handed_to_the_verb(velo: Any):
    done = velo("metrics", "-v", "none.jsonl", "--verbose")
    assert (done.code, done.err) == (2, "velo: none.jsonl: no such file\n")


def test_a_collection_prints_metrics_on_stdout_and_its_account_on_stderr(collect: Any, velo: Any, tmp_path: Path):
    first = collect(["36", "37", "not a number"])
    assert (first.code, orjson.loads(first.out)["reward"]) == (3, 0.5)
    assert "requested 3 = kept 2 + failed 1  ->  r.jsonl\n" in first.err
    assert "Traceback" not in first.err
    assert orjson.loads((tmp_path / "r.metrics.json").read_bytes()) == orjson.loads(first.out)
    assert orjson.loads(velo("metrics", "r.jsonl").out) == orjson.loads(first.out)


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
      resources_server: {type: resources_servers, name: loud}
      model_server: {type: responses_api_models, name: policy_model}
"""


def test_what_an_environment_prints_is_kept_out_of_the_metrics(collect: Any, tmp_path: Path):
    (tmp_path / "loud.yaml").write_text(LOUD_AGENT)
    (tmp_path / "resources_servers" / "loud").mkdir(parents=True)
    (tmp_path / "resources_servers" / "loud" / "app.py").write_text(LOUD)
    done = collect(["36"], "+config_paths=[loud.yaml,model.yaml]")
    assert (done.code, orjson.loads(done.out)["reward"]) == (0, 1.0)
    assert "looking at 0" in done.err


def test_a_mistake_on_the_command_line_is_exit_code_two_and_one_line_each(collect: Any, tmp_path: Path):
    done = collect(["36"], "+num_repeats=0", "+max_wall_s=soon")
    assert (done.code, done.out) == (2, "")
    assert sorted(line.split(":")[1].strip() for line in done.err.splitlines()) == ["max_wall_s", "num_repeats"]
    assert not (tmp_path / "r.jsonl").exists()


def test_mistakes_in_agents_their_models_and_environments_are_reported_at_once(collect: Any, tmp_path: Path):
    blocks = (
        "agent.responses_api_agents.simple_agent",
        "calculator.resources_servers.calculator",
        "calculator_simple_agent.responses_api_agents.simple_agent",
        "policy_model.responses_api_models.scripted_model",
    )
    (tmp_path / "loud.yaml").write_text(LOUD_AGENT.replace("{loud: {entrypoint: app.py}}", "{calculator: {}}"))
    calculator = "resources_servers/calculator/configs/calculator.yaml"
    agents = ("agent", "calculator_simple_agent")
    rows = [{"responses_create_params": {"input": "?"}, "agent_ref": {"name": name}} for name in agents]
    (tmp_path / "two.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    files = (f"+config_paths=[{calculator},loud.yaml,model.yaml]", "+input_jsonl_fpath=two.jsonl")
    done = collect([], *files, *(f"+{block}.wrong=1" for block in blocks))
    assert (done.code, done.out) == (2, "")
    assert sorted(line.split(": ")[2] for line in done.err.splitlines()) == list(blocks)


def test_without_an_output_one_is_made_from_the_inputs_name_in_this_folder(collect: Any, tmp_path: Path):
    assert collect(["36"], "~output_jsonl_fpath").code == 0
    assert (tmp_path / "t.rollouts.jsonl").exists()


@pytest.mark.parametrize(
    "output",
    [
        "t.jsonl",
        "out.json",
        "folder.jsonl",
        "pipe.jsonl",
        "q.failures.jsonl",
        "q.notes.jsonl.zst",
        "x" * 300 + ".jsonl",
    ],
)
def test_an_output_that_cannot_be_one_is_refused(collect: Any, tmp_path: Path, output: str):
    (tmp_path / "folder.jsonl").mkdir()
    os.mkfifo(tmp_path / "pipe.jsonl")
    done = collect(["36"], f"+output_jsonl_fpath={output}")
    assert (done.code, done.err.startswith(f"velo: {output}: "), done.err.count("\n")) == (2, True, 1)


@pytest.mark.parametrize("name", ["r.failures.jsonl", "r.metrics.json", "r.run.json", "", "none.jsonl", "."])
def test_an_input_that_is_none_or_would_be_written_over_is_refused(collect: Any, tmp_path: Path, name: str):
    if name.startswith("r."):
        (tmp_path / name).write_text("tasks\n")
    done = collect(["36"], f"+input_jsonl_fpath={name}" if name else "~input_jsonl_fpath")
    assert (done.code, done.err.startswith(f"velo: {name or 'no input'}: ")) == (2, True)
    assert not (tmp_path / "r.jsonl").exists()


@pytest.mark.slow
def test_sigterm_leaves_no_half_file_of_a_verb_that_writes_one(tmp_path: Path):
    code = """
import os, signal, sys
from pathlib import Path
from types import SimpleNamespace
from velodrome.cli.main import VERBS, VerbEntry, run_verb
from velodrome.records.outfile import OutFile

def run(words):
    with OutFile(Path("big.jsonl")) as file:
        file.write(b"half")
        os.kill(os.getpid(), signal.SIGTERM)

VERBS["half"] = VerbEntry("cli.half", "")
sys.modules["velodrome.cli.half"] = SimpleNamespace(run=run)
sys.exit(run_verb("half", [], False))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stderr, list(tmp_path.iterdir())) == (143, b"", [])
