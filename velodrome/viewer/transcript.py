"""A rollout as text: the conversation, the tool results and the score.

Model output is untrusted: characters that move the cursor, change colours, reverse or hide text are escaped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import orjson

from velodrome.records.conversation import messages, text_of
from velodrome.records.facts import is_episode
from velodrome.timing.invisible import escaped
from velodrome.viewer.episode_text import episode_lines

Json = dict[str, Any]

_LONGEST = 4000


def plain(text: str) -> str:
    """Text that is safe in a terminal, and bounded."""
    shown = escaped(text.replace("\r\n", "\n"))
    if len(shown) > _LONGEST:
        shown = f"{shown[:_LONGEST]}… ({len(shown) - _LONGEST} more characters)"
    return shown


def one_line(text: str) -> str:
    """The same on one line, so that it cannot imitate another block."""
    return plain(" ".join(text.split()))


def transcript(row: Json) -> str:
    """The whole rollout as text. A value of a wrong type raises one of `HOSTILE`."""
    lines = [_title(row)]
    params = row.get("responses_create_params") or {}
    prompt = params.get("input")
    if params.get("instructions"):
        lines += _block("system", params["instructions"])
    if isinstance(prompt, str):
        lines += _block("user", prompt)
    for message in _prompt(prompt) if isinstance(prompt, list) else ():
        lines += _message(message)
    tools = [str(tool.get("name", "?")) for tool in params.get("tools") or ()]
    if tools:
        lines.append(f"  (tools: {one_line(', '.join(tools))})")
    for message in row.get("output") or row.get("partial") or ():
        lines += _message(message)
    if is_episode(row):
        lines += ["[episode]", *(f"  {line}" for line in episode_lines(row))]
    response = row.get("response") or {}
    if response.get("status") == "incomplete":
        reason = (response.get("incomplete_details") or {}).get("reason", "no reason given")
        lines.append(f"  (cut off: {one_line(str(reason))})")
    if "boundary" in row:
        attempt = f", attempt {row['attempt']}" if "attempt" in row else ""
        lines += _block(f"failed · {row['boundary']}{attempt}", str(row.get("error", "")))
    else:
        lines += _block("score", "\n".join(_score(row)))
    return "\n".join(lines)


def _prompt(items: list[Json]) -> Iterator[Json]:
    """The prompt as messages; an earlier tool result has the name of its tool."""
    names = {item.get("call_id"): item.get("name") for item in items if item.get("type") == "function_call"}
    for item in items:
        for message in messages([item]) if item.get("type", "message") != "message" else [item]:
            name = names.get(item.get("call_id"))
            yield {"name": name, **message} if name and message.get("role") == "tool" else message


def _title(row: Json) -> str:
    meta = row.get("meta") or (row if "boundary" in row else {})
    timing = meta.get("timing") or {}
    parts = [one_line(str(meta.get("key", "a rollout")))]
    if "agent" in meta:
        parts.append(one_line(str(meta["agent"])))
    if "total_s" in timing:
        parts.append(f"{timing['total_s']:.2f} s ({timing.get('model_s', 0.0):.2f} s model)")
    tokens = (row.get("usage") or {}).get("total_tokens")
    if tokens and isinstance(tokens, int):
        parts.append(f"{tokens} token{'s' if tokens != 1 else ''}")
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
            yield f"{name}: {_value(row[name])}"


def _value(value: Any) -> str:
    if isinstance(value, float):
        return json.dumps(value)  # which has words for NaN and infinity
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _block(title: str, text: str) -> list[str]:
    return [f"[{one_line(title)}]", *(f"  {line}" for line in plain(text).splitlines())]
