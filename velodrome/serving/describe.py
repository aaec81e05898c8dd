"""The OpenAPI description of a server: what its routes really take and give, the environment's own tools included."""

from __future__ import annotations

from typing import Any

from velodrome.serving.app import Status

Json = dict[str, Any]

_ERROR: Json = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "boundary": {"enum": ["model", "tool", "verify", "agent", "input"]},
                "code": {"type": ["integer", "string", "null"]},
                "partial": {"type": "array", "items": {"type": "object"}},
            },
        }
    },
}
_OBJECT: Json = {"type": "object"}
_INPUT: Json = {"oneOf": [{"type": "string", "minLength": 1}, {"type": "array", "minItems": 1, "items": _OBJECT}]}
_REQUEST: Json = {"type": "object", "required": ["input"], "properties": {"input": _INPUT}}
_ASKED: Json = {"oneOf": [{"type": "string", "minLength": 1}, {"type": "array", "items": _OBJECT}]}
_PARAMS: Json = {"type": "object", "required": ["input"], "properties": {"input": _ASKED}}
_TASK: Json = {
    "type": "object",
    "required": ["responses_create_params"],
    "properties": {"responses_create_params": _PARAMS},
}
_MESSAGES: Json = {
    "type": "object",
    "required": ["messages"],
    "properties": {"messages": {"type": "array", "minItems": 1, "items": _OBJECT}},
}
_VERIFY: Json = {"type": "object", "required": ["response"], "properties": {"response": _OBJECT}}
_ROWS: Json = {"type": "object", "required": ["rows"], "properties": {"rows": {"type": "array", "items": _OBJECT}}}
_REWARD: Json = {"type": "object", "required": ["reward"], "properties": {"reward": {"type": "number"}}}
_TEXT: Json = {"text/plain": {"schema": {"type": "string"}}}
_REFUSALS = ("400", "401", "404", "408", "413", "422", "429", "500", "502", "503")


def description(status: Status, tools: list[Json]) -> Json:
    """The whole description."""
    health = {"get": _operation("Whether the server is well, and since when.", None, _OBJECT)}
    measured = _operation("Numbers for Prometheus, of all workers.", None, None)
    measured["responses"]["200"] = {"description": "text exposition format 0.0.4", "content": _TEXT}
    paths: Json = {"/": health, "/health": health, "/metrics": {"get": measured}}
    told = _operation("The profile of all workers so far, or of one; 404 if none is kept.", None, _OBJECT)
    told["parameters"] = [{"name": "worker", "in": "query", "schema": {"type": "integer", "minimum": 0}}]
    told["responses"]["200"]["content"] |= _TEXT
    paths["/stats"] = {"get": told}
    if status.kind == "responses_api_models":
        paths["/v1/models"] = {"get": _operation("The model there is.", None, _OBJECT)}
        respond = _operation("One model call, in OpenAI's Responses shape.", _REQUEST, _OBJECT)
        chat = _operation("One model call, in chat shape.", _MESSAGES, _OBJECT)
        paths["/v1/responses"] = {"post": _streaming(respond)}
        paths["/v1/chat/completions"] = {"post": _streaming(chat)}
    elif status.kind == "responses_api_agents":
        paths["/run"] = {"post": _operation("A task, from its prompt to its score.", _TASK, _OBJECT)}
        paths["/v1/responses"] = {"post": _operation("Continue one conversation.", _REQUEST, _OBJECT)}
    else:
        paths |= _resources(tools)
    return {
        "openapi": "3.1.0",
        "info": {"title": status.name, "version": "1", "description": f"{status.kind}: {status.implementation}"},
        "paths": paths,
    }


def _resources(tools: list[Json]) -> Json:
    paths: Json = {
        "/tools": {"get": _operation("The tools on offer, as OpenAI function tools.", None, {"type": "array"})},
        "/seed_session": {"post": _operation("Start a session for a task; its cookie comes back.", _OBJECT, _OBJECT)},
        "/verify": {"post": _operation("A task with its response: the score.", _VERIFY, _REWARD)},
        "/close_session": {"post": _operation("Forget the session of the cookie.", _OBJECT, _OBJECT)},
        "/aggregate_metrics": {"post": _operation("The mean of every number over rollouts.", _ROWS, _OBJECT)},
    }
    for tool in tools:
        told = _operation(tool.get("description") or tool["name"], tool.get("parameters") or _OBJECT, None)
        told["responses"]["200"] = {"description": "what the model is told", "content": _TEXT}
        paths[f"/{tool['name']}"] = {"post": told}
    return paths


def _operation(summary: str, body: Json | None, answer: Json | None) -> Json:
    refusal = {"description": "who is to blame, and why", "content": {"application/json": {"schema": _ERROR}}}
    found: Json = {"summary": summary, "responses": dict.fromkeys(_REFUSALS, refusal)}
    if answer is not None:
        found["responses"]["200"] = {"description": "done", "content": {"application/json": {"schema": answer}}}
    if body is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return found


def _streaming(operation: Json) -> Json:
    """The operation with its second answer: server-sent events, for a body with `"stream": true`."""
    operation["responses"]["200"]["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    return operation
