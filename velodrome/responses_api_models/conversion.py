"""OpenAI Responses <-> Chat Completions, both ways: requests, conversations, answers, usage.

Pure functions that copy no more than they change and never touch what they are given. What both sides can say
survives the way there and back. What only one side can say raises `ModelError` where leaving it out would change the
conversation, else it is left out. `developer` becomes `system`, because the chat templates of open models skip roles
they do not know. Fields not named here (`top_k`, `seed`, `chat_template_kwargs`, …) pass through.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

from velodrome.errors import ModelError, blame
from velodrome.records.bounds import usage_flaw
from velodrome.records.conversation import TOKEN_FIELDS
from velodrome.records.response_fields import complete_usage, item_id
from velodrome.responses_api_models.tokens import LOGPROBS, token_fields
from velodrome.responses_api_models.turns import ADD, chat_messages, flat, joined, nested, response_items, turn_items

Json = dict[str, Any]

# Request fields that are renamed, reshaped, or unknown to the other side.
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
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_FINISH = {reason: finish for finish, reason in _INCOMPLETE.items()}
_USAGE = {
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
    "prompt_tokens_details": "input_tokens_details",
    "completion_tokens_details": "output_tokens_details",
}
_CHAT_USAGE = {theirs: ours for ours, theirs in _USAGE.items()}


def chat_request(request: Json, *, max_tokens_field: str = "max_tokens") -> Json:
    """A Responses request -> a chat request; what has no form there is the caller's mistake.

    `max_tokens` is what most compatible servers take; OpenAI's newer models want `max_completion_tokens`.
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
    # Chat tools are lax unless they say otherwise, Responses tools are strict.
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
def response_from_chat(completion: Json, request: Json) -> Json:
    choice = _choice(completion)
    message = choice["message"]
    output = turn_items(message)
    response_id = completion.get("id") or f"resp_{uuid4().hex}"
    for index, item in enumerate(output):
        item["id"] = item_id(item["type"], response_id, index)
    probs = (choice.get("logprobs") or {}).get("content")
    if probs:
        for item in output:
            if item["type"] == "message" and item["content"] and item["content"][0]["type"] == "output_text":
                item["content"][0]["logprobs"] = probs
    output[-1].update(token_fields(completion))
    reason = _INCOMPLETE.get(choice.get("finish_reason") or "")
    if reason and output[-1]["type"] != "reasoning":
        output[-1]["status"] = "incomplete"
    response = {name: value for name, value in completion.items() if name not in _COMPLETION_FIELDS}
    response |= {name: request[name] for name in _ECHOED if name in request}
    response |= {
        "id": response_id,
        "object": "response",
        "created_at": completion.get("created", 0),
        "model": completion.get("model") or request.get("model") or "",
        "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
        "error": None,
        "output": output,
        "usage": response_usage(completion.get("usage")),
        "tools": request.get("tools") or [],
        "tool_choice": request.get("tool_choice") or "auto",
        "parallel_tool_calls": request.get("parallel_tool_calls", True),
    }
    if isinstance(choice.get("stop_reason"), str):  # vLLM's: the stop sequence it met
        response["metadata"] = {**(request.get("metadata") or {}), "stop_sequence": choice["stop_reason"]}
    return response


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
    return complete_usage({_USAGE.get(name, name): value for name, value in (usage or {}).items()})


@blame(ModelError, "response")
def chat_from_response(response: Json) -> Json:
    """A Response -> a chat completion with one choice; steps of hosted tools have no place in it."""
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
        message["content"] = None  # which is no text; "" is one
    if notes:
        message["annotations"] = notes
    reason = (response.get("incomplete_details") or {}).get("reason")
    finish = _FINISH.get(reason or "") or ("tool_calls" if "tool_calls" in message else "stop")
    if finish == "stop" and response.get("status") == "incomplete":
        finish = "length"  # an agent out of steps: the nearest of OpenAI's words
    logprobs = {"content": probs} if probs else None
    usage = response.get("usage")
    choice: Json = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": finish}
    completion = {name: value for name, value in response.items() if name not in _RESPONSE_FIELDS}
    if message.get("generation_token_ids"):  # where vLLM has them; ours are in the message, as NeMo Gym's
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
