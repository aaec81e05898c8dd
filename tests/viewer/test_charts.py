"""Pictures: well formed, true to the numbers, and harmless whatever the names are."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import pytest

from velodrome.viewer.parts.charts import MOST_POINTS, histogram, line
from velodrome.viewer.parts.render import environment

HOSTILE = "</title><script>alert(1)</script>\" onload='x' &\x00\n\u202e"
TEMPLATE: Any = environment().get_template("charts.html").module

PICTURES: list[Callable[[str], Any]] = [
    lambda name: line([0, 1, 2], [1.0, None, 3.0], label=name, unit=name),
    lambda name: histogram([1, 2, 3], [4, 5], label=name),
]


def drawn(picture: Any) -> ET.Element:
    return ET.fromstring(TEMPLATE.chart(picture))


def texts(root: ET.Element, tag: str, kind: str | None = None) -> list[str | None]:
    return [each.text for each in root.iter(tag) if kind in (None, each.get("class"))]


def strokes(root: ET.Element) -> list[str | None]:
    return [each.get("d") for each in root.iter("path") if each.get("class") == "stroke"]


@pytest.mark.parametrize("make", PICTURES, ids=["line", "histogram"])
def test_a_picture_has_a_text_and_a_hostile_name_is_only_text(make: Callable[[str], Any]):
    root = drawn(make("Model"))
    assert (root.tag, root.get("role"), root[0].tag) == ("svg", "img", "title")
    assert root.get("aria-label") == root[0].text
    assert (root[0].text or "").startswith("Model")
    root = drawn(make(HOSTILE))
    assert {each.tag for each in root.iter()} <= {"svg", "title", "g", "rect", "line", "path", "text"}
    assert [each for each in root.iter() for name in each.keys() if name.startswith("on")] == []  # noqa: SIM118
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", TEMPLATE.chart(make(HOSTILE)))
    assert "alert(1)" in "".join(root.itertext())


@pytest.mark.parametrize(
    ("at_s", "values", "paths", "ends"),
    [
        ([0, 1, 2, 3, 4], [0.0, 5.0, None, 10.0, 10.0], ["M0 100L250 50", "M750 0L1000 0"], ["0 s", "4.0 s"]),
        ([0, 1, 500, 501], [1, 1, 1, 1], ["M0 0L333.33 0", "M666.67 0L1000 0"], ["0 s", "501 s"]),
        ([0, 1, 2], [None, 3.0, None], ["M496 0L504 0"], ["0 s", "2.0 s"]),
        ([0], [3.0], ["M0 0L1000 0"], ["0 s", "1.0 s"]),
    ],
    ids=["unknown values", "a stop between runs", "a lone point", "one stretch"],
)
def test_a_line_goes_through_its_points_and_stops_where_nothing_is_known(
    at_s: list[float], values: list[float | None], paths: list[str], ends: list[str]
):
    root = drawn(line(at_s, values, label="Throughput", unit="rollouts/s"))
    assert (strokes(root), texts(root, "text")[1:]) == (paths, ends)
    gaps = [each.get("x1") for each in root.iter("line") if each.get("class") == "gap"]
    assert gaps == (["66.67%"] if len(at_s) == 4 else [])


@pytest.mark.parametrize("values", [[], [None, None], [float("nan"), float("inf")]])
def test_a_line_without_values_is_no_picture(values: list[float | None]):
    assert line(range(len(values)), values, label="x", unit="ms") is None


def test_a_line_has_at_most_so_many_points():
    picture = line(range(10_000), [1.0] * 10_000, label="x", unit="ms")
    assert [len(run) for run in (picture or {})["strokes"]] == [MOST_POINTS]


def test_a_histogram_has_a_bar_a_bin_as_high_as_its_count():
    root = drawn(histogram([0, 1, 2, 4, 8], [0, 1, 0, 2], label="Model"))
    assert [(each.get("x"), each.get("height")) for each in root.iter("rect")] == [
        ("2%", "60"),
        ("35.33%", "0"),
        ("68.67%", "120"),
    ]
    assert texts(root, "title")[1:] == [
        "1.0 ms to 2.0 ms: 1 rollout",
        "2.0 ms to 4.0 ms: 0 rollouts",
        "4.0 ms to 8.0 ms: 2 rollouts",
    ]
    assert texts(root, "text") == ["tallest bar: 2 rollouts", "1.0 ms", "8.0 ms"]
    assert texts(drawn(histogram([1, 2], [1200], label="x")), "text")[0] == "tallest bar: 1,200 rollouts"
    assert histogram([0, 1], [0], label="x") is None


@pytest.mark.parametrize(("share", "width"), [(0.25, "25%"), (7.0, "100%"), (-1.0, "0%"), (None, "0%")])
def test_a_share_is_never_wider_than_the_whole(share: float | None, width: str):
    root = ET.fromstring(TEMPLATE.share_bar(share, "model"))
    assert [each.get("width") for each in root.iter("rect")] == ["100%", width]
