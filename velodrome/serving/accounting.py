"""Where the time of a request went, told in a header of the answer.

An agent always tells: its caller keeps the account of the rollout. The others tell when there is something to tell
(a wait, a retry, CPU used, a process that is busy), or when the caller is recording a trace.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from velodrome.errors import RolloutError
from velodrome.serving import wire
from velodrome.serving.app import Handler
from velodrome.serving.measures import CORE, Core
from velodrome.timing import trace
from velodrome.timing.spans import Span, put, root

_BUSY = 0.5  # of a core: below that a process bounds nothing


def accounted(server: str, handle: Handler, *, always: bool = False, core: Core = CORE) -> Handler:
    """The same handler, whose answers and errors say where their time went."""
    name = f"@{server}"

    def wanted(tree: Span) -> bool:
        return bool(always or tree.children or tree.counts or trace.recorded())

    async def handler(request: Request) -> Response:
        with root(name) as tree:
            try:
                answer = await handle(request)
            except RolloutError as error:
                told = wanted(tree) and trace.HEADER in request.headers  # a person with curl has no use for it
                error.spans = wire.spans_header(tree) if told else None
                raise
            if core.share >= _BUSY:
                put("busy_pct", round(100 * core.share))
        if wanted(tree) and not isinstance(answer, StreamingResponse):
            answer.headers[wire.SPANS] = wire.spans_header(tree)
        return answer

    return handler
