"""Pictures: well formed, true to the numbers, and harmless whatever the names are."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import pytest

from velodrome.viewer.parts import plots
from velodrome.viewer.parts.plots import HEIGHT, Mark, Scale, scale_of
from velodrome.viewer.parts.render import environment

HOSTILE = "</title><script>alert(1)</script>\" onload='x' &\x00\n\u202e"
TEMPLATE: Any = environment().get_template("plots.html").module
UNIT = Scale(0.0, 1.0, str)


def mark(name: str, height: float = 0.5, **more: Any) -> Mark:
    return Mark(name, height, "/there?q=x", (name, "7"), **more)


def around(name: str) -> Any:
    return {"label": name, "head": (name, "rollouts"), "below": (name,), "scale": Scale(0.0, 1.0, lambda _: name)}


PICTURES: dict[str, Callable[[str], Any]] = {
    "bars": lambda name: plots.bars([mark(name), mark(name)], **around(name)),
    "curve": lambda name: plots.curve([mark(name, low=0.1, high=0.9), mark(name, low=0, high=1)], **around(name)),
}


def drawn(picture: Any, title: str = "Title") -> ET.Element:
    return ET.fromstring(TEMPLATE.plot(picture, title))


def each(root: ET.Element, tag: str, kind: str) -> list[ET.Element]:
    return [node for node in root.iter(tag) if kind == node.get("class")]


@pytest.mark.parametrize("kind", PICTURES)
def test_a_picture_has_a_name_a_table_and_links(kind: str):
    root = drawn(PICTURES[kind]("Model"))
    svg = next(node for node in root.iter("svg") if node.get("role") == "group")
    assert (svg.get("aria-label"), svg[0].tag, svg[0].text) == ("Model", "title", "Model")
    links = {(link.get("href"), link.get("tabindex"), link.get("aria-label")) for link in svg.iter("a")}
    assert links == {("/there?q=x", "-1", "Model")}
    table = next(root.iter("table"))
    assert [node.text for node in table.iter("a")] == ["Model"] * len(next(iter(table.iter("tbody"))))


def test_a_bar_is_as_high_as_its_number():
    axes: Any = {"label": "", "head": ("x",), "below": (), "scale": Scale(0.0, 4.0, str)}
    root = drawn(plots.bars([mark("a", 1), mark("b", 4), mark("c", 0)], **axes))
    bars = [(node.get("y"), node.get("height")) for node in each(root, "rect", "bin")]
    assert bars == [(f"{HEIGHT * 3 / 4:g}", f"{HEIGHT / 4:g}"), ("0", f"{HEIGHT}")]


def test_a_curve_goes_through_its_points_and_stops_where_something_was_left_out():
    axes: Any = {"label": "", "head": ("x",), "below": (), "scale": UNIT}
    root = drawn(plots.curve([mark("a", 0.0), mark("b", 1.0), mark("c", 0.5, gap=True), mark("d", 0.5)], **axes))
    assert [node.get("d") for node in each(root, "path", "stroke")] == ["M125 132L375 0", "M625 66L875 66"]
    assert [node.get("x1") for node in each(root, "line", "gap")] == ["50%"]
    root = drawn(plots.curve([mark("a", 0.5, low=0.25, high=1.0), mark("b", 0.5, low=0.0, high=0.5)], **axes))
    assert [node.get("d") for node in each(root, "path", "area")] == ["M250 0L750 66L750 132L250 99Z"]


def test_a_scale_holds_its_numbers_and_the_zero():
    cases: list[tuple[list[float | None], bool]] = [([0.2, 0.6], True), ([-1.0, 3.0], True), ([5, None], False)]
    cases += [([], False), ([float("nan"), float("inf"), 40.0], False)]
    scales = [scale_of(values, str, whole=whole) for values, whole in cases]
    ends = [(0.0, 1.0), (-1.0, 3.0), (0.0, 6), (0.0, 1.0), (0.0, 40.0)]
    assert [(scale.low, scale.high) for scale in scales] == ends


def test_a_hostile_name_is_only_text_in_any_picture():
    for make in PICTURES.values():
        text = TEMPLATE.plot(make(HOSTILE), HOSTILE)
        root = ET.fromstring(text)
        assert "script" not in {node.tag for node in root.iter()}
        assert [name for node in root.iter() for name in node.keys() if name.startswith("on")] == []  # noqa: SIM118
        assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", text)
        assert "alert(1)" in "".join(root.itertext())
