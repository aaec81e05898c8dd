"""The settings a verb takes: their names, types and help, read from the merged configuration with every mistake at
once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from velodrome.errors import InputError

Json = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """One `+name=value`. `kind` is one of count, number, flag, path, port, text, texts, object, parallel."""

    name: str
    kind: str
    default: Any
    text: str


PROFILING = (
    Setting("profiling_enabled", "flag", False, "measure every function while it runs"),
    Setting("profiling_results_dirpath", "path", None, "where profiles go"),
    Setting("profiling_save_every_s", "number", 5.0, "how often a profile is saved meanwhile"),
)
_WHAT = {
    "count": "a whole number from 1 on",
    "number": "a number from 0 on",
    "flag": "true or false",
    "path": "a path",
    "port": "a port, or 0 for a free one",
    "text": "a text",
    "texts": "a list of texts",
    "object": "an object",
    "parallel": "a whole number from 1 on, or auto",
}


def read_settings(given: Mapping[str, Any], table: Sequence[Setting]) -> Json:
    """The values of a verb's settings, each of its type."""
    found: Json = {}
    problems = []
    for setting in table:
        value = given.get(setting.name)
        if value is None:
            found[setting.name] = setting.default
        elif _fits(value, setting.kind):
            found[setting.name] = _plain(value, setting.kind)
        else:
            problems.append(f"{setting.name} is {_WHAT[setting.kind]}, not {value!r:.80}")
    if problems:
        raise InputError(*problems)
    return found


def profile_place(given: Mapping[str, Any]) -> Path | None:
    """Where profiles go, ready to be written to; None if there are to be none."""
    from velodrome.timing.profiles import place

    wanted = read_settings(given, PROFILING)
    return place(wanted["profiling_enabled"], wanted["profiling_results_dirpath"])


def _plain(value: Any, kind: str) -> Any:
    """A name or a path may look like a number."""
    if kind == "path":
        return Path(str(value)).expanduser()
    return str(value) if kind == "text" else value


def _fits(value: Any, kind: str) -> bool:
    count = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    if kind == "count":
        return count
    if kind == "port":
        return (count or value == 0) and not isinstance(value, bool) and value < 65536
    if kind == "parallel":
        return count or value == "auto"
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < inf
    if kind == "flag":
        return isinstance(value, bool)
    if kind == "object":
        return isinstance(value, dict)
    if kind == "texts":
        return isinstance(value, list) and all(isinstance(each, str) for each in value)
    if kind == "path" and isinstance(value, Path):  # read before
        return True
    return isinstance(value, str | int) and not isinstance(value, bool) and value != ""


def settings_help(table: Sequence[Setting]) -> str:
    """The table for `--help`."""
    lines = []
    for setting in table:
        default = "" if setting.default in (None, False, {}, []) else f" [{setting.default}]"
        lines.append(f"  +{setting.name:<36} {setting.text}{default}")
    return "\n".join(lines)
