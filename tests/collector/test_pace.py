"""`auto` against simulated servers, with simulated time.

The bar: over the whole run, its slow start included, nine tenths of the throughput that the best fixed number has, and
fewer than one call in fifty answered 429. Where a server that answers 429 takes only eight at once it is 85 hundredths:
one fewer in flight is an eighth less. The best throughput is known by arithmetic; no fixed number has more. Runs are
600 rounds of what a server can do at once.
"""

from __future__ import annotations

import pytest

from tests.support.simulated_run import Capacity, Queueing, Refusing, SimulatedRun, Slowing
from velodrome.collector.pace import Auto, Decision

RUNS = [  # capacity, seconds per call, most calls of a rollout, seed; none of these seeds was used to choose a number
    (8, 12.0, 1, 21),
    (8, 3.0, 3, 22),
    (16, 0.5, 1, 23),
    (32, 3.0, 3, 26),
]


def always(value: float) -> Capacity:
    return lambda now: value


def dropping(full: float, low: float, seconds: float) -> Capacity:
    """Full, low for the second third of the time, and full again."""
    return lambda now: low if seconds / 3 <= now < 2 * seconds / 3 else full


def burst(capacity: float, latency_s: float) -> float:
    return max(10.0, 5 * capacity / latency_s)


@pytest.mark.parametrize(("capacity", "latency_s", "most_calls", "seed"), RUNS)
class TestAgainst:
    """Each kind of server; `rounds` is how often all that it can do at once is done."""

    def test_a_fixed_capacity(self, capacity: int, latency_s: float, most_calls: int, seed: int):
        mean_s = latency_s * (most_calls + 1) / 2
        run = self.run(Queueing(always(capacity)), 600 * mean_s, latency_s, most_calls, seed)
        assert run.kept >= 0.9 * 600 * capacity

    @pytest.mark.parametrize("more_is_less", [True, False])
    def test_latency_that_rises_with_every_call(
        self, capacity: int, latency_s: float, most_calls: int, seed: int, more_is_less: bool
    ):
        """Four times as many at once do 4/5 of what an endless number would; or the best is half of the capacity."""
        most = 4 * capacity
        rising = Slowing(lambda load: (1 + min(load, most) / capacity) * max(1.0, load / most))
        server = Slowing(lambda load: 1 + (load / capacity) ** 2) if more_is_less else rising
        run = self.run(server, 600 * latency_s * (most_calls + 1) / 2, latency_s, most_calls, seed)
        assert run.kept >= 0.9 * 600 * (0.5 if more_is_less else 0.8) * capacity

    @pytest.mark.parametrize("says_when", [True, False])
    def test_429_above_a_rate(self, capacity: int, latency_s: float, most_calls: int, seed: int, says_when: bool):
        mean_s = latency_s * (most_calls + 1) / 2
        server = Refusing(always(capacity / latency_s), burst(capacity, latency_s), says_when=says_when)
        run = self.run(server, 600 * mean_s, latency_s, most_calls, seed)
        assert run.kept >= (0.85 if capacity == 8 else 0.9) * 600 * capacity
        assert run.rate_limited < 0.02 * run.calls

    def test_a_capacity_that_drops_and_returns(self, capacity: int, latency_s: float, most_calls: int, seed: int):
        mean_s = latency_s * (most_calls + 1) / 2
        places = dropping(capacity, capacity / 4, 600 * mean_s)
        run = self.run(Queueing(places), 600 * mean_s, latency_s, most_calls, seed)
        assert run.kept >= 0.9 * 600 * capacity * (2 + 1 / 4) / 3

    def run(self, server: object, seconds: float, latency_s: float, most_calls: int, seed: int) -> SimulatedRun:
        made = SimulatedRun(server, Auto(), latency_s=latency_s, most_calls=most_calls, seed=seed)  # type: ignore[arg-type]
        return made.until(seconds)


def test_it_never_goes_beyond_the_most_or_below_one():
    wide = SimulatedRun(Queueing(always(10_000)), Auto(most=64)).until(300).limits
    narrow = SimulatedRun(Refusing(always(0.5), 1, says_when=False), Auto()).until(600).limits
    assert (max(wide), min(narrow)) == (64, 1)


def test_it_takes_few_more_than_the_server_can_use():
    run = SimulatedRun(Queueing(always(50)), Auto()).until(1000)
    late = run.limits[len(run.limits) // 2 :]
    assert 45 <= sum(late) / len(late) <= 85
    unused = Auto()
    for number in range(1000):  # a limit that is never reached is no reason for a decision
        unused.finished(number / 10, in_flight=3)
    assert (unused.limit, unused.decided) == (4, [])


def test_a_server_that_can_do_less_has_fewer_in_flight_after_a_while():
    run = SimulatedRun(Queueing(lambda now: 80 if now < 300 else 20), Auto()).until(300)
    before = run.pace.limit
    assert run.until(900).pace.limit <= before / 2


def test_throughput_that_errors_explain_decides_nothing():
    """Half as many finish, a fifth of them with errors: nothing is tried or cut."""
    pace, now = Auto(start=64, most=64), 0.0
    for _ in range(1000):
        pace.finished(now := now + 1 / 64, in_flight=pace.limit)
    pace.finished(now, in_flight=64, disturbed=True)
    before = pace.limit
    pace.decided.clear()
    for number in range(1000):
        pace.finished(now := now + 1 / 32, in_flight=pace.limit, disturbed=number % 5 == 0)
    assert {each.why for each in pace.decided} <= {"errors"}
    assert pace.limit >= before


def test_a_rise_stops_while_retry_after_runs():
    pace, now = Auto(start=64), 0.0
    while pace.limit < 66:
        pace.finished(now := now + 0.1, in_flight=pace.limit)
    pace.refused(now, in_flight=66, retry_after_s=10.0)  # one of so many is no reason to cut
    for _ in range(99):
        pace.finished(now := now + 0.1, in_flight=pace.limit)
    assert pace.limit == 66
    for _ in range(5):
        pace.finished(now := now + 0.1, in_flight=pace.limit)
    assert pace.limit > 66


def test_one_refusal_cuts_a_small_limit_and_not_a_large_one_and_calls_left_in_flight_do_not_cut_again():
    small, large = Auto(start=8), Auto(start=100)
    small.refused(1.0, in_flight=8)
    large.refused(1.0, in_flight=100)
    assert (small.limit, large.limit) == (7, 100)
    for _ in range(5):
        large.refused(1.0, in_flight=100)
    assert large.limit == 90
    for _ in range(50):
        large.refused(1.1, in_flight=99)
    assert (large.limit, large.decided) == (90, [Decision(100, 90, "429")])
