"""The viewer in a real Chromium: opened, filtered, sorted, walked through by keyboard; followed live."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from tests.support.looking import Looking, look_at
from tests.support.made_runs import make_run, rollout, rows_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that no test changes."""
    return make_run(tmp_path_factory.mktemp("runs") / "baseline.jsonl")


@pytest.fixture(scope="module")
def look(chromium: Any, baseline: Path) -> Iterator[Looking]:
    with look_at(chromium, baseline) as look:
        yield look


def test_a_run_is_opened_filtered_sorted_and_walked_through_by_keyboard(look: Looking, baseline: Path):
    look.goto("/run/baseline")
    look.sees("120 requested = 111 kept + 9 failed")
    look.sees("Rollout Total")

    look.page.get_by_role("link", name="Rollouts").first.click()
    look.at("/rollouts$")
    look.press("/")
    look.page.keyboard.type("reward<1 -state:failed")
    look.press("Enter")
    assert look.at("q=") == "/run/baseline/rollouts?q=reward%3C1+-state%3Afailed"
    wrong = [number for number, row in enumerate(rows_of(baseline), 1) if row["reward"] < 1]
    look.sees(f"{len(wrong)} rollouts match")

    look.page.get_by_role("link", name="tokens").click()
    look.at("sort=-tokens")
    tokens = {number: rows_of(baseline)[number - 1]["usage"]["total_tokens"] for number in wrong}
    order = sorted(wrong, key=lambda number: (-tokens[number], number))

    look.press("j", "j", "k", "j")  # the second row
    look.press("Enter")
    assert f"/rollout/{order[1]}?" in look.at("/rollout/")
    for place in (2, 3, 4):
        look.press("n")
        assert f"/rollout/{order[place]}?" in look.at(f"/rollout/{order[place]}\\b")
    look.press("p")
    look.at(f"/rollout/{order[3]}\\b")
    look.press("j", "j")
    assert look.page.evaluate("document.activeElement.id") == "m2"

    look.press("t")
    look.at("/task")
    assert "Repeats side by side" in look.words()
    assert look.page.locator(".step.diverging").count() >= 2
    look.press("u")
    look.at("/tasks")
    assert (look.said, look.outside) == ([], [])


def test_a_mark_of_a_picture_opens_the_list_of_its_rollouts(look: Looking):
    for place in ("first", "last"):
        look.goto("/run/baseline")
        look.sees("mean reward with it")
        mark = getattr(look.page.locator("svg.picture a"), place)
        said = re.findall(r"([\d,]+) (?:rollout|failure)", mark.get_attribute("aria-label"))[-1]
        look.page.goto(mark.evaluate("mark => new URL(mark.getAttribute('href'), location).href"))  # pages redraw
        look.at("/rollouts\\?q=")
        look.sees(f"{said} rollouts match" if said != "1" else "1 rollout matches")


def test_a_file_that_grows_is_followed_by_itself(chromium: Any, tmp_path: Path):
    run = make_run(tmp_path / "baseline.jsonl")
    run.with_name("baseline.run.json").unlink()
    with look_at(chromium, run) as look:
        look.goto("/run/baseline")
        look.sees("120 requested = 111 kept")
        listed = look.open("light", "desktop")
        listed.goto(f"{look.url}/run/baseline/rollouts")
        added = 0

        def append() -> None:
            nonlocal added
            with run.open("ab") as stream:
                stream.write(orjson.dumps(rollout(50 + added, 0, Random(added))) + b"\n")
            added += 1

        append()
        look.sees("live: rollouts are being added", meanwhile=append)  # it is for as long as rollouts come in
        append()
        look.sees(f"{111 + added} kept + 9 failed")
        listed.wait_for_selector(f"text={120 + added} rollouts")
        assert listed.locator("[data-row]").count() == 50  # nobody's place in the list is taken away
        listed.get_by_role("link", name="new rollouts: show them").click()
        run.write_bytes(b"".join(run.read_bytes().splitlines(keepends=True)[:20]))
        look.sees("20 kept + 9 failed")
        look.sees("read again from the start")
        assert (look.said, look.outside) == ([], [])


def test_without_scripts_everything_is_still_there(look: Looking):
    context = look.chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{look.url}/run/baseline/rollouts")
    page.fill("#q", "reward>=1")
    page.get_by_role("button", name="Filter").click()
    page.locator("a.link").first.click()
    page.get_by_role("link", name="Next").click()
    assert "Final answer" in page.inner_text("main")
    context.close()
