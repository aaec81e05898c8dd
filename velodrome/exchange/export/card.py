"""The data card beside an export: what it holds, how it was chosen, and where it came from."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from velodrome.contracts import Json
from velodrome.exchange.export.format import Format
from velodrome.records.rollout import beside

_LONGEST = 4000


def data_card(
    fmt: Format,
    splits: Mapping[str, tuple[str, int]],
    facts: Json,
    remarks: Sequence[str],
    sources: Sequence[Path],
    types: Json,
    *,
    now: float,
) -> str:
    """The card as Markdown, with the lines on top that tell `datasets` which file is which split.

    Of each split there are the name of its file and its number of records; one without any has no file. `types` are
    those of the columns, which `datasets` would otherwise take from the first ten megabytes.
    """
    made = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    lines = ["---", "configs:", "- config_name: default", "  data_files:"]
    for split, (file, records) in splits.items():
        if records:
            lines += [f"  - split: {split.replace('-', '_')}", f"    path: {_quoted(file)}"]
    if types:
        lines += ["dataset_info:", "- config_name: default", "  features:"]
        lines += [f"  - {orjson.dumps({'name': name, **kind}).decode()}" for name, kind in types.items()]
    total = sum(records for _, records in splits.values())
    lines += ["---", "", f"# {fmt.name}: {total} records", "", f"{fmt.about}. Made by `velo export` on {made}.", ""]
    lines += ["## Files", "", "| file | records |", "|---|---|"]
    lines += [f"| `{file}` | {records or 'none: it is not written'} |" for file, records in splits.values()]
    lines += ["", "## How they were chosen", "", "| | |", "|---|---|"]
    lines += [f"| {_prose(name)} | {_cell(value)} |" for name, value in facts.items()]
    lines += ["", "## Fields", "", "| field | meaning |", "|---|---|"]
    lines += [f"| {', '.join(f'`{one}`' for one in name.split(', '))} | {text} |" for name, text in fmt.fields.items()]
    if remarks:
        lines += ["", "## For its reader", "", *(f"- {remark}" for remark in remarks)]
    lines += ["", "## Where they came from", ""]
    for source in sources:
        lines += _origin(source)
    return "\n".join(lines).rstrip() + "\n"


def _quoted(name: str) -> str:
    return orjson.dumps(name.encode("utf-8", "backslashreplace").decode()).decode()


def _prose(text: str) -> str:
    """Words in a table; what a file had in them is neither markup nor the end of the cell."""
    return " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else "" if value is None else orjson.dumps(value).decode()
    return f"`{text}`".replace("|", "\\|") if text else "none"


def _origin(source: Path) -> list[str]:
    """One source: the file, and what its run file says."""
    lines = [f"### {source.name}", "", f"- size: {source.stat().st_size} bytes"]
    try:
        run = orjson.loads(beside(source, "run.json").read_bytes())
    except (OSError, orjson.JSONDecodeError):
        run = None
    if not isinstance(run, dict):
        return [*lines, "- no run file beside it: how its rollouts came to be is not known", ""]
    runs = run.get("runs") if isinstance(run.get("runs"), list) else []
    inputs = dict.fromkeys(str(each.get("input")) for each in runs or () if isinstance(each, dict))
    lines += [f"- versions: {_cell(run.get('versions'))}", f"- inputs: {_cell(', '.join(inputs))}"]
    recipe = orjson.dumps(run.get("recipe"), option=orjson.OPT_INDENT_2).decode()
    if len(recipe) > _LONGEST:
        recipe = f"{recipe[:_LONGEST]}\n… ({len(recipe) - _LONGEST} more characters in the run file)"
    return [*lines, "- recipe:", "", *_fenced(recipe), ""]


def _fenced(text: str) -> list[str]:
    fence = "```"
    while fence in text:
        fence += "`"
    return [f"{fence}json", text, fence]
