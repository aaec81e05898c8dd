"""Write what the docs generate from the code, between `<!-- write PART NAME -->` and `<!-- end -->`. A test compares.

PART is `settings` (NAME is `module:class`), `verb` (of docs/cli.md), `training` (the settings of a run) or `api`.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import velodrome
from velodrome.cli.main import VERBS, usage
from velodrome.cli.verb import Verb
from velodrome.settings.component import Component, settings_of
from velodrome.settings.model import settings_table
from velodrome.training.explain import setting_rows
from velodrome.training.settings import RunSettings

DOCS = Path(__file__).parent.parent / "docs"
MARK = re.compile(r"(<!-- write (\w+) ?(\S*) -->\n).*?(?=<!-- end -->)", re.DOTALL)
GROUPS = {
    "Calls": "collect rollout verify read judgements metrics compare check profile export merge serve view train"
    " load_policy sweep examine",
    "Components": "Environment TurnEnvironment tool SimpleAgent OpenAI LocalModel ScriptedModel recorded",
    "Records": "Task Rollout Response ToolCall",
    "Protocols": "Agent Model Resources",
    "Results": "collector.result:Run api.reading:Rows api.measuring:Findings viewer.api:Viewer"
    " examiner.examination:Examination index.judgements:Judgement"
    " training.trained.trained_policy:TrainedPolicy training.sweep:SweepResult training.sweep:Trial",
}
_CODE = re.compile(r"[\w:]*<\w+>|(?<=matching )\S+")  # what Markdown would take for something else
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


def settings(name: str) -> str:
    """The table of a class of settings, or of a component."""
    module, _, owner = name.partition(":")
    model = getattr(import_module(module), owner)
    return settings_table(settings_of(model) if issubclass(model, Component) else model)


def training(_: str) -> str:
    """The settings of training, as `velo train RECIPE -h` tells them."""

    def coded(text: str) -> str:
        return _CODE.sub(lambda match: f"`{match.group()}`", text)

    rows = [
        f"| `{name}` | {coded(may_be)} | `{default}` | {coded(text)} |"
        for name, may_be, default, text in setting_rows(RunSettings())
    ]
    return "\n".join(["| setting | what it may be | default | what it is for |", "|---|---|---|---|", *rows])


def verb(name: str) -> str:
    """How a verb is typed, what it does, its settings, and the end of its help; without a name, those of `velo`."""
    if not name:
        return f"```text\n{usage()}\n```"
    module = import_module(f"velodrome.{VERBS[name].module}")
    if not hasattr(module, "VERB"):
        return f"```text\n{module.HELP}\n```"
    declared: Verb = module.VERB
    parts = [f"```text\n{declared.usage}\n```", declared.about.replace("<", "&lt;")]
    for title, model in declared.settings.items():
        lines = [f"| {'setting' if declared.plus else 'flag'} | default | meaning |", "|---|---|---|"]
        for typed, text, default in declared.rows(model):
            meaning = text.removesuffix(f" [{default}]").replace("|", "\\|").replace("<", "&lt;")
            shown = f"`{default}`" if default else ""
            lines.append(f"| `{typed}` | {shown} | {meaning} |".replace(typed, typed.replace("|", "\\|"), 1))
        parts += [f"{title.capitalize()}:" if len(declared.settings) > 1 else "", "\n".join(lines)]
    return "\n\n".join(filter(None, [*parts, f"```text\n{declared.more}\n```" if declared.more else ""]))


def api(_: str) -> str:
    """Every public name with its signature and docstring."""
    parts = []
    for title, names in GROUPS.items():
        parts.append(f"## {title}")
        for name in names.split():
            module, _, own = name.rpartition(":")  # what a call returns has no public name
            parts.append(entry(own, getattr(import_module(f"velodrome.{module}") if module else velodrome, own)))
    return "\n\n".join(parts)


def entry(name: str, thing: Any) -> str:
    """One name: heading, signature, docstring, members."""
    component = inspect.isclass(thing) and issubclass(thing, Component) and bool(settings_of(thing).model_fields)
    parts = [f"### {name}"]
    if not component and not getattr(thing, "_is_protocol", False):
        parts.append(f"```text\n{signature(name, thing)}\n```")
    parts.append(inspect.getdoc(thing) or "")
    if component:
        parts.append(_LINK.sub(r"\1", settings_table(settings_of(thing))))  # links of other pages
    if inspect.isclass(thing):
        parts.append("\n".join(members(thing)))
    return "\n\n".join(filter(None, parts))


def signature(name: str, thing: Any) -> str:
    """`name(parameters)`, one parameter per line where they are many."""
    collected = inspect.signature(thing)
    parts = []
    for each in collected.parameters.values():
        if each.kind is each.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        stars = {each.VAR_KEYWORD: "**", each.VAR_POSITIONAL: "*"}.get(each.kind, "")
        note = "" if each.annotation is each.empty else f": {each.annotation}"
        default = "" if each.default is each.empty else f" = {each.default!r}"
        parts.append(f"{stars}{each.name}{note}{default}")
    result = "" if inspect.isclass(thing) else f" -> {collected.return_annotation}"
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


def written(page: str) -> str:
    """The page with its parts as the code has them."""
    parts = {"settings": settings, "training": training, "verb": verb, "api": api}
    return MARK.sub(lambda mark: f"{mark[1]}\n{parts[mark[2]](mark[3])}\n\n", page)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for path in sorted(DOCS.glob("*.md")):
        before = path.read_text("utf-8")
        if (after := written(before)) != before:
            path.write_text(after, "utf-8")
            print(path.name, file=sys.stderr)
