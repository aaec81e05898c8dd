"""docs/cli.md is written from what the verbs declare, and `--help` prints the same."""

from __future__ import annotations

import runpy

import pytest
from pages import PROGRAMS, ROOT, headings, read

from velodrome.cli.main import VERBS, main


def test_the_page_is_what_the_script_writes():
    page = read("cli.md")
    assert runpy.run_path(str(ROOT / "scripts" / "write_help.py"))["written"](page) == page


@pytest.mark.parametrize("verb", VERBS)
def test_help_names_every_setting_of_the_page(verb: str, capsys: pytest.CaptureFixture[str]):
    assert main([verb, "--help"]) == 0
    shown = capsys.readouterr().out
    page = read("cli.md").partition(f"## velo {verb}\n")[2].partition("\n## ")[0]
    typed = [line.split("`")[1].replace("\\|", "|") for line in page.splitlines() if line.startswith("| `")]
    assert [name for name in typed if name not in shown] == []


def test_every_verb_and_every_program_has_a_heading():
    verbs = {f"velo {verb}" for verb in VERBS}
    assert set(headings(read("cli.md"))) == {"Commands", *PROGRAMS, *verbs}
