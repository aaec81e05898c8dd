"""`/metrics` of real servers, read by Prometheus' own parser."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.responses import Response

from tests.support import hosted as hosting
from tests.support import running
from velodrome.http import close_shared
from velodrome.resources_servers.calculator.app import Calculator
from velodrome.resources_servers.example_session_state_mgmt.app import ExampleSessionStateMgmt
from velodrome.serving import wire
from velodrome.serving.apps.measures import Core, Measures
from velodrome.serving.apps.routes import ALONE, Peers, RequestLimits, get
from velodrome.serving.apps.web_app import Status, make_app, timed

SUM = {"expression": "1 + 2"}
REQUESTS = "velodrome_http_requests_total"
Samples = dict[tuple[Any, ...], float]
STATUS = Status("s", "resources_servers", "s")
ASKED: Any = SimpleNamespace(headers={})  # as much of a request as is looked at


def parsed(text: str) -> Samples:
    """Every sample by its name and labels; `server` is left out."""
    return {
        (sample.name, *sorted((name, value) for name, value in sample.labels.items() if name != "server")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scraped(url: str, token: str | None = None) -> Samples:
    status, text = running.http(f"{url}/metrics", token=token)
    assert status == 200, text
    return parsed(text)


def named(samples: Samples, name: str) -> dict[tuple[Any, ...], float]:
    return {labels[1:]: value for labels, value in samples.items() if labels[0] == name}


def requests(samples: Samples) -> dict[tuple[str, str, str], float]:
    """How many requests, by route, method and status, over all workers."""
    result: dict[tuple[str, str, str], float] = {}
    for labels, value in named(samples, REQUESTS).items():
        of = dict(labels)
        key = of["route"], of["method"], of["status"]
        result[key] = result.get(key, 0) + value
    return result


def test_requests_are_counted_by_route_method_and_status_and_what_is_no_route_as_other():
    with hosting.hosted("resources_servers", Calculator) as url:
        for _ in range(3):
            running.http(f"{url}/calculator", SUM)
        running.http(f"{url}/no_such_tool", SUM)
        running.http(f"{url}/verify", {"response": 1})
        running.http(f"{url}/not/a/route")
        running.http(f"{url}/verify")
        first = scraped(url)
        second = scraped(url)
    expected = {
        ("/calculator", "POST", "200"): 3,
        ("other", "POST", "200"): 1,  # the model is told that there is no such tool
        ("/verify", "POST", "422"): 1,
        ("other", "GET", "404"): 1,
        ("/verify", "GET", "405"): 1,
    }
    assert requests(first) == expected
    assert requests(second) == expected | {("/metrics", "GET", "200"): 1}
    seconds = named(first, "velodrome_http_request_seconds_total")
    assert {dict(labels)["route"] for labels, value in seconds.items() if value > 0} == {
        "/calculator",
        "other",
        "/verify",
    }


def test_a_fault_of_ours_is_counted_as_500_and_leaves_nothing_in_flight():
    async def run() -> Samples:
        async def broken(request: Any) -> Any:
            raise RuntimeError("a bug")

        app = make_app(STATUS, [get("/broken", broken)], RequestLimits())
        with pytest.raises(RuntimeError, match="a bug"):
            await hosting.ask(app, "GET", "/broken")
        return parsed((await hosting.ask(app, "GET", "/metrics"))[1].decode())

    samples = asyncio.run(run())
    assert requests(samples) == {("/broken", "GET", "500"): 1}
    assert samples["velodrome_http_requests_in_flight", ("worker", "0")] == 1  # the scrape


def test_sessions_that_are_open_are_told_and_what_the_server_is():
    with hosting.hosted("resources_servers", ExampleSessionStateMgmt) as url:
        for _ in range(2):
            running.http(f"{url}/seed_session", {})
        result = scraped(url)
    assert result["velodrome_open_sessions", ("worker", "0")] == 2
    assert result["velodrome_http_requests_in_flight", ("worker", "0")] == 1  # the scrape
    (info,) = named(result, "velodrome_server_info")
    report = dict(info)
    assert (report["type"], report["implementation"], report["worker"]) == ("resources_servers", "test", "0")
    assert result["process_open_fds", ("worker", "0")] > 3


def test_a_scrape_tells_of_all_workers_each_under_its_number():
    token = "a-token-for-tests"  # which the peers have, too
    with hosting.hosted("resources_servers", Calculator, workers=2, limits=RequestLimits(token=token)) as url:
        for _ in range(20):
            running.http(f"{url}/calculator", SUM, token)
        assert running.http(f"{url}/metrics")[0] == 401
        result = scraped(url, token)
    assert (requests(result)["/calculator", "POST", "200"], requests(result)["/metrics", "GET", "401"]) == (20, 1)
    assert {dict(labels)["worker"] for labels in named(result, "process_open_fds")} == {"0", "1"}
    assert (result["velodrome_workers",], result["velodrome_workers_silent",]) == (2, 0)


def test_a_peer_that_gives_no_answer_is_left_out_and_counted(wire: Any):
    async def run(*answers: Any) -> Samples:
        async with wire(*answers) as peer:
            urls = ["http://127.0.0.1:1", "http://127.0.0.1:2", peer.url]
            measures = Measures(STATUS, Peers(urls, 1, "a-token-for-tests"))
            answer = await measures.report(ASKED)
            await close_shared()
            seen = peer.seen[0]
            assert (seen.path, seen.headers[ALONE]) == ("/metrics", "yes")
            assert seen.headers["Authorization"] == "Bearer a-token-for-tests"
        return parsed(answer.body.decode())

    for answer in (wire.NEVER, wire.RESET, wire.reply(500), wire.reply(200, b"not JSON"), wire.reply(200, {})):
        result = asyncio.run(run(answer))
        assert (result["velodrome_workers",], result["velodrome_workers_silent",]) == (3, 2)
        assert result["velodrome_http_requests_in_flight", ("worker", "1")] == 0


@pytest.mark.parametrize(("late", "lag_s"), [((0.0, 0.03, 4.0), 4.0), ((4.0, 0.0), 3.84), ((0.0,), 0.0)])
def test_the_lag_of_the_event_loop_is_looked_at_with_one_timer_and_the_worst_one_fades(
    late: tuple[float, ...], lag_s: float
):
    class Loop(asyncio.SelectorEventLoop):
        now = 100.0

        def time(self) -> float:
            return self.now

    async def run() -> Samples:
        loop: Any = asyncio.get_running_loop()
        measures = Measures(STATUS)
        with measures.lag_watched():
            for late_s in late:
                loop.now += 0.25 + late_s
                await asyncio.sleep(0)
                await asyncio.sleep(0)
        loop.now += 100.0
        await asyncio.sleep(0)
        return parsed((await measures.report(ASKED)).body.decode())

    with asyncio.Runner(loop_factory=Loop) as runner:
        result = runner.run(run())
    assert result["velodrome_event_loop_lag_seconds", ("worker", "0")] == pytest.approx(lag_s)


class Times:
    """A clock, and CPU that was used."""

    now = 100.0
    used = 5.0

    def pass_by(self, seconds: float, used: float) -> None:
        self.now += seconds
        self.used += used

    def core(self) -> Core:
        return Core(lambda: self.now, lambda: self.used)


def test_the_share_of_a_core_is_that_of_the_last_half_second():
    times = Times()
    core = times.core()
    shares = []
    for used in (0.2, 0.25, 0.0, 0.1, 0.4, 0.2):
        times.pass_by(0.25, used)
        core.update()
        shares.append(core.share)
    assert shares == [0.0, *[pytest.approx(0.9)] * 2, *[pytest.approx(0.2)] * 2, pytest.approx(1.2)]


def test_an_answer_tells_that_its_process_is_busy_when_it_is():
    async def answer(request: Any) -> Response:
        return Response(b"{}")

    for used, counts in ((0.49, None), (0.5, {"busy_pct": 50}), (1.314, {"busy_pct": 131})):
        times = Times()
        core = times.core()
        times.pass_by(1.0, used)
        core.update()
        result = asyncio.run(timed("math", answer, core=core)(ASKED))
        header = result.headers.get(wire.SPANS)
        assert (None if header is None else orjson.loads(header)["tree"][3]) == counts
