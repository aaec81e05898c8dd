"""A rollout's conversation as a list of messages, with each tool call beside its result.

A row may hold anything: a value of an unexpected shape is shown as JSON. Nothing raises, and nothing is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, islice
from typing import Any

import orjson

from velodrome.records.conversation import TOKEN_FIELDS, flaw, messages, text_of
from velodrome.records.mending import HOSTILE
from velodrome.viewer.content.attached import Attachment, attachments

Json = dict[str, Any]

ROLES = ("system", "developer", "user", "reasoning", "assistant", "refusal", "tool", "other")
_MOST_PARSED = 2_000_000  # parsed characters of a tool call's arguments
_MOST_ARGUMENTS = 50
_MOST_MESSAGES = 2_000  # of one rollout
_MOST_PLAYERS = 20
_MOST_RESULT = 50_000_000  # characters of a tool result that are searched for pictures
_FAILED = re.compile(r"\s*(error\b|\w*(Error|Exception)\b|Traceback \(|\{\s*\"error\"\s*:\s*[^n\s])", re.IGNORECASE)
_SPEAKERS = frozenset(ROLES) - {"other"}
_SPOKEN = ("tool_calls", "refusal", "reasoning_content", "reasoning_encrypted")
_SILENT = frozenset(("role", "type", "content", "id", "status", "name", "annotations", "logprobs", *TOKEN_FIELDS))


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a tool call; `name` is empty if the arguments are not an object."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call; `result` is None if there is none. `raw` is the text of its arguments."""

    name: str
    arguments: list[Argument]
    result: str | None
    parsed: bool = True
    raw: str = field(default="", compare=False)
    attached: list[Attachment] = field(default_factory=list)

    @property
    def aloud(self) -> str | None:
        """The result, and the names of its attachments."""
        return None if self.result is None else "\n".join((self.result, *map(attachment_name, self.attached)))

    @property
    def failed(self) -> bool:
        """Whether the call looks as if it failed."""
        return not self.parsed or self.result is None or _FAILED.match(self.result) is not None


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """One message for a page. `in_prompt`: it is from the task; all others are output.

    `attached` are the parts that are not text; `turn` is the number of its model call, from 1.
    """

    role: str
    text: str = ""
    name: str = ""
    calls: list[Call] = field(default_factory=list)
    in_prompt: bool = False
    tokens: str = ""
    attached: list[Attachment] = field(default_factory=list)
    turn: int = field(default=0, compare=False)

    @property
    def aloud(self) -> str:
        """The text, and the names of the attachments."""
        return "\n".join((*filter(None, (self.text,)), *map(attachment_name, self.attached)))


def conversation(row: Json) -> list[ShownMessage]:
    """All messages of a rollout or a failed attempt, in order."""
    shown = [*islice(chain(_prompt(row), _output(row)), _MOST_MESSAGES)]
    if len(shown) == _MOST_MESSAGES:
        shown.append(ShownMessage("other", "the rest of the conversation is not shown; the raw JSON has it"))
    return shown


def other_players(row: Json) -> dict[str, list[ShownMessage]]:
    """The conversations of the other players of a game, by name (see docs/environments.md#several-players)."""
    players = row.get("players")
    if not isinstance(players, dict):
        return {}
    others = [(name, each) for name, each in players.items() if isinstance(each, dict) and "output" in each]
    return {
        str(name): conversation(each) for name, each in others[:_MOST_PLAYERS] if each["output"] != row.get("output")
    }


def attachment_name(attached: Attachment) -> str:
    """The text in place of an attachment that cannot be shown."""
    size = "" if attached.size is None else f", {attached.size:,} bytes"
    return f"[{attached.kind}: {attached.name or attached.href or 'without a name'}{size}]"


def final_answer(row: Json) -> str:
    """The last text of the assistant, or ""."""
    response = row.get("response")
    content = response.get("content") if isinstance(response, dict) else None
    if isinstance(content, str):
        return content
    return next((each.text for each in reversed(list(_output(row))) if each.role in ("assistant", "refusal")), "")


def pretty(value: Any) -> str:
    """A value as JSON a person can read."""
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, ValueError, RecursionError):
        return f"{value!s:.100000}"


def _prompt(row: Json) -> Iterator[ShownMessage]:
    params = row.get("responses_create_params")
    if not isinstance(params, dict):
        return
    if params.get("instructions"):
        yield _message("system", params["instructions"], in_prompt=True)
    value = params.get("input")
    if isinstance(value, list):
        yield from _shown(_as_messages(value), in_prompt=True)
    elif value is not None:
        yield _message("user", value, in_prompt=True)


def _output(row: Json) -> Iterator[ShownMessage]:
    response = row.get("response")
    items = response.get("output") if isinstance(response, dict) else None
    output = next((each for each in (row.get("output"), row.get("partial")) if each is not None), None)
    if isinstance(output, list):
        yield from _shown(_as_messages(output), in_prompt=False)
    elif output is not None:
        yield ShownMessage("other", pretty(output))
    elif isinstance(items, list):
        yield from _shown(_as_messages(items), in_prompt=False)


def _as_messages(items: list[Any]) -> list[Any]:
    """Items of the Responses shape as messages; plain messages stay as they are, in order."""
    result: list[Any] = []
    items = [_pictured_result(item) for item in items]
    for are_items, group in groupby(items, key=_is_item):
        stretch = list(group)
        try:
            result += messages(stretch) if are_items else stretch
        except HOSTILE:
            result += [{"role": "other", "item": item} for item in stretch]
    return result


def _pictured_result(item: Any) -> Any:
    """A tool's result with pictures as a message, because a message keeps them."""
    if isinstance(item, dict) and item.get("type") == "function_call_output" and _odd_parts(item.get("output")):
        return {"role": "tool", "tool_call_id": item.get("call_id"), "content": item["output"]}
    return item


def _is_item(item: Any) -> bool:
    """Whether this is an item of the Responses shape that a message can hold without loss."""
    if not isinstance(item, dict) or "type" not in item or "tool_calls" in item or item.get("role") == "tool":
        return False
    return not any(_odd_parts(item.get(name)) for name in ("content", "summary"))


def _odd_parts(content: Any) -> bool:
    """Whether a content has parts that are not text."""
    if not isinstance(content, list):
        return False
    names = ("text", "refusal")
    return any(not isinstance(part, dict) or not any(isinstance(part.get(n), str) for n in names) for part in content)


def _shown(items: list[Any], *, in_prompt: bool) -> Iterator[ShownMessage]:
    """The messages in order. Tool results that follow a message with calls are shown with the calls."""
    shown_with_call: set[int] = set()
    turn = 0
    for place, message in enumerate(items):
        if place in shown_with_call:
            continue
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(message, dict) or not isinstance(role, str) or role not in _SPEAKERS:
            item = message.get("item", message) if isinstance(message, dict) else message
            yield _unknown(item, in_prompt)
            continue
        if role == "tool" and message.get("content") is not None:
            name = message.get("name")
            shown = _message("tool", _unpacked(message["content"]), in_prompt=in_prompt)
            yield replace(shown, name=name if isinstance(name, str) else "", turn=turn)
            continue
        turn += role == "assistant" and not in_prompt
        for shown in _turn(message, role, items, place, shown_with_call, in_prompt):
            yield replace(shown, turn=turn if role == "assistant" else 0)


def _turn(
    message: Json, role: str, items: list[Any], place: int, shown_with_call: set[int], in_prompt: bool
) -> Iterator[ShownMessage]:
    tokens = _token_note(message)
    if message.get("reasoning_content"):
        yield _message("reasoning", message["reasoning_content"], in_prompt)
    elif message.get("reasoning_encrypted"):
        yield ShownMessage("reasoning", "(encrypted by the model's server)", in_prompt=in_prompt)
    calls = message.get("tool_calls")
    shown = _message(role, message.get("content"), in_prompt)
    if shown.text or shown.attached:
        yield replace(shown, tokens="" if calls else tokens)
    elif not any(message.get(name) for name in _SPOKEN):
        silent = message.keys() <= _SILENT
        yield ShownMessage(role, "", in_prompt=in_prompt, tokens=tokens) if silent else _unknown(message, in_prompt)
    if message.get("refusal"):
        yield _message("refusal", message["refusal"], in_prompt)
    if isinstance(calls, list) and calls:
        results = _results(items, place, shown_with_call, [_call_id(call) for call in calls])
        answered = [_call_with_result(call, result) for call, result in zip(calls, results, strict=True)]
        yield ShownMessage("assistant", calls=answered, in_prompt=in_prompt, tokens=tokens)
    elif calls:
        yield ShownMessage("other", pretty(calls), name="tool_calls", in_prompt=in_prompt)


def _unknown(item: Any, in_prompt: bool) -> ShownMessage:
    return ShownMessage("other", pretty(item), name=_kind(item), in_prompt=in_prompt)


def _results(
    items: list[Any], place: int, shown_with_call: set[int], call_ids: list[str]
) -> list[tuple[str, list[Attachment]] | None]:
    """The results directly after a message, in the order of its calls. Ids may repeat from turn to turn."""
    results: list[tuple[str, list[Attachment]] | None] = [None] * len(call_ids)
    for later in range(place + 1, len(items)):
        message = items[later]
        if not isinstance(message, dict) or message.get("role") != "tool":
            break
        name = message.get("tool_call_id")
        slot = next((at for at, each in enumerate(call_ids) if results[at] is None and each == name), None)
        if slot is not None:
            results[slot] = _content(_unpacked(message.get("content")))
            shown_with_call.add(later)
    return results


def _call_id(call: Any) -> str:
    name = call.get("id") if isinstance(call, dict) else None
    return name if isinstance(name, str) else ""


def _call_with_result(call: Any, result: tuple[str, list[Attachment]] | None) -> Call:
    text, attached = result or (None, [])
    return replace(_call(call, text), attached=attached)


def _call(call: Any, result: str | None) -> Call:
    if not isinstance(call, dict):
        return Call("?", [Argument("", pretty(call))], result, parsed=False, raw=pretty(call))
    function = call.get("function")
    if isinstance(function, dict):  # the shape of chat completions
        call = {**function, **call}
    name = str(call.get("name"))
    value = arguments = call.get("arguments", "")
    raw = arguments if isinstance(arguments, str) else pretty(arguments)
    if isinstance(arguments, str):
        try:
            value = orjson.loads(arguments) if len(arguments) <= _MOST_PARSED else arguments
        except orjson.JSONDecodeError:
            return Call(name, [Argument("", raw)] if raw else [], result, parsed=not raw, raw=raw)
    if isinstance(value, dict):
        shown = [Argument(each, _argument(own)) for each, own in list(value.items())[:_MOST_ARGUMENTS]]
        return Call(name, shown, result, raw=raw)
    return Call(name, [Argument("", _argument(value))], result, raw=raw)


def _argument(value: Any) -> str:
    """A text of several lines (mostly code) unchanged, anything else as JSON."""
    return value if isinstance(value, str) and "\n" in value else pretty(value)


def _message(role: str, content: Any, in_prompt: bool) -> ShownMessage:
    text, attached = _content(content)
    return ShownMessage(role, text, in_prompt=in_prompt, attached=attached)


def _content(content: Any) -> tuple[str, list[Attachment]]:
    """The text and the attachments of a content. Anything else becomes JSON text."""
    if content is None or isinstance(content, str):
        return content or "", []
    if not (isinstance(content, list) and content and all(isinstance(part, dict) for part in content)):
        return pretty(content), []
    texts: list[str] = []
    attached: list[Attachment] = []
    for part in content:
        if isinstance(part.get("text"), str):
            texts.append(text_of([part]))
        elif isinstance(part.get("refusal"), str):
            texts.append(part["refusal"])
        elif part_attachments := attachments([part]):
            attached += part_attachments
        else:
            text = pretty(part)
            texts.append(text if len(text) < 500 else f"[{_kind(part)}: {len(text):,} characters of JSON]")
    return "\n".join(texts), attached


def _unpacked(content: Any) -> Any:
    """The parts of a tool's result in JSON, if there are pictures or files among them."""
    if not isinstance(content, str) or not content.startswith("[{") or len(content) > _MOST_RESULT:
        return content
    try:
        parts = orjson.loads(content)
    except orjson.JSONDecodeError:
        return content
    have_types = all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in parts)
    return parts if have_types and attachments(parts) else content


def _kind(item: Any) -> str:
    if flaw(item) is not None:
        return "not a message"
    kind = item.get("type")
    return kind if isinstance(kind, str) else ""


def _token_note(message: Json) -> str:
    ids, scores = message.get("generation_token_ids"), message.get("generation_log_probs")
    if not isinstance(ids, list):
        return ""
    note = f"{len(ids):,} token ids"
    if isinstance(scores, list) and scores and all(isinstance(each, int | float) for each in scores):
        note += f", mean log-probability {sum(scores) / len(scores):.3f}"
    return note
