"""Span trees as OTLP: what is in the messages is exact, and nobody waits for a receiver that fails."""

from __future__ import annotations

import socket
import sys
import threading
import time
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1 import trace_pb2
from otlp_receiver import attributes, receiving, taken

from velodrome.errors import InputError
from velodrome.timing.otlp import Encoder, Exporter, Receiver, Traced, headers_from
from velodrome.timing.spans import Span

TRACE = "0af7651916cd43dd8448eb211c80319c"
ROOT = "b7ad6b7169203331"
HEADER = f"00-{TRACE}-{ROOT}-01"
EPOCH_NS = 1_700_000_000_000_000_000


def node(name: str, start: float, end: float | None, *children: Span, **counts: float) -> Span:
    result = Span(name, clock=lambda: start)
    result.end = end
    result.children = list(children)
    result.counts = counts or None
    return result


def decoded(*batch: Traced) -> Any:
    body, size = Encoder({"service.name": "velodrome"}, EPOCH_NS).request(batch)
    result = ExportTraceServiceRequest.FromString(body)
    assert size == len(result.resource_spans[0].scope_spans[0].spans)
    return result.resource_spans[0]


def by_name(group: Any) -> dict[str, Any]:
    return {span.name: span for span in group.scope_spans[0].spans}


def test_a_tree_becomes_a_trace_with_the_ids_of_its_header():
    tree = node(
        "rollout", 10.0, 12.5, node("model", 10.5, 11.5, node("queue", 10.5, 10.75)), node("verify", 12.0, 12.5)
    )
    group = decoded(
        Traced(tree, HEADER, {"key": "t/0", "reward": 1.0, "kept": True, "n": 3}, None, [("write", 12.5, 13)])
    )
    result = by_name(group)
    assert attributes(group.resource) == {"service.name": "velodrome"}
    assert {span.trace_id.hex() for span in result.values()} == {TRACE}
    ids = {span.span_id: name for name, span in result.items()}
    assert result["rollout"].span_id.hex() == ROOT
    assert {name: ids.get(span.parent_span_id) for name, span in result.items()} == {
        "rollout": None,
        "model": "rollout",
        "queue": "model",
        "verify": "rollout",
        "write": "rollout",
    }
    times = {
        name: (span.start_time_unix_nano - EPOCH_NS, span.end_time_unix_nano - EPOCH_NS)
        for name, span in result.items()
    }
    assert times == {
        "rollout": (10_000_000_000, 12_500_000_000),
        "model": (10_500_000_000, 11_500_000_000),
        "queue": (10_500_000_000, 10_750_000_000),
        "verify": (12_000_000_000, 12_500_000_000),
        "write": (12_500_000_000, 13_000_000_000),
    }
    assert attributes(result["rollout"]) == {"key": "t/0", "reward": 1.0, "kept": True, "n": 3}
    assert result["rollout"].status.code == trace_pb2.Status.STATUS_CODE_UNSET


def test_an_error_is_the_status_of_the_root_and_of_nothing_else():
    result = by_name(decoded(Traced(node("rollout", 0, 1, node("model", 0, 1)), HEADER, {}, "model: it answered 500")))
    assert result["rollout"].status.code == trace_pb2.Status.STATUS_CODE_ERROR
    assert result["rollout"].status.message == "model: it answered 500"
    assert result["model"].status.code == trace_pb2.Status.STATUS_CODE_UNSET


def test_time_inside_a_server_is_a_span_of_that_server_and_its_caller_a_client():
    there = node("@calculator", 1.0, 2.0, node("queue", 1.0, 1.5), pid=4321, cpu_us=12.5)
    result = by_name(decoded(Traced(node("rollout", 0.0, 3.0, node("tool:calculator", 0.5, 2.5, there)), HEADER, {})))
    kinds = trace_pb2.Span
    assert {name: span.kind for name, span in result.items()} == {
        "rollout": kinds.SPAN_KIND_INTERNAL,
        "tool:calculator": kinds.SPAN_KIND_CLIENT,
        "calculator": kinds.SPAN_KIND_SERVER,
        "queue": kinds.SPAN_KIND_INTERNAL,
    }
    assert attributes(result["calculator"]) == {
        "velodrome.server": "calculator",
        "process.pid": 4321,
        "velodrome.cpu_us": 12.5,
    }


def test_a_span_that_was_left_open_ends_with_the_one_above_it_and_none_ends_before_it_began():
    tree = node("rollout", 1.0, 4.0, node("model", 2.0, None, node("backoff", 3.0, None)), node("odd", 3.0, 2.0))
    result = by_name(decoded(Traced(tree, HEADER, {})))
    ends = {name: (span.end_time_unix_nano - EPOCH_NS) / 1e9 for name, span in result.items()}
    assert ends == {"rollout": 4.0, "model": 4.0, "backoff": 4.0, "odd": 3.0}


def test_text_that_cannot_be_encoded_is_told_all_the_same():
    result = by_name(
        decoded(Traced(node("rollout", 0, 1, node("tool:\ud800", 0, 1)), HEADER, {"key": "\udfff"}, "\ud800"))
    )
    assert set(result) == {"rollout", "tool:\\ud800"}
    assert attributes(result["rollout"]) == {"key": "\\udfff"}
    assert result["rollout"].status.message == "\\ud800"


def exporter(url: str, **settings: Any) -> Exporter:
    return Exporter(
        Receiver(url, {}), {"service.name": "velodrome"}, **{"every_s": 0.01, "backoff_s": 0.01, **settings}
    )


def one() -> Traced:
    now = time.perf_counter()
    return Traced(node("rollout", now, now + 1, node("model", now, now + 1)), HEADER, {})


def test_what_was_added_arrives_and_nothing_is_said():
    with receiving() as receiver:
        sending = exporter(receiver.url)
        for _ in range(3000):
            sending.add(one())
        before_ns = time.time_ns()
        assert sending.close(10.0) is None
        assert len(receiver.spans()) == 6000
        assert abs(receiver.spans()[-2].start_time_unix_nano - before_ns) < 60e9
    assert {path for path, _, _ in receiver.requests} == {"/v1/traces"}
    assert receiver.requests[0][1]["Content-Type"] == "application/x-protobuf"
    assert max(len(request.resource_spans[0].scope_spans[0].spans) for _, _, request in receiver.requests) <= 2000


def test_it_is_sent_while_others_are_still_measured():
    with receiving() as receiver:
        sending = exporter(receiver.url)
        sending.add(one())
        assert receiver.arrived()
        assert sending.close(10.0) is None


def test_a_receiver_that_is_busy_for_a_moment_is_asked_again():
    with receiving((503, b""), (429, b""), taken()) as receiver:
        sending = exporter(receiver.url)
        sending.add(one())
        assert receiver.arrived(3)
        assert sending.close(10.0) is None


def unused_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        result: int = sock.getsockname()[1]
        return result


def test_a_receiver_that_is_away_costs_the_spans_and_says_so():
    url = f"http://127.0.0.1:{unused_port()}"
    sending = exporter(url)
    sending.add(one())
    assert sending.close(5.0) == (
        f"2 of 2 spans did not reach {url}/v1/traces: ConnectionRefusedError: [Errno 111] Connection refused"
    )


def test_a_receiver_that_fails_is_not_asked_again_and_that_is_said():
    with receiving((500, b"no"), taken()) as receiver:
        sending = exporter(receiver.url)
        sending.add(one())
        assert receiver.arrived()
        sending.add(one())
        said = sending.close(10.0)
    assert said in (
        f"2 of 4 spans did not reach {receiver.url}/v1/traces: it answered 500",
        f"4 of 4 spans did not reach {receiver.url}/v1/traces: it answered 500",  # both were in the first request
    )


def test_a_receiver_that_never_answers_is_given_up_and_nobody_waits_for_it():
    with receiving(None) as receiver:
        sending = exporter(receiver.url, most_waiting=10)
        sending.add(one())
        assert receiver.arrived()
        for _ in range(100):
            sending.add(one())  # would wait for a minute if it waited
        said = sending.close(0.2)
    assert said is not None
    assert said.startswith(f"202 of 202 spans did not reach {receiver.url}/v1/traces: ")


def test_spans_that_a_receiver_refused_are_counted():
    with receiving(taken(rejected=1, why="too\nold")) as receiver:
        sending = exporter(receiver.url)
        sending.add(one())
        assert sending.close(10.0) == (f"1 of 2 spans did not reach {receiver.url}/v1/traces: it refused some: too old")


def test_what_does_not_fit_in_the_queue_is_dropped_and_counted():
    with receiving() as receiver:
        sending = exporter(receiver.url, most_waiting=5, every_s=60.0)
        for _ in range(10):
            sending.add(one())
        said = sending.close(10.0)
        assert len(receiver.spans()) == 4
    assert said == f"16 of 20 spans did not reach {receiver.url}/v1/traces: they came faster than they were taken"


def test_closing_leaves_no_thread_behind():
    with receiving() as receiver:
        exporter(receiver.url).close(5.0)
    assert [thread.name for thread in threading.enumerate() if thread.name == "velodrome-otlp"] == []


def test_headers_come_from_opentelemetrys_own_variables_and_are_sent():
    args = headers_from({"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20abc, x-team = a ,"})
    assert args == {"authorization": "Bearer abc", "x-team": "a"}
    with receiving() as receiver:
        sending = Exporter(Receiver(f"{receiver.url}/deep/?x=1", args), {}, every_s=0.01)
        sending.add(one())
        assert sending.close(10.0) is None
    path, headers, _ = receiver.requests[0]
    assert (path, headers["authorization"], headers["x-team"]) == ("/deep/v1/traces?x=1", "Bearer abc", "a")


@pytest.mark.parametrize("text", ["a-secret-alone", "a=1,=2", "a=%0d%0ax: y", "a=%ff"])
def test_a_header_that_is_none_is_said_without_its_text(text: str):
    with pytest.raises(InputError) as caught:
        headers_from({"OTEL_EXPORTER_OTLP_HEADERS": text})
    assert str(caught.value) == f"OTEL_EXPORTER_OTLP_HEADERS: header {1 + text.count(',')} is not name=value"


@pytest.mark.parametrize(
    "endpoint", ["127.0.0.1:4318", "ftp://x", "http://", "http://h:x", "", "http://[::1", "http://h:0"]
)
def test_an_endpoint_that_is_no_url_is_said(endpoint: str):
    with pytest.raises(InputError, match=r"otlp_endpoint: it is a URL such as http://127.0.0.1:4318"):
        Receiver(endpoint, {})


def test_a_password_in_the_endpoint_is_refused_and_not_repeated():
    with pytest.raises(InputError) as caught:
        Receiver("http://me:hidden@127.0.0.1:4318", {})
    assert "OTEL_EXPORTER_OTLP_HEADERS" in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_the_port_of_grpc_is_recognised():
    assert "4318" in Receiver("http://127.0.0.1:4317", {}).hint()
    assert Receiver("http://127.0.0.1:4318", {}).hint() == ""


def test_a_missing_extra_is_said_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.proto.collector.trace.v1", None)
    with pytest.raises(InputError, match=r'pip install "velodrome\[otel\]"'):
        exporter("http://127.0.0.1:4318")
