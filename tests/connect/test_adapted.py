"""The process of an adapter: what it is started with, and what is said if it does not start."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from velodrome.connect import adapted
from velodrome.connect.adapted import PROGRAMS, AdaptedEnvironment
from velodrome.connect.programs.adapter_wire import Adapter, Service
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


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("hello", "its process was killed: its answer cannot be read: JSONDecodeError"),
        ('{"number": 0, "kind": "Odd", "error": "it is odd"}', "it is odd"),
    ],
)
def test_an_answer_that_cannot_be_read_fails_its_caller(tmp_path: Path, line: str, error: str):
    with pytest.raises(ToolError, match=error):
        opened(stand_in(tmp_path, f"echo '{{}}'; read request; echo '{line}'; exec sleep 1000"))


def test_a_silent_process_fails_its_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(adapted, "_ANSWER_TIMEOUT_S", 0.1)
    with pytest.raises(ToolError, match=r"verifiers:shop: open: no answer within 0\.1 s"):
        opened(stand_in(tmp_path, "echo '{}'; exec sleep 1000"))


def test_a_child_process_cannot_read_requests():
    code = """
import subprocess
from adapter_wire import Adapter, serve, take_stdio
stdio = take_stdio()
subprocess.run(["head", "-n", "1"])
serve(Adapter(), stdio)
"""
    command, pipe = [sys.executable, "-c", code], subprocess.PIPE
    with subprocess.Popen(command, cwd=PROGRAMS, stdin=pipe, stdout=pipe, text=True) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write('[0, "tools", {}]\n')
        program.stdin.flush()
        assert program.stdout.readline() == "{}\n"
        program.stdin.write('[1, "tools", {}]\n')
        program.stdin.flush()
        assert json.loads(program.stdout.readline()) == {"number": 0, "result": []}
        program.stdin.close()


def test_a_result_that_cannot_be_written_is_an_error():
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    class Odd(Adapter):
        async def tools(self) -> list[dict[str, object]]:
            return [{"name": Broken()}]

    out = io.StringIO()
    asyncio.run(Service(Odd(), out).answer(0, "tools", {}))
    assert json.loads(out.getvalue()) == {"number": 0, "kind": "ToolError", "error": "tools: RuntimeError: no text"}


def test_an_unknown_adapter_is_refused_with_those_there_are():
    with pytest.raises(InputError, match="there is no adapter 'unheard_of'; there are: verifiers"):
        AdaptedEnvironment(adapter="unheard_of", package="x", python=sys.executable)
