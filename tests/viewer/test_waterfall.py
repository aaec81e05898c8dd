"""The waterfall of a rollout: every span is in it, in the lane of its kind, and leads to the message it made."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Any

from velodrome.viewer.parts.dialogue import conversation
from velodrome.viewer.parts.render import environment
from velodrome.viewer.parts.waterfall import MOST_APART, MOST_ROWS, draw, read_spans, targets

HOSTILE = "</title><script>alert(1)</script>\" onload='x' &\x00\n\u202e"
TEMPLATE: Any = environment().get_template("waterfall.html").module


def span(name: str, start_ms: float, length_ms: float, *children: Any, **counts: float) -> list[Any]:
    return [name, start_ms * 1000, length_ms * 1000, counts, list(children)]


def drawn(*tree: Any, total_s: float = 1.0, **settings: Any) -> ET.Element:
    return parsed(TEMPLATE.waterfall(draw(read_spans(list(tree)), total_s, label="w", **settings)))


def parsed(text: str) -> ET.Element:
    return ET.fromstring(re.sub("<input[^>]*>", "", text))


def bars(root: ET.Element) -> list[tuple[str | None, ...]]:
    return [tuple(each.get(name) for name in ("class", "x", "width", "y")) for each in root.iter("rect")]


def titles(root: ET.Element) -> list[str | None]:
    return [each.text for each in root.iter("title")]


def test_a_bar_is_in_the_lane_of_its_kind_where_its_time_was():
    root = drawn(span("model", 250, 500, span("queue", 250, 100), tokens=7), span("tool:add", 750, 10))
    assert bars(root) == [
        ("kind-model", "25%", "50%", "18"),
        ("kind-tools", "75%", "1%", "42"),
        ("kind-wait", "25%", "10%", "66"),
    ]
    assert titles(root) == [
        "model: 500 ms, from 250 ms; tokens 7", "add: 10.0 ms, from 750 ms", "queue: 100 ms, from 250 ms"
    ]  # fmt: skip
    assert root.get("aria-label") == "w: model 400 ms, tools 10.0 ms, waiting 100 ms of 1.0 s"


def test_spans_that_overlap_are_stacked_and_the_time_of_a_lane_counts_once():
    root = drawn(span("tools", 0, 400, span("tool:a", 0, 400), span("tool:b", 100, 200)), span("tool:c", 500, 100))
    assert [y for _, _, _, y in bars(root)] == ["18", "18", "35", "52"]
    assert "tools 500 ms of 1.0 s" in (root.get("aria-label") or "")


def test_a_span_beyond_the_total_widens_the_picture_and_a_negative_one_has_no_width():
    root = drawn(span("a", 0, 2000), span("b", -5, -5))
    assert [(x, width) for _, x, width, _ in bars(root)] == [("0%", "100%"), ("0%", "0%")]


def test_all_of_some_hundred_spans_are_drawn():
    root = drawn(*(span("model", at * 10, 5) for at in range(MOST_APART)), total_s=MOST_APART / 100)
    assert len(bars(root)) == MOST_APART
    assert "too narrow" not in "".join(root.itertext())


def test_of_thousands_neighbours_narrower_than_a_pixel_are_one_bar_that_says_how_many():
    short = [span("tool:a", at, 0.5) for at in range(10_000)]
    root = drawn(span("model", 0, 10_000), *short, total_s=10)
    assert len(bars(root)) < 1300
    counted = [
        int(found[1].replace(",", "")) for text in titles(root) if (found := re.match(r"([\d,]+) spans", text or ""))
    ]
    assert sum(counted) + len(bars(root)) - len(counted) == 10_001
    assert f"{sum(counted):,} of 10,001 spans are too narrow" in "".join(root.itertext())


def test_many_side_by_side_share_the_last_row():
    root = drawn(*(span("tool:a", at, 500) for at in range(30)))
    rows = [y for _, _, _, y in bars(root)]
    assert len(rows) == len(set(rows)) == MOST_ROWS
    assert (titles(root)[-1] or "").startswith("23 spans, 522 ms together, from 7.0 ms")


def test_what_is_not_a_span_is_skipped_and_a_hostile_name_is_only_text():
    assert draw(read_spans([7, ["a"], ["a", "b", 1, {}, []]]), 1, label="w") is None
    assert draw(read_spans(None), None, label="w") is None
    text = TEMPLATE.waterfall(draw(read_spans([span(HOSTILE, 0, 900, **{HOSTILE: 1.0})]), 1, label=HOSTILE))
    root = parsed(text)
    assert {each.tag for each in root.iter()} <= {
        "figure", "fieldset", "legend", "label", "span", "div", "svg", "g", "a", "title", "rect", "line", "text"
    }  # fmt: skip
    assert [name for each in root.iter() for name in each.keys() if name.startswith("on")] == []  # noqa: SIM118
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", text)
    assert "alert(1)" in "".join(root.itertext())


def turn(*names: str) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": "so",
        "tool_calls": [{"id": n, "name": n, "arguments": "{}"} for n in names],
    }


def test_a_span_leads_to_the_message_it_made():
    talk = conversation({"responses_create_params": {"input": "?"}, "output": [turn("a", "b"), turn("a"), turn()]})
    tools = [span("tools", 1, 1, span("tool:b", 1, 1), span("tool:a", 1, 1)), span("tool:a", 3, 1)]
    judged = span("verify", 6, 1, span("model", 6, 1))
    spans = read_spans([span("model", 0, 1), tools[0], span("model", 2, 1), tools[1], span("model", 4, 1), judged])
    found = {(spans[at].name, spans[at].start_ms): place for at, place in targets(spans, talk).items()}
    assert found == {
        ("model", 0.0): (1, 0), ("model", 2.0): (3, 0), ("model", 4.0): (5, 0),
        ("tool:b", 1.0): (2, 2), ("tool:a", 1.0): (2, 1), ("tool:a", 3.0): (4, 1),
    }  # fmt: skip


def test_where_the_numbers_of_spans_and_messages_differ_nothing_is_guessed():
    talk = conversation({"output": [turn("a"), turn("a")]})
    spans = read_spans([span("model", 0, 1), span("tool:a", 1, 1)])
    assert targets(spans, talk) == {}
    root = drawn(span("model", 0, 1), hrefs={0: "#m2"})
    assert [each.get("href") for each in root.iter("a")] == ["#m2"]
