"""The wire format of errors, headers and bodies, for the app and the client.

An error is JSON that names its boundary, so the same part is blamed over any number of hops.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Collection
from functools import cache
from pathlib import Path

import orjson

from velodrome.contracts import Json
from velodrome.errors import AgentError, Away, ModelError, RolloutError, TaskError, ToolError, VerifyError
from velodrome.settings import mask_text
from velodrome.timing import spans
from velodrome.timing.spans import Span

VERIFY = "x-velodrome-verify"  # "no" on /run: skip the score
BRIEF = "x-velodrome-brief"  # on /verify: answer with the score alone
SPANS = "x-velodrome-spans"  # on an answer: where the time went; on a request: errors should have it too
MESSAGES = "/v1/messages"
MCP = "/mcp"

_KINDS: dict[str, type[RolloutError]] = {
    kind.__name__: kind for kind in (ModelError, ToolError, VerifyError, AgentError, TaskError)
}
_MESSAGES_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_UNPROCESSABLE = 422
_BAD_GATEWAY = 502
_CLOCK_ERROR_S = 1e-5
_LONGEST_HEADER = 64 * 1024  # of spans in the body of an error, which may be longer than a header
_LONGEST_PLACE = 500
_HEADER_BYTES = 6 * 1024  # common clients refuse headers above 8 KiB


def status_of(error: RolloutError) -> int:
    """The HTTP status of an error: the status of the model if it has one."""
    if isinstance(error, ModelError) and error.status is not None and 400 <= error.status < 600:
        return error.status
    return _UNPROCESSABLE if isinstance(error, TaskError) else _BAD_GATEWAY


def error_body(error: RolloutError, secrets: Collection[str] = ()) -> bytes:
    """The error as JSON: in OpenAI's shape, with the boundary and the conversation so far."""
    fields: Json = {
        "message": mask_text(str(error), secrets),
        "type": type(error).__name__,
        "boundary": error.boundary,
        "code": status_of(error),
    }
    if error.partial is not None:
        fields["partial"] = error.partial
    if error.spans is not None:
        fields["spans"] = error.spans
    if error.away is not None and not error.away.sent:
        fields["away"] = mask_text(error.away.address, secrets)
    if error.refused:
        fields["refused"] = True
    if error.place is not None:
        fields["place"] = error.place
    try:
        return orjson.dumps({"error": fields}, default=str)
    except TypeError:  # a lone surrogate in a text: "?" in its place
        text = json.dumps({"error": fields}, default=str, ensure_ascii=False)
        return text.encode("utf-8", "replace")


def plain_error(
    message: str, kind: str = "invalid_request_error", *, param: str | None = None, code: str | None = None
) -> bytes:
    """An error of the request itself, in OpenAI's shape."""
    return orjson.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}})


def is_messages(path: str) -> bool:
    """Whether a path belongs to Anthropic's API, whose errors have another shape."""
    return path == MESSAGES or path.startswith(f"{MESSAGES}/")


def messages_error(body: Json, status: int) -> Json:
    """The error in Anthropic's shape. Its type follows from the status."""
    kind = _MESSAGES_KINDS.get(status, "invalid_request_error" if status < 500 else "api_error")
    fields = {name: value for name, value in body["error"].items() if value is not None}
    if isinstance(fields.get("code"), str):
        fields["details"] = {"error_code": fields["code"]}
    return {"type": "error", "error": {**fields, "type": kind}}


def error_in(body: bytes) -> RolloutError | None:
    """The error in a body, with its boundary; None if it is not an error of this package."""
    try:
        fields = orjson.loads(body)["error"]
        kind = _KINDS[fields["type"]]
        message = str(fields["message"])
        partial = fields.get("partial")
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return None
    if not isinstance(partial, list):
        partial = None
    if kind is ModelError:
        status = fields.get("code")
        error: RolloutError = ModelError(message, status=status if isinstance(status, int) else None, partial=partial)
    else:
        error = kind(message, partial=partial)
    if isinstance(fields.get("away"), str):
        error.away = Away(fields["away"], near=False)
    error.refused = fields.get("refused") is True
    error.spans = fields["spans"] if isinstance(fields.get("spans"), str) else None
    place = fields.get("place")
    error.place = place[:_LONGEST_PLACE] if isinstance(place, str) else None
    return error


def spans_header(tree: Span) -> str:
    """A tree of spans as a header: host, process, start on the clock of this machine, and the tree."""
    shape = spans.as_node(tree, tree.start)
    head: Json = {"host": host(), "pid": os.getpid(), "at_us": round(tree.start * 1e6), "tree": shape}
    encoded = orjson.dumps(head)
    for smaller in (spans.folded, _top_level):
        if len(encoded) <= _HEADER_BYTES:
            break
        head["tree"] = shape = smaller(shape)
        encoded = orjson.dumps(head)
    return encoded.decode() if encoded.isascii() else json.dumps(head)  # a header is ASCII; models may invent any name


def _top_level(tree: spans.Node) -> spans.Node:
    """The spans directly below the root, with the counts of everything below them."""
    children = [[*child[:3], spans.all_counts(child), []] for child in tree[4][:20]]
    return [*tree[:4], [*children, *spans.together(tree[4][20:])]]


def graft(header: str, parent: Span) -> None:
    """Add the spans of a header below an open span.

    Spans from this machine keep their times. The clock of another machine is not comparable, so its spans are centred
    in the open span.
    """
    try:
        head = orjson.loads(header)
        length, now = head["tree"][2] / 1e6, parent.clock()
        start = head["at_us"] / 1e6
        if head["host"] != host() or not parent.start <= start <= start + length <= now + _CLOCK_ERROR_S:
            start = parent.start + max(0.0, now - parent.start - length) / 2
        pid = head["pid"]
        if len(header) > _LONGEST_HEADER or not isinstance(pid, int) or not 0 <= pid < 1 << 32:
            return
        child = spans.from_node(head["tree"], start, parent.clock)
        child.counts = {**(child.counts or {}), "pid": pid}
    except (orjson.JSONDecodeError, TypeError, ValueError, LookupError, AttributeError, OverflowError, RecursionError):
        return  # not a header of this package
    parent.adopt(child)


@cache
def host() -> str:
    """The boot id: equal for processes with the same monotonic clock."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except (OSError, ValueError):
        return uuid.uuid4().hex  # unknown: equal to no other process
