"""The command line, in Hydra's override grammar: `+a.b=c`, `a.b=c`, `++a.b=c` set a value, `~a.b` removes one.

A configuration holds one value per key, so a Hydra sweep is a mistake here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from velodrome.settings.masking import is_secret_key, mask_text

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

COMMAND_LINE = "command line"
_WORD = r"(?:https?://\w|/?[A-Za-z_])[\w./-]*(?::\w[\w./-]*)*"
_SIMPLE = re.compile(
    rf"\+{{0,2}}([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)="
    rf"(?:(true|false|null)(?!.)|(-?(?:0|[1-9]\d{{0,17}})(?:\.\d{{1,17}})?)|({_WORD})|\[({_WORD}(?:,{_WORD})*)\])",
    re.ASCII,
)
_NOT_WORDS = frozenset(("true", "false", "null", "nan", "inf"))  # in any case


@dataclass(frozen=True)
class Change:
    """One override: set `path` to `value`, or remove it (only where it equals `value`, if `only_equal`)."""

    path: tuple[str, ...]
    value: Any = None
    remove: bool = False
    only_equal: bool = False
    append: bool = False  # add to the list from earlier on the command line


class _OverrideError(Exception):
    """An override cannot be used; the message says why and what to write instead."""


Word = str | Change  # an override as typed, or the change that another form of argument means


def parse(texts: Sequence[Word], problems: list[str]) -> tuple[list[Change], set[str]]:
    """The changes, in order, and the top-level key of every override that could not be parsed."""
    changes: list[Change] = []
    broken: set[str] = set()
    for text in texts:
        if isinstance(text, Change):
            changes.append(text)
            continue
        try:
            changes.append(_change(text))
        except _OverrideError as error:
            broken.add(text.partition("=")[0].lstrip("+~-").partition(".")[0])
            problems.append(f"{COMMAND_LINE}: {_shown(text)}: {error}")
    return changes, broken


def _shown(text: str) -> str:
    """The override in a form for messages: short, printable, without secrets."""
    key, equals, value = text.partition("=")
    if equals and is_secret_key(key.rpartition(".")[2]):
        value = "***"
    shown = mask_text(key + equals + value).encode("utf-8", "backslashreplace").decode()
    shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in shown)
    return shown if len(shown) <= 120 else shown[:117] + "..."


def _change(text: str) -> Change:
    if text.startswith("--"):
        key, _, value = text.lstrip("-").partition("=")
        setting = f"+{key.replace('-', '_')}={value or '…'}"
        raise _OverrideError(f"settings have no dashes: write {_shown(setting)}")
    if not text.startswith("~") and "=" not in text:
        raise _OverrideError('no "="; write it as +name=…')
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _OverrideError("is not UTF-8 text; type it again") from None
    simple_change = _simple(text)
    if simple_change is not None:
        return simple_change
    override, value = _parse_with_hydra(text)
    key = override.key_or_group
    if override.package is not None or "/" in key or not all(key.split(".")):
        raise _OverrideError('the key is not a path of names; write it with dots, as in "a.b=c"')
    if override.is_sweep_override():
        raise _OverrideError(
            "gives several values for one key; quote it, as in 'key=\"a,b\"', or make it a list, key=[a,b]"
        )
    removes = override.is_delete()
    path = tuple(key.split("."))
    return Change(path, _plain(value), remove=removes, only_equal=removes and value is not None)


def _simple(text: str) -> Change | None:
    """Parse a plain value or a list of plain words without Hydra, which is slow to import; None for other forms."""
    match = _SIMPLE.fullmatch(text)
    if match is None:
        return None
    key, constant, number, word, words = match.groups()
    value: Any = word
    if number is not None:
        value = float(number) if "." in number else int(number)
    elif constant is not None:
        value = {"true": True, "false": False, "null": None}[constant]
    elif words is not None:
        value = words.split(",")
    texts = value if isinstance(value, list) else [value]
    if any(isinstance(each, str) and each.lower() in _NOT_WORDS for each in texts):
        return None
    return Change(tuple(key.split(".")), value)


def _parse_with_hydra(text: str) -> tuple[Override, Any]:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        override = OverridesParser.create().parse_override(text)
        return override, None if override.is_sweep_override() else override.value()
    except (HydraException, ValueError, TypeError, OverflowError) as error:
        secret = is_secret_key(text.partition("=")[0].rpartition(".")[2])
        why = "" if secret or not isinstance(error, HydraException) else f" ({' '.join(str(error).split())[:160]})"
        raise _OverrideError(
            f"not in the override grammar{why}; put the value in quotes, as in 'key=\"value\"'"
        ) from None
    except RecursionError:
        raise _OverrideError("nested too deep; flatten it") from None


def _plain(value: Any) -> Any:
    """The value with every key converted to text."""
    if isinstance(value, dict):
        return {_key(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def _key(key: Any) -> str:
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    return str(key)
