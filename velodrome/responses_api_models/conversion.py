"""OpenAI Responses <-> Chat Completions, both ways: requests, conversations, answers, usage.

Pure functions that never change their arguments and copy only what they change. A value that both formats have survives
a round trip. A value that only one format has raises `ModelError` if the conversation would change without it, and is
dropped otherwise. `developer` becomes `system`, because the chat templates of open models skip unknown roles. Fields
not named here (`top_k`, `seed`, `chat_template_kwargs`, …) pass through. A conversation may mix items, chat messages
and the messages of a rollouts file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from uuid import uuid4

import orjson

from velodrome.errors import ModelError, blame, describe
from velodrome.records.bounds import usage_flaw
from velodrome.records.conversation import TOKEN_FIELDS, reasoning_text, text_of
from velodrome.records.response_fields import complete_usage, item_id
from velodrome.records.task import item_flaw
from velodrome.records.turns import GrowingInput, Turn, model_turn
from velodrome.responses_api_models.tokens import LOGPROBS, token_fields

Json = dict[str, Any]

# Request fields that are renamed, reshaped, or missing in the other format.
STATEFUL = ("previous_response_id", "conversation", "prompt", "background")
_RESHAPED = ("tools", "tool_choice")
_RESPONSES_ONLY = frozenset(
    ("input", "instructions", "max_output_tokens", "reasoning", "text", "include", "truncation", "max_tool_calls")
).union(STATEFUL, _RESHAPED)
_CHAT_ONLY = frozenset(
    ("messages", "max_tokens", "max_completion_tokens", "reasoning_effort", "verbosity", "response_format", "logprobs")
).union(_RESHAPED)
# Answer fields that are set here; the rest (`timings`, `service_tier`, …) pass through.
_COMPLETION_FIELDS = frozenset(("id", "object", "created", "model", "choices", "usage", "prompt_token_ids"))
_ECHOED = ("instructions", "max_output_tokens", "metadata", "reasoning", "temperature", "text", "top_p")
_RESPONSE_FIELDS = frozenset(
    ("id", "object", "created_at", "model", "output", "usage", "status", "incomplete_details", "error")
).union(_ECHOED, _RESHAPED, ("parallel_tool_calls",))
_NOTHING: Json = {}
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_FINISH = {reason: finish for finish, reason in _INCOMPLETE.items()}
_USAGE = {
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
    "prompt_tokens_details": "input_tokens_details",
    "completion_tokens_details": "output_tokens_details",
}
_CHAT_USAGE = {chat_name: response_name for response_name, chat_name in _USAGE.items()}
_WRAPPED = ("function", "custom", "json_schema", "allowed_tools", "url_citation")
_CHAT_FIELDS = frozenset(("tool_calls", "reasoning_content", "reasoning", "reasoning_encrypted", "refusal"))
_CHAT_PARTS = frozenset(("text", "image_url", "file"))
_TOKENS = frozenset(TOKEN_FIELDS)


def chat_request(request: Json, *, max_tokens_field: str = "max_tokens") -> Json:
    """Convert a Responses request to a chat request. A value without a chat form is an error with status 400.

    Most compatible servers accept `max_tokens`; OpenAI's newer models require `max_completion_tokens`.
    """
    try:
        return _chat_request(request, max_tokens_field)
    except ModelError as error:
        error.status = 400
        raise


@blame(ModelError, "request")
def _chat_request(request: Json, max_tokens_field: str) -> Json:
    for name in STATEFUL:
        if request.get(name):
            raise ModelError(f'request: "{name}" has no form in chat completions (set endpoint: responses)')
    body = {name: value for name, value in request.items() if name not in _RESPONSES_ONLY}
    conversation = request.get("input")
    body["messages"] = messages = (
        [{"role": "user", "content": conversation}]
        if isinstance(conversation, str)
        else chat_messages(_list(request, "input"))
    )
    if request.get("instructions"):
        messages.insert(0, {"role": "system", "content": request["instructions"]})
    _rename(request, "max_output_tokens", body, max_tokens_field)
    _rename(request.get("reasoning") or {}, "effort", body, "reasoning_effort")
    text = request.get("text") or {}
    _rename(text, "verbosity", body, "verbosity")
    if text.get("format"):
        body["response_format"] = nested(text["format"])
    if request.get("tools"):
        body["tools"] = [nested(tool) for tool in request["tools"]]
    _rename_choice(request, body, nested)
    if request.get("top_logprobs") is not None or LOGPROBS in (request.get("include") or ()):
        body["logprobs"] = True
    return body


@blame(ModelError, "request")
def responses_request(request: Json) -> Json:
    body = {name: value for name, value in request.items() if name not in _CHAT_ONLY}
    body["input"] = response_items(_list(request, "messages"))
    _rename(request, "max_tokens", body, "max_output_tokens")
    _rename(request, "max_completion_tokens", body, "max_output_tokens")
    if request.get("reasoning_effort") is not None:
        body["reasoning"] = {"effort": request["reasoning_effort"]}
    text: Json = {}
    _rename(request, "verbosity", text, "verbosity")
    if request.get("response_format"):
        text["format"] = flat(request["response_format"])
    if text:
        body["text"] = text
    if request.get("tools"):
        body["tools"] = [_flat_tool(tool) for tool in request["tools"]]
    _rename_choice(request, body, flat)
    if request.get("logprobs"):
        body["include"] = [LOGPROBS]
    return body


def _list(request: Json, name: str) -> list[Any]:
    value = request.get(name)
    if isinstance(value, list):
        return value
    raise ModelError(f'request: "{name}" must be a list, found {type(value).__name__}')


def _rename(source: Json, name: str, target: Json, new_name: str) -> None:
    if source.get(name) is not None:
        target[new_name] = source[name]


def _flat_tool(tool: Json) -> Json:
    # Without `strict`, chat tools are lax and Responses tools are strict.
    return {"strict": False, **flat(tool)} if tool.get("type") == "function" else flat(tool)


def _rename_choice(request: Json, body: Json, shape: Callable[[Json], Json]) -> None:
    choice = request.get("tool_choice")
    if isinstance(choice, dict):
        allowed = choice.get("allowed_tools", choice)
        if "tools" in allowed:
            tools = [shape(tool) for tool in allowed["tools"]]
            choice = {"type": "allowed_tools", "mode": allowed.get("mode", "auto"), "tools": tools}
            choice = choice if shape is flat else nested(choice)
        else:
            choice = shape(choice)
    if choice is not None:
        body["tool_choice"] = choice


@blame(ModelError, "chat completion")
def turn_from_chat(completion: Any, request: Json) -> Turn:
    """The turn in a chat completion. `output_flaw` checks whether a model may return it."""
    choice = _choice(completion)
    output = turn_items(choice["message"])
    response_id = completion.get("id") or f"resp_{uuid4().hex}"
    for index, item in enumerate(output):
        item["id"] = item_id(item["type"], response_id, index)
    probs = (choice.get("logprobs") or _NOTHING).get("content")
    if probs:
        for item in output:
            if item["type"] == "message" and item["content"] and item["content"][0]["type"] == "output_text":
                item["content"][0]["logprobs"] = probs
    output[-1].update(token_fields(completion))
    reason = _INCOMPLETE.get(choice.get("finish_reason") or "")
    if reason and output[-1]["type"] != "reasoning":
        output[-1]["status"] = "incomplete"
    about = {name: value for name, value in completion.items() if name not in _COMPLETION_FIELDS}
    about |= {name: request[name] for name in _ECHOED if name in request}
    about |= {
        "id": response_id,
        "created_at": completion.get("created", 0),
        "model": completion.get("model") or request.get("model") or "",
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
    }
    if isinstance(choice.get("stop_reason"), str):  # vLLM's: the stop sequence it met
        about["metadata"] = {**(request.get("metadata") or {}), "stop_sequence": choice["stop_reason"]}
    return model_turn(output, response_usage(completion.get("usage")), about)


def response_from_chat(completion: Any, request: Json) -> Json:
    """Convert a chat completion to the Response to that request."""
    return turn_from_chat(completion, request).response(request)


def _choice(completion: Json) -> Json:
    if not isinstance(completion, dict):
        raise ModelError(f"chat completion: expected an object, found {type(completion).__name__}")
    choices = completion.get("choices")
    if not isinstance(choices, list) or not choices:
        raise ModelError('chat completion: no "choices"')
    choice: Json = choices[0]
    if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
        raise ModelError('chat completion: no "choices[0].message"')
    role = choice["message"].get("role") or "assistant"
    if role != "assistant":
        raise ModelError(f"chat completion: a model may not speak as {role!r:.40}, only as the assistant")
    content = choice["message"].get("content")
    if content is not None and not isinstance(content, str | list):
        raise ModelError(f'chat completion: "content" must be text, found {type(content).__name__}')
    return choice


def response_usage(usage: Json | None) -> Json | None:
    problem = usage_flaw(usage)
    if problem is not None:
        raise ModelError(f"chat completion: {problem}")
    return complete_usage({_USAGE.get(name, name): value for name, value in (usage or _NOTHING).items()})


@blame(ModelError, "response")
def chat_from_response(response: Json) -> Json:
    """Convert a Response to a chat completion with one choice. Steps of hosted tools are dropped."""
    if not isinstance(response, dict) or not isinstance(response.get("output"), list):
        raise ModelError('response: no "output" list')
    message: Json = {"role": "assistant", "content": None}
    probs: list[Json] = []
    notes: list[Json] = []
    texts = [item for item in response["output"] if item.get("type") == "message"]
    for item in response["output"]:
        kind = item.get("type")
        if kind in ADD:
            ADD[kind](message, item)
        message |= {name: item[name] for name in TOKEN_FIELDS if name in item}
    for part in (part for item in texts for part in item.get("content") or ()):
        probs += part.get("logprobs") or ()
        notes += [nested(note) for note in part.get("annotations") or ()]
    joined(message)
    if message["content"] == "" and not any(item.get("content") or item.get("content") == "" for item in texts):
        message["content"] = None  # no text at all; "" would be an empty one
    if notes:
        message["annotations"] = notes
    reason = (response.get("incomplete_details") or {}).get("reason")
    finish = _FINISH.get(reason or "") or ("tool_calls" if "tool_calls" in message else "stop")
    if finish == "stop" and response.get("status") == "incomplete":
        finish = "length"  # an agent out of steps: the closest of OpenAI's reasons
    logprobs = {"content": probs} if probs else None
    usage = response.get("usage")
    choice: Json = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": finish}
    completion = {name: value for name, value in response.items() if name not in _RESPONSE_FIELDS}
    if message.get("generation_token_ids"):  # vLLM's place for them; ours is the message, as in NeMo Gym
        choice["token_ids"] = message["generation_token_ids"]
    if message.get("prompt_token_ids"):
        completion["prompt_token_ids"] = message["prompt_token_ids"]
    completion |= {
        "id": response.get("id"),
        "object": "chat.completion",
        "created": int(response.get("created_at") or 0),
        "model": response.get("model"),
        "choices": [choice],
        "usage": {_CHAT_USAGE.get(name, name): value for name, value in usage.items()} if usage else None,
    }
    return completion


# Conversations


class Pieces(list[str]):
    """The pieces of a text that is still being assembled; a plain list is content in parts."""


def nested(spec: Json) -> Json:
    """`{type: T, …}` -> `{type: T, T: {…}}`: chat's form of tools, tool choices, schemas and citations."""
    kind = spec.get("type")
    if kind not in _WRAPPED or isinstance(spec.get(kind), dict):
        return spec
    return {"type": kind, kind: {name: value for name, value in spec.items() if name != "type"}}


def flat(spec: Json) -> Json:
    kind = spec.get("type")
    inner = spec.get(kind) if kind in _WRAPPED else None
    return {"type": kind, **inner} if isinstance(inner, dict) else spec


@blame(ModelError, "input")
def converted(conversation: GrowingInput, convert: Callable[[Iterable[Json], int], list[Json]]) -> list[Json]:
    """Convert a conversation that grows. Items converted for the previous call are not converted again."""
    count, converted_items = conversation.converted.get(convert, (0, []))
    turns = [*converted_items, *convert(conversation[count:], count)]
    if not _is_of_model(conversation[-1]):  # else a later item may belong to the last message
        conversation.converted[convert] = len(conversation), turns
    return turns


def _is_of_model(item: Json) -> bool:
    """Whether an item is part of the model's turn."""
    kind = item.get("type", "message")
    return kind in ADD and (kind != "message" or item.get("role", "assistant") == "assistant")


@blame(ModelError, "input")
def response_items(conversation: Iterable[Json], start: int = 0) -> list[Json]:
    """Convert a conversation in any mix of shapes to Response items.

    Messages of chat or of a rollouts file are split into items, and token fields are removed; other items stay as is.
    """
    return _items(conversation, start)


def _items(conversation: Iterable[Json], start: int) -> list[Json]:
    items: list[Json] = []
    for index, item in enumerate(conversation, start):
        if not isinstance(item, dict):
            raise ModelError(f"input[{index}]: expected an object, found {type(item).__name__}")
        if not _TOKENS.isdisjoint(item):
            item = {name: value for name, value in item.items() if name not in _TOKENS}
        if item.get("type", "message") != "message":
            items.append(item)
            continue
        try:
            items.extend(_message_items(item, index))
        except (AttributeError, KeyError, TypeError) as error:
            flaw = item_flaw(item)
            problem = f"input[{index}]: {describe(error)}" if flaw is None else str(flaw.below(f"input[{index}]"))
            raise ModelError(problem) from error
    return items


def _message_items(message: Json, index: int) -> list[Json]:
    role, content = message.get("role", "assistant"), message.get("content")
    if role == "tool":
        output = _response_content(content, "input_text")
        return [{"type": "function_call_output", "call_id": message.get("tool_call_id", ""), "output": output or ""}]
    if role == "other" and isinstance(message.get("item"), dict):
        return [message["item"]]
    if role == "assistant" and not (_CHAT_FIELDS.isdisjoint(message) and content is not None):
        return turn_items(message, f"call_{index}_")
    changed = _response_content(content, "output_text" if role == "assistant" else "input_text")
    return [message if changed is content else {**message, "content": changed}]


def turn_items(message: Json, ids: str = "") -> list[Json]:
    """Split an assistant message of chat or of a rollouts file into reasoning, text and calls; at least one item.

    A call without an id gets one with the prefix `ids`, or a random one if that is empty.
    """
    items: list[Json] = []
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if reasoning and isinstance(reasoning, str):
        items.append({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": reasoning}]})
    if message.get("reasoning_encrypted"):
        items = items or [{"type": "reasoning", "summary": []}]
        items[0]["encrypted_content"] = message["reasoning_encrypted"]
    calls = [_call_item(index, call, ids) for index, call in enumerate(message.get("tool_calls") or ())]
    text = message.get("content")
    refusal = message.get("refusal") or _refusal(text)
    parts: list[Json] = []
    if text_of(text) or not (text is None or refusal or calls or items):
        annotations = [flat(note) for note in message.get("annotations") or ()]
        parts.append({"type": "output_text", "text": text_of(text), "annotations": annotations})
    if refusal:
        parts.append({"type": "refusal", "refusal": refusal})
    if parts or not (calls or items):
        items.append({"type": "message", "role": "assistant", "status": "completed", "content": parts})
    return items + calls


def _call_item(index: int, call: Json, ids: str) -> Json:
    function = call.get("function", call)
    name = function.get("name")
    if not isinstance(name, str):
        raise ModelError(f"tool_calls[{index}]: no function name")
    call_id = call.get("id") or (f"{ids}{index}" if ids else f"call_{uuid4().hex}")
    arguments = _arguments(function.get("arguments"))
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, "status": "completed"}


def _arguments(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps({} if value is None else value).decode()


def _response_content(content: Any, text_type: str) -> Any:
    """Convert chat's content parts to those of Responses; returns the same object if nothing changes."""
    if not isinstance(content, list) or all(part.get("type") not in _CHAT_PARTS for part in content):
        return content
    return [_response_part(part, text_type) for part in content]


def _response_part(part: Json, text_type: str) -> Json:
    kind = part.get("type")
    if kind == "text":
        return {"type": text_type, "text": part["text"]}
    if kind == "image_url":
        image = part["image_url"]
        image = {"url": image} if isinstance(image, str) else image
        return {"type": "input_image", "image_url": image["url"], "detail": image.get("detail") or "auto"}
    return {"type": "input_file", **part["file"]} if kind == "file" else part


def chat_messages(conversation: Iterable[Json], start: int = 0) -> list[Json]:
    """Convert a conversation in any mix of shapes to chat messages. Reasoning, text and calls of a turn share one."""
    messages: list[Json] = []
    turns: list[Json] = []
    turn: Json | None = None  # the assistant message being assembled
    for index, item in enumerate(_items(conversation, start), start):
        kind = item.get("type", "message")
        if kind == "function_call_output":
            turn = None
            output = _chat_content(item.get("output"), one_text=True)
            messages.append({"role": "tool", "tool_call_id": item.get("call_id", ""), "content": output})
        elif kind == "message" and item.get("role", "assistant") != "assistant":
            turn = None
            role = "system" if item["role"] == "developer" else item["role"]
            messages.append({"role": role, "content": _chat_content(item.get("content"))})
        elif kind in ADD:
            if turn is None or _starts_new_turn(turn, kind):
                turn = {"role": "assistant", "content": None}
                messages.append(turn)
                turns.append(turn)
            ADD[kind](turn, item)
        else:
            raise ModelError(f'input[{index}]: "{kind}" has no form in chat completions (set endpoint: responses)')
    for turn in turns:
        joined(turn)
    return messages


def joined(turn: Json) -> Json:
    """Join the pieces that `ADD` has collected for the turn's texts."""
    for name in ("content", "reasoning_content", "refusal"):
        if isinstance(turn.get(name), Pieces):
            turn[name] = "".join(turn[name])
    return turn


def _starts_new_turn(turn: Json, kind: str) -> bool:
    """Whether an item of this kind belongs to the next turn."""
    return kind != "function_call" and (turn["content"] is not None or "refusal" in turn or "tool_calls" in turn)


def _add_reasoning(turn: Json, item: Json) -> None:
    text = reasoning_text(item)
    if text:
        turn.setdefault("reasoning_content", Pieces()).append(text)


def _add_text(turn: Json, item: Json) -> None:
    content = item.get("content")
    text = text_of(content)
    refusal = _refusal(content)
    if refusal:
        turn.setdefault("refusal", Pieces()).append(refusal)
    if text or not refusal:
        if turn["content"] is None:
            turn["content"] = Pieces()
        turn["content"].append(text)


def _refusal(content: Any) -> str:
    parts = content if isinstance(content, list) else ()
    return "".join(part["refusal"] for part in parts if part.get("type") == "refusal")


def _add_call(turn: Json, item: Json) -> None:
    function = {"name": item.get("name", ""), "arguments": _arguments(item.get("arguments"))}
    call_id = item.get("call_id") or item.get("id") or ""
    turn.setdefault("tool_calls", []).append({"id": call_id, "type": "function", "function": function})


ADD: dict[str, Callable[[Json, Json], None]] = {
    "reasoning": _add_reasoning,
    "message": _add_text,
    "function_call": _add_call,
}


def _chat_content(content: Any, *, one_text: bool = False) -> Any:
    """Convert content parts of Responses to chat's. A single text part becomes a text, which more servers accept."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return "" if content is None else orjson.dumps(content).decode()
    if (one_text or len(content) == 1) and all(isinstance(part.get("text"), str) for part in content):
        return text_of(content)
    return [_chat_part(part) for part in content]


def _chat_part(part: Json) -> Json:
    kind = part.get("type")
    if kind in ("input_text", "output_text"):
        return {"type": "text", "text": part["text"]}
    if kind == "input_image":
        if not part.get("image_url"):
            raise ModelError("input_image: without image_url it has no form in chat completions")
        image = {"url": part["image_url"], "detail": part.get("detail")}
        return {"type": "image_url", "image_url": {name: value for name, value in image.items() if value}}
    if kind == "input_file":
        return {"type": "file", "file": {name: value for name, value in part.items() if name != "type"}}
    return part
