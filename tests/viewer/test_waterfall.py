"""The waterfall of a rollout: every span is in it, in the lane of its kind, and leads to the message it made."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Any

from velodrome.viewer.parts.dialogue import conversation
from velodrome.viewer.parts.render import environment
from velodrome.viewer.parts.waterfall import MOST_DRAWN, MOST_ROWS, draw, read_spans, targets

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


def test_spans_that_overlap_are_stacked():
    root = drawn(span("tools", 0, 400, span("tool:a", 0, 400), span("tool:b", 100, 200)), span("tool:c", 500, 100))
    assert [y for _, _, _, y in bars(root)] == ["18", "18", "35", "52"]
    assert "tools 500 ms of 1.0 s" in (root.get("aria-label") or "")  # the time of a lane counts once
    rows = [y for _, _, _, y in bars(drawn(*(span("tool:a", at, 500) for at in range(60))))]
    assert len(rows) == len(set(rows)) == MOST_ROWS
    beyond = drawn(span("a", 0, 2000), span("b", -5, -5))  # wider than the total, or than nothing
    assert [(x, width) for _, x, width, _ in bars(beyond)] == [("0%", "100%"), ("0%", "0%")]


def test_all_of_some_hundred_spans_are_drawn():
    root = drawn(*(span("model", at * 10, 5) for at in range(MOST_DRAWN)), total_s=MOST_DRAWN / 100)
    assert (len(bars(root)), "not drawn" in "".join(root.itertext())) == (MOST_DRAWN, False)
    short = [span("tool:a", at, 0.5) for at in range(10_000)]  # of thousands the longest
    root = drawn(span("model", 0, 10_000), *short, total_s=10)
    assert (len(bars(root)), bars(root)[0]) == (MOST_DRAWN, ("kind-model", "0%", "100%", "18"))
    assert f"{10_001 - MOST_DRAWN:,} of 10,001 spans are not drawn" in "".join(root.itertext())


def test_what_is_not_a_span_is_skipped_and_a_hostile_name_is_only_text():
    assert draw(read_spans([7, ["a"], ["a", "b", 1, {}, []]]), 1, label="w") is None
    text = TEMPLATE.waterfall(draw(read_spans([span(HOSTILE, 0, 900, **{HOSTILE: 1.0})]), 1, label=HOSTILE))
    root = parsed(text)
    assert "script" not in {each.tag for each in root.iter()}
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
    result = {(spans[at].name, spans[at].start_ms): place for at, place in targets(spans, talk).items()}
    tools_made = {("tool:b", 1.0): (2, 2), ("tool:a", 1.0): (2, 1), ("tool:a", 3.0): (4, 1)}
    assert result == {("model", 0.0): (1, 0), ("model", 2.0): (3, 0), ("model", 4.0): (5, 0), **tools_made}

    assert targets(spans[:2], talk) == {}  # where the numbers of spans and messages differ, nothing is guessed
