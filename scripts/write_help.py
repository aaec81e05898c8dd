"""Write what every verb takes into docs/cli.md: usage, settings as tables, exit codes, examples. A test compares."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from velodrome.cli.main import MODULES, VERBS, usage
from velodrome.cli.verb import Verb

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"
START, END = "<!-- generated -->", "<!-- end -->"


def generated(verb: str) -> str:
    """What is written below the heading of a verb, or of `velo` itself."""
    if not verb:
        return f"```text\n{usage()}\n```"
    module = import_module(f"velodrome.cli.{MODULES.get(verb, verb)}")
    if not hasattr(module, "VERB"):
        return f"```text\n{module.HELP}\n```"
    declared: Verb = module.VERB
    parts = [f"```text\n{declared.usage}\n```", declared.about]
    for title, model in declared.settings.items():
        head = ["setting" if declared.plus else "flag", "default", "meaning"]
        rows = [
            [f"`{typed}`", f"`{default}`" if default else "", text] for typed, text, default in declared.rows(model)
        ]
        if len(declared.settings) > 1:
            parts.append(f"{title.capitalize()}:")
        parts.append("\n".join(table_line(row) for row in [head, ["---"] * 3, *rows]))
    parts.append(f"```text\n{declared.more}\n```" if declared.more else "")
    return "\n\n".join(filter(None, parts))


def table_line(cells: list[str]) -> str:
    """One line of a Markdown table; the default has a column of its own."""
    default = cells[1].strip("`")
    text = cells[2].removesuffix(f" [{default}]") if default else cells[2]
    escaped = [cells[0].replace("|", "\\|"), cells[1], text.replace("|", "\\|").replace("<", "\\<")]
    return f"| {' | '.join(escaped)} |"


def written(page: str) -> str:
    """The page with every generated part rewritten; the lines above it are the author's."""
    for verb in ("", *VERBS):
        heading = f"\n## velo {verb}".rstrip() + "\n"
        before, found, after = page.partition(heading)
        if not found:
            before, after = f"{page.rstrip()}\n", ""
        own, _, rest = after.partition("\n## ")
        own = f"\n{own.partition(START)[0].strip()}\n\n{START}\n\n{generated(verb)}\n\n{END}\n"
        page = f"{before}{heading}{own}".replace("\n\n\n", "\n\n") + (f"\n## {rest}" if rest else "")
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
    print(f"{PAGE.name}: {len(VERBS)} verbs", file=sys.stderr)
