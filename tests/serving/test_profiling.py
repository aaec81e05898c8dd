"""Servers with profiling: what their files and `/stats` say is what was done, whoever is killed meanwhile."""

from __future__ import annotations

import asyncio
import os
import pstats
import re
import signal
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import hosted
import orjson
import pytest
import running

from velodrome.cli.main import main
from velodrome.resources_servers.calculator.app import Calculator
from velodrome.serving.connect import Components
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
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=running.LIMIT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


class Finished(NamedTuple):
    """A run with profiling that has ended: where, what its servers scored, and what /stats said before the end."""

    folder: Path
    waited_s: list[float]
    asked_s: float  # what the caller of these waited
    thought_s: list[float]
    burned_s: list[float]
    text: str
    data: dict[str, Any]
    of_workers: list[dict[str, Any]]
    refused: tuple[int, str]
    no_such: tuple[int, str]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    cwd = tmp_path_factory.mktemp("profiled")
    (cwd / "env.yaml").write_text(f"server_token: {TOKEN}\n")
    with start(cwd) as session:
        at = {name: each["url"] for name, each in session.up().instances(TOKEN).items()}
        began = time.perf_counter()
        waited = [score["waited_s"] for score in verify(at["busy"], 12, TOKEN, wait_s=0.05)]
        asked_s = time.perf_counter() - began
        thought = [float(running.http(f"{at['busy']}/think", {"seconds": 0.02}, TOKEN)[1]) for _ in range(10)]
        burned = [score["burned_s"] for score in verify(at["crunch"], 30, TOKEN, burn_s=0.01)]
        text = stats(f"{at['busy']}/stats", token=TOKEN)[1]
        data = orjson.loads(stats(f"{at['crunch']}/stats", accept="application/json", token=TOKEN)[1])
        per_worker = [
            orjson.loads(stats(f"{at['crunch']}/stats?worker={n}", accept="application/json", token=TOKEN)[1])
            for n in range(2)
        ]
        refused = stats(f"{at['crunch']}/stats")
        no_such = stats(f"{at['crunch']}/stats?worker=2", token=TOKEN)
        assert session.ends(signal.SIGINT) == 0
    assert "profiles: prof/<name>.log" in session.said
    return Finished(cwd / "prof", waited, asked_s, thought, burned, text, data, per_worker, refused, no_such)


@pytest.mark.slow
def test_every_server_leaves_its_files_and_the_head_none(finished: Finished):
    of_one = (".log", ".wall.log", ".pstat")
    names = {f"{name}{end}" for name in ("busy", "crunch") for end in of_one} | {"callgrind.out.busy"}
    names |= {"callgrind.out.crunch", "crunch.worker0.log", "crunch.worker1.log"}
    assert {path.name for path in finished.folder.iterdir() if not path.name.startswith(".")} == names


@pytest.mark.slow
def test_cpu_that_is_burned_is_charged_to_who_burned_it_on_the_loop_and_in_threads(finished: Finished):
    busy = read_log((finished.folder / "busy.log").read_text())
    counts = {name.removeprefix("Busy."): cost.ncall for name, cost in busy.items() if not name.startswith("_")}
    assert {"verify": 12, "ask_judge": 12, "think": 10, "compute": 10, "burn": 10}.items() <= counts.items()
    for name in ("Busy.think", "Busy.compute", "burn"):
        assert busy[name].ttot == pytest.approx(sum(finished.thought_s), rel=0.1)
    assert busy["Busy.think"].tsub < 0.05 * busy["Busy.think"].ttot
    crunch = read_log((finished.folder / "crunch.log").read_text())
    assert crunch["Crunch.verify"].ncall == 30
    assert crunch["Crunch.verify"].ttot == pytest.approx(sum(finished.burned_s), rel=0.1)
    for cost in (*busy.values(), *crunch.values()):
        assert cost.tavg == pytest.approx(cost.ttot / cost.ncall, abs=1e-6)


@pytest.mark.slow
def test_a_wait_is_charged_on_the_wall_clock_and_costs_no_cpu(finished: Finished):
    wall = read_log((finished.folder / "busy.wall.log").read_text())
    waited_s = sum(finished.waited_s)
    assert waited_s >= 12 * 0.05
    assert (wall["Busy.verify"].ncall, wall["Busy.ask_judge"].ncall) == (12, 12)
    slack_s = 12 * 1e-6  # what the columns round
    assert waited_s - slack_s <= wall["Busy.ask_judge"].tsub <= wall["Busy.ask_judge"].ttot
    assert wall["Busy.ask_judge"].ttot <= wall["Busy.verify"].ttot <= finished.asked_s
    own_s = wall["Busy.verify"].ttot - wall["Busy.ask_judge"].ttot
    assert wall["Busy.verify"].tsub == pytest.approx(own_s, abs=slack_s)
    cpu = read_log((finished.folder / "busy.log").read_text())
    assert cpu["Busy.verify"].ttot < 0.05 * waited_s


@pytest.mark.slow
def test_the_log_of_a_server_is_the_sum_of_its_workers(finished: Finished):
    logs = [read_log((finished.folder / f"crunch.worker{n}.log").read_text()) for n in range(2)]
    counts = [log["Crunch.verify"].ncall if "Crunch.verify" in log else 0 for log in logs]
    assert sum(counts) == 30
    total = read_log((finished.folder / "crunch.log").read_text())["Crunch.verify"].ttot
    assert sum(log["Crunch.verify"].ttot for log in logs if "Crunch.verify" in log) == pytest.approx(total, abs=1e-4)


@pytest.mark.slow
def test_other_tools_read_the_same(finished: Finished):
    stats: Any = pstats.Stats(str(finished.folder / "busy.pstat"))
    result = {name: (primitive, calls) for (_, _, name), (primitive, calls, *_) in stats.stats.items()}
    assert result["Busy.verify"] == (12, 12)
    callers = {name: {above[2] for above in each[4]} for (_, _, name), each in stats.stats.items()}
    assert callers["burn"] == {"Busy.compute"}
    callgrind = (finished.folder / "callgrind.out.busy").read_text()
    assert re.search(r"\nfn=Busy\.verify\n(?s:.*?)cfn=Busy\.ask_judge\ncalls=12 ", callgrind)


@pytest.mark.slow
def test_stats_are_both_tables_as_text_and_as_json_over_all_workers_or_of_one(finished: Finished):
    cpu, _, wall = finished.text.partition("Wall time of the component's own functions, in seconds\n\n")
    assert cpu.startswith("CPU time, in seconds\n\nname ")
    assert read_log(cpu.removeprefix("CPU time, in seconds\n\n"))["Busy.verify"].ncall == 12
    assert read_log(wall)["Busy.verify"].ncall == 12
    assert list(finished.data) == ["cpu", "wall", "silent_workers"]
    assert finished.data["silent_workers"] == []

    def calls(data: dict[str, Any], clock: str) -> int:
        return sum(row["ncall"] for row in data[clock]["rows"] if row["name"] == "Crunch.verify")

    assert [calls(finished.data, clock) for clock in ("cpu", "wall")] == [30, 30]
    assert sum(calls(each, "cpu") for each in finished.of_workers) == 30
    assert sum(calls(each, "wall") for each in finished.of_workers) == 30


@pytest.mark.slow
def test_stats_want_the_token_and_a_worker_that_there_is(finished: Finished):
    assert finished.refused[0] == 401
    assert finished.no_such[0] == 404
    assert orjson.loads(finished.no_such[1])["error"]["message"] == "there is no worker 2: there are 0 to 1"


def test_without_profiling_stats_say_how_to_switch_it_on():
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
        assert session.ends(signal.SIGINT) == 0
    assert calls_in(log, "Busy.verify") == 12
    assert calls_in(tmp_path / "prof" / "busy.wall.log", "Busy.verify") == 12


@pytest.mark.slow
def test_of_a_run_that_is_killed_whole_the_workers_finish_the_profile(tmp_path: Path):
    with start(tmp_path) as session:
        server = session.up().instances()["crunch"]
        verify(server["url"], 9)
        session.process.kill()
        for pid in server["pids"]:
            assert running.gone(pid)
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
    ends = {path.name.removeprefix("busy") for path in folder.glob("busy*")}
    assert ends == {f"{kind}{number}" for kind in (".log", ".wall.log", ".pstat") for number in ("", ".1")}
    assert (folder / "callgrind.out.busy.1").exists()
    assert (folder / "crunch.worker1.log.1").exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "profiling_enabled is set, but not where profiles go: give +profiling_results_dirpath=DIR"),
        (["+profiling_results_dirpath=servers.yaml"], "profiling_results_dirpath servers.yaml: cannot be written"),
    ],
)
def test_a_place_that_is_none_is_one_line_and_nothing_is_started(
    tmp_path: Path, flags: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert main(["run", components(tmp_path), "+profiling_enabled=true", *flags]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err.startswith(f"velo: {said}")) == ("", 1, True)


@pytest.fixture
def embedded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with components, to be used in this process."""
    components(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith(("resources_servers", "velodrome_component_"))]:
        del sys.modules[name]


def test_a_process_without_servers_is_profiled_in_the_same_way(embedded: Path):
    async def scores(component: Any) -> float:
        result = [await component.score("1", {"wait_s": 0.02}, {"output": []}) for _ in range(5)]
        await component.aclose()
        return sum(score["waited_s"] for score in result)

    with profiled(embedded / "prof", "collector"):
        component = Components(load(["+config_paths=[servers.yaml]"], known=[])).connect("busy")
        waited_s = asyncio.run(scores(component))
    with profiled(None, "collector"):
        asyncio.run(scores(component))

    names = {path.name for path in (embedded / "prof").iterdir() if path.is_file()}
    assert names == {"collector.log", "collector.wall.log", "collector.pstat", "callgrind.out.collector"}
    assert calls_in(embedded / "prof" / "collector.log", "Busy.verify") == 5
    wall = read_log((embedded / "prof" / "collector.wall.log").read_text())
    assert wall["Busy.verify"].ttot == pytest.approx(waited_s, rel=0.1)
