"""A trace in real viewers: every stretch, track, counter and arrow arrives, and none of them complains."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import DEADLINE_S
from trace_check import check_file
from trace_viewer import CATAPULT, browser, keep_screenshot, pulled, served

from velodrome.collector.watch.tracing import Tracing
from velodrome.collector.watch.watch import Done, Sample
from velodrome.timing.chrome import Event
from velodrome.timing.spans import Span

PID = os.getpid()

pytestmark = pytest.mark.slow


class FakeClock:
    """Stands still until it is told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def node(name: str, start_ms: float, end_ms: float, *children: Span, **counts: float) -> Span:
    result = Span(name, FakeClock())
    result.start, result.end = start_ms / 1e3, end_ms / 1e3
    result.children = list(children)
    result.counts = counts or None
    return result


def rollout(at: float) -> Span:
    """A served rollout that begins at a millisecond: two model calls, three tools side by side, a judge."""
    model = node("@policy_model", at + 21, at + 290, node("queue", at + 22, at + 60), pid=7002)
    calculator = node("@calculator", at + 320, at + 470, pid=7003)
    tools = [
        node("tool:calculator", at + 311, at + 480, calculator, cpu_us=900),
        node("tool:search", at + 312, at + 400),
        node("tool:clock", at + 313, at + 490),
    ]
    judge = node("judge", at + 820, at + 880, node("@judge_model", at + 825, at + 875, pid=7004))
    agent = node(
        "@my_agent",
        at + 2,
        at + 900,
        node("model", at + 3, at + 300, node("queue", at + 3, at + 20), model, tokens=93, first_byte_us=20_000),
        node("tools", at + 310, at + 500, *tools),
        node("model", at + 510, at + 800, node("@policy_model", at + 520, at + 790, pid=7002)),
        node("verify", at + 810, at + 890, judge),
        pid=7001,
    )
    return node("rollout", at, at + 905, agent)


def write_trace(path: Path, *, slots: int = 4, turns: int = 12) -> list[Event]:
    """A served collection of slots x turns rollouts, and its events."""
    clock = FakeClock()
    path.unlink(missing_ok=True)
    tracing = Tracing(path, clock=clock)
    for turn in range(turns):
        for slot in range(slots):
            at = 1e6 + 1000 * turn + 23 * slot
            failed = (turn + slot) % 7 == 3
            end = (at + 906) / 1e3
            tracing.finished(
                Done(
                    key=f"task-{slot}/{turn}",
                    task_index=slot,
                    rollout_index=turn,
                    agent="my_agent",
                    kept=not failed,
                    reward=None if failed else 1.0,
                    error="model: HTTP 500" if failed else None,
                    spans=rollout(at),
                    trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                    slot=slot,
                    written=(end, end + 0.0004),
                )
            )
        done = slots * (turn + 1)
        tracing.sampled(Sample(1001.0 + turn, slots - turn % 2, slots, done, 0, 0.4 + turn / 40, 0.0008, 0, 0))
    clock.now = 1001.0 + turns
    tracing.close()
    return check_file(path).events


class Viewers:
    """Both viewers over one folder of traces; what they ask for beyond loopback is refused and remembered."""

    def __init__(self, chromium: Any, url: str) -> None:
        self.url = url
        self.outside: list[str] = []
        self.errors: list[str] = []
        self.page = chromium.new_page(viewport={"width": 1600, "height": 1000})
        self.page.set_default_timeout(DEADLINE_S * 1000)
        self.page.route("**/*", self._guard)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def _guard(self, route: Any) -> None:
        if route.request.url.startswith((self.url + "/", "data:", "blob:")):
            route.continue_()
        else:
            self.outside.append(route.request.url)
            route.abort()

    def keep_screenshot(self, name: str) -> None:
        keep_screenshot(self.page, name)


@pytest.fixture(scope="module")
def wheel() -> Path:
    return pulled()


@pytest.fixture
def viewers(wheel: Path, tmp_path: Path) -> Iterator[Viewers]:
    with served(wheel, tmp_path) as url, browser() as chromium:
        yield Viewers(chromium, url)


def by_phase(events: list[Event], phase: str) -> list[Event]:
    return [event for event in events if event["ph"] == phase]


def named(events: list[Event], what: str) -> dict[int, str]:
    return {event["pid"]: event["args"]["name"] for event in events if event["name"] == what}


CATAPULT_READS = """
async (url) => {
  const answer = await fetch(url);
  const data = url.endsWith('.gz') ? await answer.arrayBuffer() : await answer.text();
  const model = new tr.Model();
  await new tr.importer.Import(model).importTracesWithProgressDialog([data]);
  const threads = model.getAllThreads();
  const container = document.createElement('track-view-container');
  container.id = 'track_view_container';
  const viewer = document.createElement('tr-ui-timeline-view');
  viewer.track_view_container = container;
  Polymer.dom(viewer).appendChild(container);
  viewer.id = 'trace-viewer';
  viewer.style.cssText = 'width: 100%; height: 100%';
  Polymer.dom(document.body).appendChild(viewer);
  viewer.model = model;
  return {
    warnings: model.importWarnings,
    slices: threads.flatMap(thread => thread.sliceGroup.slices.map(slice => slice.title)),
    unfinished: threads.flatMap(thread => thread.sliceGroup.slices.filter(slice => slice.didNotFinish)).length,
    tracks: threads.map(thread => [thread.parent.pid, thread.tid, thread.name]),
    processes: model.getAllProcesses().map(process => [process.pid, process.name]),
    counters: model.getAllCounters().map(counter => [counter.name, counter.series[0].samples.length]),
    flows: model.flowEvents.map(flow => [flow.startSlice.title, flow.endSlice.title]),
  };
}
"""


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_the_viewer_of_chrome_tracing_shows_all_of_it_and_warns_of_nothing(
    viewers: Viewers, tmp_path: Path, name: str
) -> None:
    events = write_trace(tmp_path / name)

    viewers.page.goto(f"{viewers.url}/{CATAPULT}")
    viewers.page.wait_for_function("typeof tr === 'object' && document.readyState === 'complete'")
    seen = viewers.page.evaluate(CATAPULT_READS, f"/traces/{name}")
    viewers.keep_screenshot(f"catapult-{name}.png")

    assert seen["warnings"] == []
    assert seen["unfinished"] == 0
    assert Counter(seen["slices"]) == Counter(event["name"] for event in by_phase(events, "X"))
    assert dict(seen["processes"]) == named(events, "process_name")
    tracks = [(event["pid"], event["tid"], event["args"]["name"]) for event in events if event["name"] == "thread_name"]
    assert sorted(map(tuple, seen["tracks"])) == sorted(tracks)
    assert dict(seen["counters"]) == Counter(event["name"] for event in by_phase(events, "C"))
    assert Counter(map(tuple, seen["flows"])) == expected_flows(48)
    assert viewers.errors == []
    assert viewers.outside == []


def expected_flows(rollouts: int) -> dict[tuple[str, str], int]:
    failed = len([1 for turn in range(12) for slot in range(4) if (turn + slot) % 7 == 3])
    return {
        ("rollout", "my_agent"): rollouts - failed,
        ("failed rollout", "my_agent"): failed,
        ("model", "policy_model"): 2 * rollouts,
        ("tool:calculator", "calculator"): rollouts,
        ("judge", "judge_model"): rollouts,
    }


QUERY = """
async (sql) => {
  const result = await app.trace.engine.query(sql);
  const columns = result.columns();
  const rows = [];
  for (const row = result.iter({}); row.valid(); row.next()) {
    rows.push(columns.map(column => { const v = row.get(column); return typeof v === 'bigint' ? Number(v) : v; }));
  }
  return rows;
}
"""

FLOWS = """
select source.name, target.name, count(*) from flow
join slice source on source.id = flow.slice_out join slice target on target.id = flow.slice_in group by 1, 2
"""
TRACKS = "select pid, tid, thread.name from thread join process using (upid) where thread.name is not null"
COUNTS = "select counter_track.name, count(*) from counter join counter_track on track_id = counter_track.id group by 1"
# A stretch that did not fit into the one around it is cut, or dropped with a stat.
FAULTS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"


def opened(viewers: Viewers, name: str) -> Any:
    """Perfetto with the trace open; a function that asks it with SQL."""
    viewers.page.goto(f"{viewers.url}/index.html#!/?url={viewers.url}/traces/{name}")
    viewers.page.wait_for_function("window.app?.trace && !window.app.isLoadingTrace")
    viewers.page.evaluate("window.waitForPerfettoIdle()")
    return lambda sql: [tuple(row) for row in viewers.page.evaluate(QUERY, sql)]


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_perfetto_shows_all_of_it_and_counts_no_fault(viewers: Viewers, tmp_path: Path, name: str) -> None:
    events = write_trace(tmp_path / name)

    ask = opened(viewers, name)
    viewers.page.get_by_text("collector").first.dispatch_event("click")
    viewers.page.evaluate("window.waitForPerfettoIdle()")
    viewers.keep_screenshot(f"perfetto-{name}.png")

    assert ask(FAULTS) == []
    assert dict(ask("select name, count(*) from slice where dur > 0 group by 1")) == Counter(
        event["name"] for event in by_phase(events, "X")
    )
    assert ask("select count(*) from slice where name in ('trace start', 'trace end')") == [(2,)]
    assert dict(ask("select pid, name from process where pid > 0")) == named(events, "process_name")
    tracks = [(event["pid"], event["tid"], event["args"]["name"]) for event in events if event["name"] == "thread_name"]
    assert sorted(ask(TRACKS)) == sorted(tracks)
    assert dict(ask(COUNTS)) == Counter(
        f"{event['name']} {next(iter(event['args']))}" for event in by_phase(events, "C")
    )
    assert {(source, target): count for source, target, count in ask(FLOWS)} == expected_flows(48)
    assert viewers.errors == []


def test_perfetto_opens_a_trace_whose_writer_was_killed(viewers: Viewers, tmp_path: Path) -> None:
    events = write_trace(tmp_path / "whole.json")
    data = (tmp_path / "whole.json").read_bytes()
    cut = data[: data.index(b'"task-2/7"')]
    (tmp_path / "cut.json").write_bytes(cut)
    rollouts = cut.count(b'"name":"write"')

    ask = opened(viewers, "cut.json")

    assert 0 < rollouts < 48
    assert ask("select count(*) from slice where name = 'write'") == [(rollouts,)]
    assert len(by_phase(events, "X")) > ask("select count(*) from slice")[0][0] > 14 * rollouts
