"""What a person sees: tables and colours on a terminal, JSON on a pipe, and lines that fit 80 and 60 columns."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.screens import PAINT, Screen, velo_on_screen
from velodrome.cli.main import VERBS
from velodrome.timing.screen import columns as width_of

pytestmark = pytest.mark.slow  # a process per command

WIDTHS = (80, 60)
TASKS = [
    {"id": f"t{number}", "expected_answer": answer, "responses_create_params": {"input": f"task {number}?"}}
    for number, answer in enumerate(["36", "99"] * 12)
]
COLLECT = ("collect", "calculator", "model", "tasks.jsonl", "-n", "2", "--embedded", "--overwrite")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs: a.jsonl, in which nothing is right, and b.jsonl, in which half is."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "tasks.jsonl").write_bytes(b"".join(orjson.dumps(task) + b"\n" for task in TASKS))
    for name, answer in (("a", "It is 5"), ("b", "It is 36")):
        (folder / "model.yaml").write_text(
            f"policy_model: {{responses_api_models: {{scripted_model: {{answers: [{answer}]}}}}}}\n"
        )
        subprocess.run(
            [sys.executable, "-m", "velodrome.cli.main", *COLLECT, "-o", f"{name}.jsonl"],
            cwd=folder,
            check=True,
            capture_output=True,
        )
    return folder


def wider(lines: list[str], columns: int) -> list[str]:
    """Lines that are wider than the screen, but for a single word that cannot be broken."""
    return [line for line in lines if width_of(line) > columns and len(line.split()) > 1]


def test_a_collection_ends_with_a_table_and_what_to_type_next(runs: Path):
    shown = velo_on_screen(*COLLECT, "-o", "c.jsonl", cwd=runs)
    table = dict(line.split(None, 1) for line in shown.lines if len(line.split(None, 1)) == 2)
    assert (shown.code, table["reward"][:8], table["reward"][-12:]) == (0, "0.500  [", "95% interval")
    counts = {name: table[name].split()[0] for name in ("pass@1", "pass@2", "rollouts", "failed")}
    assert counts == {"pass@1": "0.500", "pass@2": "0.500", "rollouts": "48", "failed": "0"}
    assert (table["tokens"].endswith("out)"), "rollouts/s" in table["throughput"]) == (True, True)
    assert shown.lines[-1] == "next: velo view c.jsonl"
    assert ("\x1b[1m0.500\x1b[0m" in shown.text, '"reward"' in shown.text) == (True, False)


def test_failures_are_in_the_table_by_their_reason_and_a_dumb_terminal_gets_no_cursor_moves(runs: Path):
    rows = [{**TASKS[0], "expected_answer": "no number"}, {**TASKS[1]}]
    (runs / "half.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    words = ("collect", "calculator", "model", "half.jsonl", "--embedded", "--overwrite", "-o", "f.jsonl")
    shown = velo_on_screen(*words, cwd=runs, columns=60, env={"TERM": "dumb"})
    assert (shown.code, ["failed", "1"] in [line.split() for line in shown.lines]) == (3, True)
    assert any(line.strip().startswith('1 x input: "expected_answer"') for line in shown.lines)
    assert shown.lines[-2:] == ["next: velo view f.jsonl", "      velo show f.failures.jsonl"]
    assert "Collecting rollouts: " in shown.text
    assert [character for character in ("\r", "\x1b") if character in shown.text] == []
    assert [line for line in wider(shown.lines, 60) if not line.startswith("Collecting ")] == []


def test_training_ends_with_a_table_and_a_curve(runs: Path):
    words = ("train", "cartpole", "run=curve", "trainer.total_timesteps=4096", "output.dashboard=false")
    shown = velo_on_screen(*words, cwd=runs, columns=60)
    text = "\n".join(shown.lines)
    assert shown.code == 0
    assert [
        name
        for name in ("agent steps", "evaluation, greedy", "ppo", "return in rollouts, sampled, ")
        if name not in text
    ] == []
    assert sum("█" in line for line in shown.lines) >= 2
    assert any(line.startswith("next: velo view train_dir/curve_") for line in shown.lines)
    assert wider(shown.lines, 60) == []


@pytest.mark.parametrize("columns", WIDTHS)
def test_every_help_fits_the_screen_and_its_commands_can_be_copied(velo: Any, monkeypatch: Any, columns: int):
    monkeypatch.setenv("COLUMNS", str(columns))
    texts = {verb: velo(verb, "--help").out for verb in VERBS} | {"": velo("--help").out}
    assert {verb: wide for verb, text in texts.items() if (wide := wider(text.splitlines(), columns))} == {}


def test_a_pipe_that_is_closed_early_does_not_hide_how_the_verb_ended(runs: Path):
    command = f"{sys.executable} -m velodrome.cli.main check a.jsonl --fail-on info | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=runs, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("3\n", "")


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        (("metrics", "a.jsonl"), {"reward", "pass@2"}),
        (("export", "sft", "b.jsonl", "--to", "sft.jsonl", "--overwrite"), {"records", "card"}),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_json_is_for_pipes_and_for_those_who_ask_for_it(runs: Path, velo: Any, words: tuple[str, ...], keys: set[str]):
    piped = velo(*words, cwd=runs)
    assert orjson.loads(piped.out).keys() >= keys
    assert ("\r" in piped.err, PAINT.search(piped.out + piped.err)) == (False, None)
    on_screen = velo_on_screen(*words, cwd=runs, stdout_only=True)
    assert (on_screen.code, on_screen.text.lstrip().startswith("{")) == (0, False)
    asked = velo_on_screen(*words, "--json", cwd=runs, stdout_only=True)
    assert (asked.code, isinstance(orjson.loads(asked.text), dict)) == (0, True)


REPORTS = {
    "compare a.jsonl b.jsonl --flips": 0,
    "check a.jsonl --fail-on info": 3,
    "metrics a.jsonl --table": 0,
    "metrics a.jsonl --by task": 0,
    "profile a.jsonl": 0,
    "show a.jsonl": 0,
    "envs": 0,
    "test --list": 0,
    "check --list": 0,
    "status a.jsonl": 0,
    "data validate tasks.jsonl": 0,
    "export sfd a.jsonl --to x.jsonl": 2,
    "collect calculater --limit=0": 2,
}
EACH = """
from velodrome.cli.main import main
for line in LINES:
    code = main(line.split())
    print()
    print(line, code, sep="=")
"""


@pytest.mark.parametrize("columns", WIDTHS)
def test_reports_notes_and_errors_fit_the_screen(runs: Path, columns: int):
    command = [sys.executable, "-c", EACH.replace("LINES", str(list(REPORTS)))]
    with Screen(command, cwd=runs, columns=columns) as screen:
        assert screen.end() == 0
    lines = [line.rpartition("\r")[2] for line in PAINT.sub("", screen.text).replace("\r\n", "\n").splitlines()]
    assert [line for line, code in REPORTS.items() if f"{line}={code}" not in lines] == []
    assert wider(lines, columns) == []
    assert not any("\t" in line for line in lines)


@pytest.mark.parametrize(
    ("env", "painted"), [({}, True), ({"TERM": "dumb"}, False), ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False)]
)
def test_colour_follows_the_environment_and_is_never_alone(runs: Path, env: dict[str, str | None], painted: bool):
    shown = velo_on_screen("compare", "a.jsonl", "b.jsonl", cwd=runs, env=env)
    assert (PAINT.search(shown.text) is not None) == painted
    assert any("task" in line for line in shown.lines)
