"""Every setting of a component, and of the verbs with many, is in its page, in a table made from the code."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from pages import DOCS, ROOT, read, rows, section
from pydantic import BaseModel

from velodrome.cli.collect import CollectOptions
from velodrome.cli.run import RunOptions
from velodrome.resources_servers.environment import Environment
from velodrome.responses_api_models.local_model.app import LocalModel
from velodrome.responses_api_models.openai_model.app import OpenAI
from velodrome.responses_api_models.scripted_model.app import ScriptedModel
from velodrome.responses_api_models.scripted_model.faults import Fault
from velodrome.settings.component import settings_of
from velodrome.settings.model import setting_names


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_tables_of_settings_are_as_the_code_has_them(page: Path):
    text = page.read_text("utf-8")
    assert runpy.run_path(str(ROOT / "scripts" / "write_settings.py"))["written"](text) == text


@pytest.mark.parametrize(
    ("page", "heading", "owner"),
    [
        ("models.md", "openai_model", settings_of(OpenAI)),
        ("models.md", "local_model", settings_of(LocalModel)),
        ("models.md", "scripted_model", settings_of(ScriptedModel)),
        ("models.md", "Faults", Fault),
        ("environments.md", "Limits", settings_of(Environment)),
        ("collect.md", "Settings", CollectOptions),
        ("serving.md", "Settings", RunOptions),
    ],
)
def test_every_setting_is_documented(page: str, heading: str, owner: type[BaseModel]):
    assert rows(section(read(page), heading).partition("\n### ")[0]).keys() == setting_names(owner)
