"""The programs of docs/python.md run as scripts and inside a running loop, in one folder, from top to bottom."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent.parent / "docs" / "python.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_programs_run_as_scripts(folder: Path):
    for program in PROGRAMS:
        exec(compile(program, str(PAGE), "exec"), {"__name__": "__main__"})


def test_the_programs_run_inside_a_running_loop(folder: Path):
    async def notebook() -> None:
        for program in PROGRAMS:
            cell = program.replace("asyncio.run(main())", "await main()")
            code = compile(cell, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            result = eval(code, {"__name__": "__main__"})
            if inspect.isawaitable(result):
                await result

    asyncio.run(notebook())
