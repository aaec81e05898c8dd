"""A rollout as a person reads it: who said what, which tool answered what, and what it was worth.

Text from a model is untrusted: control characters, which could move the cursor or recolour a terminal, are shown as
escapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import orjson

from velodrome.records.conversation import messages, text_of

Json = dict[str, Any]

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_LONGEST = 4000


def plain(text: str) -> str:
    """Text that can do nothing to a terminal, and is not endless."""
    shown = _CONTROL.sub(lambda found: f"\\u{ord(found.group()):04x}", text.replace("\r\n", "\n"))
    if len(shown) > _LONGEST:
        shown = f"{shown[:_LONGEST]}… ({len(shown) - _LONGEST} more characters)"
    return shown


def one_line(text: str) -> str:
    """The same without line ends, which could pass text off as another block."""
    return plain(" ".join(text.split()))


def transcript(row: Json) -> str:
    """The whole rollout as text."""
    lines = [_title(row)]
    params = row.get("responses_create_params") or {}
    asked = params.get("input")
    if params.get("instructions"):
        lines += _block("system", params["instructions"])
    if isinstance(asked, str):
        lines += _block("user", asked)
    for message in asked if isinstance(asked, list) else ():
        items = "type" in message and message["type"] != "message"
        for each in messages([message]) if items else [message]:
            lines += _message(each)
    tools = [str(tool.get("name", "?")) for tool in params.get("tools") or ()]
    if tools:
        lines.append(f"  (tools: {one_line(', '.join(tools))})")
    for message in row.get("output") or ():
        lines += _message(message)
    lines += _block("score", "\n".join(_score(row)))
    return "\n".join(lines)


def _title(row: Json) -> str:
    meta = row.get("meta") or {}
    timing = meta.get("timing") or {}
    parts = [one_line(str(meta.get("key", "a rollout")))]
    if "agent" in meta:
        parts.append(one_line(str(meta["agent"])))
    if "total_s" in timing:
        parts.append(f"{timing['total_s']:.2f} s ({timing.get('model_s', 0.0):.2f} s model)")
    if (row.get("usage") or {}).get("total_tokens"):
        parts.append(f"{row['usage']['total_tokens']} tokens")
    return "─── " + " · ".join(parts)


def _message(message: Json) -> Iterator[str]:
    role = str(message.get("role") or message.get("type") or "?")
    if message.get("reasoning_content"):
        yield from _block("reasoning", message["reasoning_content"])
    text = message.get("refusal") or text_of(message.get("content"))
    if text and role == "tool":
        yield from _block(f"tool result · {message.get('name', '?')}", text)
    elif text:
        yield from _block(role, text)
    for call in message.get("tool_calls") or ():
        yield from _block(f"tool call · {call.get('name', '?')}", str(call.get("arguments", "")))


def _score(row: Json) -> Iterator[str]:
    meta = row.get("meta") or {}
    if meta.get("verification") == "deferred":
        yield "reward: deferred (velo verify gives it)"
    names = ["reward", "expected_answer", *meta.get("scored", ())]
    for name in dict.fromkeys(names):
        if row.get(name) is not None:
            yield f"{name}: {row[name] if isinstance(row[name], str) else orjson.dumps(row[name]).decode()}"


def _block(title: str, text: str) -> list[str]:
    return [f"[{one_line(title)}]", *(f"  {line}" for line in plain(text).splitlines())]
