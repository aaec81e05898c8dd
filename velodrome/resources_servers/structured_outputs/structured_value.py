"""The one JSON value that an answer is. What a lenient reader would mend is refused, with the reason."""

from __future__ import annotations

import json
import math
import re
from typing import Any

MAX_DEPTH = 64
NESTING = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
FENCE = re.compile(r"^[ \t]{0,3}```[ \t]*(\w*)[ \t]*\r?$", re.MULTILINE)


class NotOneValue(ValueError):
    """The answer is not exactly one JSON value; the text says why."""


def json_text(answer: str, *, around: bool) -> str:
    """The JSON of an answer: all of it, or the only fenced block; text around that block only if it is allowed."""
    text = answer.rpartition("</think>")[2].strip()
    fences = list(FENCE.finditer(text))
    if not fences:
        return text
    if len(fences) != 2 or fences[0][1].lower() not in ("", "json") or fences[1][1]:
        raise NotOneValue("not exactly one fenced block of JSON")
    if not around and (text[: fences[0].start()].strip() or text[fences[1].end() :].strip()):
        raise NotOneValue("there is text around the fenced block")
    return text[fences[0].end() : fences[1].start()].strip()


def json_value(text: str, max_bytes: int) -> Any:
    """The value of a JSON text, strictly: no key twice, no NaN, no endless numbers, bounded in size and depth."""
    if len(text) > max_bytes or len(text.encode(errors="replace")) > max_bytes:
        raise NotOneValue(f"longer than {max_bytes} bytes")
    if depth(text) > MAX_DEPTH:
        raise NotOneValue(f"nested more than {MAX_DEPTH} deep")
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refused, parse_float=_finite)
        json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise NotOneValue(f"not JSON: {error.msg} at character {error.pos}") from None
    except UnicodeEncodeError:
        raise NotOneValue("not valid Unicode (a lone surrogate)") from None
    except NotOneValue:
        raise
    except ValueError:
        raise NotOneValue("a number with too many digits") from None
    return value


def depth(text: str) -> int:
    """How deep brackets are nested, outside of strings."""
    now = deepest = 0
    for match in NESTING.finditer(text):
        token = match.group()
        now += 1 if token in "[{" else -1 if token in "]}" else 0
        deepest = max(deepest, now)
    return deepest


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise NotOneValue("an object has a key twice")
    return value


def _refused(name: str) -> Any:
    raise NotOneValue(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise NotOneValue("a number is not finite")
    return value
