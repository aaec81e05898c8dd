"""What an error, a header and a body look like on the wire, for the app and the client alike.

An error is JSON that names its boundary, so that whoever meets it, however many hops away, blames the same part.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from velodrome.errors import AgentError, Away, ModelError, RolloutError, TaskError, ToolError, VerifyError
from velodrome.settings import mask_text
from velodrome.timing import spans
from velodrome.timing.spans import Span

Json = dict[str, Any]

VERIFY = "x-velodrome-verify"  # "no" on /run: leave the score out
BRIEF = "x-velodrome-brief"  # on /verify: answer with the score alone
SPANS = "x-velodrome-spans"  # on an answer: where the time went

_KINDS: dict[str, type[RolloutError]] = {
    kind.__name__: kind for kind in (ModelError, ToolError, VerifyError, AgentError, TaskError)
}
_UNPROCESSABLE = 422
_BAD_GATEWAY = 502
_CLOCK_ERROR_S = 1e-5
_LONGEST_TOLD = 64 * 1024  # in the body of an error there is more room than in a header
_LONGEST_PLACE = 500
_HEADER_BYTES = 6 * 1024  # the usual client gives up an answer with a header beyond 8 KiB


def status_of(error: RolloutError) -> int:
    """The HTTP status an error travels under: a model's own where it has one."""
    if isinstance(error, ModelError) and error.status is not None and 400 <= error.status < 600:
        return error.status
    return _UNPROCESSABLE if isinstance(error, TaskError) else _BAD_GATEWAY


def error_body(error: RolloutError, secrets: Collection[str] = ()) -> bytes:
    """The error as JSON: in OpenAI's shape, with the boundary and the conversation so far."""
    told: Json = {
        "message": mask_text(str(error), secrets),
        "type": type(error).__name__,
        "boundary": error.boundary,
        "code": status_of(error),
    }
    if error.partial is not None:
        told["partial"] = error.partial
    if error.spans is not None:
        told["spans"] = error.spans
    if error.away is not None and not error.away.sent:
        told["away"] = mask_text(error.away.address, secrets)
    if error.place is not None:
        told["place"] = error.place
    return orjson.dumps({"error": told}, default=str)


def plain_error(message: str, kind: str = "invalid_request_error") -> bytes:
    """An error of the request itself: nobody's fault but the caller's."""
    return orjson.dumps({"error": {"message": message, "type": kind}})


def error_in(body: bytes) -> RolloutError | None:
    """The error that a body carries, with its boundary; None if it carries none of ours."""
    try:
        told = orjson.loads(body)["error"]
        kind = _KINDS[told["type"]]
        message = str(told["message"])
        partial = told.get("partial")
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return None
    if not isinstance(partial, list):
        partial = None
    if kind is ModelError:
        status = told.get("code")
        found: RolloutError = ModelError(message, status=status if isinstance(status, int) else None, partial=partial)
    else:
        found = kind(message, partial=partial)
    if isinstance(told.get("away"), str):
        found.away = Away(told["away"], near=False)
    found.spans = told["spans"] if isinstance(told.get("spans"), str) else None
    place = told.get("place")
    found.place = place[:_LONGEST_PLACE] if isinstance(place, str) else None
    return found


def spans_header(tree: Span) -> str:
    """A tree of spans as one header line: whose process it was, when on this machine's clock, and the tree."""
    told = spans.as_node(tree, tree.start)
    for smaller in (spans.folded, _counted):
        if len(orjson.dumps(told)) <= _HEADER_BYTES:
            break
        told = smaller(told)
    head = {"host": host(), "pid": os.getpid(), "at_us": round(tree.start * 1e6), "tree": told}
    encoded = orjson.dumps(head)
    return encoded.decode() if encoded.isascii() else json.dumps(head)  # a header is ASCII; models make up names


def _counted(told: spans.Node) -> spans.Node:
    """The first spans below the root alone, with the counts of all that was in them."""
    children = [[*child[:3], spans.all_counts(child), []] for child in told[4][:20]]
    return [*told[:4], [*children, *spans.together(told[4][20:])]]


def graft(header: str, parent: Span) -> None:
    """Hang the spans of a header below an open span.

    On one machine they are put where they were. A clock of another machine says nothing here, so its spans are centred
    in what is open.
    """
    try:
        head = orjson.loads(header)
        length, now = head["tree"][2] / 1e6, parent.clock()
        start = head["at_us"] / 1e6
        if head["host"] != host() or not parent.start <= start <= start + length <= now + _CLOCK_ERROR_S:
            start = parent.start + max(0.0, now - parent.start - length) / 2
        pid = head["pid"]
        if len(header) > _LONGEST_TOLD or not isinstance(pid, int) or not 0 <= pid < 1 << 32:
            return
        found = spans.from_node(head["tree"], start, parent.clock)
        found.counts = {**(found.counts or {}), "pid": pid}
    except (orjson.JSONDecodeError, TypeError, ValueError, LookupError, AttributeError, OverflowError, RecursionError):
        return  # a stranger's header: there is nothing to learn from it
    parent.adopt(found)


@cache
def host() -> str:
    """What two processes have in common that read the same monotonic clock."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except (OSError, ValueError):
        return uuid.uuid4().hex  # not known: nobody shares it
