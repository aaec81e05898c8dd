"""A prompt with places to fill in: `What is {question}?`.

A place names a field, or the way to one through objects (`{meta.topic}`). `{{` and `}}` are braces. Nothing
else is interpreted: the text of a data set cannot name an attribute, call anything or be a template itself.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from velodrome.contracts import Json
from velodrome.errors import InputError
from velodrome.exchange.data.messages import is_messages

_PIECE = re.compile(r"(?P<text>[^{}]+)|(?P<brace>\{\{|\}\})|\{(?P<name>[^{}]+)\}|(?P<bad>[{}])")


class Missing(ValueError):
    """A field that a row does not have."""


class Template:
    """A parsed prompt. A mistake in it is an `InputError` that says where."""

    def __init__(self, text: str, what: str) -> None:
        self._pieces: list[tuple[str, bool]] = []  # text, or the name of a field
        for match in _PIECE.finditer(text):
            if match["bad"]:
                raise InputError(
                    f'{what}, character {match.start() + 1}: a "{match["bad"]}" alone; '
                    'write a field as {name}, and double a brace: "{{"'
                )
            name = match["name"]
            self._pieces.append((name.strip(), True) if name else (match["text"] or match["brace"][0], False))
        self.fields = tuple(dict.fromkeys(text for text, is_field in self._pieces if is_field))

    @property
    def alone(self) -> str | None:
        """The field that is all there is in it."""
        return self.fields[0] if len(self._pieces) == 1 and self.fields else None

    def fill(self, row: Json) -> str:
        """The text for one row; a field that is not there, or is null, is `Missing`."""
        return "".join(self._filled(row, text) if is_field else text for text, is_field in self._pieces)

    def _filled(self, row: Json, name: str) -> str:
        value = field(row, name)
        if is_messages(value):
            raise ValueError(f'"{name}" is a list of messages, not text; use it alone: --prompt "{{{name}}}"')
        return as_text(value)


def field(row: Json, name: str) -> Any:
    """The value of a field; a name with dots goes through objects, unless there is a field of just that name."""
    value: Any = row
    for part in [name] if name in row else name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        there = ", ".join(str(name)[:40] for name in list(row)[:12])
        raise Missing(f'no "{name}" in it, or it is null (there are: {there or "no fields"})')
    return value


def as_text(value: Any) -> str:
    """A value as text for a prompt; anything but a string is JSON."""
    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
