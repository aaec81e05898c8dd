"""A real collection: scraped while it runs, sampled into a file, its rows sent to a real OTLP receiver at the end."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.collector.embedded import config, lines_of, write_tasks
from tests.support import running
from tests.support.otlp_receiver import attributes, receiving
from tests.support.patience import DEADLINE_S
from velodrome.collector.agents import ConfiguredAgents
from velodrome.collector.collection import Surface, collect
from velodrome.collector.result import Run
from velodrome.collector.settings import CollectSettings
from velodrome.collector.watch.exporting import Exposed
from velodrome.errors import InputError
from velodrome.telemetry import Receiver

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


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Surface], Run]:
    monkeypatch.chdir(tmp_path)
    running.write_component(tmp_path, "resources_servers", "strict", ENV)
    write_tasks(tmp_path / "tasks.jsonl", range(12))

    def go(surface: Surface) -> Run:
        settings = CollectSettings(input=tmp_path / "tasks.jsonl", output=tmp_path / "r.jsonl", parallel=3)
        agents = ConfiguredAgents(config("strict", {"answers": ANSWERS}))
        return asyncio.run(collect(settings, agents, surface=surface))

    return go


def scraped(url: str) -> dict[Any, float]:
    """Every sample by its name, or by its name and label."""
    with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        families = text_string_to_metric_families(answer.read().decode())
    samples = [sample for family in families for sample in family.samples]
    names = [(each.name.removeprefix("velodrome_"), *each.labels.values()) for each in samples]
    return {name if name[1:] else name[0]: each.value for name, each in zip(names, samples, strict=True)}


@pytest.fixture
def exposed() -> Iterator[Exposed]:
    result = Exposed(0)
    yield result
    result.close()


def test_a_collection_can_be_scraped_while_it_runs_and_leaves_samples(run: Any, exposed: Exposed, tmp_path: Path):
    seen: list[dict[Any, float]] = []

    def look(note: str) -> None:
        seen.append(scraped(exposed.url))

    outcome = run(Surface(look, exposed=exposed))
    end, [*_, last] = scraped(exposed.url), lines_of(tmp_path / "r.samples.jsonl")

    assert (outcome.kept, outcome.failed) == (9, 3)
    over = [each["rollouts_total", "kept"] + each["rollouts_total", "failed"] for each in seen]
    assert any(0 < count < 12 for count in over)  # a fault in the environment is a note, in the middle
    parts = {key[1]: value for key, value in end.items() if key[0] == "rollout_part_seconds_total"}
    assert sum(parts.values()) == pytest.approx(end["rollout_seconds_total"], abs=12e-5)
    assert min(last["tokens"], last["bytes"]) > 0
    assert set(last) == {"at", "in_flight", "limit", "kept", "failed", "cpu", "lag_s", "bytes", "tokens", "pace"}
    assert (last["kept"], last["failed"], last["limit"], last["in_flight"]) == (9, 3, 3, 0)
    assert (
        end.items()
        >= {
            ("rollouts_total", "kept"): 9,
            ("rollouts_total", "failed"): 3,
            "rollout_reward_mean": 0.5,
            "rollouts_limit": 3,
            "tokens_total": last["tokens"],
            "written_bytes_total": last["bytes"],
        }.items()
    )


def test_parts_and_retries_are_those_of_the_timing(exposed: Exposed):
    timing = {"total_s": 6.0, "model_s": 1.5, "backoff_s": 0.5, "other_s": 4.0, "retries": 2, "rate_limited": 1}
    exposed.finished(timing, kept=False)
    result = scraped(exposed.url)
    parts = {"model": 1.5, "backoff": 0.5, "other": 4.0, "tools": 0.0, "connection": 0.0}
    assert {name: result["rollout_part_seconds_total", name] for name in parts} == parts
    assert (result["retries_total"], result["rate_limited_total"], result["rollout_seconds_total"]) == (2, 1, 6.0)


def test_the_port_is_free_again_at_the_end_and_one_that_is_taken_is_a_mistake():
    exposed = Exposed(0)
    port = int(exposed.url.split(":")[2].split("/")[0])
    assert running.http(exposed.url + "x") == (404, "there is only /metrics here\n")
    for taken in (port, 65536):
        with pytest.raises(InputError, match=f"metrics_port={taken}: cannot listen there"):
            Exposed(taken)
    exposed.close()
    exposed.close()
    Exposed(port).close()


def test_every_attempt_of_a_collection_arrives_as_a_trace_of_its_own(run: Any, tmp_path: Path):
    run(Surface(traced=True))
    rows = [row["meta"] | {"reward": row["reward"]} for row in lines_of(tmp_path / "r.jsonl")]
    rows += lines_of(tmp_path / "r.failures.jsonl")
    with receiving() as receiver:
        assert Receiver(receiver.url, {}).send(tmp_path / "r.jsonl") == []
    spans = receiver.spans()
    roots = {span.trace_id.hex(): span for span in spans if not span.parent_span_id}
    assert len(roots) == len(rows) == 12
    for row in rows:
        _, trace_id, span_id, _ = row["trace"].split("-")
        root = roots[trace_id]
        assert (root.name, root.span_id.hex()) == ("rollout", span_id)
        kept = "boundary" not in row
        result = attributes(root)
        assert (result["velodrome.key"], result["velodrome.kept"]) == (row["key"], kept)
        assert result.get("velodrome.reward") == (0.5 if kept else None)
        error = "" if kept else "verify: RuntimeError: no such luck"
        assert (root.status.code, root.status.message.partition(" (")[0]) == (0 if kept else 2, error)
        below = [span for span in spans if span.trace_id == root.trace_id and span is not root]
        names = [span.name for span in below]
        assert (names.count("model"), "tool:look" in names) == (2, True)
        known = {span.span_id for span in below} | {root.span_id}
        assert {span.parent_span_id for span in below} <= known
        assert len(known) == len(below) + 1
