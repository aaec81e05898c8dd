"""Put every setting of training into docs/training.md, as `velo train RECIPE -h` tells it; a test compares the two."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from velodrome.training.explain import setting_rows
from velodrome.training.settings import RunSettings

PAGE = Path(__file__).parent.parent / "docs" / "training.md"
HEAD = "| setting | what it may be | default | what it is for |\n|---|---|---|---|\n"

_CODE = re.compile(r"[\w:]*<\w+>|(?<=matching )\S+")  # what Markdown would take for something else


def table() -> str:
    """The settings as nobody has changed them."""
    rows = [
        f"| `{name}` | {_CODE.sub(_coded, may_be)} | `{default}` | {_CODE.sub(_coded, text)} |\n"
        for name, may_be, default, text in setting_rows(RunSettings())
    ]
    return HEAD + "".join(rows)


def _coded(found: re.Match[str]) -> str:
    return f"`{found.group()}`"


def written(page: str) -> str:
    """The page with the table anew."""
    before, head, after = page.partition(HEAD)
    if not head:
        raise SystemExit(f"{PAGE.name}: no table of settings in it")
    return before + table() + re.sub(r"\A(\|.*\n)*", "", after)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
    print(f"{PAGE.name}: {len(setting_rows(RunSettings()))} settings", file=sys.stderr)
