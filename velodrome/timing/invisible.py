"""Invisible characters and those with an effect on a terminal or page: control, bidirectional, zero-width.

Names and texts come from untrusted files. When they are shown, such a character is replaced by its code, so it cannot
reorder, hide or end other text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

_LONGEST = 4000  # characters of a text

# A zero-width joiner is part of some scripts and emoji; beside ASCII it only hides.
INVISIBLE = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff"
    "]+"
    "|(?<![^\x00-\x7f])[\u200c\u200d]+|[\u200c\u200d]+(?![^\x00-\x7f])"
)


def escaped(text: str) -> str:
    """The text for a terminal, with such characters as escapes. Tabs and line ends stay."""
    return INVISIBLE.sub(lambda match: "".join(map(_escape, match.group())), text)


def plain(text: str, longest: int = _LONGEST) -> str:
    """Text that is safe in a terminal, and bounded."""
    safe = escaped(text.replace("\r\n", "\n"))
    if len(safe) > longest:
        safe = f"{safe[:longest]}… ({len(safe) - longest} more characters)"
    return safe


def one_line(text: str) -> str:
    """Safe text on one line, so that it cannot imitate another block."""
    return plain(" ".join(text.split()))


def printed_json(value: Any) -> str:
    """JSON for people and programs: such characters are JSON escapes."""
    try:
        text = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    except TypeError:
        text = orjson.dumps(_in_utf8(value), option=orjson.OPT_INDENT_2).decode()
    return INVISIBLE.sub(lambda match: "".join(map(_json_escape, match.group())), text)


def _in_utf8(value: Any) -> Any:
    """The value with escapes for text that is not valid UTF-8, such as bytes of a file name."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_in_utf8(name): _in_utf8(each) for name, each in value.items()}
    return [_in_utf8(each) for each in value] if isinstance(value, list | tuple) else value


def _escape(character: str) -> str:
    return f"\\u{ord(character):04x}" if character <= "\uffff" else f"\\U{ord(character):08x}"


def _json_escape(character: str) -> str:
    pair = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{pair[at : at + 4]}" for at in range(0, len(pair), 4))
