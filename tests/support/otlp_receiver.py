"""A real OTLP/HTTP receiver on loopback, in threads of this process, that decodes what it is sent."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.support.http_server import Quiet, serving
from tests.support.patience import DEADLINE_S

Answer = tuple[int, bytes] | None  # None: silence until the receiver closes


def taken(rejected: int = 0, why: str = "") -> Answer:
    """What a receiver answers that took the request."""
    answer = ExportTraceServiceResponse()
    if rejected:
        answer.partial_success.rejected_spans = rejected
        answer.partial_success.error_message = why
    return 200, answer.SerializeToString()


class OtlpReceiver:
    """Gives its answers in the order of the requests, the last one for ever after."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = answers or (taken(),)
        self._news = threading.Condition()
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.closing = threading.Event()
        self.url = ""

    def answer(self, path: str, headers: dict[str, str], body: bytes) -> Answer:
        with self._news:
            self.requests.append((path, headers, ExportTraceServiceRequest.FromString(body)))
            self._news.notify_all()
            return self._answers[min(len(self.requests), len(self._answers)) - 1]

    def arrived(self, count: int = 1) -> bool:
        """Whether so many requests arrive within the limit."""
        with self._news:
            return self._news.wait_for(lambda: len(self.requests) >= count, DEADLINE_S)

    def spans(self) -> list[Any]:
        """Every span of every request."""
        return [
            span
            for _, _, request in self.requests
            for group in request.resource_spans
            for scope in group.scope_spans
            for span in scope.spans
        ]


class _Handler(Quiet):
    protocol_version = "HTTP/1.1"
    receiver: OtlpReceiver

    def do_POST(self) -> None:
        answer = self.receiver.answer(self.path, dict(self.headers), self.body())
        if answer is None:
            self.receiver.closing.wait(DEADLINE_S)
            self.close_connection = True
        else:
            self.reply(answer[0], "application/x-protobuf", answer[1])


@contextmanager
def receiving(*answers: Answer) -> Iterator[OtlpReceiver]:
    """A receiver while this is open."""
    receiver = OtlpReceiver(*answers)
    with serving(type("Handler", (_Handler,), {"receiver": receiver})) as receiver.url:
        try:
            yield receiver
        finally:
            receiver.closing.set()


def attributes(thing: Any) -> dict[str, Any]:
    """As a plain dictionary."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in thing.attributes}
