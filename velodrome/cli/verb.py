"""A verb's settings, declared once as a model, for `--help`, the docs and the parser.

A verb has `+name=value` settings, read from the configuration (`options.py`), or ordinary flags and arguments, read
here. All mistakes are reported together, each with its flag.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin

from pydantic import Field, ValidationError
from pydantic.fields import FieldInfo

from velodrome.errors import InputError
from velodrome.settings.model import Settings, field_names, ordered_fields, problem_lines, setting_rows
from velodrome.settings.names import hint
from velodrome.timing.screen import USUAL, fitted, paragraphs

F = TypeVar("F", bound=Settings)

MOST_NAME = 26  # columns of a name in --help
SHORT = MappingProxyType({"-o": "output", "-n": "repeats"})


@dataclass(frozen=True)
class Verb:
    """One verb: its usage, a description, its settings by heading, and the end of its help."""

    usage: str
    about: str
    settings: Mapping[str, type[Settings]] = field(default_factory=dict)
    more: str = ""
    plus: bool = False  # whether settings are typed as +name=value
    plus_parts: tuple[str, ...] = ()  # the models with such settings, if the others are flags

    def help(self, width: int = USUAL) -> str:
        """The text of `--help`, in lines of `width` columns."""
        lines = [
            fitted(f"{'       ' if at else 'usage: '}{line}", width, hang=11)
            for at, line in enumerate(self.usage.splitlines())
        ]
        tables = [f"{title}:\n{self.lines(model, width)}" for title, model in self.settings.items()]
        parts = ["\n".join(lines), paragraphs(self.about, width), *tables, self._options(width)]
        return "\n\n".join(filter(None, [*parts, paragraphs(self.more, width)]))

    def _options(self, width: int) -> str:
        """The options whose name differs from the name of their setting."""
        rows = []
        for model in filter(self.has_plus, self.settings.values()):
            for name, each in ordered_fields(model).items():
                setting = field_names(name, each)[0]
                if setting != name and is_option(each):
                    short = "".join(f"{letter}, " for letter, long in SHORT.items() if long == name)
                    rows.append((f"{short}--{_dashed(name)}", f"+{setting}"))
        if not rows:
            return ""
        title = fitted("short options; any other setting has one, too: --limit 3 is +limit=3", width, hang=0)
        return f"{title}\n{two_columns(rows, width)}"

    def as_typed(self, text: str) -> str:
        """A message with switches as on the command line: "set overwrite" becomes "give --overwrite"."""
        for model in self.settings.values():
            for name, each in ordered_fields(model).items():
                if plain_kind(each.annotation) is bool:
                    typed = f"+{name}=true" if self.has_plus(model) else f"--{_dashed(name)}"
                    text = re.sub(rf"\bset {name}\b", f"give {typed}", text)
        return text

    def has_plus(self, model: type[Settings]) -> bool:
        """Whether settings of this model are typed as +name=value."""
        return self.plus or model.__name__ in self.plus_parts

    def lines(self, model: type[Settings], width: int = USUAL) -> str:
        """The settings of a model, one below the other."""
        return two_columns([(typed, text) for typed, text, _ in self.rows(model)], width)

    def rows(self, model: type[Settings]) -> list[tuple[str, str, str]]:
        """Each setting: its form on the command line, its description with the default, and the default."""
        fields = list(ordered_fields(model).values())
        rows = setting_rows(model)
        return [
            (f"+{name}" if self.has_plus(model) else _typed(name, each), text, default)
            for (name, text, default), each in zip(rows, fields, strict=True)
        ]


def two_columns(rows: Sequence[tuple[str, str]], width: int) -> str:
    """Names and texts side by side; a text that does not fit is below its name."""
    column = min(MOST_NAME, width // 2 - 4, max(len(name) for name, _ in rows))
    lines = []
    for name, text in rows:
        longest = max(map(len, text.split()), default=0)
        if column + 4 + longest > width:
            lines += [f"  {name}", fitted(f"      {text}", width, hang=0)]
        elif len(name) > column:
            lines += [f"  {name}", fitted(f"{'':<{column + 4}}{text}", width, hang=0)]
        else:
            lines.append(fitted(f"  {name:<{column}}  {text}", width, hang=column + 2))
    return "\n".join(lines)


def is_option(each: FieldInfo) -> bool:
    """Whether a setting can be given as an option: one value, not a mapping."""
    kind = plain_kind(each.annotation)
    return kind in (str, int, float, bool, Path) or get_origin(kind) is Literal


class JsonFlag(Settings):
    """The flag of verbs with a table on a terminal and JSON on a pipe."""

    as_json: bool = Field(False, alias="json", description="print JSON, on a terminal too")


def argument(default: Any = ..., *, title: str, description: str) -> Any:
    """A positional argument."""
    return Field(default, title=title, description=description, json_schema_extra={"positional": True})


def optional_value(*, title: str, description: str) -> Any:
    """A flag with an optional value; without one it is empty."""
    return Field(None, title=title, description=description, json_schema_extra={"bare": True})


def read_flags(model: type[F], argv: Sequence[str], prog: str) -> F:
    """The flags and arguments of a command line, checked by the model."""
    parser = _VerbParser(prog=prog, add_help=False)
    names = {}
    for name, each in ordered_fields(model).items():
        names[each.alias or name] = _shown(each.alias or name, each)
        _add(parser, each.alias or name, each)
    parsed, unknown = parser.parse_known_intermixed_args(_filters_joined(argv))
    values = {name: value for name, value in vars(parsed).items() if value is not None and value != []}
    flags_first = [word for word in unknown if word.startswith("-")] or unknown  # a word after one is its value
    problems = [_unknown(word, names.values()) for word in flags_first]
    try:
        flags = model.model_validate(values, strict=False)
    except ValidationError as error:
        problems += [_with_flag(line, names) for line in problem_lines(model, error)]
    if problems:
        raise InputError(*(f"{problem} (see {prog} --help)" for problem in problems))
    return flags


def no_verb(command: str, verbs: Iterable[str], word: str) -> InputError:
    """The error for an unknown or missing verb of a command."""
    *others, last = verbs
    listed = " or ".join(filter(None, (", ".join(others), last)))
    problem = f"{word!r:.40} is not a verb of {command}; use" if word else f"{command}: which verb?"
    return InputError(f"{problem} {listed} (see {command} --help)")


def _filters_joined(argv: Sequence[str]) -> list[str]:
    """Replace `--where -tag:bad` by `--where=-tag:bad`: a filter may begin with a minus."""
    words: list[str] = []
    for word in argv:
        negated = word.startswith("-") and not word.startswith("--")
        if negated and words and words[-1] == "--where":
            words[-1] = f"--where={word}"
        else:
            words.append(word)
    return words


class _VerbParser(argparse.ArgumentParser):
    """An argument parser that raises `InputError`."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message.removeprefix('argument ')} (see {self.prog} --help)")


def _add(parser: argparse.ArgumentParser, name: str, each: FieldInfo) -> None:
    kind = plain_kind(each.annotation)
    extra = each.json_schema_extra if isinstance(each.json_schema_extra, dict) else {}
    many = get_origin(kind) is tuple
    if extra.get("positional"):
        parser.add_argument(name, nargs="*" if many else "?")
    elif kind is bool:
        parser.add_argument(f"--{_dashed(name)}", dest=name, action="store_true", default=None)
    elif many:  # files, or names with commas between them
        files = plain_kind(get_args(kind)[0]) is Path
        parser.add_argument(
            f"--{_dashed(name)}", dest=name, nargs="+" if files else None, action="extend" if files else "append"
        )
    elif extra.get("bare"):
        parser.add_argument(f"--{_dashed(name)}", dest=name, nargs="?", const="")
    else:
        short = [letter for letter, long in SHORT.items() if long == name]
        parser.add_argument(*short, f"--{_dashed(name)}", dest=name)


def plain_kind(kind: Any) -> Any:
    """The type without None and without its validators."""
    if get_origin(kind) is Annotated:
        return plain_kind(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return plain_kind(next(each for each in get_args(kind) if each is not NoneType))
    return kind


def _typed(name: str, each: FieldInfo) -> str:
    """A flag or an argument as in the usage: `--by FIELD`, `--json`, `FILE`."""
    kind = plain_kind(each.annotation)
    extra = each.json_schema_extra if isinstance(each.json_schema_extra, dict) else {}
    value = each.title or ("|".join(map(str, get_args(kind))) if get_origin(kind) is Literal else _value_name(kind))
    if kind is bool:
        return f"--{_dashed(name)}"
    if get_origin(kind) is tuple and (extra.get("positional") or plain_kind(get_args(kind)[0]) is Path):
        value = f"{value} …"
    if extra.get("positional"):
        return value
    return f"--{_dashed(name)} {f'[{value}]' if extra.get('bare') else value}"


def _value_name(kind: Any) -> str:
    return "N" if kind in (int, float) else "PATH" if kind is Path else "TEXT"


def _shown(name: str, each: FieldInfo) -> str:
    return _typed(name, each).partition(" ")[0]


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _unknown(word: str, flags: Any) -> str:
    if not word.startswith("-"):
        return f"unexpected argument {word!r:.60}"
    flag = word.partition("=")[0]
    return f"unknown flag {flag:.60}{hint(flag, flags)}"


def _with_flag(line: str, names: Mapping[str, str]) -> str:
    """A problem with the name of its flag: `pass_at: …` becomes `--pass-at: …`."""
    name = re.match(r'"?(\w+)', line)
    if name is None or name[1] not in names:
        return line
    start, end = name.span(1)
    rest = re.sub(r"^[.]\d+", "", line[end:])  # the place in a list, which was typed as one word
    return f"{line[:start]}{names[name[1]]}{rest}"
