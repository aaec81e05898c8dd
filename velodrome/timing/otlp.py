"""Span trees as OpenTelemetry traces: OTLP over HTTP, in batches, from a thread of its own.

Measuring never blocks on delivery: what does not fit in the queue, or is not taken in time, is dropped and counted. The
only module that imports `opentelemetry`, and only when an export is requested. It encodes OpenTelemetry's own messages
itself: the SDK's spans and exporter take six times the CPU per rollout (docs/design.md).
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from math import isfinite
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from velodrome.errors import InputError, describe
from velodrome.timing.spans import Span

Attributes = Mapping[str, str | int | float | bool]

HEADER_VARIABLES = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS")

_PATH = "/v1/traces"
_GRPC_PORT = 4317
_BATCH = 2000  # spans in one request
_TRIES = 5
_PASSING = (408, 429, 502, 503, 504)  # what the protocol says may be sent again
_LONGEST_TEXT = 2000
_MOST_ANSWER_BYTES = 64 * 1024
_COUNTS = {"pid": "process.pid"}  # what OpenTelemetry has a name for


class Traced(NamedTuple):
    """One finished tree. Its root takes both ids from the `traceparent` header that its calls carried."""

    tree: Span
    trace: str
    attributes: Attributes
    error: str | None = None
    after: Sequence[tuple[str, float, float]] = ()  # name, start and end of what followed, below the root


class Receiver:
    """Where traces go."""

    def __init__(self, endpoint: str, headers: Mapping[str, str]) -> None:
        self._url = _checked(endpoint)
        path = self._url.path.rstrip("/")
        path = path if path.endswith(_PATH) else path + _PATH
        self.label = f"{self._url.scheme}://{self._url.netloc}{path}"
        self._target = f"{path}?{self._url.query}" if self._url.query else path
        self._headers = {**headers, "Content-Type": "application/x-protobuf", "Connection": "close"}

    def post(self, body: bytes, timeout_s: float) -> tuple[int, bytes]:
        """Status and body of the answer, not more of it than is needed. Raises OSError or HTTPException."""
        kind = HTTPSConnection if self._url.scheme == "https" else HTTPConnection
        connection = kind(self._url.hostname or "", self._url.port, timeout=timeout_s)
        with closing(connection):
            connection.request("POST", self._target, body, self._headers)
            answer = connection.getresponse()
            return answer.status, answer.read(_MOST_ANSWER_BYTES)

    def hint(self) -> str:
        """What may be wrong with the address."""
        return " (4317 is the port of gRPC; OTLP over HTTP has 4318)" if self._url.port == _GRPC_PORT else ""


class Exporter:
    """Takes trees, never blocks, and says at the end what was lost."""

    def __init__(
        self,
        receiver: Receiver,
        resource: Attributes,
        *,
        most_waiting: int = 20_000,
        timeout_s: float = 10.0,
        every_s: float = 1.0,
        backoff_s: float = 0.5,
    ) -> None:
        self._encoder = Encoder(resource, time.time_ns() - time.perf_counter_ns())
        self._receiver = receiver
        self._most_waiting = most_waiting
        self._timeout_s = timeout_s
        self._every_s = every_s
        self._backoff_s = backoff_s
        self._queue: deque[tuple[Traced, int]] = deque()
        self._lock = threading.Lock()
        self._waiting = self._seen = self._delivered = 0
        self._why = ""
        self._until = float("inf")
        self._news, self._closing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="velodrome-otlp", daemon=True)
        self._thread.start()

    def add(self, traced: Traced) -> None:
        """Send it soon; drop it if too much is waiting already."""
        size = len(traced.after) + _size(traced.tree)
        with self._lock:
            self._seen += size
            if self._waiting + size > self._most_waiting:
                self._why = self._why or "they came faster than they were taken"
                return
            self._waiting += size
            self._queue.append((traced, size))
        if self._waiting >= _BATCH:
            self._news.set()

    def close(self, linger_s: float) -> str | None:
        """Send what is waiting, for so long at most; then one line about what was lost, if anything was."""
        self._until = time.monotonic() + linger_s
        self._closing.set()
        self._news.set()
        self._thread.join(linger_s + 0.5)
        with self._lock:
            lost = self._seen - self._delivered
            if not lost:
                return None
            why = self._why or f"the rest was not taken within {linger_s:g} s"
            of_all = f"{lost} of {self._seen} spans did not reach {self._receiver.label}"
        return f"{of_all}: {why}{self._receiver.hint()}"

    def _run(self) -> None:
        while True:
            self._news.wait(self._every_s)
            self._news.clear()
            last = self._closing.is_set()
            while batch := self._take():
                self._deliver(batch)
            if last:
                return

    def _take(self) -> list[Traced]:
        batch: list[Traced] = []
        size = 0
        with self._lock:
            while self._queue and size < _BATCH:
                traced, spans = self._queue.popleft()
                batch.append(traced)
                size += spans
            self._waiting -= size
        return batch

    def _deliver(self, batch: list[Traced]) -> None:
        body, size = self._encoder.request(batch)
        for tries in range(_TRIES):
            left_s = self._until - time.monotonic()
            last = self._closing.is_set()
            if left_s <= 0 or not self._failed(body, size, min(self._timeout_s, left_s)) or last:
                return
            self._closing.wait(min(self._backoff_s * 2.0**tries, self._timeout_s))

    def _failed(self, body: bytes, size: int, timeout_s: float) -> bool:
        """Send once. True if it failed and may be sent again."""
        try:
            status, answer = self._receiver.post(body, timeout_s)
        except (OSError, HTTPException) as error:
            self._why = "no answer in time" if isinstance(error, TimeoutError) else describe(error)
            return True
        if 200 <= status < 300:
            rejected, why = self._encoder.rejected(answer)
            self._why = why or self._why
            with self._lock:
                self._delivered += max(size - rejected, 0)
            return False
        self._why = f"it answered {status}"
        return status in _PASSING


class Encoder:
    """Trees as the protocol's messages. `epoch_ns` is what `perf_counter` lacks to be a time since 1970."""

    def __init__(self, resource: Attributes, epoch_ns: int) -> None:
        try:
            from google.protobuf.message import DecodeError
            from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
            from opentelemetry.proto.common.v1 import common_pb2
            from opentelemetry.proto.trace.v1 import trace_pb2
        except ImportError as error:
            raise InputError(
                f'otlp_endpoint: a package is missing ({error.name}); pip install "velodrome[otel]"'
            ) from error
        self._service: Any = trace_service_pb2
        self._common: Any = common_pb2
        self._kinds: Any = trace_pb2.Span
        self._failed: Any = trace_pb2.Status.STATUS_CODE_ERROR
        self._unreadable: type[Exception] = DecodeError
        self._resource = resource
        self._epoch_ns = epoch_ns
        self._ids = random.Random()  # of its own: a seed that somebody sets must not repeat ids

    def request(self, batch: Sequence[Traced]) -> tuple[bytes, int]:
        """The body of one request, and how many spans are in it."""
        request = self._service.ExportTraceServiceRequest()
        group = request.resource_spans.add()
        self._describe(group.resource.attributes, self._resource)
        scope = group.scope_spans.add()
        scope.scope.name = "velodrome"
        for traced in batch:
            _, trace_id, span_id, _ = traced.trace.split("-")
            ids = bytes.fromhex(trace_id), bytes.fromhex(span_id)
            root = self._add(scope.spans, traced.tree, ids, b"", _end(traced.tree, traced.tree.start))
            self._describe(root.attributes, traced.attributes)
            if traced.error is not None:
                root.status.code = self._failed
                root.status.message = _text(traced.error)
            for name, start, end in traced.after:
                self._one(scope.spans, name, (ids[0], self._id()), ids[1], start, end)
        return request.SerializeToString(), len(scope.spans)

    def rejected(self, answer: bytes) -> tuple[int, str]:
        """How many spans a receiver did not want though it took the request, and why."""
        try:
            refusal = self._service.ExportTraceServiceResponse.FromString(answer).partial_success
        except self._unreadable:
            return 0, ""  # a receiver that answers in another way took all of them
        why = " ".join(refusal.error_message.split())[:200]
        return refusal.rejected_spans, f"it refused some: {why}" if refusal.rejected_spans else ""

    def _add(self, spans: Any, span: Span, ids: tuple[bytes, bytes], parent: bytes, latest: float) -> Any:
        """One span and all below it. One that was left open ended with the one above it."""
        end = _end(span, latest)
        message = self._one(spans, span.name, ids, parent, span.start, end)
        if span.name.startswith("@"):
            message.name = _text(span.name[1:])
            message.kind = self._kinds.SPAN_KIND_SERVER
            self._describe(message.attributes, {"velodrome.server": span.name[1:]})
        for child in span.children:
            if child.name.startswith("@"):
                message.kind = self._kinds.SPAN_KIND_CLIENT
            self._add(spans, child, (ids[0], self._id()), ids[1], end)
        for name, count in (span.counts or {}).items():
            self._describe(message.attributes, {_COUNTS.get(name) or f"velodrome.{name}": _whole(count)})
        return message

    def _one(self, spans: Any, name: str, ids: tuple[bytes, bytes], parent: bytes, start: float, end: float) -> Any:
        return spans.add(
            trace_id=ids[0],
            span_id=ids[1],
            parent_span_id=parent,
            name=_text(name),
            kind=self._kinds.SPAN_KIND_INTERNAL,
            start_time_unix_nano=self._unix_nano(start),
            end_time_unix_nano=self._unix_nano(max(start, end)),
        )

    def _describe(self, into: Any, attributes: Attributes) -> None:
        for name, value in attributes.items():
            one = into.add(key=name)
            if isinstance(value, bool):
                one.value.bool_value = value
            elif isinstance(value, int):
                one.value.int_value = value
            elif isinstance(value, float):
                one.value.double_value = value
            else:
                one.value.string_value = _text(value)

    def _unix_nano(self, at: float) -> int:
        return max(int(at * 1e9) + self._epoch_ns, 0)

    def _id(self) -> bytes:
        return (self._ids.getrandbits(64) or 1).to_bytes(8, "big")


def headers_from(environ: Mapping[str, str]) -> dict[str, str]:
    """The headers that OpenTelemetry's own variables ask for: `name=value,name=value`, percent-encoded."""
    headers = {}
    for variable in HEADER_VARIABLES:
        for number, pair in enumerate(filter(str.strip, environ.get(variable, "").split(",")), 1):
            name, equals, value = (part.strip() for part in pair.partition("="))
            value = unquote(value)
            if not equals or not name.isascii() or not name or not value.isprintable() or not value.isascii():
                raise InputError(f"{variable}: header {number} is not name=value")  # its text may be a secret
            headers[name] = value
    return headers


def _checked(endpoint: str) -> SplitResult:
    try:
        url = urlsplit(endpoint)
        port = url.port
    except ValueError:
        url, port = SplitResult("", "", "", "", ""), 0
    if url.scheme not in ("http", "https") or not _is_host(url.hostname) or port == 0:
        raise InputError("otlp_endpoint: it is a URL such as http://127.0.0.1:4318")
    if "@" in url.netloc:
        raise InputError(f"otlp_endpoint: a URL with a password in it is not used; put that into {HEADER_VARIABLES[0]}")
    return url


def _size(span: Span) -> int:
    return 1 + sum(map(_size, span.children)) if span.children else 1


def _end(span: Span, latest: float) -> float:
    return latest if span.end is None else span.end


def _is_host(name: str | None) -> bool:
    try:
        return bool(name) and bool(str(name).encode("idna"))
    except UnicodeError:
        return False


def _whole(count: float) -> int | float:
    return int(count) if isfinite(count) and count == int(count) else count


def _text(value: str) -> str:
    return value[:_LONGEST_TEXT].encode(errors="backslashreplace").decode()
