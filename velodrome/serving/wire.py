"""What an error, a header and a body look like on the wire, for the app and the client alike.

An error is JSON that names its boundary, so that whoever meets it, however many hops away, blames the same part.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import orjson

from velodrome.config import mask_text
from velodrome.errors import AgentError, ModelError, RolloutError, TaskError, ToolError, VerifyError
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
        return ModelError(message, status=status if isinstance(status, int) else None, partial=partial)
    return kind(message, partial=partial)


def spans_header(tree: Span) -> str:
    """A tree of spans as one header line: name, start and length in microseconds from the root, counts, children."""
    told = _told(tree, tree.start)
    for smaller in (_folded, _counted):
        if len(orjson.dumps(told)) <= _HEADER_BYTES:
            break
        told = smaller(told)
    return orjson.dumps(told).decode("ascii", "backslashreplace")


def _told(span: Span, origin: float) -> list[Any]:
    start, length = round((span.start - origin) * 1e6), round(span.seconds * 1e6)
    name = span.name if span.name.isascii() and len(span.name) < 80 else "other"
    return [name, start, length, span.counts or {}, [_told(child, origin) for child in span.children]]


def _folded(told: list[Any]) -> list[Any]:
    """The same times and counts in fewer spans: children of one name become one."""
    name, start, length, counts, children = told
    found: dict[str, list[Any]] = {}
    for child in children:
        one = found.setdefault(child[0], [child[0], child[1], 0, {}, []])
        one[2] += child[2]
        _add(one[3], child[3])
        one[4] += child[4]
    return [name, start, length, counts, [_folded(one) for one in found.values()]]


def _counted(told: list[Any]) -> list[Any]:
    """The first spans below the root alone, with the counts of all that was in them."""
    children = [[*child[:3], _counts(child), []] for child in told[4][:20]]
    rest: Json = {}
    for child in told[4][20:]:
        _add(rest, _counts(child))
    return [*told[:4], [*children, ["other", 0, 0, rest, []]]]


def _counts(told: list[Any]) -> Json:
    found = dict(told[3])
    for child in told[4]:
        _add(found, _counts(child))
    return found


def _add(counts: Json, more: Json) -> None:
    for name, value in more.items():
        counts[name] = counts.get(name, 0) + value


def graft(header: str, parent: Span) -> None:
    """Hang the spans of a header below an open span, as far from its end as they were from theirs."""
    try:
        told = orjson.loads(header)
        origin = parent.clock() - told[2] / 1e6
        parent.children += [_span(child, origin, parent) for child in told[4]]
    except (orjson.JSONDecodeError, TypeError, ValueError, IndexError):
        return  # a stranger's header: there is nothing to learn from it


def _span(told: list[Any], origin: float, parent: Span) -> Span:
    name, start, length, counts, children = told
    found = Span(str(name), parent.clock)
    found.start = origin + start / 1e6
    found.end = found.start + length / 1e6
    found.counts = {str(key): float(value) for key, value in counts.items()} or None
    found.children = [_span(child, origin, parent) for child in children]
    return found
