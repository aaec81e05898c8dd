"""What scripts/write_docs.py writes is as the code has it, and nothing is left out."""

from __future__ import annotations

import re
import runpy

import velodrome
from tests.support.pages import DOCS, PROGRAMS, ROOT, headings, read, section
from velodrome.cli.main import VERBS
from velodrome.exchange.export.formats import FORMATS


def test_a_page_is_what_the_script_writes():
    written = runpy.run_path(str(ROOT / "scripts" / "write_docs.py"))["written"]
    pages = {page.name: page.read_text("utf-8") for page in sorted(DOCS.glob("*.md"))}
    assert {name: written(text) for name, text in pages.items()} == pages


def test_every_export_format_is_in_the_table():
    assert re.findall(r"^\| \[`(\w+)`\]", section(read("export.md"), "Formats"), re.MULTILINE) == list(FORMATS)


def test_every_verb_every_program_and_every_public_name_has_a_heading():
    page, others = read("cli.md"), "NeMo Gym's names"
    rules = {"Commands", "Terminal and pipe", "Short form", "velo", others}
    assert set(headings(page)) == rules | {f"velo {verb}" for verb in VERBS}
    assert [name for name in PROGRAMS if name != "velo" and f"| `{name}` |" not in section(page, others)] == []
    assert set(velodrome.__all__) - {"errors"} <= set(headings(read("api.md")))
