"""JSON as a tree that folds: `<details>` per object and list, with a summary of its content.

Numbers are shown as written, repeated keys are all shown, and a list of numbers is one line.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from velodrome.records.mending import HOSTILE
from velodrome.viewer.content.attached import checked_image
from velodrome.viewer.parts.render import many
from velodrome.viewer.parts.safe_text import visible

_MOST_NODES = 4_000
_DEEPEST = 40
_SHORT = 70  # characters: a shorter object or list is one line
_LONG = 300  # characters: a longer string is folded
_LONGEST = 20_000  # characters of a string on the page; the raw form has the rest
_OPEN = 60  # lines: an object or list with fewer is open


@dataclass(frozen=True, slots=True)
class _Literal:
    """A number or a constant as written."""

    text: str


@dataclass(frozen=True, slots=True)
class _Object:
    """An object with its keys in order, including repeated keys."""

    pairs: list[tuple[str, Any]]


def json_tree(text: str) -> Markup | None:
    """The JSON as markup, or None if the text is not JSON or too much for a tree."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        value = json.loads(
            text, parse_int=_Literal, parse_float=_Literal, parse_constant=_Literal, object_pairs_hook=_Object
        )
        if not _children(value) or _nodes(value, 0) > _MOST_NODES:
            return None
        return Markup(f'<div class="json">{_value(value, "")}</div>')
    except HOSTILE:
        return None


def _children(value: Any) -> list[tuple[str | None, Any]]:
    if isinstance(value, _Object):
        return list(value.pairs)
    return [(None, each) for each in value] if isinstance(value, list) else []


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, _Literal) for each in value)


def _nodes(value: Any, depth: int) -> int:
    """The number of lines of the open tree. A tree that is too deep is an error."""
    if depth > _DEEPEST:
        raise RecursionError
    inside = () if _is_numbers(value) else _children(value)
    return 1 + sum(_nodes(each, depth + 1) for _, each in inside)


def _value(value: Any, key: str) -> str:
    """A value on its line, or folded; `key` is the markup before it."""
    if isinstance(value, str):
        return _string(value, key)
    children, line = _children(value), _line(value)
    if not children or len(line) <= _SHORT:
        is_number = isinstance(value, _Literal) or (children and _is_numbers(value))
        kind = "j-number" if is_number else "j-line" if children else "j-word"
        return f'<div>{key}<span class="{kind}">{visible(line)}</span></div>'
    amount = len(children)
    summary = f"{{ {many(amount, 'key')} }}" if isinstance(value, _Object) else f"[ {many(amount, 'item')} ]"
    if _is_numbers(value):
        return _folded(key, summary, f'<div class="numbers j-number">{visible(line)}</div>', opened=amount <= 100)
    inside = "".join(
        _value(each, _key(name) if name is not None else f'<span class="j-place">{place}</span> ')
        for place, (name, each) in enumerate(children)
    )
    return _folded(key, summary, inside, opened=not key or _nodes(value, 0) <= _OPEN)


def _line(value: Any) -> str:
    """A value as text on one line."""
    if isinstance(value, _Literal):
        return value.text
    if isinstance(value, _Object):
        return f"{{{', '.join(f'{name}: {_line(each)}' for name, each in value.pairs)}}}"
    return f"[{', '.join(map(_line, value))}]" if isinstance(value, list) else json.dumps(value, ensure_ascii=False)


def _folded(key: str, summary: str, inside: str, *, opened: bool) -> str:
    start = "<details open>" if opened else "<details>"
    head = f'<summary>{key}<span class="j-size">{summary}</span></summary>'
    return f'{start}{head}<div class="j-in">{inside}</div></details>'


def _key(name: str) -> str:
    return f'<span class="j-key">{visible(name)}</span>: '


def _string(text: str, key: str) -> str:
    if text[:11].lower() == "data:image/" and (src := checked_image(text).src) is not None:
        return f'<div>{key}<img src="{src}" alt="image"></div>'
    if len(text) <= _LONG and text.count("\n") <= 5:
        return f'<div>{key}<span class="j-text">&quot;{visible(text)}&quot;</span></div>'
    start = visible(" ".join(text[:160].split())[:80])
    summary = f'<span class="j-text j-start">{start}…</span> <span class="j-size">{many(len(text), "character")}</span>'
    cut_length = len(text) - _LONGEST
    rest = f'<span class="cut">{many(cut_length, "character")} are left out here</span>' if cut_length > 0 else ""
    return (
        f"<details><summary>{key}{summary}</summary>"
        f'<div class="j-in j-text">{visible(text[:_LONGEST])}{rest}</div></details>'
    )
