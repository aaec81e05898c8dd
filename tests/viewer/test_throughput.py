"""Throughput over the life of a file: quiet seconds are zeros, only stops are taken out."""

from __future__ import annotations

from velodrome.index import Point
from velodrome.viewer.parts.throughput import Rates, rates


def point(at: float, count: int = 1, width_s: float = 1.0) -> Point:
    return Point(at, width_s, count)


def test_a_second_in_which_nothing_finished_is_a_zero_and_no_stop():
    result = rates([point(100), point(101, 3), point(104, 2)], [{"started_at": 99.5}])
    assert result == Rates([0, 1, 2, 3, 4], [1, 3, 0, 0, 2], 1.0)


def test_the_time_between_two_runs_is_taken_out():
    runs = [{"started_at": 99.5}, {"started_at": 203.2}]
    result = rates([point(100), point(102), point(204), point(206)], runs)
    assert result == Rates([0, 1, 2, 104, 105, 106], [1, 0, 1, 1, 0, 1], 1.0)


def test_a_long_run_with_few_rollouts_has_wider_stretches():
    result = rates([point(0), point(100), point(479)], [{"started_at": 0}])
    assert (len(result.at_s), result.every_s, sum(result.per_s) * result.every_s) == (240, 2.0, 3)
    assert result.at_s[:3] == [0, 2, 4]


def test_without_a_record_of_runs_a_long_silence_is_taken_for_a_stop():
    result = rates([point(0), point(30), point(91)], [])
    assert (result.at_s[-2:], len(result.at_s)) == ([30, 91], 32)


def test_a_run_file_with_nonsense_in_it_is_no_hindrance():
    assert rates([point(0), point(2)], [{}, {"started_at": "x"}]) == Rates([0, 1, 2], [1, 0, 1], 1.0)
