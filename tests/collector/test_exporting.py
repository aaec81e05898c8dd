"""A real collection, scraped while it runs and sent to a real OTLP receiver; nothing that fails there touches it."""

from __future__ import annotations

import asyncio
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
import running
from opentelemetry.proto.trace.v1 import trace_pb2
from otlp_receiver import attributes, receiving
from patience import DEADLINE_S
from prometheus_client.parser import text_string_to_metric_families

from velodrome.collector.agents import ConfiguredAgents
from velodrome.collector.collection import Surface, collect
from velodrome.collector.result import Run
from velodrome.collector.settings import CollectSettings
from velodrome.collector.watch.exporting import Exported, Exposed, make_exposed, make_otlp
from velodrome.collector.watch.watch import Done, Sample, Watcher
from velodrome.errors import InputError
from velodrome.http import close_shared
from velodrome.serving.discovery import find
from velodrome.settings import Config, Instance
from velodrome.timing.otlp import Exporter, Receiver
from velodrome.timing.spans import Span

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ENV = """
from velodrome import Environment, tool


class Strict(Environment):
    @tool
    def look(self, where: str) -> str:
        "Look."
        return "there"

    def verify(self, task, response):
        if task["id"] % 4 == 3:
            raise RuntimeError("no such luck")
        return {"reward": 0.5}
"""
ANSWERS = [{"tool_calls": [{"name": "look", "arguments": {"where": "here"}}]}, "it is there"]
PARTS = {"queue", "connection", "session", "model", "backoff", "tools", "verify", "other"}


class Noted:
    """Writes down what it is told, and looks at something in the middle of it."""

    def __init__(self, look: Any = None, at: int = 5) -> None:
        self.done: list[Done] = []
        self.samples: list[Sample] = []
        self.seen: Any = None
        self._look = look
        self._at = at

    def finished(self, done: Done) -> None:
        self.done.append(done)
        if len(self.done) == self._at and self._look is not None:
            self.seen = self._look()

    def sampled(self, sample: Sample) -> None:
        self.samples.append(sample)

    def close(self) -> None: ...


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    app = tmp_path / "resources_servers" / "strict" / "app.py"
    app.parent.mkdir(parents=True)
    app.write_text(ENV)
    tasks = [{"id": number, "responses_create_params": {"input": "hi"}} for number in range(12)]
    (tmp_path / "tasks.jsonl").write_bytes(b"".join(orjson.dumps(task) + b"\n" for task in tasks))
    links = {
        "model_server": {"type": "responses_api_models", "name": "m"},
        "resources_server": {"type": "resources_servers", "name": "env"},
    }
    blocks = [
        Instance("m", "responses_api_models", "scripted_model", {"answers": ANSWERS}, "t.yaml"),
        Instance("env", "resources_servers", "strict", {}, "t.yaml"),
        Instance("solo", "responses_api_agents", "simple_agent", links, "t.yaml"),
    ]
    config = Config({}, {block.name: block for block in blocks})

    def go(watchers: Sequence[Watcher]) -> Run:
        settings = CollectSettings(input=tmp_path / "tasks.jsonl", output=tmp_path / "r.jsonl", parallel=3)
        return asyncio.run(collect(settings, ConfiguredAgents(config), surface=Surface(watchers=watchers)))

    return go


def scraped(url: str) -> dict[tuple[Any, ...], float]:
    """Every sample by its name and labels."""
    with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        text = answer.read().decode()
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_collection_can_be_scraped_while_it_runs(run: Any):
    exposed = Exposed(0)
    noted = Noted(lambda: scraped(exposed.url))
    try:
        outcome = run([exposed, noted])
        end = scraped(exposed.url)
    finally:
        exposed.close()
    assert (outcome.kept, outcome.failed) == (9, 3)
    rollouts = "velodrome_rollouts_total"
    during = noted.seen
    assert during[rollouts, ("outcome", "kept")] + during[rollouts, ("outcome", "failed")] == 5
    assert (end[rollouts, ("outcome", "kept")], end[rollouts, ("outcome", "failed")]) == (9, 3)
    assert (end["velodrome_rollout_reward_sum",], end["velodrome_rollout_reward_count",]) == (4.5, 9)
    assert end["velodrome_rollout_duration_seconds_count",] == 12
    assert end["velodrome_tool_duration_seconds_count", ("tool", "look")] == 12
    assert end["velodrome_rollouts_limit",] == 3
    assert end["velodrome_tokens_total",] == noted.samples[-1].tokens > 0
    assert end["velodrome_written_bytes_total",] == noted.samples[-1].bytes_written > 0
    assert end["velodrome_event_loop_lag_seconds_count",] == len(noted.samples)
    assert (end["velodrome_retries_total",], end["velodrome_rate_limited_total",]) == (0, 0)
    parts = {
        labels[1][1]: value for labels, value in end.items() if labels[0] == "velodrome_rollout_part_seconds_total"
    }
    assert set(parts) == PARTS
    assert sum(parts.values()) == pytest.approx(end["velodrome_rollout_duration_seconds_sum",], abs=12e-5)


def done(tree: Span, **given: Any) -> Done:
    usual = {
        "key": "t/0",
        "task_index": 0,
        "rollout_index": 0,
        "agent": "a",
        "kept": True,
        "reward": 1.0,
        "error": None,
    }
    return Done(**usual | {"spans": tree, "trace": TRACE, "slot": 0, "written": None} | given)


def node(name: str, start: float, end: float, *children: Span, **counts: float) -> Span:
    result = Span(name, clock=lambda: start)
    result.end = end
    result.children = list(children)
    result.counts = counts or None
    return result


def test_parts_retries_and_tools_are_those_of_the_tree_also_inside_a_server():
    model = node("model", 1.0, 3.0, node("backoff", 1.0, 1.5), retries=2, rate_limited=1)
    tools = node("tools", 3.0, 4.0, node("tool:look", 3.0, 4.0), node("tool:find", 3.0, 3.25))
    tree = node("rollout", 0.0, 6.0, node("@agent", 1.0, 6.0, model, tools, node("verify", 4.0, 5.0), pid=1))
    exposed = Exposed(0)
    try:
        exposed.finished(done(tree, kept=False, reward=None, error="model: no"))
        result = scraped(exposed.url)
    finally:
        exposed.close()
    part = "velodrome_rollout_part_seconds_total"
    assert {name: result[part, ("part", name)] for name in PARTS} == {
        "queue": 0,
        "connection": 0,
        "session": 0,
        "model": 1.5,
        "backoff": 0.5,
        "tools": 1,
        "verify": 1,
        "other": 2,
    }
    assert (result["velodrome_retries_total",], result["velodrome_rate_limited_total",]) == (2, 1)
    assert result["velodrome_tool_duration_seconds_sum", ("tool", "look")] == 1
    assert result["velodrome_tool_duration_seconds_sum", ("tool", "find")] == 0.25
    assert result["velodrome_rollout_reward_count",] == 0


def test_tool_names_that_a_model_makes_up_are_bounded():
    exposed = Exposed(0)
    try:
        for made_up in range(150):
            exposed.finished(done(node("rollout", 0, 1, node("tools", 0, 1, node(f"tool:{made_up}", 0, 1)))))
        result = scraped(exposed.url)
    finally:
        exposed.close()
    counts = {
        labels[1][1]: value
        for labels, value in result.items()
        if labels[0].startswith("velodrome_tool_duration_seconds_c")
    }
    assert (len(counts), counts["other"]) == (101, 50)


def test_the_address_is_told_and_free_again_at_the_end():
    said: list[str] = []
    exposed = make_exposed(0, said.append)
    assert said == [f"metrics: {exposed.url}"]
    assert scraped(exposed.url)["velodrome_rollouts_total", ("outcome", "kept")] == 0
    with (
        pytest.raises(urllib.error.HTTPError) as missing,
        urllib.request.urlopen(exposed.url + "x", timeout=DEADLINE_S),
    ):
        pass
    with missing.value:
        assert (missing.value.code, missing.value.read()) == (404, b"there is only /metrics here\n")
    exposed.close()
    exposed.close()
    Exposed(int(exposed.url.split(":")[2].split("/")[0])).close()


def test_a_port_that_is_taken_is_a_mistake_that_is_said():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]
        with pytest.raises(InputError) as caught:
            Exposed(port)
    assert str(caught.value) == (
        f"metrics_port={port}: cannot listen there: Address already in use; give another, or 0 for a free one"
    )
    with pytest.raises(InputError, match="metrics_port=65536: cannot listen there"):
        Exposed(65536)


def test_every_attempt_of_a_collection_arrives_as_a_trace_of_its_own(run: Any):
    noted = Noted()
    began_ns = time.time_ns()
    with receiving() as receiver:
        otlp = make_otlp(receiver.url, {})
        outcome = run([otlp, noted])
        otlp.close()
    ended_ns = time.time_ns()
    spans = receiver.spans()
    assert otlp.notes == []
    roots = {span.trace_id.hex(): span for span in spans if not span.parent_span_id}
    assert len(roots) == outcome.kept + outcome.failed == 12
    for each in noted.done:
        _, trace_id, span_id, _ = each.trace.split("-")
        root = roots[trace_id]
        assert (root.name, root.span_id.hex()) == ("rollout", span_id)
        assert began_ns - 1e6 < root.start_time_unix_nano < root.end_time_unix_nano < ended_ns + 1e6
        length_s = (root.end_time_unix_nano - root.start_time_unix_nano) / 1e9
        assert length_s == pytest.approx(each.spans.seconds, abs=1e-6)
        result = attributes(root)
        assert result == {
            "velodrome.key": each.key,
            "velodrome.agent": "solo",
            "velodrome.task_index": each.task_index,
            "velodrome.rollout_index": 0,
            "velodrome.kept": each.kept,
            **({"velodrome.reward": 0.5} if each.kept else {}),
        }
        error = "" if each.kept else "verify: RuntimeError: no such luck"
        assert (root.status.code, root.status.message.partition(" (")[0]) == (0 if each.kept else 2, error)
        below = [span for span in spans if span.trace_id == root.trace_id and span is not root]
        names = [span.name for span in below]
        assert names.count("model") == 2
        assert ("write" in names, "tool:look" in names) == (each.kept, True)
        known = {span.span_id for span in below} | {root.span_id}
        assert {span.parent_span_id for span in below} <= known
        assert len(known) == len(below) + 1
    resource = attributes(receiver.requests[0][2].resource_spans[0].resource)
    assert (resource["service.name"], set(resource)) == (
        "velodrome",
        {"service.name", "service.version", "process.pid"},
    )


def patient(url: str) -> Exported:
    exporter = Exporter(Receiver(url, {}), {}, every_s=0.01, backoff_s=0.01, most_waiting=20)
    return Exported(exporter, linger_s=0.2)


@pytest.mark.parametrize("fault", ["away", "silent", "failing"])
def test_a_receiver_that_fails_changes_nothing_and_the_loss_is_told(run: Any, tmp_path: Path, fault: str):
    with receiving({"silent": None, "failing": (500, b"")}.get(fault)) as receiver:
        url = receiver.url
        if fault == "away":
            with socket.socket() as sock:
                sock.bind(("127.0.0.1", 0))
                url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        noted = Noted()
        otlp = patient(url)
        outcome = run([otlp, noted])
        otlp.close()
        otlp.close()
    assert (outcome.kept, outcome.failed, outcome.exit_code) == (9, 3, 3)
    rows = [orjson.loads(line) for line in (tmp_path / "r.jsonl").read_bytes().splitlines()]
    assert sorted(row["id"] for row in rows) == [0, 1, 2, 4, 5, 6, 8, 9, 10]
    count = sum(len(list(each.spans.walk())) + each.kept for each in noted.done)
    assert [note.partition(": ")[2].partition(" did not")[0] for note in otlp.notes] == [f"{count} of {count} spans"]


@pytest.mark.slow
def test_what_servers_did_stands_in_the_trace_of_the_rollout_under_their_names(tmp_path: Path):
    tasks = b"".join(orjson.dumps({**running.TASK, "id": number}) + b"\n" for number in range(3))
    (tmp_path / "tasks.jsonl").write_bytes(tasks)
    with receiving() as receiver, running.Session(tmp_path, running.calculator(tmp_path)) as session:
        session.up()
        config, servers = find(Config({"head_server": {"port": session.port}}, {}), embedded=False)
        otlp = make_otlp(receiver.url, {})
        settings = CollectSettings(input=tmp_path / "tasks.jsonl", output=tmp_path / "r.jsonl")

        async def whole() -> Run:
            try:
                return await collect(settings, ConfiguredAgents(config, servers), surface=Surface(watchers=[otlp]))
            finally:
                await close_shared()

        outcome = asyncio.run(whole())
        otlp.close()
        pids = {each["name"]: each["pid"] for each in session.instances().values()}
    assert (outcome.kept, otlp.notes) == (3, [])
    spans = receiver.spans()
    by_id = {span.span_id: span for span in spans}
    served = [span for span in spans if span.kind == trace_pb2.Span.SPAN_KIND_SERVER]
    assert {attributes(span)["velodrome.server"] for span in served} == {
        "calculator_simple_agent",
        "calculator",
        "policy_model",
    }
    for span in served:
        caller = by_id[span.parent_span_id]
        assert caller.start_time_unix_nano <= span.start_time_unix_nano + 1000  # told in whole microseconds
        assert span.end_time_unix_nano <= caller.end_time_unix_nano + 1000
        assert (span.trace_id, span.name) == (caller.trace_id, attributes(span)["velodrome.server"])
        assert attributes(span)["process.pid"] == pids[span.name]
