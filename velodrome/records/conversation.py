"""The two shapes of a conversation, and the view of it that a verifier gets.

On the wire a conversation is a list of *items* (OpenAI Responses: `message`, `reasoning`, `function_call`,
`function_call_output`). In a rollouts file it is a list of *messages* (`role: assistant` with its reasoning, text
and tool calls together; `role: tool`). `messages` and `items` convert between them and keep everything a verifier may
need. Ids of items are dropped: they have no meaning after the model call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from velodrome.records.bounds import tokens_flaw

Json = dict[str, Any]

_PROMPT_ROLES = ("user", "system", "developer")
TOKEN_FIELDS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")  # null: requested but not returned
_TOKENS = frozenset(TOKEN_FIELDS)


def text_of(content: Any) -> str:
    """The plain text of a message's content, which may be a text or a list of parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "".join([part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str)])


def flaw(item: Any) -> str | None:
    """Why this is not a valid response item, or None. Unknown kinds are not examined."""
    if not isinstance(item, dict):
        return f"not an object but {item!r:.40}"
    kind = item.get("type", "message")
    if not isinstance(kind, str):
        return f'"type" is not a text but {kind!r:.40}'
    if not _TOKENS.isdisjoint(item):
        for name in TOKEN_FIELDS:
            problem = tokens_flaw(name, item[name]) if item.get(name) is not None else None
            if problem is not None:
                return f"{kind}: {problem}"
    if kind == "function_call" or kind == "function_call_output":
        call = item.get("call_id") or item.get("id") or ""
        if not isinstance(call, str):
            return f'{kind}: "call_id" is not a text but {call!r:.40}'
        if kind == "function_call" and not isinstance(item.get("name"), str):
            return f'{kind}: "name" is not a text but {item.get("name")!r:.40}'
    elif kind == "message":
        content = item.get("content")
        return None if isinstance(content, str) else _content_flaw(kind, "content", content)
    elif kind == "reasoning":
        return _content_flaw(kind, "content", item.get("content")) or _content_flaw(
            kind, "summary", item.get("summary")
        )
    return None


def _content_flaw(kind: str, name: str, value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return None
    if isinstance(value, list):
        for part in value:
            if not isinstance(part, dict):
                break
        else:
            return None
    return f'{kind}: "{name}" is not a text or a list of objects but {value!r:.40}'


def messages(items: list[Json]) -> list[Json]:
    """Convert response items to the messages of a rollouts file. An invalid item is kept as it is."""
    result: list[Json] = []
    names: dict[str, deque[str]] = {}  # of open calls, by id; servers reuse ids
    turn: Json | None = None  # the current assistant message; its texts are lists until the end
    for item in items:
        if flaw(item) is not None:
            turn = None
            result.append({"role": "other", "item": item})
            continue
        kind = item.get("type", "message")
        if kind == "function_call_output":
            turn = None
            call = item.get("call_id") or ""
            message: Json = {"role": "tool", "tool_call_id": call, "content": tool_text(item.get("output"))}
            if names.get(call):
                message["name"] = names[call].popleft()
            result.append(message)
            continue
        role = item.get("role", "assistant")
        if kind == "message" and role in _PROMPT_ROLES:
            turn = None
            result.append({"role": role, "content": item.get("content")})
            continue
        if kind not in ("message", "reasoning", "function_call") or (kind == "message" and role != "assistant"):
            turn = None
            result.append({"role": "other", "item": item})
            continue
        if turn is None or (kind != "function_call" and "tool_calls" in turn):
            turn = {"role": "assistant"}
            result.append(turn)
        if kind == "function_call":
            call = item.get("call_id") or item.get("id") or ""
            names.setdefault(call, deque()).append(item.get("name", ""))
            turn.setdefault("tool_calls", []).append(
                {"id": call, "name": item.get("name", ""), "arguments": item.get("arguments", "")}
            )
        elif kind == "reasoning":
            _add_reasoning(turn, item)
        else:
            _add_text(turn, item)
        for name in TOKEN_FIELDS:
            if name in item:
                turn[name] = item[name]
    for message in result:
        if message["role"] == "assistant":
            for name in ("content", "reasoning_content", "refusal"):
                if name in message:
                    message[name] = "".join(message[name])
    return result


def reasoning_text(item: Json) -> str:
    """The text of a reasoning item, or its summary."""
    summary = item.get("summary") or []
    parts = [summary] if isinstance(summary, str) else [[part] for part in summary]
    return text_of(item.get("content")) or "\n\n".join(map(text_of, parts))


def _add_reasoning(turn: Json, item: Json) -> None:
    text = reasoning_text(item)
    if text:
        turn.setdefault("reasoning_content", []).append(text)
    if item.get("encrypted_content"):
        turn["reasoning_encrypted"] = item["encrypted_content"]


def _add_text(turn: Json, item: Json) -> None:
    content = item.get("content")
    turn.setdefault("content", []).append(text_of(content))
    if not isinstance(content, list):
        return
    for part in content:
        if part.get("type") == "refusal" and isinstance(part.get("refusal"), str):
            turn.setdefault("refusal", []).append(part["refusal"])
        for extra in ("annotations", "logprobs"):
            if part.get(extra) and isinstance(part[extra], list):
                turn.setdefault(extra, []).extend(part[extra])


def items(messages: list[Json]) -> list[Json]:
    """Convert the messages of a rollouts file to response items."""
    result: list[Json] = []
    for message in messages:
        role = message.get("role")
        if role == "tool":
            result.append(
                {
                    "type": "function_call_output",
                    "call_id": message.get("tool_call_id", ""),
                    "output": message.get("content", ""),
                }
            )
        elif role == "assistant":
            result.extend(_assistant_items(message))
        elif role == "other":
            result.append(message["item"])
        else:
            result.append({"type": "message", "role": role, "content": message.get("content")})
    return result


def _assistant_items(message: Json) -> list[Json]:
    result: list[Json] = []
    if "reasoning_content" in message or "reasoning_encrypted" in message:
        reasoning: Json = {"type": "reasoning", "summary": []}
        if "reasoning_content" in message:
            reasoning["content"] = [{"type": "reasoning_text", "text": message["reasoning_content"]}]
        if "reasoning_encrypted" in message:
            reasoning["encrypted_content"] = message["reasoning_encrypted"]
        result.append(reasoning)
    if message.get("content") is not None or message.get("refusal"):
        part: Json = {
            "type": "output_text",
            "text": message.get("content") or "",
            "annotations": message.get("annotations", []),
        }
        if "logprobs" in message:
            part["logprobs"] = message["logprobs"]
        parts = [part] if part["text"] or not message.get("refusal") else []
        if message.get("refusal"):
            parts.append({"type": "refusal", "refusal": message["refusal"]})
        result.append({"type": "message", "role": "assistant", "status": "completed", "content": parts})
    for call in message.get("tool_calls", []):
        result.append(
            {
                "type": "function_call",
                "call_id": call.get("id", ""),
                "name": call["name"],
                "arguments": call["arguments"],
            }
        )
    if result:
        result[-1].update({name: message[name] for name in TOKEN_FIELDS if message.get(name) is not None})
    return result


def token_flaws(messages: Sequence[Json]) -> tuple[list[str], list[str]]:
    """The missing token fields, and why the ids are incomplete and cannot be trained on.

    A field of one model turn must be on all of them, and every id needs a log-probability. Without ids, only `null`
    log-probabilities count as missing, because those of a text are stored with the text.
    """
    turns = [message for message in messages if message.get("role") == "assistant"]
    if all(map(_TOKENS.isdisjoint, turns)):
        return [], []
    missing: list[str] = []
    broken: list[str] = []
    _, ids, log_probs = TOKEN_FIELDS
    with_ids = any(turn.get(ids) is not None for turn in turns)
    for name in TOKEN_FIELDS:
        if not any(name in turn for turn in turns):
            continue
        default = None if with_ids or name != log_probs else ()
        count = sum(turn.get(name, default) is not None for turn in turns)
        if not count:
            missing.append(f"no {name}")
        elif count < len(turns):
            (missing if name == log_probs else broken).append(f"{name} on {count} of {len(turns)} turns")
    pairs = [(turn.get(ids), turn.get(log_probs)) for turn in turns]
    if any(isinstance(a, list) and isinstance(b, list) and len(a) != len(b) for a, b in pairs):
        broken.append("as many generation_log_probs as generation_token_ids on some turns only")
    return missing, broken


def tool_text(output: Any) -> str:
    """A tool result as the text the model sees."""
    if isinstance(output, str):
        return output
    if isinstance(output, list) and all(isinstance(part, dict) and "text" in part for part in output):
        return text_of(output)
    return orjson.dumps(output).decode()


def final_text(items: list[Json]) -> str:
    """The final answer: the text after the last tool result or message of another role; empty if there is none.

    Messages of other roles after the model's last turn are ignored.
    """
    texts: list[str] = []
    for item in reversed(items):
        kind = item.get("type", "message")
        if kind == "function_call_output":
            break
        if kind == "message":
            if item.get("role", "assistant") == "assistant":
                texts.append(text_of(item.get("content")))
            elif texts:
                break
    return "".join(reversed(texts))


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call of a rollout. `arguments` is parsed if it is JSON; `output` is None if there was no result."""

    name: str
    arguments: Any
    output: str | None
    id: str


def _parsed(arguments: Any) -> Any:
    try:
        return orjson.loads(arguments) if isinstance(arguments, str) else arguments
    except orjson.JSONDecodeError:
        return arguments


class Response:
    """The view of a response that verifiers get: final text, tool calls, items; `response["…"]` reads raw fields."""

    __slots__ = ("raw",)

    def __init__(self, raw: Json) -> None:
        self.raw = raw

    @property
    def items(self) -> list[Json]:
        """Every item of the rollout, tool results included."""
        output: list[Json] = self.raw.get("output") or []
        return output

    @property
    def text(self) -> str:
        """The final answer."""
        return final_text(self.items)

    @property
    def messages(self) -> list[Json]:
        """The conversation in the shape of a rollouts file."""
        return messages(self.items)

    @property
    def tool_calls(self) -> list[ToolCall]:
        """Every tool call in order, with its result."""
        calls: list[ToolCall] = []
        waiting: dict[str, deque[int]] = {}  # servers reuse ids; the first call with an id gets the first result
        for item in self.items:
            kind = item.get("type")
            call = item.get("call_id") or item.get("id") or ""
            if kind == "function_call":
                waiting.setdefault(call, deque()).append(len(calls))
                calls.append(ToolCall(item.get("name", ""), _parsed(item.get("arguments", "")), None, call))
            elif kind == "function_call_output" and waiting.get(call):
                index = waiting[call].popleft()
                calls[index] = replace(calls[index], output=tool_text(item.get("output")))
        return calls

    def __getitem__(self, name: str) -> Any:
        return self.raw[name]

    def get(self, name: str, default: Any = None) -> Any:
        """A raw field of the response, or the default."""
        return self.raw.get(name, default)

    def __str__(self) -> str:
        return self.text
