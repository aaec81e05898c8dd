"""Pictures: well formed, the same each time, true to the numbers, and harmless whatever the names are."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest

from velodrome.viewer.parts.charts import MOST_BARS, MOST_POINTS, histogram, line, share_bar, waterfall
from velodrome.viewer.parts.charts import WaterfallBar as Bar

HOSTILE = "</title><script>alert(1)</script>\" onload='x' &\x00\n\u202e"

PICTURES: list[Callable[[str], str]] = [
    lambda name: waterfall([Bar(name, 0, 5, 0, "model", note=name), Bar(name, 5, 5, 1, name)], 10, label=name),
    lambda name: line([0, 1, 2], [1.0, None, 3.0], label=name, unit=name),
    lambda name: histogram([1, 2, 3], [4, 5], label=name, noun=name),
]


def parsed(picture: str) -> ET.Element:
    return ET.fromstring(picture)


@pytest.mark.parametrize("draw", PICTURES, ids=["waterfall", "line", "histogram"])
def test_a_picture_is_told_to_who_cannot_see_it(draw: Callable[[str], str]):
    root = parsed(draw("Model"))
    assert (root.tag, root.get("role"), root[0].tag) == ("svg", "img", "title")
    assert root.get("aria-label") == root[0].text
    assert (root[0].text or "").startswith("Model")


@pytest.mark.parametrize("draw", PICTURES, ids=["waterfall", "line", "histogram"])
def test_a_hostile_name_is_text_and_nothing_else(draw: Callable[[str], str]):
    root = parsed(draw(HOSTILE))
    assert {each.tag for each in root.iter()} <= {"svg", "title", "g", "rect", "line", "path", "text"}
    assert [each for each in root.iter() for name in each.keys() if name.startswith("on")] == []  # noqa: SIM118
    assert not re.search("[\x00-\x1f\u202e]", draw(HOSTILE))
    assert "alert(1)" in "".join(root.itertext())


@pytest.mark.parametrize("draw", PICTURES, ids=["waterfall", "line", "histogram"])
def test_the_same_numbers_give_the_same_picture(draw: Callable[[str], str]):
    assert draw("a") == draw("a")


def test_a_bar_stands_where_its_time_was():
    root = parsed(waterfall([Bar("model", 250, 500, 0, "model"), Bar("queue", 250, 100, 1, "wait")], 1000, label="w"))
    bars = [(each.get("class"), each.get("x"), each.get("width")) for each in root.iter("rect")]
    assert bars == [("kind-model", "47.5%", "35%"), ("kind-wait", "47.5%", "7%")]
    assert [each.text for each in root.iter("title")] == [
        "w",
        "model: 500 ms, from 250 ms",
        "queue: 100 ms, from 250 ms",
    ]
    assert [each.text for each in root.iter("text") if each.get("class") == "tick"] == ["0", "500 ms", "1.0 s"]
    assert [each.get("x") for each in root.iter("text") if each.get("class") == "name"] == ["0", "12"]


def test_a_span_beyond_the_total_widens_the_picture_and_a_negative_one_has_no_width():
    root = parsed(waterfall([Bar("a", 0, 2000), Bar("b", -5, -5)], 1000, label="w"))
    assert [(each.get("x"), each.get("width")) for each in root.iter("rect")] == [("30%", "70%"), ("30%", "0%")]


def test_of_very_many_bars_the_rest_is_counted():
    root = parsed(waterfall([Bar("a", 0, 1)] * (MOST_BARS + 7), 1, label="w"))
    assert len(list(root.iter("rect"))) == MOST_BARS
    assert "and 7 more" in [each.text for each in root.iter("text")]


def test_a_line_goes_through_its_points_and_stops_where_nothing_is_known():
    root = parsed(line([0, 1, 2, 3, 4], [0.0, 5.0, None, 10.0, 10.0], label="Throughput", unit="rollouts/s"))
    strokes = [each.get("d") for each in root.iter("path") if each.get("class") == "stroke"]
    assert strokes == ["M0 100L250 50", "M750 0L1000 0"]
    assert root.get("aria-label") == "Throughput: 0 to 10 rollouts/s"
    assert [each.text for each in root.iter("text")] == ["10 rollouts/s", "0 s", "4.0 s"]


def test_a_stretch_without_points_takes_no_room_and_is_marked():
    root = parsed(line([0, 1, 500, 501], [1, 1, 1, 1], label="x", unit="", every_s=1.0))
    gaps = [each.get("x1") for each in root.iter("line") if each.get("class") == "gap"]
    strokes = [each.get("d") for each in root.iter("path") if each.get("class") == "stroke"]
    assert (gaps, strokes) == (["66.67%"], ["M0 0L333.33 0", "M666.67 0L1000 0"])


def test_a_lone_point_can_be_seen():
    root = parsed(line([0, 1, 2], [None, 3.0, None], label="x", unit="ms"))
    assert [each.get("d") for each in root.iter("path") if each.get("class") == "stroke"] == ["M496 0L504 0"]


def test_what_lies_within_one_stretch_is_drawn_as_long_as_that_was():
    root = parsed(line([0], [3.0], label="Throughput", unit="rollouts/s", every_s=2.0))
    assert [each.get("d") for each in root.iter("path") if each.get("class") == "stroke"] == ["M0 0L1000 0"]
    assert [each.text for each in root.iter("text")] == ["3 rollouts/s", "0 s", "2.0 s"]


@pytest.mark.parametrize("values", [[], [None, None], [float("nan"), float("inf")]])
def test_a_line_without_values_is_no_picture(values: list[float | None]):
    assert line(range(len(values)), values, label="x", unit="ms") == ""


def test_a_line_has_at_most_so_many_points():
    picture = line(range(10_000), [1.0] * 10_000, label="x", unit="ms")
    assert picture.count("L") < 3 * MOST_POINTS


def test_a_histogram_has_a_bar_a_bin_as_high_as_its_count():
    root = parsed(histogram([0, 1, 2, 4, 8], [0, 30, 0, 60], label="Model", noun="calls"))
    assert [(each.get("x"), each.get("height")) for each in root.iter("rect")] == [
        ("2%", "60"),
        ("35.33%", "0"),
        ("68.67%", "120"),
    ]
    assert [each.text for each in root.iter("title")][1:] == [
        "1.0 ms to 2.0 ms: 30 calls",
        "2.0 ms to 4.0 ms: 0 calls",
        "4.0 ms to 8.0 ms: 60 calls",
    ]
    assert [each.text for each in root.iter("text")] == ["tallest bar: 60 calls", "1.0 ms", "8.0 ms"]


def test_one_of_something_is_not_many():
    root = parsed(histogram([0, 1, 2], [1, 0], label="Model", noun="calls"))
    assert [each.text for each in root.iter("title")] == ["Model", "0 ms to 1.0 ms: 1 call"]
    assert next(each.text for each in root.iter("text")) == "tallest bar: 1 call"


def test_a_histogram_of_nothing_is_no_picture():
    assert histogram([0, 1], [0], label="x") == ""


@pytest.mark.parametrize(("share", "width"), [(0.25, "25%"), (7.0, "100%"), (-1.0, "0%"), (None, "0%")])
def test_a_share_is_never_wider_than_the_whole(share: float | None, width: str):
    assert [each.get("width") for each in parsed(share_bar(share)).iter("rect")] == ["100%", width]
