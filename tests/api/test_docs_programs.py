"""The programs of docs/python.md and of the README run as scripts and inside a running loop, from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "docs" / "python.md", ROOT / "README.md"]


def programs(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def trains(program: str) -> bool:
    return "velo.train(" in program


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_programs_run_as_scripts(folder: Path, page: Path):
    for program in programs(page):
        if not trains(program):
            exec(compile(program, str(page), "exec"), {"__name__": "__main__"})


@pytest.mark.slow
def test_the_training_program_trains_and_resumes(folder: Path, capsys: pytest.CaptureFixture[str]):
    [program] = filter(trains, programs(PAGES[0]))
    for _ in range(2):
        exec(compile(program, str(PAGES[0]), "exec"), {"__name__": "__main__"})
    first, again = capsys.readouterr().out.splitlines()
    assert first.startswith("1024 True ")
    assert again == first
