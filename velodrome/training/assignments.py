"""`key=value` words applied to settings. pydantic checks the values; every mistake is reported, one line each.

A value is read as a number, `true`, `none` or JSON unless its setting is text, and is then validated strictly: what
would lose something on the way (1.5 for a whole number) is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import ValidationError

from velodrome.errors import InputError
from velodrome.settings.model import Settings, problem_lines
from velodrome.settings.names import hint
from velodrome.training.settings import is_group, leaves

S = TypeVar("S", bound=Settings)

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_LARGEST = 10**18  # every JSON reader has room for it
_EXACT = 2**53  # a float below this is the number that was written


def parse(words: Iterable[str], problems: list[str]) -> dict[str, str]:
    """The value of each `key=value` word."""
    values: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            problems.append(f'{word!r:.80}: no "="; write it as key=value')
        elif not _NAME.fullmatch(name):
            plain = name.lstrip("+-~")
            way = f"write {plain}=…" if _NAME.fullmatch(plain) else 'write names with dots, as in "a.b=c"'
            problems.append(f"{word!r:.80}: not the name of a setting; {way}")
        elif name in values:
            problems.append(f"{name} is given twice: {values[name]!r:.80} and {value!r:.80}; leave one out")
        else:
            values[name] = value
    return values


def assign(settings: S, values: Mapping[str, Any], problems: list[str], *, arguments: Collection[str] = ()) -> S:
    """The settings with new values, which may be text or typed. A misspelt key may be meant for one of `arguments`."""
    known = {leaf.name: leaf for leaf in leaves(settings)}
    groups = {name[: dot.start()] for name in known for dot in re.finditer(r"\.", name)}
    changes: dict[str, Any] = {}
    for name, value in _flat(groups, values, problems):
        if name not in known:
            problems.append(f'unknown key "{name}"{_nearest(name, known, groups, arguments)}')
        elif name in changes:
            problems.append(f"{name} is given twice, by its name and in a group; leave one out")
        else:
            changes[name] = plain_value(value, known[name].field.annotation)
    return _rebuilt(settings, changes, problems)


def apply(settings: S, values: Mapping[str, Any]) -> S:
    """The settings with new values; raises `InputError` with every mistake."""
    problems: list[str] = []
    changed = assign(settings, values, problems)
    if problems:
        raise InputError(*problems)
    return changed


def plain_value(value: Any, kind: Any) -> Any:
    """Text as the value it stands for, unless text is what the setting takes. A whole float becomes an int."""
    options = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    if isinstance(value, str):
        if NoneType in options and value.lower() in ("none", "null"):
            return None
        if any(option is str or get_origin(option) is Literal for option in options):
            return value
        value = _parsed(value)
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT else value


def _parsed(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text.isascii():  # Python would read the digits of every script
        for read in (_whole, float, json.loads):
            with suppress(ValueError, RecursionError):
                return read(text)
    return text


def _whole(text: str) -> int:
    number = int(text)
    if abs(number) > _LARGEST:
        raise ValueError
    return number


def _flat(groups: Collection[str], values: Mapping[str, Any], problems: list[str]) -> Iterator[tuple[str, Any]]:
    """Values by full name; a group may be given as a JSON object."""
    for name, value in values.items():
        if name not in groups:
            yield name, value
            continue
        reason = ""
        try:
            value = json.loads(value, object_pairs_hook=_once) if isinstance(value, str) else value
        except (ValueError, RecursionError) as error:
            reason = f" ({error})"
        if isinstance(value, Mapping):
            yield from _flat(groups, {f"{name}.{key}": one for key, one in value.items()}, problems)
        else:
            problems.append(f"{name}: a group of settings is a JSON object, not {value!r:.80}{reason}")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)} is in it twice")
    return dict(pairs)


def _nearest(name: str, known: Collection[str], groups: Collection[str], arguments: Collection[str]) -> str:
    last = name.rpartition(".")[2]
    same = [key for key in known if key.rpartition(".")[2] == last]
    if same:
        return f"; did you mean {' or '.join(same)}?"
    return hint(name, [*known, *groups, *arguments]) or "; -h shows them all"


def _rebuilt(group: S, changes: Mapping[str, Any], problems: list[str], above: str = "") -> S:
    """The group with its changes, of the same class; as it was, if it does not validate."""
    values: dict[str, Any] = {}
    for name in type(group).model_fields:
        now = getattr(group, name)
        if isinstance(now, Settings):
            values[name] = _rebuilt(now, changes, problems, f"{above}{name}.")
        elif is_group(now):
            values[name] = {k: _rebuilt(one, changes, problems, f"{above}{name}.{k}.") for k, one in now.items()}
        else:
            values[name] = changes.get(above + name, now)
    try:
        return type(group).model_validate(values)
    except ValidationError as error:
        problems += [above + line for line in problem_lines(type(group), error)]
        return group
