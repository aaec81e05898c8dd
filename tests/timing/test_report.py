"""Text reports, character by character."""

from __future__ import annotations

import io

import pytest

from velodrome.timing.figures import duration
from velodrome.timing.report import Line, clean, curve, for_stream, histogram, sparkline, table, tree
from velodrome.timing.screen import columns, page

LINES = [
    Line("Rollout Total", 0, 812.4),
    Line("Queue", 1, 1.2),
    Line("Model", 1, 790.1, bottleneck=True, note="2.0 calls, p99 1.9 s"),
    Line("Tools", 1, 0.9),
    Line("calculator", 2, 0.9),
    Line("Verify", 1, 18.0),
    Line("Write", 0, 0.1),
]
TREE = """\
Rollout Timing Profile (rollouts=1024)
  Rollout Total            812.4 ms
    - Queue                  1.2 ms
    - Model                790.1 ms  <-- BOTTLENECK  (2.0 calls, p99 1.9 s)
    - Tools                  0.9 ms
        • calculator         0.9 ms
    - Verify                18.0 ms
  Write                      0.1 ms"""


def test_the_tree_is_drawn_as_specified():
    assert tree("Rollout Timing Profile (rollouts=1024)", LINES) == TREE


def test_long_wide_and_hostile_names_keep_the_columns_aligned_and_the_lines_apart():
    lines = [
        Line("Total", 0, 12.0),
        Line("Tools", 1, 11.0),
        Line("a\n  Rollout Total   0.0 ms\x1b[2J", 2, 1.0),
        Line("計算機", 2, 2.0),
        Line("x" * 500, 2, 3.0),
        Line("\u202eevil", 2, 4.0),
    ]
    assert tree("T\r\nx", lines) == (
        "T\\r\\nx\n"
        "  Total                                                      12.00 ms\n"
        "    - Tools                                                  11.00 ms\n"
        "        • a\\n  Rollout Total   0.0 ms\\x1b[2J                  1.00 ms\n"
        "        • 計算機                                              2.00 ms\n"
        f"        • {'x' * 47}…    3.00 ms\n"
        "        • \\u202eevil                                          4.00 ms"
    )


@pytest.mark.parametrize(("largest_ms", "shown"), [(15.23, "15.23 ms"), (0.91234, "0.912 ms"), (0.0, "0.000 ms")])
def test_the_decimals_suit_the_largest_value(largest_ms: float, shown: str):
    assert tree("T", [Line("Total", 0, largest_ms)]).splitlines()[1].split("Total")[1].strip() == shown


def test_a_sparkline_runs_from_zero_to_the_largest_value_with_gaps_where_nothing_is_known():
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert sparkline([7, None, float("nan"), 7]) == "█  █"
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([]) == ""
    assert sparkline([0, 0, 7, 7, None, None], width=3) == "▁█ "  # more values than columns are averaged


def test_a_histogram_shows_each_bin_and_leaves_out_the_empty_ends():
    assert histogram([0, 1, 2, 4, 2000, 9000], [0, 4, 0, 2, 0], width=4) == (
        "1.0 ms - 2.0 ms  ████  4\n2.0 ms - 4.0 ms        0\n4.0 ms -  2.0 s  ██    2"
    )
    assert histogram([0, 1], [0]) == ""


def test_a_duration_is_shown_in_the_unit_of_its_size():
    shown = {0: "0 ms", 0.0004: "0 ms", 0.04: "40 µs", 0.9996: "1.0 ms", 18: "18.0 ms", 99.96: "100 ms"}
    shown |= {790.1: "790 ms", 999.6: "1.0 s", 1900: "1.9 s", 99_960: "100 s", None: "-", float("inf"): "-"}
    assert {ms: duration(ms) for ms in shown} == shown


def test_what_is_cut_fits_and_says_so():
    assert clean("x" * 11, longest=10) == "x" * 9 + "…"
    assert clean("計" * 6, longest=10) == "計計計計…"
    assert columns(clean("\x00" * 10_000_000)) <= 48


@pytest.mark.parametrize(("encoding", "plain"), [("utf-8", False), ("ascii", True), ("latin-1", True)])
def test_a_stream_without_these_characters_gets_ascii_column_by_column(encoding: str, plain: bool):
    with io.TextIOWrapper(io.BytesIO(), encoding=encoding) as stream:
        assert for_stream("• 40 µs ▁▂▃▄▅▆▇█ x… é", stream) == (
            "* 40 us _.:-=+*# x~ \\xe9" if plain else "• 40 µs ▁▂▃▄▅▆▇█ x… é"
        )


def test_a_table_aligns_names_left_and_numbers_right_and_one_wider_than_the_page_becomes_two():
    assert table(("tool", "calls"), [("calculator", "7"), ("a\tb", "1024")]) == (
        "tool        calls\ncalculator      7\na\\tb         1024"
    )
    before = page.set(20)
    try:
        drawn = table(("name", "a", "b"), [("first", "1" * 8, "2" * 8)])
    finally:
        page.reset(before)
    assert drawn == "name          a\nfirst  11111111\n\nname          b\nfirst  22222222"


def test_a_curve_rises_from_the_smallest_to_the_largest_value():
    assert curve([0, 1, 2, 3], height=2) == "3   ▃█\n0 ▁▆██"
    assert curve([5.0, 5.0], height=2) == "5\n5 ▁▁"
    assert curve([None, float("nan")]) == ""
