"""The docs name the versions that are tried and measured; and what the set-up does where something is missing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from patience import DEADLINE_S
from programs import PROGRAMS, ROOT, of_the_suite

PAGE = (ROOT / "docs" / "interop.md").read_text(encoding="utf-8")
MEASURED = ["verifiers", "verifiers_tool_env", "inspect"]


@pytest.mark.parametrize("name", of_the_suite(large=True))
def test_the_page_has_the_version_that_is_tried(name):
    for requirement in PROGRAMS[name].needs:
        package, version = re.split(r"(?:\[.*])?==", requirement)
        assert re.search(rf"^\| {re.escape(package)} \| [^|]*\b{re.escape(version)}\b", PAGE, re.MULTILINE), requirement


@pytest.mark.parametrize("name", MEASURED)
def test_the_page_on_performance_has_the_version_that_is_measured(name):
    figures = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert f"| {PROGRAMS[name].needs[0].replace('==', ' ')}" in figures


SCRIPT = ROOT / "tests" / "interop" / "programs.py"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with an interpreter in each of two places, the first with a uv that cannot install openai2."""
    for place in ("one", "two"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "python").symlink_to(sys._base_executable)
    uv = tmp_path / "one" / "uv"
    uv.write_text('#!/bin/sh\ncase "$*" in *openai==2.54.0*) echo no such package >&2; exit 2;; esac\n')
    uv.chmod(0o755)
    return tmp_path


def set_up(home: Path, place: str, *names: str, ci: str = "") -> tuple[int, str, str]:
    variables = os.environ | {"PATH": str(home), "VELODROME_INTEROP": str(home / "interop"), "CI": ci}
    command = [home / place / "python", SCRIPT, *names]
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert "Traceback" not in ended.stderr
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 1)])
def test_a_program_that_cannot_be_installed_is_named_and_the_others_are_made(home: Path, ci: str, code: int):
    ended, out, err = set_up(home, "one", "openai2", "verifiers", ci=ci)
    assert ended == code
    assert err.startswith("openai2 ")
    assert "no such package" in err
    assert "verifiers" not in err
    made = [name for name in ("openai2", "verifiers") if (home / "interop" / name / "recipe").exists()]
    assert made == ["verifiers"]
    assert "verifiers==0.4.0 (once, up to 0.4 GB)" in out


def test_an_environment_is_as_good_from_another_path_of_the_same_version(home: Path):
    set_up(home, "one", "verifiers")
    assert set_up(home, "two", "verifiers") == (0, "", "")  # there is no uv in that place


def test_without_uv_a_line_says_so(home: Path):
    code, out, err = set_up(home, "two", "verifiers")
    assert (code, out) == (0, "")
    assert "no uv beside" in err


def test_an_unknown_program_is_named_with_those_there_are(home: Path):
    code, out, err = set_up(home, "one", "openai2", "nonsense")
    assert (code, out) == (1, "")
    assert "nonsense" in err
    assert "axolotl" in err
