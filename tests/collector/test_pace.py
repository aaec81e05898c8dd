"""`auto` against simulated servers, with simulated time.

The bar: over the whole run, its slow start included, nine tenths of the throughput that the best fixed number has, and
fewer than one call in fifty answered 429. The best throughput is known by arithmetic; no fixed number has more. Runs
are 600 rounds of what a server can do at once, 1,000 with a rate that drops.
"""

from __future__ import annotations

import pytest

from tests.collector.simulated_run import Capacity, Queueing, Refusing, SimulatedRun, Slowing
from velodrome.collector.pace import Auto, Decision, Fixed

RUNS = [  # capacity, seconds per call, most calls of a rollout, seed; none of these seeds was used to choose a number
    (8, 12.0, 1, 21),
    (8, 3.0, 3, 22),
    (16, 0.5, 1, 23),
    (16, 12.0, 3, 24),
    (32, 12.0, 1, 25),
    (32, 3.0, 3, 26),
    (64, 12.0, 1, 27),
    (24, 0.5, 1, 28),
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

    def test_latency_that_rises_with_every_call(self, capacity: int, latency_s: float, most_calls: int, seed: int):
        mean_s = latency_s * (most_calls + 1) / 2
        most = 4 * capacity  # at once; then it does 4/5 of what an endless number would
        server = Slowing(lambda load: (1 + min(load, most) / capacity) * max(1.0, load / most))
        run = self.run(server, 600 * mean_s, latency_s, most_calls, seed)
        assert run.kept >= 0.9 * 600 * 0.8 * capacity

    def test_latency_that_rises_until_more_is_less(self, capacity: int, latency_s: float, most_calls: int, seed: int):
        mean_s = latency_s * (most_calls + 1) / 2
        run = self.run(Slowing(lambda load: 1 + (load / capacity) ** 2), 600 * mean_s, latency_s, most_calls, seed)
        assert run.kept >= 0.9 * 600 * 0.5 * capacity

    @pytest.mark.parametrize("says_when", [True, False])
    def test_429_above_a_rate(self, capacity: int, latency_s: float, most_calls: int, seed: int, says_when: bool):
        mean_s = latency_s * (most_calls + 1) / 2
        server = Refusing(always(capacity / latency_s), burst(capacity, latency_s), says_when=says_when)
        run = self.run(server, 600 * mean_s, latency_s, most_calls, seed)
        assert run.kept >= 0.9 * 600 * capacity
        assert run.rate_limited < 0.02 * run.calls

    @pytest.mark.parametrize("share", [2, 4])
    def test_a_capacity_that_drops_and_returns(
        self, capacity: int, latency_s: float, most_calls: int, seed: int, share: int
    ):
        mean_s = latency_s * (most_calls + 1) / 2
        places = dropping(capacity, capacity / share, 600 * mean_s)
        run = self.run(Queueing(places), 600 * mean_s, latency_s, most_calls, seed)
        assert run.kept >= 0.9 * 600 * capacity * (2 + 1 / share) / 3

    @pytest.mark.parametrize("says_when", [True, False])
    @pytest.mark.parametrize("share", [2, 4])
    def test_a_rate_that_drops_and_returns(
        self, capacity: int, latency_s: float, most_calls: int, seed: int, says_when: bool, share: int
    ):
        """For 8 at once, of which 2 to 4 are left, one more or fewer is a third, and any 429 is a large share."""
        seconds = 1000 * latency_s * (most_calls + 1) / 2
        per_s = dropping(capacity / latency_s, capacity / latency_s / share, seconds)
        server = Refusing(per_s, burst(capacity, latency_s), says_when=says_when)
        run = self.run(server, seconds, latency_s, most_calls, seed)
        least, most = (0.85, 0.035) if capacity == 8 else (0.9, 0.02)
        assert run.kept >= least * 1000 * capacity * (2 + 1 / share) / 3
        assert run.rate_limited < most * run.calls

    def run(self, server: object, seconds: float, latency_s: float, most_calls: int, seed: int) -> SimulatedRun:
        made = SimulatedRun(server, Auto(), latency_s=latency_s, most_calls=most_calls, seed=seed)  # type: ignore[arg-type]
        return made.until(seconds)


def test_slow_start_to_many_is_inside_what_is_measured():
    run = SimulatedRun(Queueing(always(256)), Auto(), seed=21).until(300)
    assert run.kept >= 0.9 * 300 * 256


@pytest.mark.parametrize("limit", [8, 16, 64])
def test_no_fixed_number_beats_the_arithmetic(limit: int):
    queueing = SimulatedRun(Queueing(always(16)), Fixed(limit)).until(200)
    refusing = SimulatedRun(Refusing(always(16), 16, says_when=True), Fixed(limit)).until(200)
    slowing = SimulatedRun(Slowing(lambda load: 1 + (load / 16) ** 2), Fixed(limit)).until(200)
    assert queueing.kept <= 1.02 * 200 * 16
    assert refusing.kept <= 200 * 16 + 16
    assert slowing.kept <= 1.02 * 200 * 8


def test_a_fixed_pace_never_changes():
    run = SimulatedRun(Refusing(always(2), 2, says_when=False), Fixed(7)).until(100)
    assert set(run.limits) == {7}
    assert run.rate_limited


def test_it_never_goes_beyond_the_most_or_below_one():
    wide = SimulatedRun(Queueing(always(10_000)), Auto(most=64)).until(300).limits
    narrow = SimulatedRun(Refusing(always(0.5), 1, says_when=False), Auto()).until(600).limits
    assert (max(wide), min(narrow)) == (64, 1)


def test_a_limit_that_is_not_used_does_not_grow():
    run = SimulatedRun(Queueing(always(100)), Auto(), most=10).until(500)
    assert run.pace.limit <= 16


def test_a_limit_that_is_never_reached_is_no_reason_for_a_decision():
    pace = Auto()
    for number in range(1000):
        pace.finished(number / 10, in_flight=3, total_s=0.3)
    assert (pace.limit, pace.decided) == (4, [])


def test_it_takes_few_more_than_the_server_can_use():
    run = SimulatedRun(Queueing(always(50)), Auto()).until(1000)
    late = run.limits[len(run.limits) // 2 :]
    assert 45 <= sum(late) / len(late) <= 85


def test_latency_that_rises_without_throughput_cuts():
    run = SimulatedRun(Queueing(lambda now: 80 if now < 300 else 20), Auto()).until(300)
    before = run.pace.limit
    run.pace.decided.clear()
    run.until(600)
    assert run.pace.limit <= before / 2
    assert "higher latency, less throughput" in {each.why for each in run.pace.decided}


def test_errors_of_the_server_never_cut():
    """Half of the calls fail for a while: the limit stays where it was or is tried higher."""
    run = SimulatedRun(Queueing(always(40)), Auto(), failing=lambda now: 0.5 if now >= 400 else 0.0).until(400)
    run.pace.decided.clear()
    run.until(1200)
    assert {each.why for each in run.pace.decided} <= {
        "try more",
        "no more throughput",
        "more throughput",
        "less throughput",
    }
    assert run.pace.limit >= 40


@pytest.mark.parametrize("disturbed", [True, False])
def test_latency_and_throughput_that_errors_explain_are_no_reason_to_cut(disturbed: bool):
    """Rollouts take twice as long and half as many finish; with a share of errors among them, nothing is cut."""
    pace, now = Auto(start=64, most=64), 0.0
    for _ in range(1000):
        pace.finished(now := now + 1 / 64, in_flight=pace.limit, total_s=1.0)
    pace.decided.clear()
    for number in range(1000):
        pace.finished(now := now + 1 / 32, in_flight=pace.limit, total_s=2.0, disturbed=disturbed and number % 5 == 0)
    assert any(each.why == "higher latency, less throughput" for each in pace.decided) is not disturbed


def test_a_rise_stops_while_retry_after_runs():
    pace, now = Auto(start=64), 0.0
    while pace.limit < 66:
        pace.finished(now := now + 0.1, in_flight=pace.limit, total_s=6.4)
    pace.refused(now, in_flight=66, retry_after_s=10.0)  # one of so many is no reason to cut
    for _ in range(99):
        pace.finished(now := now + 0.1, in_flight=pace.limit, total_s=6.4)
    assert pace.limit == 66
    for _ in range(5):
        pace.finished(now := now + 0.1, in_flight=pace.limit, total_s=6.4)
    assert pace.limit > 66


def test_it_does_not_grow_before_retry_after_is_over():
    pace, now = Auto(start=64), 0.0
    pace.refused(0.0, in_flight=64, retry_after_s=100.0)
    for _ in range(999):
        pace.finished(now := now + 0.1, in_flight=64, total_s=6.4)
    assert pace.limit == 64
    for _ in range(400):
        pace.finished(now := now + 0.1, in_flight=pace.limit, total_s=6.4)
    assert max(each.after for each in pace.decided) > 64


@pytest.mark.parametrize(("limit", "after"), [(8, 7), (64, 64)])
def test_one_refusal_cuts_a_small_limit_and_not_a_large_one(limit: int, after: int):
    pace = Auto(start=limit)
    pace.refused(1.0, in_flight=limit)
    assert pace.limit == after


def test_refusals_of_calls_that_a_cut_left_in_flight_do_not_cut_again():
    pace = Auto(start=100)
    for _ in range(6):
        pace.refused(1.0, in_flight=100)
    assert pace.limit == 96
    for _ in range(50):
        pace.refused(1.1, in_flight=99)
    assert (pace.limit, pace.decided) == (96, [Decision(100, 96, "429")])
