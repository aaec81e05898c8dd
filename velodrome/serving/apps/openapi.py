"""The OpenAPI description of a server, its tools included, at `/openapi.json`; for people at `/docs`."""

from __future__ import annotations

from html import escape

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from velodrome.contracts import Json
from velodrome.serving.apps.web_app import Status, get, json_response

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
_PROMPT: Json = {"oneOf": [{"type": "string", "minLength": 1}, {"type": "array", "items": _OBJECT}]}
_PARAMS: Json = {"type": "object", "required": ["input"], "properties": {"input": _PROMPT}}
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


# The page that FastAPI serves: Swagger UI, from its usual place.
_PAGE = """<!DOCTYPE html>
<html><head><title>TITLE</title>
<link rel="stylesheet" href="https://cdn.jsdelivr.net/npm/swagger-ui-dist@5/swagger-ui.css"></head>
<body><div id="swagger-ui"></div>
<script src="https://cdn.jsdelivr.net/npm/swagger-ui-dist@5/swagger-ui-bundle.js"></script>
<script>SwaggerUIBundle({url: "openapi.json", dom_id: "#swagger-ui"})</script>
</body></html>"""


def description_routes(status: Status, tools: list[Json]) -> list[Route]:
    """The routes of the description."""

    async def description_json(request: Request) -> Response:
        return json_response(description(status, tools))

    async def page(request: Request) -> Response:
        return HTMLResponse(_PAGE.replace("TITLE", escape(status.name)))

    return [get("/openapi.json", description_json), get("/docs", page)]


def description(status: Status, tools: list[Json]) -> Json:
    """The whole description."""
    health = {"get": _operation("Whether the server is well, and since when.", None, _OBJECT)}
    measured = _operation("Numbers for Prometheus, of all workers.", None, None)
    measured["responses"]["200"] = {"description": "text exposition format 0.0.4", "content": _TEXT}
    paths: Json = {"/": health, "/health": health, "/metrics": {"get": measured}}
    profile = _operation("The profile of all workers so far, or of one; 404 if none is kept.", None, _OBJECT)
    profile["parameters"] = [{"name": "worker", "in": "query", "schema": {"type": "integer", "minimum": 0}}]
    profile["responses"]["200"]["content"] |= _TEXT
    paths["/stats"] = {"get": profile}
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
        call = _operation(tool.get("description") or tool["name"], tool.get("parameters") or _OBJECT, None)
        call["responses"]["200"] = {"description": "the tool's answer to the model", "content": _TEXT}
        paths[f"/{tool['name']}"] = {"post": call}
    return paths


def _operation(summary: str, body: Json | None, answer: Json | None) -> Json:
    refusal = {"description": "who is to blame, and why", "content": {"application/json": {"schema": _ERROR}}}
    operation: Json = {"summary": summary, "responses": dict.fromkeys(_REFUSALS, refusal)}
    if answer is not None:
        operation["responses"]["200"] = {"description": "done", "content": {"application/json": {"schema": answer}}}
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return operation


def _streaming(operation: Json) -> Json:
    """The operation with its second answer: server-sent events, for a body with `"stream": true`."""
    operation["responses"]["200"]["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    return operation
