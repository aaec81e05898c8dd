"""Rollouts as OpenTelemetry traces, sent over HTTP as OTLP's protobuf messages from the rows that a run wrote.

A receiver cannot change a rollout. Spans that it did not accept are reported in one line.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from velodrome.errors import InputError, describe
from velodrome.records.facts import RowFacts
from velodrome.records.mending import HOSTILE
from velodrome.records.rows import Unread, read_attempts

Json = dict[str, Any]
Node = list[Any]  # [name, start in µs, length in µs, counts, children]
Attributes = Mapping[str, str | int | float | bool]

HEADER_VARIABLES = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS")

_PATH = "/v1/traces"
_GRPC_PORT = 4317
_BATCH = 2000  # spans in one request
_TRIES = 4
_RETRYABLE = (408, 429, 502, 503, 504)  # statuses after which the protocol allows a retry
_LONGEST_TEXT = 2000
_MOST_ANSWER_BYTES = 64 * 1024
_TRACEPARENT = re.compile("[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_COUNTS = {"pid": "process.pid"}  # names of OpenTelemetry


class Receiver:
    """Where traces go. A wrong address or header, or a missing package, is an error before the run."""

    def __init__(
        self,
        endpoint: str,
        environ: Mapping[str, str] = os.environ,
        *,
        timeout_s: float = 10.0,
        backoff_s: float = 0.5,
    ) -> None:
        self._url = _parse_endpoint(endpoint)
        path = self._url.path.rstrip("/")
        path = path if path.endswith(_PATH) else path + _PATH
        self.label = f"{self._url.scheme}://{self._url.netloc}{path}"
        self._target = f"{path}?{self._url.query}" if self._url.query else path
        self._headers = {**headers_from(environ), "Content-Type": "application/x-protobuf", "Connection": "close"}
        self._timeout_s, self._backoff_s = timeout_s, backoff_s
        self._encoder = Encoder()

    def send(self, rollouts: Path, since: float = 0.0) -> list[str]:
        """Send every attempt that finished from `since` on. Returns a line about lost spans, if there are any.

        After a request that failed for good, the other spans are only counted.
        """
        lost, total, why, failed = 0, 0, "", False
        for body, size in self._encoder.requests(_attempts(rollouts, since)):
            total += size
            if failed:
                lost += size
                continue
            try:
                rejected, reason = self._encoder.rejected(self._deliver(body))
            except _UndeliveredError as error:
                failed, rejected, reason = True, size, str(error)
            lost += min(rejected, size)
            why = reason or why
        if not lost:
            return []
        hint = " (4317 is the port of gRPC; OTLP over HTTP has 4318)" if self._url.port == _GRPC_PORT else ""
        return [f"otlp_endpoint: {lost} of {total} spans did not reach {self.label}: {why}{hint}"]

    def _deliver(self, body: bytes) -> bytes:
        """Post a request, with the retries of the protocol, and return the answer."""
        why = ""
        for tries in range(_TRIES):
            time.sleep(self._backoff_s * 2.0**tries if tries else 0.0)
            kind = HTTPSConnection if self._url.scheme == "https" else HTTPConnection
            try:
                with closing(kind(self._url.hostname or "", self._url.port, timeout=self._timeout_s)) as connection:
                    connection.request("POST", self._target, body, self._headers)
                    answer = connection.getresponse()
                    status, data = answer.status, answer.read(_MOST_ANSWER_BYTES)
            except (OSError, HTTPException, UnicodeError) as error:  # UnicodeError: an invalid host name
                why = "no answer in time" if isinstance(error, TimeoutError) else describe(error)
                continue
            if 200 <= status < 300:
                return data
            why = f"it answered {status}"
            if status not in _RETRYABLE:
                break
        raise _UndeliveredError(why)


class _UndeliveredError(Exception):
    """Why a request did not reach the receiver."""


def _attempts(rollouts: Path, since: float) -> Iterator[RowFacts]:
    """The attempts with times that finished from `since` on."""
    for facts in read_attempts(rollouts, Unread(rollouts)):
        if facts.times is not None and (facts.finished_at or 0.0) >= max(since, facts.times.total_s):
            yield facts


class Encoder:
    """Encodes rows as messages of the protocol."""

    def __init__(self) -> None:
        try:
            from google.protobuf.message import DecodeError
            from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
            from opentelemetry.proto.trace.v1 import trace_pb2
        except ImportError as error:
            raise InputError(
                f'otlp_endpoint: a package is missing ({error.name}); pip install "velodrome[otel]"'
            ) from error
        self._service: Any = trace_service_pb2
        self._kinds: Any = trace_pb2.Span
        self._failed: Any = trace_pb2.Status.STATUS_CODE_ERROR
        self._unreadable: type[Exception] = DecodeError
        self._ids = random.Random()  # a separate generator: a seed of the user must not repeat ids

    def requests(self, attempts: Iterator[RowFacts]) -> Iterator[tuple[bytes, int]]:
        """The request bodies, each with its number of spans."""
        for first in attempts:
            request = self._service.ExportTraceServiceRequest()
            group = request.resource_spans.add()
            _describe(group.resource.attributes, {"service.name": "velodrome", "service.version": version("velodrome")})
            _describe(group.resource.attributes, {"process.pid": os.getpid()})
            scope = group.scope_spans.add()
            scope.scope.name = "velodrome"
            self._add_attempt(scope.spans, first)
            while len(scope.spans) < _BATCH and (facts := next(attempts, None)) is not None:
                self._add_attempt(scope.spans, facts)
            yield request.SerializeToString(), len(scope.spans)

    def rejected(self, answer: bytes) -> tuple[int, str]:
        """How many spans of an accepted request the receiver rejected, and why."""
        try:
            refusal = self._service.ExportTraceServiceResponse.FromString(answer).partial_success
        except self._unreadable:
            return 0, ""  # another form of answer: all were accepted
        why = " ".join(refusal.error_message.split())[:200]
        return refusal.rejected_spans, f"it refused some: {why}" if refusal.rejected_spans else ""

    def _add_attempt(self, spans: Any, facts: RowFacts) -> None:
        """Add the spans of an attempt. The root has both ids of the `traceparent` header that its calls sent."""
        times = facts.times
        assert times is not None
        traceparent = _TRACEPARENT.fullmatch(str(facts.meta.get("trace")))
        ids = (self._id() + self._id(), self._id())
        if traceparent:
            ids = bytes.fromhex(traceparent[1]), bytes.fromhex(traceparent[2])
        start_ns = round(((facts.finished_at or 0.0) - times.total_s) * 1e9)
        root = self._new_span(spans, "rollout", ids, b"", start_ns, start_ns + round(times.total_s * 1e9))
        _describe(root.attributes, _attributes(facts))
        if facts.failed:
            root.status.code = self._failed
            root.status.message = _text(facts.error)
        for node in times.tree:
            try:
                self._add(spans, node, start_ns, (ids[0], self._id()), ids[1])
            except HOSTILE:  # a row of another program
                continue

    def _add(self, spans: Any, node: Node, origin_ns: int, ids: tuple[bytes, bytes], parent: bytes) -> None:
        """Add a span and all spans below it. `@server` is time in another process."""
        name, start_us, length_us, counts, below = node
        start_ns = origin_ns + round(start_us * 1e3)
        message = self._new_span(spans, name, ids, parent, start_ns, start_ns + max(round(length_us * 1e3), 0))
        if name.startswith("@"):
            message.name = _text(name[1:])
            message.kind = self._kinds.SPAN_KIND_SERVER
            _describe(message.attributes, {"velodrome.server": name[1:]})
        elif any(child[0].startswith("@") for child in below):
            message.kind = self._kinds.SPAN_KIND_CLIENT
        attributes = {_COUNTS.get(each, f"velodrome.{each}"): _whole(value) for each, value in (counts or {}).items()}
        _describe(message.attributes, attributes)
        for child in below:
            self._add(spans, child, origin_ns, (ids[0], self._id()), ids[1])

    def _new_span(
        self, spans: Any, name: str, ids: tuple[bytes, bytes], parent: bytes, start_ns: int, end_ns: int
    ) -> Any:
        return spans.add(
            trace_id=ids[0],
            span_id=ids[1],
            parent_span_id=parent,
            name=_text(name),
            kind=self._kinds.SPAN_KIND_INTERNAL,
            start_time_unix_nano=max(start_ns, 0),
            end_time_unix_nano=max(end_ns, 0),
        )

    def _id(self) -> bytes:
        return (self._ids.getrandbits(64) or 1).to_bytes(8, "big")


def _attributes(facts: RowFacts) -> Attributes:
    values = {
        "velodrome.key": facts.key,
        "velodrome.agent": facts.agent,
        "velodrome.task_index": facts.meta.get("task_index"),
        "velodrome.rollout_index": facts.meta.get("rollout_index"),
        "velodrome.kept": not facts.failed,
        "velodrome.reward": None if facts.reward is None else float(facts.reward),
    }
    return {name: value for name, value in values.items() if isinstance(value, str | int | float)}


def _describe(into: Any, attributes: Attributes) -> None:
    for name, value in attributes.items():
        attribute = into.add(key=name)
        if isinstance(value, bool):
            attribute.value.bool_value = value
        elif isinstance(value, int):
            attribute.value.int_value = value
        elif isinstance(value, float):
            attribute.value.double_value = value
        else:
            attribute.value.string_value = _text(value)


def headers_from(environ: Mapping[str, str]) -> dict[str, str]:
    """The headers in OpenTelemetry's environment variables: `name=value,name=value`, percent-encoded."""
    headers = {}
    for variable in HEADER_VARIABLES:
        for number, pair in enumerate(filter(str.strip, environ.get(variable, "").split(",")), 1):
            name, equals, value = (part.strip() for part in pair.partition("="))
            value = unquote(value)
            if not equals or not name.isascii() or not name or not value.isprintable() or not value.isascii():
                raise InputError(f"{variable}: header {number} is not name=value")  # its text may be a secret
            headers[name] = value
    return headers


def _parse_endpoint(endpoint: str) -> SplitResult:
    try:
        url = urlsplit(endpoint)
        port = url.port
        (url.hostname or "").encode("idna")
    except ValueError:  # also UnicodeError: no name of a host
        url, port = SplitResult("", "", "", "", ""), 0
    if url.scheme not in ("http", "https") or not url.hostname or port == 0:
        raise InputError("otlp_endpoint: expected a URL such as http://127.0.0.1:4318")
    if "@" in url.netloc:
        raise InputError(f"otlp_endpoint: a URL with a password in it is not used; put that into {HEADER_VARIABLES[0]}")
    return url


def _whole(count: float) -> int | float:
    return int(count) if isfinite(count) and count == int(count) else count


def _text(value: str) -> str:
    return value[:_LONGEST_TEXT].encode(errors="backslashreplace").decode()
