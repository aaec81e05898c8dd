"""The process of an adapter: what it is started with, and what is said if it does not start."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from velodrome.connect.adapted import AdaptedEnvironment
from velodrome.errors import InputError, ToolError

pytestmark = pytest.mark.slow


def stand_in(folder: Path, script: str) -> str:
    """An interpreter that does something else."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def opened(python: str, **settings: object):
    async def check():
        environment = AdaptedEnvironment(adapter="verifiers", package="shop", python=python, **settings)
        try:
            await environment.open({})
        finally:
            await environment.aclose()

    asyncio.run(check())


def test_it_is_given_none_of_our_keys_and_what_the_block_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "ours-and-nobody-elses")
    monkeypatch.setenv("PLAIN_SETTING", "seen")
    python = stand_in(tmp_path, f'env > "{tmp_path}/env"; echo "$@" > "{tmp_path}/arguments"; exit 1')
    with pytest.raises(ToolError):
        opened(python, env={"THEIR_API_KEY": "theirs"}, arguments={"level": 2})
    variables = (tmp_path / "env").read_text()
    assert "ours-and-nobody-elses" not in variables
    assert "PLAIN_SETTING=seen" in variables
    assert "THEIR_API_KEY=theirs" in variables
    assert (tmp_path / "arguments").read_text().split()[1:] == ["shop", '{"level":', "2}"]


def test_one_that_ends_before_it_answers_says_why(tmp_path: Path):
    python = stand_in(tmp_path, "echo 'No module named shop' >&2; exit 3")
    with pytest.raises(ToolError, match="verifiers:shop did not start: exit code 3: No module named shop"):
        opened(python)


def test_what_a_package_prints_while_it_is_imported_is_not_taken_for_an_answer(tmp_path: Path):
    (tmp_path / "verifiers.py").touch()
    loads = "print('{}', flush=True)\ndef load_environment(): pass\n"
    (tmp_path / "shop.py").write_text(loads)
    with pytest.raises(ToolError, match="verifiers:shop did not start: exit code 1: "):
        opened(sys.executable, env={"PYTHONPATH": str(tmp_path)})


def test_one_that_says_something_else_or_nothing_is_given_up(tmp_path: Path):
    with pytest.raises(ToolError, match="did not start: it said b'hello"):
        opened(stand_in(tmp_path, "echo hello; exec sleep 1000"))
    with pytest.raises(ToolError, match=r"did not start within start_timeout_s=0\.2"):
        opened(stand_in(tmp_path, "exec sleep 1000"), start_timeout_s=0.2)


def test_an_unknown_adapter_is_refused_with_those_there_are():
    with pytest.raises(InputError, match="there is no adapter 'unheard_of'; there are: verifiers"):
        AdaptedEnvironment(adapter="unheard_of", package="x", python=sys.executable)
