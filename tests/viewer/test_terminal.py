"""The viewer in a terminal, as the app itself: keys go in, and the cells of the screen come out."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import orjson
import pytest
from made_runs import HOSTILE, hostile_row, make_run, write
from textual.pilot import Pilot

from velodrome.viewer.terminal import TerminalViewer
from velodrome.viewer.viewed_file import opened


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "r.jsonl", tasks=10, repeats=2, failed=3)


def shown(app: TerminalViewer) -> str:
    """The text on the screen."""
    return "\n".join("".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips())


def played(path: Path, play: Callable[[TerminalViewer, Pilot[None]], Awaitable[None]], *, where: str = "") -> None:
    async def go() -> None:
        with opened(path) as source:
            source.read_on()
            source.follow()
            app = TerminalViewer(source, where=where)
            async with app.run_test(size=(110, 40)) as pilot:
                await pilot.pause()
                await play(app, pilot)

    asyncio.run(go())


def test_the_list_has_a_line_for_each_rollout_with_a_sign_beside_the_colour(run: Path):
    async def play(app: TerminalViewer, pilot: Pilot[None]) -> None:
        text = shown(app)
        assert "17 kept, 3 failed" in text
        assert len(re.findall(r"[✓✗~!] (?:\d|failed)", text)) == 20
        assert "! failed" in text

    played(run, play)


def test_a_filter_is_typed_and_a_wrong_one_stays_with_its_reason(run: Path):
    async def play(app: TerminalViewer, pilot: Pilot[None]) -> None:
        await pilot.press("slash", *"nonsense>1", "enter")
        await pilot.pause()
        assert 'no field "nonsense"' in shown(app)
        assert "nonsense>1" in shown(app)
        await pilot.press("escape", "slash", *"repeat>0", "enter")
        await pilot.pause()
        assert "10 of 20 match repeat>0" in shown(app)

    played(run, play)


def test_it_begins_with_a_filter_and_sorts_by_any_field(run: Path):
    async def play(app: TerminalViewer, pilot: Pilot[None]) -> None:
        assert "17 of 20 match reward>=0" in shown(app)
        await pilot.press("s", *["backspace"] * 12, *"-total_s", "enter")
        await pilot.pause()
        times = [
            float(value) * (0.001 if unit == "ms" else 1)
            for value, unit in re.findall(r"([\d.]+) (ms|s)  ", shown(app))
        ]
        assert len(times) == 17
        assert times == sorted(times, reverse=True)

    played(run, play, where="reward>=0")


def test_a_rollout_is_read_and_the_next_one_is_within_the_filter(run: Path):
    async def play(app: TerminalViewer, pilot: Pilot[None]) -> None:
        await pilot.press("enter")
        await pilot.pause()
        first = shown(app)
        assert "task-0" in first
        await pilot.press("]")
        await pilot.pause()
        assert "tool call · calculator" in shown(app)
        await pilot.press("n")
        await pilot.pause()
        assert shown(app).splitlines()[0] != first.splitlines()[0]
        await pilot.press("t")
        await pilot.pause()
        assert "2 of 20 match task=" in shown(app)

    played(run, play)


def test_a_failed_attempt_opens_by_its_number_and_totals_and_failures_are_said(run: Path):
    async def play(app: TerminalViewer, pilot: Pilot[None]) -> None:
        await pilot.press("f")
        await pilot.pause()
        assert "503 Service Unavailable" in shown(app)
        await pilot.press("escape", "r")
        await pilot.pause()
        assert "requested 20 = kept 17 + failed 3" in shown(app)
        await pilot.press("escape", "o", *"f1", "enter")
        await pilot.pause()
        assert "failed · model, attempt 1" in shown(app)
        await pilot.press("u", "question_mark")
        await pilot.pause()
        assert "next and previous tool call" in shown(app) or "previous and next tool call" in shown(app)

    played(run, play)


def test_long_lines_wrap_and_long_texts_are_cut_until_asked_for(tmp_path: Path):
    words = " ".join(f"word{n}" for n in range(2000))
    row = {"output": [{"role": "assistant", "content": words}], "reward": 1.0, "meta": {"key": "a/0"}}

    async def play(app: TerminalViewer, pilot: Pilot[None]) -> None:
        await pilot.press("enter")
        await pilot.pause()
        assert "more characters)" in shown(app)
        assert all(f"word{n}" in shown(app) for n in range(100))
        await pilot.press("a")
        await pilot.pause()
        assert "more characters)" not in shown(app)
        await pilot.press("end")
        await pilot.pause()
        assert "word1999" in shown(app)

    played(write(tmp_path / "l.jsonl", [row]), play)


def test_rollouts_that_arrive_are_shown(tmp_path: Path):
    path = write(tmp_path / "g.jsonl", [{"output": [], "reward": 1.0, "meta": {"key": "a/0"}}])

    async def play(app: TerminalViewer, pilot: Pilot[None]) -> None:
        assert "1 kept" in shown(app)
        with path.open("ab") as stream:
            stream.write(orjson.dumps({"output": [], "reward": 0.0, "meta": {"key": "b/0"}}) + b"\n")
        while "b/0" not in shown(app):
            await pilot.pause(0.1)
        assert "2 kept" in shown(app)

    played(path, play)


def test_hostile_texts_are_drawn_as_they_are(tmp_path: Path):
    path = write(
        tmp_path / "h.jsonl",
        [hostile_row(f"[red]{HOSTILE}[/red]/0"), {"output": [[[1]]], "meta": {"key": "[b]odd[/b]/0"}}],
    )

    async def play(app: TerminalViewer, pilot: Pilot[None]) -> None:
        assert "[b]odd[/b]/0" in shown(app)
        await pilot.press("enter")
        await pilot.pause()
        assert re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown(app)) == []
        await pilot.press("n")
        await pilot.pause()
        assert "[b]odd[/b]/0" in shown(app)

    played(path, play)
