"""Errors, boundaries and exit codes are documented."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import get_args

import pytest

from tests.support.pages import headings, read, rows, section
from velodrome import errors
from velodrome.cli import collect
from velodrome.cli.main import main


def error_classes() -> list[type[errors.VelodromeError]]:
    classes = [thing for _, thing in inspect.getmembers(errors, inspect.isclass)]
    return [thing for thing in classes if issubclass(thing, errors.VelodromeError)]


def test_every_error_has_a_heading():
    assert {kind.__name__ for kind in error_classes()} <= set(headings(read("errors.md")))


def test_every_boundary_is_documented_with_the_error_that_carries_it():
    carried = {kind.boundary: kind.__name__ for kind in error_classes() if kind.__base__ is errors.RolloutError}
    documented = rows(section(read("errors.md"), "Boundaries"))
    assert {name: re.sub(r"\[(\w+)\].*", r"\1", value) for name, value in documented.items()} == carried
    assert carried.keys() == set(get_args(errors.Boundary))


QUOTED = [
    ("errors.md", "collect +limit=0 +num_samples_in_parallel=fast"),
    ("errors.md", "metrics tasks.jsonl"),
    ("training.md", "train cvc.thinky_supervised_to_ppo num_envs=0 trainer.gamma=2 learning_rate=1e-3"),
]


@pytest.mark.parametrize(("page", "command"), QUOTED)
def test_a_message_that_a_page_quotes_is_the_real_one(
    page: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    Path("tasks.jsonl").write_text('{"responses_create_params": {"input": "?"}}\n')
    assert main(command.split()) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines
    assert [line for line in lines if line not in read(page).splitlines()] == []


def test_every_exit_code_is_documented():
    line = collect.VERB.more.partition("exit code:")[2].partition("\n\n")[0]
    assert list(rows(section(read("errors.md"), "Exit codes"))) == re.findall(r"\d+", line)
