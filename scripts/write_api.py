"""Write docs/api.md: every public name with its signature and docstring. A test compares the page with the code."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import Any

import velodrome
from velodrome.settings.component import Component, settings_of
from velodrome.settings.model import settings_table

PAGE = Path(__file__).parent.parent / "docs" / "api.md"
HEAD = """# Python API

Every public name of `velodrome`. [Use it from Python](python.md) shows them in programs.
`scripts/write_api.py` writes this page from the docstrings.
"""
GROUPS = {
    "Calls": (
        "collect",
        "rollout",
        "verify",
        "read",
        "metrics",
        "compare",
        "check",
        "profile",
        "export",
        "serve",
        "view",
        "train",
    ),
    "Components": ("Environment", "tool", "SimpleAgent", "OpenAI", "LocalModel", "ScriptedModel"),
    "Records": ("Task", "Rollout", "Response", "ToolCall"),
    "Protocols": ("Agent", "Model", "Resources"),
    "Results": ("Run", "Rows", "Findings", "Viewer"),
}


def results() -> dict[str, Any]:
    """What the calls return, which has no public name of its own."""
    from velodrome.api.measuring import Findings
    from velodrome.api.reading import Rows
    from velodrome.api.servers import Viewer
    from velodrome.collector.result import Run

    return {"Run": Run, "Rows": Rows, "Findings": Findings, "Viewer": Viewer}


def signature(name: str, thing: Any) -> str:
    """`name(parameters)`, one parameter per line where they are many."""
    found = inspect.signature(thing)
    parts = []
    for each in found.parameters.values():
        if each.kind is each.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        stars = {each.VAR_KEYWORD: "**", each.VAR_POSITIONAL: "*"}.get(each.kind, "")
        note = "" if each.annotation is each.empty else f": {each.annotation}"
        default = "" if each.default is each.empty else f" = {each.default!r}"
        parts.append(f"{stars}{each.name}{note}{default}")
    result = "" if inspect.isclass(thing) else f" -> {found.return_annotation}"
    line = f"{name}({', '.join(parts)}){result}"
    return line if len(line) <= 100 else f"{name}(\n{''.join(f'    {part},{chr(10)}' for part in parts)}){result}"


def members(kind: type) -> list[str]:
    """A line for each public method and property that a class documents itself."""
    lines = []
    for name, thing in vars(kind).items():
        function = thing.fget if isinstance(thing, property) else getattr(thing, "func", thing)
        text = inspect.getdoc(function) if callable(function) else None
        if name.startswith("_") or not text or inspect.isclass(thing):
            continue
        called = "" if isinstance(thing, property) or hasattr(thing, "func") else "()"
        lines.append(f"- `{name}{called}`: {text.partition(chr(10))[0]}")
    return lines


def entry(name: str, thing: Any) -> str:
    """One name: heading, signature, docstring, members."""
    component = inspect.isclass(thing) and issubclass(thing, Component) and bool(settings_of(thing).model_fields)
    parts = [f"### {name}"]
    if not component and not getattr(thing, "_is_protocol", False):
        parts.append(f"```text\n{signature(name, thing)}\n```")
    parts.append(inspect.getdoc(thing) or "")
    if component:
        parts.append(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", settings_table(settings_of(thing))))  # links of other pages
    if inspect.isclass(thing):
        parts.append("\n".join(members(thing)))
    return "\n\n".join(filter(None, parts))


def written() -> str:
    """The whole page."""
    own = results()
    parts = [HEAD.rstrip()]
    for title, names in GROUPS.items():
        parts.append(f"## {title}")
        parts += [entry(name, own.get(name) or getattr(velodrome, name)) for name in names]
    parts.append(
        "## Errors\n\n`velodrome.errors` holds every error that is raised on purpose: see [Errors](errors.md)."
    )
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(written(), "utf-8")
    print(f"{PAGE.name}: {sum(map(len, GROUPS.values()))} names", file=sys.stderr)
