"""A real OTLP/HTTP receiver on loopback, in threads of this process, that decodes what it is sent."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from patience import DEADLINE_S

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


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    receiver: OtlpReceiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = self.receiver.answer(self.path, dict(self.headers), body)
        if answer is None:
            self.receiver.closing.wait(DEADLINE_S)
            self.close_connection = True
            return
        self.send_response(answer[0])
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer[1])))
        self.end_headers()
        self.wfile.write(answer[1])

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def receiving(*answers: Answer) -> Iterator[OtlpReceiver]:
    """A receiver while this is open."""
    receiver = OtlpReceiver(*answers)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"receiver": receiver}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield receiver
    finally:
        receiver.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()


def attributes(thing: Any) -> dict[str, Any]:
    """As a plain dictionary."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in thing.attributes}
