"""A trace in real viewers: every stretch, track, counter and arrow arrives, and none of them complains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.patience import DEADLINE_S
from tests.support.trace_check import Event, check_file
from tests.support.trace_viewer import CATAPULT, browser, keep_screenshot, pulled, served
from velodrome.profiling.chrome_trace import write_trace

Json = dict[str, Any]

pytestmark = [pytest.mark.slow, pytest.mark.browser]


def node(name: str, start_ms: float, end_ms: float, *children: Any, **counts: float) -> list[Any]:
    """A span, its times in milliseconds after the start of its rollout."""
    return [name, round(start_ms * 1e3), round((end_ms - start_ms) * 1e3), counts, list(children)]


def tree() -> list[Any]:
    """A served rollout: two model calls, three tools side by side, a judge."""
    model = node("@policy_model", 21, 290, node("queue", 22, 60), pid=7002)
    calculator = node("@calculator", 320, 470, pid=7003)
    tools = [
        node("tool:calculator", 311, 480, calculator, cpu_us=900),
        node("tool:search", 312, 400),
        node("tool:clock", 313, 490),
    ]
    judge = node("judge", 820, 880, node("@judge_model", 825, 875, pid=7004))
    agent = node(
        "@my_agent",
        2,
        900,
        node("model", 3, 300, node("queue", 3, 20), model, tokens=93, first_byte_us=20_000),
        node("tools", 310, 500, *tools),
        node("model", 510, 800, node("@policy_model", 520, 790, pid=7002)),
        node("verify", 810, 890, judge),
        pid=7001,
    )
    return [agent]


def draw(path: Path) -> list[Event]:
    """A served collection of 48 rollouts in four slots, and its events."""
    slots, turns, begun_s = 4, 12, 1_700_000_000
    rows, failures, samples = [], [], []
    for turn in range(turns):
        for slot in range(slots):
            failed = (turn + slot) % 7 == 3
            meta = {"key": f"task-{slot}/{turn}", "agent": "my_agent", "timing": {"total_s": 0.905, "tree": tree()}}
            meta["finished_at"] = begun_s + turn + 0.023 * slot + 0.905
            if failed:
                failures.append({**meta, "boundary": "model", "error": "HTTP 500"})
            else:
                rows.append({"output": [], "response": {}, "reward": 1.0, "meta": meta})
        load = {"in_flight": slots - turn % 2, "limit": slots, "cpu": 0.4 + turn / 40, "lag_s": 0.0008}
        samples.append({"at": begun_s + turn + 1.0, "kept": slots * (turn + 1), "failed": 0, "pace": [], **load})
    rollouts = path.with_name("r.jsonl")
    for kind, lines in (("jsonl", rows), ("failures.jsonl", failures), ("samples.jsonl", samples)):
        path.with_name(f"r.{kind}").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    assert write_trace(rollouts, path) == []
    return check_file(path)


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


@pytest.fixture
def viewers(tmp_path: Path) -> Iterator[Viewers]:
    with served(pulled(), tmp_path) as url, browser() as chromium:
        yield Viewers(chromium, url)


def shown(events: list[Event]) -> Json:
    """What a viewer must show of these events."""
    by_phase = {phase: [event for event in events if event["ph"] == phase] for phase in "XC"}
    named = {what: [event for event in events if event["name"] == what] for what in ("process_name", "thread_name")}
    failed = sum(event["name"] == "failed rollout" for event in by_phase["X"])
    return {
        "slices": Counter(event["name"] for event in by_phase["X"]),
        "processes": {event["pid"]: event["args"]["name"] for event in named["process_name"]},
        "tracks": sorted((event["pid"], event["tid"], event["args"]["name"]) for event in named["thread_name"]),
        "counters": Counter(event["name"] for event in by_phase["C"]),
        "flows": {
            ("rollout", "my_agent"): 48 - failed,
            ("failed rollout", "my_agent"): failed,
            ("model", "policy_model"): 96,
            ("tool:calculator", "calculator"): 48,
            ("judge", "judge_model"): 48,
        },
    }


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


def test_the_viewer_of_chrome_tracing_shows_all_of_it_and_warns_of_nothing(viewers: Viewers, tmp_path: Path) -> None:
    name = "trace.json.gz"
    events = draw(tmp_path / name)

    viewers.page.goto(f"{viewers.url}/{CATAPULT}")
    viewers.page.wait_for_function("typeof tr === 'object' && document.readyState === 'complete'")
    seen = viewers.page.evaluate(CATAPULT_READS, f"/traces/{name}")
    keep_screenshot(viewers.page, "catapult.png")

    assert (seen["warnings"], seen["unfinished"]) == ([], 0)
    assert {
        "slices": Counter(seen["slices"]),
        "processes": dict(seen["processes"]),
        "tracks": sorted(map(tuple, seen["tracks"])),
        "counters": dict(seen["counters"]),
        "flows": Counter(map(tuple, seen["flows"])),
    } == shown(events)
    assert (viewers.errors, viewers.outside) == ([], [])


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


def test_perfetto_shows_all_of_it_and_counts_no_fault(viewers: Viewers, tmp_path: Path) -> None:
    events = draw(tmp_path / "trace.json.gz")

    ask = opened(viewers, "trace.json.gz")
    keep_screenshot(viewers.page, "perfetto.png")

    assert ask(FAULTS) == []
    assert {
        "slices": dict(ask("select name, count(*) from slice where dur > 0 group by 1")),
        "processes": dict(ask("select pid, name from process where pid > 0")),
        "tracks": sorted(ask(TRACKS)),
        "counters": {name.rpartition(" ")[0]: count for name, count in ask(COUNTS)},
        "flows": {(source, target): count for source, target, count in ask(FLOWS)},
    } == shown(events)
    assert viewers.errors == []
