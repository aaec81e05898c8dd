"""A rollout's conversation as a list of messages, with each tool call beside its result.

A row may hold anything: what has an unexpected shape is shown as JSON; nothing raises and nothing is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from typing import Any

import orjson

from velodrome.records.conversation import TOKEN_FIELDS, flaw, messages, text_of
from velodrome.records.mending import HOSTILE

Json = dict[str, Any]

ROLES = ("system", "developer", "user", "reasoning", "assistant", "refusal", "tool", "other")
_MOST_PARSED = 2_000_000  # characters of a tool call's arguments that are looked into
_MOST_ARGUMENTS = 50
_MOST_MESSAGES = 2_000  # of one rollout
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
    """One tool call; `result` is None if it was never answered. `raw` is what it was called with, as it stands."""

    name: str
    arguments: list[Argument]
    result: str | None
    parsed: bool = True
    raw: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """One message as a page shows it. `in_prompt`: it came with the task; all others are output."""

    role: str
    text: str = ""
    name: str = ""
    calls: list[Call] = field(default_factory=list)
    in_prompt: bool = False
    tokens: str = ""


def conversation(row: Json) -> list[ShownMessage]:
    """All messages of a rollout or a failed attempt, in order."""
    shown = [*islice(chain(_prompt(row), _output(row)), _MOST_MESSAGES)]
    if len(shown) == _MOST_MESSAGES:
        shown.append(ShownMessage("other", "the rest of the conversation is not shown; the raw JSON has it"))
    return shown


def final_answer(row: Json) -> str:
    """The last text of the assistant, or nothing."""
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
        yield ShownMessage("system", _text(params["instructions"]), in_prompt=True)
    value = params.get("input")
    if isinstance(value, list):
        yield from _shown(_as_messages(value), in_prompt=True)
    elif value is not None:
        yield ShownMessage("user", _text(value), in_prompt=True)


def _output(row: Json) -> Iterator[ShownMessage]:
    response = row.get("response")
    items = response.get("output") if isinstance(response, dict) else None
    made = next((each for each in (row.get("output"), row.get("partial")) if each is not None), None)
    if isinstance(made, list):
        yield from _shown(_as_messages(made), in_prompt=False)
    elif made is not None:
        yield ShownMessage("other", pretty(made))
    elif isinstance(items, list):
        yield from _shown(_as_messages(items), in_prompt=False)


def _as_messages(items: list[Any]) -> list[Any]:
    """Items of the Responses shape as messages; plain messages stay as they are, in order."""
    result: list[Any] = []
    for raw, stretch in groupby(items, key=_is_item):
        run = list(stretch)
        try:
            result += messages(run) if raw else run
        except HOSTILE:
            result += [{"role": "other", "item": item} for item in run]
    return result


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


def _shown(made: list[Any], *, in_prompt: bool) -> Iterator[ShownMessage]:
    """Messages one by one; the results that follow a message with calls are shown with the calls."""
    taken: set[int] = set()
    for place, message in enumerate(made):
        if place in taken:
            continue
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(message, dict) or not isinstance(role, str) or role not in _SPEAKERS:
            item = message.get("item", message) if isinstance(message, dict) else message
            yield _strange(item, in_prompt)
            continue
        if role == "tool" and message.get("content") is not None:
            name = message.get("name")
            yield ShownMessage(
                "tool", _text(message.get("content")), name=name if isinstance(name, str) else "", in_prompt=in_prompt
            )
            continue
        yield from _turn(message, role, made, place, taken, in_prompt)


def _turn(
    message: Json, role: str, made: list[Any], place: int, taken: set[int], in_prompt: bool
) -> Iterator[ShownMessage]:
    tokens = _token_note(message)
    if message.get("reasoning_content"):
        yield ShownMessage("reasoning", _text(message["reasoning_content"]), in_prompt=in_prompt)
    elif message.get("reasoning_encrypted"):
        yield ShownMessage("reasoning", "(encrypted by the model's server)", in_prompt=in_prompt)
    calls = message.get("tool_calls")
    text = _text(message.get("content"))
    if text:
        yield ShownMessage(role, text, in_prompt=in_prompt, tokens="" if calls else tokens)
    elif not any(message.get(name) for name in _SPOKEN):
        silent = message.keys() <= _SILENT
        yield ShownMessage(role, "", in_prompt=in_prompt, tokens=tokens) if silent else _strange(message, in_prompt)
    if message.get("refusal"):
        yield ShownMessage("refusal", _text(message["refusal"]), in_prompt=in_prompt)
    if isinstance(calls, list) and calls:
        results = _results(made, place, taken, [_call_id(call) for call in calls])
        answered = [_call(call, result) for call, result in zip(calls, results, strict=True)]
        yield ShownMessage("assistant", calls=answered, in_prompt=in_prompt, tokens=tokens)
    elif calls:
        yield ShownMessage("other", pretty(calls), name="tool_calls", in_prompt=in_prompt)


def _strange(item: Any, in_prompt: bool) -> ShownMessage:
    return ShownMessage("other", pretty(item), name=_kind(item), in_prompt=in_prompt)


def _results(made: list[Any], place: int, taken: set[int], wanted: list[str]) -> list[str | None]:
    """The results that follow directly, each at the place of its call; ids may repeat from turn to turn."""
    results: list[str | None] = [None] * len(wanted)
    for later in range(place + 1, len(made)):
        message = made[later]
        if not isinstance(message, dict) or message.get("role") != "tool":
            break
        name = message.get("tool_call_id")
        slot = next((at for at, each in enumerate(wanted) if results[at] is None and each == name), None)
        if slot is not None:
            results[slot] = _text(message.get("content"))
            taken.add(later)
    return results


def _call_id(call: Any) -> str:
    name = call.get("id") if isinstance(call, dict) else None
    return name if isinstance(name, str) else ""


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
    """Text of several lines (mostly code) as it is, anything else as JSON."""
    return value if isinstance(value, str) and "\n" in value else pretty(value)


def _text(content: Any) -> str:
    """The text of a content; parts that are not text are named; anything else is shown as JSON."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list) and content and all(isinstance(part, dict) for part in content):
        return "\n".join(_part(part) for part in content)
    return pretty(content)


def _part(part: Json) -> str:
    if isinstance(part.get("text"), str):
        return text_of([part])
    if isinstance(part.get("refusal"), str):
        return str(part["refusal"])
    text = pretty(part)
    return text if len(text) < 500 else f"[{_kind(part)}: {len(text):,} characters of JSON]"


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
