"""Rows as OTLP: what is in the messages is exact, and a receiver that fails costs no rollout."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from opentelemetry.proto.trace.v1 import trace_pb2

from tests.support.otlp_receiver import attributes, receiving, taken
from velodrome.errors import InputError
from velodrome.telemetry import Receiver, headers_from

TRACE = "0af7651916cd43dd8448eb211c80319c"
ROOT = "b7ad6b7169203331"
HEADER = f"00-{TRACE}-{ROOT}-01"
AT_S = 1_700_000_000
Json = dict[str, Any]


def row(*tree: Any, **fields: Any) -> Json:
    """A rollout from AT_S on, which took 2.5 s."""
    meta = {"key": "t/0", "agent": "a", "task_index": 3, "rollout_index": 0, "trace": HEADER}
    meta |= {"finished_at": AT_S + 2.5, "timing": {"total_s": 2.5, "tree": list(tree)}}
    return {"output": [], "response": {}, "reward": 1.0, "meta": meta | fields}


def written(folder: Path, *rows: Json, failures: tuple[Json, ...] = ()) -> Path:
    for name, lines in (("r.jsonl", rows), ("r.failures.jsonl", failures)):
        (folder / name).write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    return folder / "r.jsonl"


def sent(rollouts: Path) -> tuple[dict[str, Any], Any]:
    """The spans by name, and the resource."""
    with receiving() as receiver:
        assert Receiver(receiver.url, {}).send(rollouts) == []
        return {span.name: span for span in receiver.spans()}, receiver.requests[0][2].resource_spans[0].resource


def test_a_rollout_becomes_a_trace_with_the_ids_of_its_header(tmp_path: Path):
    model = ["model", 500_000, 1_000_000, {"tokens": 7}, [["queue", 500_000, 250_000, {}, []]]]
    result, resource = sent(written(tmp_path, row(model, ["verify", 2_000_000, 500_000, {}, []])))
    assert set(attributes(resource)) == {"service.name", "service.version", "process.pid"}
    assert {span.trace_id.hex() for span in result.values()} == {TRACE}
    assert result["rollout"].span_id.hex() == ROOT
    ids = {span.span_id: name for name, span in result.items()}
    assert {
        name: (
            ids.get(span.parent_span_id),
            (span.start_time_unix_nano - AT_S * 10**9) / 1e9,
            (span.end_time_unix_nano - AT_S * 10**9) / 1e9,
        )
        for name, span in result.items()
    } == {
        "rollout": (None, 0.0, 2.5),
        "model": ("rollout", 0.5, 1.5),
        "queue": ("model", 0.5, 0.75),
        "verify": ("rollout", 2.0, 2.5),
    }
    about = {"key": "t/0", "agent": "a", "task_index": 3, "rollout_index": 0, "kept": True, "reward": 1.0}
    assert attributes(result["rollout"]) == {f"velodrome.{name}": value for name, value in about.items()}
    assert attributes(result["model"]) == {"velodrome.tokens": 7}


def test_time_inside_a_server_is_a_span_of_that_server_and_an_error_is_the_status_of_the_root(tmp_path: Path):
    there = ["@calculator", 10, 100, {"pid": 4321, "cpu_us": 12.5}, [["queue", 10, 5, {}, []]]]
    failure = {**row(["tool:calculator", 5, 200, {}, [there]])["meta"], "boundary": "tool", "error": "it answered 500"}
    result, _ = sent(written(tmp_path, failures=(failure,)))
    kinds = trace_pb2.Span
    status = {name: (span.status.code, span.status.message) for name, span in result.items()}
    assert status == dict.fromkeys(result, (0, "")) | {"rollout": (2, "tool: it answered 500")}
    assert {name: span.kind for name, span in result.items()} == {
        "rollout": kinds.SPAN_KIND_INTERNAL,
        "tool:calculator": kinds.SPAN_KIND_CLIENT,
        "calculator": kinds.SPAN_KIND_SERVER,
        "queue": kinds.SPAN_KIND_INTERNAL,
    }
    counts = {"velodrome.server": "calculator", "process.pid": 4321, "velodrome.cpu_us": 12.5}
    assert attributes(result["calculator"]) == counts


def test_rows_of_earlier_runs_are_not_sent_and_one_without_a_trace_gets_ids(tmp_path: Path):
    rows = [row(finished_at=AT_S - 10.0), row(trace=None), row(["wrong"], trace="00-z-z-01"), {"meta": {}}]
    with receiving() as receiver:
        assert Receiver(receiver.url, {}).send(written(tmp_path, *rows), since=AT_S) == []
    assert [span.name for span in receiver.spans()] == ["rollout", "rollout"]
    assert len({span.trace_id for span in receiver.spans()} - {bytes(16)}) == 2


def test_many_rollouts_are_sent_in_batches(tmp_path: Path):
    with receiving() as receiver:
        path = written(tmp_path, *[row(["model", 0, 1, {}, []])] * 3000)
        assert Receiver(receiver.url, {}).send(path) == []
    sizes = [len(request.resource_spans[0].scope_spans[0].spans) for _, _, request in receiver.requests]
    assert sizes == [2000, 2000, 2000]
    assert {(path, headers["Content-Type"]) for path, headers, _ in receiver.requests} == {
        ("/v1/traces", "application/x-protobuf")
    }


def test_a_receiver_that_is_busy_for_a_moment_is_asked_again(tmp_path: Path):
    with receiving((503, b""), (429, b""), taken()) as receiver:
        assert Receiver(receiver.url, {}, backoff_s=0.001).send(written(tmp_path, row())) == []
        assert len(receiver.requests) == 3


@pytest.mark.parametrize(
    ("answer", "why"), [((500, b"no"), "it answered 500"), (None, "no answer in time"), ((503, b""), "it answered 503")]
)
def test_after_a_request_that_fails_for_good_the_rest_is_counted_and_not_sent(tmp_path: Path, answer: Any, why: str):
    with receiving(answer) as receiver:
        path = written(tmp_path, *[row(["model", 0, 1, {}, []])] * 1500)
        notes = Receiver(receiver.url, {}, timeout_s=0.05, backoff_s=0.001).send(path)
        assert notes == [f"otlp_endpoint: 3000 of 3000 spans did not reach {receiver.url}/v1/traces: {why}"]


def test_spans_that_a_receiver_refused_are_counted(tmp_path: Path):
    with receiving(taken(rejected=1, why="too\nold")) as receiver:
        [note] = Receiver(receiver.url, {}).send(written(tmp_path, row(["model", 0, 1, {}, []])))
    assert note.startswith("otlp_endpoint: 1 of 2 spans did not reach ")
    assert note.endswith("it refused some: too old")


def test_headers_come_from_opentelemetrys_own_variables_and_are_sent(tmp_path: Path):
    environ = {"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20abc, x-team = a ,"}
    assert headers_from(environ) == {"authorization": "Bearer abc", "x-team": "a"}
    with receiving() as receiver:
        assert Receiver(f"{receiver.url}/deep/?x=1", environ).send(written(tmp_path, row())) == []
    path, headers, _ = receiver.requests[0]
    assert (path, headers["authorization"], headers["x-team"]) == ("/deep/v1/traces?x=1", "Bearer abc", "a")


@pytest.mark.parametrize("text", ["a-secret-alone", "a=1,=2", "a=%0d%0ax: y"])
def test_a_header_that_is_none_is_reported_without_its_text(text: str):
    with pytest.raises(InputError) as caught:
        headers_from({"OTEL_EXPORTER_OTLP_HEADERS": text})
    assert f"header {1 + text.count(',')}" in str(caught.value)
    assert text not in str(caught.value)


@pytest.mark.parametrize(
    "endpoint", ["127.0.0.1:4318", "ftp://x", "http://h:x", "http://a..b:4318", "http://me:hidden@127.0.0.1:4318"]
)
def test_an_endpoint_that_is_no_url_or_has_a_password_is_refused_without_repeating_it(endpoint: str):
    with pytest.raises(InputError, match="otlp_endpoint") as caught:
        Receiver(endpoint, {})
    assert "hidden" not in str(caught.value)


def test_a_missing_extra_is_reported_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.proto.collector.trace.v1", None)
    with pytest.raises(InputError, match=r'pip install "velodrome\[otel\]"'):
        Receiver("http://127.0.0.1:4318", {})
