"""What scripts/write_docs.py writes is as the code has it, and nothing is left out."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest
from pages import DOCS, PROGRAMS, ROOT, headings, read, rows, section

import velodrome
from velodrome.cli.collect import CollectOptions
from velodrome.cli.main import VERBS, main
from velodrome.cli.run import RunOptions
from velodrome.exchange.export.formats import FORMATS
from velodrome.resources_servers.environment import Environment
from velodrome.responses_api_models.local_model.app import LocalModel
from velodrome.responses_api_models.openai_model.app import OpenAI
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.responses_api_models.scripted_model.faults import Fault
from velodrome.settings.component import settings_of
from velodrome.settings.model import setting_names
from velodrome.training.settings import RunSettings, leaves


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_a_page_is_what_the_script_writes(page: Path):
    text = page.read_text("utf-8")
    assert runpy.run_path(str(ROOT / "scripts" / "write_docs.py"))["written"](text) == text


def test_the_script_prints_its_help_and_writes_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "argv", ["write_docs.py", "--help"])
    monkeypatch.setattr(Path, "write_text", lambda *_: pytest.fail("it writes"))
    monkeypatch.setattr(Path, "read_text", lambda *_: pytest.fail("it reads"))
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(ROOT / "scripts" / "write_docs.py"), run_name="__main__")
    assert caught.value.code == 0


@pytest.mark.parametrize("verb", VERBS)
def test_help_names_every_setting_of_the_page(verb: str, capsys: pytest.CaptureFixture[str]):
    assert main([verb, "--help"]) == 0
    shown = capsys.readouterr().out
    page = section(read("cli.md"), f"velo {verb}")
    typed = [line.split("`")[1].replace("\\|", "|") for line in page.splitlines() if line.startswith("| `")]
    assert [name for name in typed if name not in shown] == []
    assert f"<!-- write verb {verb} -->" in page


def test_every_export_format_is_in_the_table():
    assert re.findall(r"^\| \[`(\w+)`\]", section(read("export.md"), "Formats"), re.MULTILINE) == list(FORMATS)


def test_every_verb_every_program_and_every_public_name_has_a_heading():
    page, others = read("cli.md"), "NeMo Gym's names"
    rules = {"Commands", "Terminal and pipe", "Short form", "velo", others}
    assert set(headings(page)) == rules | {f"velo {verb}" for verb in VERBS}
    assert [name for name in PROGRAMS if name != "velo" and f"| `{name}` |" not in section(page, others)] == []
    assert set(velodrome.__all__) - {"errors"} <= set(headings(read("api.md")))


@pytest.mark.parametrize(
    ("page", "heading", "names"),
    [
        ("models.md", "openai_model", setting_names(settings_of(OpenAI))),
        ("models.md", "local_model", setting_names(settings_of(LocalModel))),
        ("models.md", "scripted_model", setting_names(settings_of(ScriptedModel))),
        ("models.md", "Faults", setting_names(Fault)),
        ("environments.md", "Limits", setting_names(settings_of(Environment))),
        ("collect.md", "Settings", setting_names(CollectOptions)),
        ("serving.md", "Settings", setting_names(RunOptions)),
        ("training.md", "Settings", {leaf.name for leaf in leaves(RunSettings())}),
    ],
)
def test_every_setting_is_in_the_table_of_its_page(page: str, heading: str, names: set[str]):
    assert rows(section(read(page), heading).partition("\n### ")[0]).keys() == names
