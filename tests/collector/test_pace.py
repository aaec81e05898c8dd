"""`auto` against simulated servers, with simulated time."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from velodrome.collector.pace import Auto, Fixed


@dataclass
class Server:
    """Answers up to `capacity` at once in `latency_s` each; what comes on top makes all slower, or meets a 429."""

    capacity: int
    latency_s: float = 0.5
    refuses: bool = False


def simulate(pace: Auto, server: Server, seconds: float, now: float = 0.0) -> list[tuple[float, int]]:
    """Keep `pace.limit` rollouts in flight; returns the limit after each one that finished."""
    seen = []
    flying: list[tuple[float, int, bool]] = []
    number, until = 0, now + seconds
    while now < until:
        while len(flying) < pace.limit:
            crowd = max(1.0, (len(flying) + 1) / server.capacity)
            slow = server.latency_s * (1 if server.refuses else crowd) * (1 + 0.01 * (number % 7))
            heapq.heappush(flying, (now + slow, number, server.refuses and crowd > 1))
            number += 1
        now, _, limited = heapq.heappop(flying)
        pace.finished(now, limited)
        seen.append((now, pace.limit))
    return seen


def settled(seen: list[tuple[float, int]]) -> list[int]:
    """The limits of the last third, each once for every rollout that finished under it."""
    return [limit for _, limit in seen[-len(seen) // 3 :]]


def average(limits: list[int]) -> float:
    return sum(limits) / len(limits)


def test_a_fixed_pace_never_changes():
    pace = Fixed(7)
    for second in range(100):
        pace.finished(float(second), rate_limited=True)
    assert pace.limit == 7


@pytest.mark.parametrize("capacity", [6, 25, 100, 400])
def test_it_settles_near_what_the_server_can_do(capacity: int):
    limits = settled(simulate(Auto(), Server(capacity), 300))
    assert capacity * 0.9 <= average(limits) <= capacity * 1.2


@pytest.mark.parametrize("capacity", [3, 10, 60, 200])
def test_it_settles_below_where_429_begins_and_keeps_most_of_the_throughput(capacity: int):
    limits = settled(simulate(Auto(), Server(capacity, refuses=True), 600))
    assert capacity * 0.6 <= average(limits) <= capacity


def test_it_gets_near_a_big_server_within_seconds():
    seen = simulate(Auto(), Server(400), 30)
    reached = next(when for when, limit in seen if limit >= 300)
    assert reached < 15


def test_it_never_goes_beyond_the_most_or_below_one():
    wide = [limit for _, limit in simulate(Auto(most=64), Server(10_000), 60)]
    narrow = [limit for _, limit in simulate(Auto(), Server(1, latency_s=0.05, refuses=True), 60)]
    assert (max(wide), min(narrow)) == (64, 1)


@pytest.mark.parametrize("refuses", [True, False])
def test_it_goes_up_again_when_the_server_does(refuses: bool):
    pace = Auto()
    simulate(pace, Server(8, refuses=refuses), 120)
    low = pace.limit
    after = settled(simulate(pace, Server(80, refuses=refuses), 600, now=120.0))
    assert low <= 18
    assert average(after) >= 40


def test_it_comes_down_when_the_server_starts_to_refuse():
    pace = Auto()
    simulate(pace, Server(100, refuses=True), 120)
    after = settled(simulate(pace, Server(10, refuses=True), 300, now=120.0))
    assert average(after) <= 11


def test_it_comes_down_when_the_server_gets_slower_and_more_at_once_buys_nothing():
    pace = Auto()
    simulate(pace, Server(200), 120)
    after = settled(simulate(pace, Server(20), 900, now=120.0))
    assert average(after) <= 80


def pace_after(decide: Callable[[Auto], None]) -> int:
    pace = Auto(start=4, window_s=1.0)
    decide(pace)
    return pace.limit


def test_a_window_is_as_long_as_it_takes_for_two_rounds():
    def seven_in_a_long_time(pace: Auto) -> None:
        for number in range(7):
            pace.finished(number * 10.0, False)

    def eight_at_once(pace: Auto) -> None:
        for _ in range(8):
            pace.finished(5.0, False)

    def eight_in_a_second(pace: Auto) -> None:
        for number in range(8):
            pace.finished(number / 7, False)

    assert [pace_after(each) for each in (seven_in_a_long_time, eight_at_once, eight_in_a_second)] == [4, 4, 8]
