"""The viewer in a real Chromium: opened, filtered, sorted, walked through by keyboard; attacked; followed live.

VELODROME_SCREENSHOTS=folder keeps what it looks like.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
from looking import Looking, keep, look_at
from made_runs import HOSTILE, hostile_row, make_run, rollout, rows_of, write

pytestmark = pytest.mark.slow


def make_runs(folder: Path) -> tuple[Path, Path]:
    return make_run(folder / "baseline.jsonl"), make_run(folder / "candidate.jsonl", skill=0.9, seed=2, failed=2)


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """Two runs that the test may change."""
    return make_runs(tmp_path)


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that no test changes, with another beside it."""
    return make_runs(tmp_path_factory.mktemp("runs"))[0]


@pytest.fixture(scope="module")
def look(chromium: Any, baseline: Path) -> Iterator[Looking]:
    """A browser on a viewer over both."""
    with look_at(chromium, baseline, baseline.with_name("candidate.jsonl")) as look:
        yield look


def test_a_run_is_opened_filtered_sorted_and_walked_through_by_keyboard(look: Looking, baseline: Path):
    look.goto("/")
    look.page.get_by_role("link", name="baseline.jsonl").click()
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
    assert look.page.locator("mark").count() >= 2
    look.press("u")
    look.at("/tasks")
    assert (look.said, look.outside) == ([], [])


def test_the_pages_of_a_list_are_turned_by_keyboard_and_back_again(look: Looking):
    look.goto("/run/baseline/rollouts?sort=-total_s")
    first = look.page.locator("[data-row] a.link").all_inner_texts()
    look.press("n")
    look.at("after=")
    second = look.page.locator("[data-row] a.link").evaluate_all("links => links.map(link => link.href)")
    look.press("p")
    look.at("before=")
    assert look.page.locator("[data-row] a.link").all_inner_texts() == first
    assert len(second) == 50
    look.press("?")
    assert look.page.locator("dialog").is_visible()
    look.press("Escape")
    assert not look.page.locator("dialog").is_visible()


def test_text_is_searched_for_and_a_mistake_is_explained(look: Looking, baseline: Path):
    look.goto("/run/baseline/rollouts")
    look.page.fill("#q", '"pencils cost"')
    look.press("Enter")
    look.at("pencils")
    pencils = [
        row for row in rows_of(baseline) if "pencils cost" in row["responses_create_params"]["input"][1]["content"]
    ]
    look.sees(f"{len(pencils)} rollouts match")
    look.page.fill("#q", "rewrd<1")
    look.press("Enter")
    look.at("rewrd")
    assert 'did you mean "reward"?' in look.words('[role="alert"]')
    assert look.page.input_value("#q") == "rewrd<1"
    assert look.page.locator("[data-row]").count() == 50


def test_two_runs_are_compared_and_a_flipped_task_is_opened(look: Looking):
    look.goto("/")
    look.page.get_by_role("button", name="Compare").click()
    look.sees("Tasks that flipped")
    assert "B is better: reward +" in look.words()
    look.page.get_by_role("link", name="worse").click()
    look.at("only=worse")
    look.page.get_by_role("link", name="better").click()
    look.at("only=better")
    look.page.locator("#flips a.link").first.click()
    assert look.at("/pair").startswith("/pair?a=baseline%3A")
    look.page.go_back()
    look.at("only=better")
    look.page.locator("#flips").get_by_role("link", name="rollouts").first.click()
    assert look.at("/rollouts").startswith("/run/baseline/rollouts?q=task%3D%22task-")
    look.press("j", "Enter")
    look.at("/rollout/")
    assert "matching task=" in look.words()
    assert (look.said, look.outside) == ([], [])


def test_nothing_a_model_says_runs_loads_or_reorders_anything(looking: Callable[..., Looking], tmp_path: Path):
    big = hostile_row("big/0")
    big["output"][-1]["content"] = big["response"]["content"] = (HOSTILE + " and so on ") * 3000
    rows = [hostile_row("hostile/0"), hostile_row(f"{HOSTILE}/1"), big]
    path = write(tmp_path / "hostile.jsonl", [*rows, b"{" + HOSTILE.encode()])
    write(
        tmp_path / "hostile.failures.jsonl", [{"key": "f/0", "boundary": HOSTILE, "error": HOSTILE, "partial": HOSTILE}]
    )
    look = looking(path, write(tmp_path / "other.jsonl", rows))
    ways = ["/", "/run/hostile", "/run/hostile/rollouts", "/run/hostile/tasks", "/run/hostile/failures", "/compare"]
    ways += [f"/run/hostile/rollout/{name}" for name in ("1", "2", "3", "f1")] + ["/run/hostile/rollout/3?show=m7"]
    for way in ways:
        look.goto(way)
        assert look.page.locator("iframe, img, object, embed, base, style, a[href^=javascript]").count() == 0, way
        assert look.page.evaluate("getComputedStyle(document.body).display") == "flex", way
        assert re.findall("[\u202a-\u202e\u2066-\u2069\u200b\ufeff\x1b]", look.page.inner_text("body")) == [], way
        assert look.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), way
    look.goto("/run/hostile/rollout/3")
    assert len(look.page.content()) < 500_000
    look.page.get_by_role("link", name="show all").last.click()
    look.at("show=m7#m7")
    assert look.words("#m7").count("and so on") == 3000
    look.goto("/run/hostile/rollout/1")
    assert "<script>alert(1)</script>" in look.words()
    assert "U+202E" in look.words()
    keep(look, "hostile", "/run/hostile/rollout/1")
    assert (look.said, look.outside) == ([], [])


def test_a_file_that_grows_is_followed_by_itself(looking: Callable[..., Looking], runs: tuple[Path, Path]):
    runs[0].with_name("baseline.run.json").unlink()
    look = looking(runs[0])
    look.goto("/run/baseline")
    look.sees("120 requested = 111 kept")
    listed = look.open("light", "desktop")
    listed.goto(f"{look.url}/run/baseline/rollouts")
    added = 0

    def append() -> None:
        nonlocal added
        with runs[0].open("ab") as stream:
            stream.write(orjson.dumps(rollout(50 + added, 0, Random(added))) + b"\n")
        added += 1

    append()
    look.sees("live: rollouts are being added", meanwhile=append)  # it is for as long as rollouts come in
    append()
    keep(look, "live", "/run/baseline")
    look.sees(f"{111 + added} kept + 9 failed")
    listed.wait_for_selector(f"text={120 + added} rollouts")
    assert listed.locator("[data-row]").count() == 50  # nobody's place in the list is taken away
    listed.get_by_role("link", name="new rollouts: show them").click()
    runs[0].write_bytes(b"".join(runs[0].read_bytes().splitlines(keepends=True)[:20]))
    look.sees("20 kept + 9 failed")
    look.sees("read again from the start")
    assert (look.said, look.outside) == ([], [])


def test_a_run_that_has_just_begun_fills_its_pages_by_itself(looking: Callable[..., Looking], tmp_path: Path):
    path = write(tmp_path / "r.jsonl", [])
    look = looking(path)
    wanted = {"": "svg.picture.bars", "/rollouts": "[data-row]", "/tasks": "[data-row]"}
    pages = {name: look.open("light", "desktop") for name in wanted}
    for name, page in pages.items():
        page.goto(f"{look.url}/run/r{name}")
    write(path, [rollout(task, 0, Random(task)) for task in range(20)])
    for name, page in pages.items():
        page.wait_for_selector(wanted[name])
    assert (look.said, look.outside) == ([], [])


def test_the_list_of_runs_follows_its_files(looking: Callable[..., Looking], runs: tuple[Path, Path]):
    look = looking(*runs)
    look.goto("/")
    with runs[0].open("ab") as stream:
        stream.write(orjson.dumps(rollout(50, 0, Random(1))) + b"\n")
    look.sees("112 9")


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
