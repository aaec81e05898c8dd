"""A rollout's conversation as a list of things said: who, what, and each tool call beside its result.

A row may be anything at all: what has another shape than expected is shown as the JSON it is, and nothing raises or
is passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import orjson

from velodrome.records.conversation import TOKEN_FIELDS, flaw, messages, text_of
from velodrome.records.mending import HOSTILE

Json = dict[str, Any]

ROLES = ("system", "developer", "user", "reasoning", "assistant", "refusal", "tool", "other")
_MOST_PARSED = 2_000_000  # characters of a tool call's arguments that are looked into
_MOST_ARGUMENTS = 50
_MOST_SAID = 2_000  # of one rollout
_SPEAKERS = frozenset(ROLES) - {"other"}
_SPOKEN = ("tool_calls", "refusal", "reasoning_content", "reasoning_encrypted")
_SILENT = frozenset(("role", "type", "content", "id", "status", "name", "annotations", "logprobs", *TOKEN_FIELDS))


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a tool call; `name` is empty where the arguments are no object."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call; `result` is None if it was never answered."""

    name: str
    arguments: list[Argument]
    result: str | None
    parsed: bool = True


@dataclass(frozen=True, slots=True)
class Said:
    """One thing said. `asked` is what the task came with; all else was made on the way."""

    role: str
    text: str = ""
    name: str = ""
    calls: list[Call] = field(default_factory=list)
    asked: bool = False
    tokens: str = ""


def conversation(row: Json) -> list[Said]:
    """Everything said in a rollout or a failed attempt, in order."""
    found: list[Said] = []
    for each in (*_asked(row), *_made(row)):
        found.append(each)
        if len(found) == _MOST_SAID:
            found.append(Said("other", "the rest of the conversation is not shown; the raw JSON has it"))
            break
    return found


def final_answer(row: Json) -> str:
    """The last text of the assistant, or nothing."""
    response = row.get("response")
    content = response.get("content") if isinstance(response, dict) else None
    if isinstance(content, str):
        return content
    return next((each.text for each in reversed(list(_made(row))) if each.role in ("assistant", "refusal")), "")


def pretty(value: Any) -> str:
    """A value as JSON a person can read."""
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, ValueError, RecursionError):
        return f"{value!s:.100000}"


def _asked(row: Json) -> Iterator[Said]:
    params = row.get("responses_create_params")
    if not isinstance(params, dict):
        return
    if params.get("instructions"):
        yield Said("system", _text(params["instructions"]), asked=True)
    given = params.get("input")
    if isinstance(given, list):
        yield from _told(_as_messages(given), asked=True)
    elif given is not None:
        yield Said("user", _text(given), asked=True)


def _made(row: Json) -> Iterator[Said]:
    response = row.get("response")
    items = response.get("output") if isinstance(response, dict) else None
    made = next((each for each in (row.get("output"), row.get("partial")) if each is not None), None)
    if isinstance(made, list):
        yield from _told(_as_messages(made), asked=False)
    elif made is not None:
        yield Said("other", pretty(made))
    elif isinstance(items, list):
        yield from _told(_as_messages(items), asked=False)


def _as_messages(items: list[Any]) -> list[Any]:
    """Items of the Responses shape as messages; a plain message stays as it is, and everything in its place."""
    found: list[Any] = []
    for raw, stretch in groupby(items, key=_is_item):
        run = list(stretch)
        try:
            found += messages(run) if raw else run
        except HOSTILE:
            found += [{"role": "other", "item": item} for item in run]
    return found


def _is_item(item: Any) -> bool:
    """Whether this is an item of the Responses shape, and a message would say all of it."""
    if not isinstance(item, dict) or "type" not in item or "tool_calls" in item or item.get("role") == "tool":
        return False
    return not any(_odd_parts(item.get(name)) for name in ("content", "summary"))


def _odd_parts(content: Any) -> bool:
    """Whether a content has parts that are no text."""
    if not isinstance(content, list):
        return False
    names = ("text", "refusal")
    return any(not isinstance(part, dict) or not any(isinstance(part.get(n), str) for n in names) for part in content)


def _told(made: list[Any], *, asked: bool) -> Iterator[Said]:
    """Messages one by one; the results that follow a message with calls are told with the calls."""
    taken: set[int] = set()
    for place, message in enumerate(made):
        if place in taken:
            continue
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(message, dict) or not isinstance(role, str) or role not in _SPEAKERS:
            item = message.get("item", message) if isinstance(message, dict) else message
            yield _strange(item, asked)
            continue
        if role == "tool" and message.get("content") is not None:
            name = message.get("name")
            yield Said("tool", _text(message.get("content")), name=name if isinstance(name, str) else "", asked=asked)
            continue
        yield from _turn(message, role, made, place, taken, asked)


def _turn(message: Json, role: str, made: list[Any], place: int, taken: set[int], asked: bool) -> Iterator[Said]:
    tokens = _token_note(message)
    if message.get("reasoning_content"):
        yield Said("reasoning", _text(message["reasoning_content"]), asked=asked)
    elif message.get("reasoning_encrypted"):
        yield Said("reasoning", "(encrypted by the model's server)", asked=asked)
    calls = message.get("tool_calls")
    text = _text(message.get("content"))
    if text:
        yield Said(role, text, asked=asked, tokens="" if calls else tokens)
    elif not any(message.get(name) for name in _SPOKEN):
        silent = message.keys() <= _SILENT
        yield Said(role, "", asked=asked, tokens=tokens) if silent else _strange(message, asked)
    if message.get("refusal"):
        yield Said("refusal", _text(message["refusal"]), asked=asked)
    if isinstance(calls, list) and calls:
        results = _results(made, place, taken, [_call_id(call) for call in calls])
        told = [_call(call, result) for call, result in zip(calls, results, strict=True)]
        yield Said("assistant", calls=told, asked=asked, tokens=tokens)
    elif calls:
        yield Said("other", pretty(calls), name="tool_calls", asked=asked)


def _strange(item: Any, asked: bool) -> Said:
    return Said("other", pretty(item), name=_kind(item), asked=asked)


def _results(made: list[Any], place: int, taken: set[int], wanted: list[str]) -> list[str | None]:
    """The results that follow directly, each at the place of its call; ids may repeat from turn to turn."""
    found: list[str | None] = [None] * len(wanted)
    for later in range(place + 1, len(made)):
        message = made[later]
        if not isinstance(message, dict) or message.get("role") != "tool":
            break
        name = message.get("tool_call_id")
        slot = next((at for at, each in enumerate(wanted) if found[at] is None and each == name), None)
        if slot is not None:
            found[slot] = _text(message.get("content"))
            taken.add(later)
    return found


def _call_id(call: Any) -> str:
    found = call.get("id") if isinstance(call, dict) else None
    return found if isinstance(found, str) else ""


def _call(call: Any, result: str | None) -> Call:
    if not isinstance(call, dict):
        return Call("?", [Argument("", pretty(call))], result, parsed=False)
    function = call.get("function")
    if isinstance(function, dict):  # the shape of chat completions
        call = {**function, **call}
    name = call.get("name")
    given = call.get("arguments", "")
    parsed = given
    if isinstance(given, str):
        try:
            parsed = orjson.loads(given) if len(given) <= _MOST_PARSED else given
        except orjson.JSONDecodeError:
            return Call(str(name), [Argument("", given)] if given else [], result, parsed=not given)
    if isinstance(parsed, dict):
        shown = [Argument(each, _argument(value)) for each, value in list(parsed.items())[:_MOST_ARGUMENTS]]
        return Call(str(name), shown, result)
    return Call(str(name), [Argument("", _argument(parsed))], result)


def _argument(value: Any) -> str:
    """A text of several lines, mostly code, is shown as the lines it has; all else as JSON."""
    return value if isinstance(value, str) and "\n" in value else pretty(value)


def _text(content: Any) -> str:
    """The text of a content; parts that are no text are named, and what is no content is shown as JSON."""
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
    told = pretty(part)
    return told if len(told) < 500 else f"[{_kind(part)}: {len(told):,} characters of JSON]"


def _kind(item: Any) -> str:
    if flaw(item) is not None:
        return "not a message"
    found = item.get("type")
    return found if isinstance(found, str) else ""


def _token_note(message: Json) -> str:
    ids, scores = message.get("generation_token_ids"), message.get("generation_log_probs")
    if not isinstance(ids, list):
        return ""
    told = f"{len(ids):,} token ids"
    if isinstance(scores, list) and scores and all(isinstance(each, int | float) for each in scores):
        told += f", mean log-probability {sum(scores) / len(scores):.3f}"
    return told
