"""Write the tables of settings into the docs: a table follows each `<!-- settings: MODULE:NAME -->`.

NAME is a class of settings or a component; a test compares the pages with the code. docs/training.md has a table of
its own, as `velo train RECIPE -h` tells it.
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

from velodrome.settings.component import Component, settings_of
from velodrome.settings.model import settings_table
from velodrome.training.explain import setting_rows
from velodrome.training.settings import RunSettings

DOCS = Path(__file__).parent.parent / "docs"
MARK = re.compile(r"(<!-- settings: ([\w.]+):(\w+) -->\n)(?:\|.*\n)*")
TRAINING = "| setting | what it may be | default | what it is for |\n|---|---|---|---|\n"

_CODE = re.compile(r"[\w:]*<\w+>|(?<=matching )\S+")  # what Markdown would take for something else


def table(match: re.Match[str]) -> str:
    """A mark and the table it asks for."""
    mark, module, name = match.groups()
    model = getattr(importlib.import_module(module), name)
    return f"{mark}{settings_table(settings_of(model) if issubclass(model, Component) else model)}\n"


def training_table() -> str:
    """The settings of training with their defaults."""
    rows = [
        f"| `{name}` | {_CODE.sub(_coded, may_be)} | `{default}` | {_CODE.sub(_coded, text)} |\n"
        for name, may_be, default, text in setting_rows(RunSettings())
    ]
    return TRAINING + "".join(rows)


def _coded(match: re.Match[str]) -> str:
    return f"`{match.group()}`"


def written(page: str) -> str:
    """The page with its tables as the code has them."""
    before, head, after = MARK.sub(table, page).partition(TRAINING)
    return before + training_table() + re.sub(r"\A(\|.*\n)*", "", after) if head else before


if __name__ == "__main__":
    for path in sorted(DOCS.glob("*.md")):
        page = path.read_text("utf-8")
        if written(page) != page:
            path.write_text(written(page), "utf-8")
            print(path.name, file=sys.stderr)
