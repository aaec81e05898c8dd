"""The OpenAPI description of a server, its tools included, at `/openapi.json`; for people at `/docs`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from velodrome.contracts import Json
from velodrome.serving.apps.routes import JSON, OBJECT, Endpoint, get, json_response

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
                "partial": {"type": "array", "items": OBJECT},
            },
        }
    },
}
_REFUSALS = ("400", "401", "404", "408", "413", "422", "429", "500", "502", "503")
# The page that FastAPI serves: Swagger UI, from its usual place.
_PAGE = """<!DOCTYPE html>
<html><head><title>TITLE</title>
<link rel="stylesheet" href="https://cdn.jsdelivr.net/npm/swagger-ui-dist@5/swagger-ui.css"></head>
<body><div id="swagger-ui"></div>
<script src="https://cdn.jsdelivr.net/npm/swagger-ui-dist@5/swagger-ui-bundle.js"></script>
<script>SwaggerUIBundle({url: "openapi.json", dom_id: "#swagger-ui"})</script>
</body></html>"""


def description_routes(name: str, about: str, routes: Sequence[Route], tools: Sequence[Json]) -> list[Route]:
    """The description of these routes, of which the one to post to with a name in its path is for the tools."""

    async def description(request: Request) -> Response:
        info = {"title": name, "version": "1", "description": about}
        return json_response({"openapi": "3.1.0", "info": info, "paths": _paths(routes, tools)})

    async def page(request: Request) -> Response:
        return HTMLResponse(_PAGE.replace("TITLE", escape(name)))

    return [get("/openapi.json", description), get("/docs", page)]


def _paths(routes: Sequence[Route], tools: Sequence[Json]) -> Json:
    paths: Json = {}
    for route in routes:
        endpoint: Endpoint = route.endpoint  # type: ignore[assignment]
        if endpoint.body is None or "{" not in route.path:
            paths[route.path.replace(":path}", "}")] = _operation(endpoint)
            continue
        for tool in tools:
            summary, parameters = tool.get("description") or tool["name"], tool.get("parameters") or OBJECT
            paths[f"/{tool['name']}"] = _operation(replace(endpoint, summary=summary, body=parameters))
    return paths


def _operation(endpoint: Endpoint) -> Json:
    refusal = {"description": "who is to blame, and why", "content": {JSON: {"schema": _ERROR}}}
    schemas = {kind: {"schema": endpoint.answer if kind == JSON else {"type": "string"}} for kind in endpoint.kinds}
    operation: Json = {
        "summary": endpoint.summary,
        "responses": {**dict.fromkeys(_REFUSALS, refusal), "200": {"description": "done", "content": schemas}},
    }
    if endpoint.parameters:
        operation["parameters"] = endpoint.parameters
    if endpoint.body is None:
        return {"get": operation}
    operation["requestBody"] = {"required": True, "content": {JSON: {"schema": endpoint.body}}}
    return {"post": operation}
