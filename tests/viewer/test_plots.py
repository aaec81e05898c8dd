"""The pictures of the overview: well formed, true to their numbers, harmless whatever the names are."""

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
    "stacked": lambda name: plots.stacked([[(0, mark(name)), (1, mark(name))]], **around(name)),
    "curve": lambda name: plots.curve([mark(name, low=0.1, high=0.9), mark(name, low=0, high=1)], **around(name)),
    "bubbles": lambda name: plots.bubbles([(0, 1.0, 9, mark(name))], [0.5, 0.6], **around(name)),
}


def drawn(picture: Any, title: str = "Title", legend: tuple[str, ...] = ()) -> ET.Element:
    return ET.fromstring(TEMPLATE.plot(picture, title, legend=legend))


def each(root: ET.Element, tag: str, kind: str) -> list[ET.Element]:
    return [node for node in root.iter(tag) if kind == node.get("class")]


@pytest.mark.parametrize("kind", PICTURES)
def test_a_picture_has_a_name_a_table_and_links_that_a_keyboard_passes_over(kind: str):
    root = drawn(PICTURES[kind]("Model"), legend=("a", "b") if kind == "stacked" else ())
    svg = next(node for node in root.iter("svg") if node.get("role") == "group")
    assert (svg.get("aria-label"), svg[0].tag, svg[0].text) == ("Model", "title", "Model")
    links = list(svg.iter("a"))
    assert links
    assert {(link.get("href"), link.get("tabindex"), link.get("aria-label")) for link in links} == {
        ("/there?q=x", "-1", "Model")
    }
    table = next(root.iter("table"))
    assert [node.text for node in table.iter("a")] == ["Model"] * len(next(iter(table.iter("tbody"))))


def test_a_picture_without_links_is_an_image():
    root = drawn(plots.bars([Mark("a", 1.0)], label="Reward", head=("x",), below=(), scale=UNIT))
    assert [(node.get("role"), node.get("aria-label")) for node in root.iter("svg")] == [("img", "Reward")]
    assert list(root.iter("a")) == []


@pytest.mark.parametrize("kind", PICTURES)
def test_a_hostile_name_is_only_text(kind: str):
    text = TEMPLATE.plot(PICTURES[kind](HOSTILE), "Title", legend=(HOSTILE,) if kind == "stacked" else ())
    root = ET.fromstring(text)
    assert "script" not in {node.tag for node in root.iter()}
    assert [name for node in root.iter() for name in node.keys() if name.startswith("on")] == []  # noqa: SIM118
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", text)


def test_a_bar_is_as_high_as_its_number_and_parts_stand_on_each_other():
    scale = Scale(0.0, 4.0, str)
    root = drawn(plots.bars([mark("a", 1), mark("b", 4), mark("c", 0)], label="", head=("x",), below=(), scale=scale))
    assert [(node.get("y"), node.get("height")) for node in each(root, "rect", "bin")] == [
        (f"{HEIGHT * 3 / 4:g}", f"{HEIGHT / 4:g}"),
        ("0", f"{HEIGHT}"),
    ]
    stack = [[(0, mark("a", 1)), (2, mark("b", 3))]]
    root = drawn(plots.stacked(stack, label="", head=("x",), below=(), scale=scale), legend=("a", "b", "c"))
    parts = [node for node in root.iter("rect") if (node.get("fill") or "").startswith("url") and node.get("y")]
    assert [(node.get("fill"), node.get("y"), node.get("height")) for node in parts] == [
        ("url(#kind-0)", f"{HEIGHT * 3 / 4:g}", f"{HEIGHT / 4:g}"),
        ("url(#kind-2)", "0", f"{HEIGHT * 3 / 4:g}"),
    ]
    assert {f"kind-{place}" for place in range(6)} == {node.get("id") for node in root.iter("pattern")}


def test_a_curve_goes_through_its_points_and_stops_where_something_was_left_out():
    marks = [mark("a", 0.0), mark("b", 1.0), mark("c", 0.5, gap=True), mark("d", 0.5)]
    root = drawn(plots.curve(marks, label="", head=("x",), below=(), scale=UNIT))
    assert [node.get("d") for node in each(root, "path", "stroke")] == ["M125 132L375 0", "M625 66L875 66"]
    assert [node.get("x1") for node in each(root, "line", "gap")] == ["50%"]
    assert each(root, "path", "area") == []


def test_a_band_goes_along_both_ends_of_the_intervals():
    marks = [mark("a", 0.5, low=0.25, high=1.0), mark("b", 0.5, low=0.0, high=0.5)]
    root = drawn(plots.curve(marks, label="", head=("x",), below=(), scale=UNIT))
    assert [node.get("d") for node in each(root, "path", "area")] == ["M250 0L750 66L750 132L250 99Z"]


def test_the_area_of_a_bubble_is_how_many_it_stands_for():
    cells = [(0, 1.0, 4, mark("a")), (1, 0.0, 1, mark("b"))]
    root = drawn(plots.bubbles(cells, [1.0, 0.0], label="", head=("x",), below=(), scale=UNIT))
    radii = [float(node.get("r") or 0) for node in each(root, "circle", "bubble")]
    assert radii[0] == 2 * radii[1]


@pytest.mark.parametrize(
    ("values", "whole", "ends"),
    [
        ([0.2, 0.6], True, (0.0, 1.0)),
        ([-1.0, 3.0], True, (-1.0, 3.0)),
        ([5, None], False, (0.0, 6)),
        ([], False, (0.0, 1.0)),
        ([float("nan"), float("inf"), 40.0], False, (0.0, 40.0)),
    ],
)
def test_a_scale_holds_its_numbers_and_the_zero(values: list[float | None], whole: bool, ends: tuple[float, float]):
    scale = scale_of(values, str, whole=whole)
    assert (scale.low, scale.high) == ends


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (2.25, "2.2 s"), (119, "119 s"), (600, "10.0 min"), (9000, "2.5 h"), (3e5, "3.5 days")],
)
def test_time_has_the_unit_that_suits_it(seconds: float, text: str):
    assert plots.elapsed(seconds) == text


def test_nothing_is_no_picture():
    empty: Any = {"label": "", "head": ("x",), "below": (), "scale": UNIT}
    assert [plots.bars([], **empty), plots.curve([], **empty), plots.bubbles([], [], **empty)] == [None] * 3
    assert TEMPLATE.plot(None, "Title").strip() == ""
