"""Servers with profiling: what their files and `/stats` say is what was done, whoever is killed meanwhile."""

from __future__ import annotations

import asyncio
import os
import pstats
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import httpx2
import orjson
import pytest

from tests.support import hosted, running
from velodrome.resources_servers.calculator.app import Calculator
from velodrome.serving.components import Components
from velodrome.serving.profiling import OFF, profiled
from velodrome.settings import load

TOKEN = "a-token-for-profiles"
BUSY = """
import asyncio
import time

from velodrome import Environment, tool


def burn(seconds):
    start = time.thread_time()
    while time.thread_time() - start < seconds:
        sum(range(2000))
    return time.thread_time() - start


class Busy(Environment):
    @tool
    async def think(self, seconds: float) -> float:
        return self.compute(seconds)

    def compute(self, seconds):
        return burn(seconds)

    async def ask_judge(self, seconds):
        start = time.perf_counter()
        await asyncio.sleep(seconds)
        return time.perf_counter() - start

    async def verify(self, task, response):
        return {"reward": 1.0, "waited_s": await self.ask_judge(task.get("wait_s", 0.0))}
"""
CRUNCH = """
from resources_servers.busy.app import burn
from velodrome import Environment


class Crunch(Environment):
    def verify(self, task, response):
        return {"reward": 1.0, "burned_s": burn(task.get("burn_s", 0.0))}
"""
SERVERS = """
busy:
  resources_servers:
    busy: {entrypoint: app.py}
crunch:
  resources_servers:
    crunch: {entrypoint: app.py, num_workers: 2}
"""


class Cost(NamedTuple):
    """One line of a log."""

    ncall: int
    tsub: float
    ttot: float
    tavg: float


def read_log(text: str) -> dict[str, Cost]:
    """The project's functions of a log, after a look at its columns."""
    head, *lines = text.partition("\n\n")[0].splitlines()
    assert head.split() == ["name", "ncall", "tsub", "ttot", "tavg"]
    result = {}
    for line in lines:
        name, ncall, *times = line.rsplit(maxsplit=4)
        result[name] = Cost(int(ncall), *map(float, times))
    assert [cost.ttot for cost in result.values()] == sorted((cost.ttot for cost in result.values()), reverse=True)
    return result


def until(there: Callable[[], Any]) -> Any:
    """What a question answers once it is true; bounded."""
    deadline = time.monotonic() + running.LIMIT_S
    while time.monotonic() < deadline:
        result = there()
        if result:
            return result
        time.sleep(0.02)
    raise AssertionError("it never came true")


def components(cwd: Path) -> str:
    running.write_component(cwd, "resources_servers", "busy", BUSY)
    running.write_component(cwd, "resources_servers", "crunch", CRUNCH)
    (cwd / "servers.yaml").write_text(SERVERS)
    return "+config_paths=[servers.yaml]"


def start(cwd: Path, *more: str, every_s: float = 60.0) -> running.Session:
    flags = ("+profiling_enabled=true", "+profiling_results_dirpath=prof", f"+profiling_save_every_s={every_s}")
    return running.Session(cwd, components(cwd), *flags, *more)


def verify(url: str, times: int, token: str | None = None, **task: float) -> list[dict[str, Any]]:
    result = [running.http(f"{url}/verify", {**task, "response": {"output": []}}, token) for _ in range(times)]
    assert {status for status, _ in result} == {200}
    return [score for _, score in result]


def stats(url: str, *, accept: str = "*/*", token: str | None = None) -> tuple[int, str]:
    headers = {"Accept": accept} | ({"Authorization": f"Bearer {token}"} if token else {})
    reply = httpx2.get(url, headers=headers, timeout=running.LIMIT_S)
    return reply.status_code, reply.text


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run with profiling that has ended: its files, what its servers scored, and what /stats said before the end."""
    cwd = tmp_path_factory.mktemp("profiled")
    (cwd / "env.yaml").write_text(f"server_token: {TOKEN}\n")
    result = SimpleNamespace(folder=cwd / "prof")
    with start(cwd) as session:
        at = {name: each["url"] for name, each in session.up().instances(TOKEN).items()}
        crunch = f"{at['crunch']}/stats"
        began = time.perf_counter()
        result.waited_s = sum(score["waited_s"] for score in verify(at["busy"], 12, TOKEN, wait_s=0.05))
        result.asked_s = time.perf_counter() - began  # what the caller of these waited
        thoughts = [running.http(f"{at['busy']}/think", {"seconds": 0.02}, TOKEN)[1] for _ in range(10)]
        result.thought_s = sum(map(float, thoughts))
        result.burned_s = sum(score["burned_s"] for score in verify(at["crunch"], 30, TOKEN, burn_s=0.01))
        result.text = stats(f"{at['busy']}/stats", token=TOKEN)[1]
        result.whole, *result.of_workers = (
            orjson.loads(stats(crunch + query, accept="application/json", token=TOKEN)[1])
            for query in ("", "?worker=0", "?worker=1")
        )
        result.refused = [stats(crunch)[0], stats(f"{crunch}?worker=2", token=TOKEN)[0]]
        assert session.ends(signal.SIGINT) == 0
    assert "profiles: prof/<name>.log" in session.said
    return result


@pytest.mark.slow
def test_every_server_leaves_its_files_and_the_head_none(finished: Any):
    of_one = (".log", ".pstat")
    names = {f"{name}{end}" for name in ("busy", "crunch") for end in of_one} | {"callgrind.out.busy"}
    names |= {"callgrind.out.crunch", "crunch.worker0.log", "crunch.worker1.log"}
    assert {path.name for path in finished.folder.iterdir() if not path.name.startswith(".")} == names


@pytest.mark.slow
def test_cpu_that_is_burned_is_charged_to_who_burned_it_on_the_loop_and_in_threads(finished: Any):
    busy = read_log((finished.folder / "busy.log").read_text())
    counts = {name.removeprefix("Busy."): cost.ncall for name, cost in busy.items() if not name.startswith("_")}
    assert {"verify": 12, "ask_judge": 12, "think": 10, "compute": 10, "burn": 10}.items() <= counts.items()
    for name in ("Busy.think", "Busy.compute", "burn"):
        assert busy[name].ttot == pytest.approx(finished.thought_s, rel=0.1)
    assert busy["Busy.think"].tsub < 0.05 * busy["Busy.think"].ttot
    logs = [read_log((finished.folder / f"crunch{of}.log").read_text()) for of in ("", ".worker0", ".worker1")]
    crunch, *of_workers = [log.get("Crunch.verify", Cost(0, 0, 0, 0)) for log in logs]
    assert crunch.ncall == sum(cost.ncall for cost in of_workers) == 30
    assert crunch.ttot == pytest.approx(sum(cost.ttot for cost in of_workers), abs=1e-4)
    assert crunch.ttot == pytest.approx(finished.burned_s, rel=0.1)
    for cost in (*busy.values(), crunch):
        assert cost.tavg == pytest.approx(cost.ttot / cost.ncall, abs=1e-6)


@pytest.mark.slow
def test_other_tools_read_the_same(finished: Any):
    each: Any = pstats.Stats(str(finished.folder / "busy.pstat"))
    rows = {name: row for (_, _, name), row in each.stats.items()}
    assert rows["Busy.verify"][:2] == (12, 12)
    assert {above[2] for above in rows["burn"][4]} == {"Busy.compute"}
    callgrind = (finished.folder / "callgrind.out.busy").read_text()
    assert re.search(r"\nfn=Busy\.verify\n(?s:.*?)cfn=Busy\.ask_judge\ncalls=12 ", callgrind)


@pytest.mark.slow
def test_stats_are_the_table_as_text_and_as_json_over_all_workers_or_of_one(finished: Any):
    assert read_log(finished.text.removeprefix("CPU time, in seconds\n\n"))["Busy.verify"].ncall == 12

    def calls(data: dict[str, Any]) -> int:
        return sum(row["ncall"] for row in data["cpu"]["rows"] if row["name"] == "Crunch.verify")

    assert finished.whole["silent_workers"] == []
    assert calls(finished.whole) == sum(map(calls, finished.of_workers)) == 30
    assert finished.refused == [401, 404]
    with hosted.hosted("resources_servers", Calculator) as url:
        status, text = stats(f"{url}/stats")
    assert (status, orjson.loads(text)["error"]["message"]) == (404, OFF)


def calls_in(path: Path, name: str) -> int:
    log = read_log(path.read_text()) if path.exists() else {}
    return log[name].ncall if name in log else 0


@pytest.mark.slow
def test_what_a_killed_worker_had_saved_is_kept_and_its_successor_adds_to_it(tmp_path: Path):
    log = tmp_path / "prof" / "busy.log"
    with start(tmp_path, every_s=0.2) as session:
        before = session.up().instances()["busy"]
        verify(before["url"], 7)
        until(lambda: calls_in(log, "Busy.verify") == 7)
        os.kill(before["pid"], signal.SIGKILL)
        session.expect("busy: restarted")
        verify(before["url"], 5)
        _, text = stats(f"{before['url']}/stats")
        assert read_log(text.removeprefix("CPU time, in seconds\n\n"))["Busy.verify"].ncall == 12
        servers = session.instances()
        verify(servers["crunch"]["url"], 9)
        until(lambda: calls_in(tmp_path / "prof" / "crunch.log", "Crunch.verify") == 9)
        until(lambda: calls_in(log, "Busy.verify") == 12)
        session.process.kill()  # of a run that is killed whole, what was saved is kept
        for pid in [*servers["crunch"]["pids"], *servers["busy"]["pids"]]:
            assert running.gone(pid)
    assert calls_in(log, "Busy.verify") == 12
    assert calls_in(tmp_path / "prof" / "crunch.log", "Crunch.verify") == 9


@pytest.mark.slow
def test_the_profile_of_the_run_before_is_kept_under_a_number(tmp_path: Path):
    folder = tmp_path / "prof"
    for count in (3, 4):
        with start(tmp_path) as session:
            verify(session.up().instances()["busy"]["url"], count)
            if count == 4:
                with start(tmp_path) as other:
                    assert other.ends() == 2
                assert "another run writes the profile of busy there" in other.said
            assert session.ends(signal.SIGTERM) == 0
    assert [calls_in(folder / f"busy.log{end}", "Busy.verify") for end in ("", ".1")] == [4, 3]
    older = {"busy.log.1", "busy.pstat.1", "callgrind.out.busy.1", "crunch.worker1.log.1"}
    assert older <= {path.name for path in folder.iterdir()}


@pytest.fixture
def forgotten() -> Iterator[None]:
    """Components that are imported in this process are forgotten with their test."""
    yield
    for name in [name for name in sys.modules if name.startswith(("resources_servers", "velodrome_component_"))]:
        del sys.modules[name]


@pytest.mark.usefixtures("forgotten")
def test_a_process_without_servers_is_profiled_in_the_same_way_and_on_the_wall_clock_waits_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    components(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    async def scores(component: Any) -> float:
        result = [await component.score("1", {"wait_s": 0.02}, {"output": []}) for _ in range(5)]
        await component.aclose()
        return sum(score["waited_s"] for score in result)

    with profiled(tmp_path / "prof", "collector", clock="wall"):
        component = Components(load(["+config_paths=[servers.yaml]"], known=[])).connect("busy")
        waited_s = asyncio.run(scores(component))
    with profiled(None, "collector"):
        asyncio.run(scores(component))

    names = {path.name for path in (tmp_path / "prof").iterdir() if path.is_file()}
    assert names == {"collector.log", "collector.pstat", "callgrind.out.collector"}
    wall = read_log((tmp_path / "prof" / "collector.log").read_text())
    assert wall["Busy.verify"].ncall == 5
    assert wall["Busy.verify"].ttot == pytest.approx(waited_s, rel=0.1)
