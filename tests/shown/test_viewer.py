"""The viewer in a real Chromium: opened, filtered, sorted, walked through by keyboard; attacked; followed live.

What it looks like is kept in results/viewer, which git ignores.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
from made_runs import HOSTILE, hostile_row, make_run, rollout, rows_of, write
from trace_viewer import ROOT, browser

ARTEFACTS = ROOT / "results" / "viewer"
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}
PATIENCE_S = 180.0  # for what comes by itself; a machine may have much else to do

pytestmark = pytest.mark.slow


class Looking:
    """A browser on a viewer in a process of its own. What a page says, asks for elsewhere or pops up is remembered."""

    def __init__(self, chromium: Any, url: str) -> None:
        self.chromium = chromium
        self.url = url.rstrip("/")
        self.said: list[str] = []
        self.outside: list[str] = []
        self.page = self.open("light", "desktop")

    def open(self, scheme: str, size: str) -> Any:
        width, height = SIZES[size]
        page = self.chromium.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        page.set_default_timeout(PATIENCE_S * 1000)
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("dialog", self._refuse)
        page.on("request", lambda request: request.url.startswith(self.url + "/") or self.outside.append(request.url))
        return page

    def _refuse(self, dialog: Any) -> None:
        self.said.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def goto(self, path: str) -> None:
        self.page.goto(self.url + path)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def at(self, pattern: str) -> str:
        self.page.wait_for_url(re.compile(pattern))
        found: str = self.page.url.removeprefix(self.url)
        return found

    def words(self, selector: str = "main") -> str:
        return " ".join(self.page.inner_text(selector).split())

    def sees(self, words: str, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Wait until the page says so, by itself."""
        end = time.monotonic() + PATIENCE_S
        while words not in (said := self.words()):
            assert time.monotonic() < end, f"{words!r} never came: {said}"
            meanwhile()
            self.page.wait_for_timeout(100)

    def settled(self) -> None:
        """Wait until the viewer has read its files: a list does not move under its reader, so it must be whole."""
        end = time.monotonic() + PATIENCE_S
        while not self.page.request.get(f"{self.url}/pulse").json()["complete"]:
            assert time.monotonic() < end, "the index was never complete"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as found:
        yield found


@pytest.fixture
def looking(chromium: Any) -> Iterator[Callable[..., Looking]]:
    running: list[subprocess.Popen[str]] = []
    opened: list[Looking] = []

    def look(*files: Path) -> Looking:
        command = [sys.executable, "-m", "velodrome.cli.main", "view", *map(str, files)]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        running.append(process)
        assert process.stderr
        found = re.search(r"http://\S+/", process.stderr.readline())
        assert found
        opened.append(Looking(chromium, found[0]))
        opened[-1].settled()
        return opened[-1]

    yield look
    for each in opened:
        for page in each.page.context.pages:
            page.close()
    for process in running:
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
        assert process.stderr
        process.stderr.close()


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    return make_run(tmp_path / "baseline.jsonl"), make_run(tmp_path / "candidate.jsonl", skill=0.9, seed=2, failed=2)


def test_a_run_is_opened_filtered_sorted_and_walked_through_by_keyboard(
    looking: Callable[..., Looking], runs: tuple[Path, Path]
):
    look = looking(runs[0])
    look.goto("/")
    look.sees("120 requested = 111 kept + 9 failed")
    look.sees("Rollout Total")

    look.page.get_by_role("link", name="Rollouts").first.click()
    look.at("/rollouts$")
    look.press("/")
    look.page.keyboard.type("reward<1 -state:failed")
    look.press("Enter")
    assert look.at("q=") == "/run/baseline/rollouts?q=reward%3C1+-state%3Afailed"
    wrong = [number for number, row in enumerate(rows_of(runs[0]), 1) if row["reward"] < 1]
    look.sees(f"{len(wrong)} rollouts match")

    look.page.get_by_role("link", name="tokens").click()
    look.at("sort=-tokens")
    tokens = {number: rows_of(runs[0])[number - 1]["usage"]["total_tokens"] for number in wrong}
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
    assert look.page.evaluate("document.activeElement.id") == "m1"

    look.press("t")
    look.at("/task")
    assert "Repeats side by side" in look.words()
    assert look.page.locator("mark").count() >= 2
    look.press("u")
    look.at("/tasks")
    assert (look.said, look.outside) == ([], [])


def test_the_pages_of_a_list_are_turned_by_keyboard_and_back_again(
    looking: Callable[..., Looking], runs: tuple[Path, Path]
):
    look = looking(runs[0])
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


def test_text_is_searched_for_and_a_mistake_is_explained(looking: Callable[..., Looking], runs: tuple[Path, Path]):
    look = looking(runs[0])
    look.goto("/run/baseline/rollouts")
    look.page.fill("#q", '"pencils cost"')
    look.press("Enter")
    look.at("pencils")
    pencils = [
        row for row in rows_of(runs[0]) if "pencils cost" in row["responses_create_params"]["input"][1]["content"]
    ]
    look.sees(f"{len(pencils)} rollouts match")
    look.page.fill("#q", "rewrd<1")
    look.press("Enter")
    look.at("rewrd")
    assert 'did you mean "reward"?' in look.words('[role="alert"]')
    assert look.page.input_value("#q") == "rewrd<1"
    assert look.page.locator("[data-row]").count() == 50


def test_two_runs_are_compared_and_a_flipped_task_is_opened(looking: Callable[..., Looking], runs: tuple[Path, Path]):
    look = looking(*runs)
    look.goto("/")
    look.page.get_by_role("link", name="Compare two").click()
    look.sees("Tasks that flipped")
    assert "B is better: reward +" in look.words()
    look.page.get_by_role("link", name="worse").click()
    look.at("only=worse")
    look.page.get_by_role("link", name="better").click()
    look.at("only=better")
    look.page.locator("#flips a.link").first.click()
    assert look.at("/task").startswith("/run/candidate/task?id=task-")
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
    ways += [f"/run/hostile/rollout/{name}" for name in ("1", "2", "3", "f1")] + ["/run/hostile/rollout/3?show=m6"]
    for way in ways:
        look.goto(way)
        assert look.page.locator("iframe, img, object, embed, base, style, a[href^=javascript]").count() == 0, way
        assert look.page.evaluate("getComputedStyle(document.body).display") == "flex", way
        assert re.findall("[\u202a-\u202e\u2066-\u2069\u200b\ufeff\x1b]", look.page.inner_text("body")) == [], way
        assert look.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), way
    look.goto("/run/hostile/rollout/1")
    assert "<script>alert(1)</script>" in look.words()
    assert "U+202E" in look.words()
    keep(look, "hostile", "/run/hostile/rollout/1")
    assert (look.said, look.outside) == ([], [])


def test_a_megabyte_of_text_is_folded_and_unfolded(looking: Callable[..., Looking], tmp_path: Path):
    text = "".join(f"word{place} " for place in range(110_000))
    row = rollout(1, 0, Random(1))
    row["output"][-1]["content"] = row["response"]["content"] = text
    look = looking(write(tmp_path / "r.jsonl", [row]))
    look.goto("/run/r/rollout/1")
    assert len(look.page.content()) < 200_000
    look.page.get_by_role("link", name="show all").click()
    look.at("show=m4#m4")
    assert "word55000 word55001" in look.words("#m4")
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
    look.sees("live: rollouts are coming in", meanwhile=append)  # it is for as long as rollouts come in
    append()
    keep(look, "live", "/run/baseline")
    look.sees(f"{111 + added} kept + 9 failed")
    listed.wait_for_selector(f"text={120 + added} rollouts")
    assert listed.locator("[data-row]").count() == 50  # nobody's place in the list is taken away
    listed.get_by_role("link", name="new rollouts have come").click()
    runs[0].write_bytes(b"".join(runs[0].read_bytes().splitlines(keepends=True)[:20]))
    look.sees("20 kept + 9 failed")
    look.sees("read again from the start")
    assert (look.said, look.outside) == ([], [])


def test_a_run_that_has_just_begun_fills_its_pages_by_itself(looking: Callable[..., Looking], tmp_path: Path):
    path = write(tmp_path / "r.jsonl", [])
    look = looking(path)
    wanted = {"": "svg.histogram", "/rollouts": "[data-row]", "/tasks": "[data-row]"}
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


def test_without_scripts_everything_is_still_there(looking: Callable[..., Looking], runs: tuple[Path, Path]):
    look = looking(runs[0])
    context = look.chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{look.url}/run/baseline/rollouts")
    page.fill("#q", "reward>=1")
    page.get_by_role("button", name="Filter").click()
    page.locator("a.link").first.click()
    page.get_by_role("link", name="Next").click()
    assert "Final answer" in page.inner_text("main")
    context.close()


PAGES = {
    "runs": "/",
    "run": "/run/baseline",
    "rollouts": "/run/baseline/rollouts?q=reward%3C1&sort=-tokens",
    "rollout": "/run/baseline/rollout/3",
    "failed": "/run/baseline/rollout/f1",
    "tasks": "/run/baseline/tasks",
    "task": "/run/baseline/task?id=task-012",
    "failures": "/run/baseline/failures",
    "compare": "/compare?a=baseline&b=candidate",
}


def keep(look: Looking, name: str, way: str) -> None:
    """Screenshots in light, in dark and on a phone."""
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    for scheme, size in (("light", "desktop"), ("dark", "desktop"), ("light", "phone"), ("dark", "phone")):
        page = look.open(scheme, size)
        page.goto(look.url + way)
        page.wait_for_selector(".pending", state="detached")
        page.screenshot(path=ARTEFACTS / f"{name}-{scheme}-{size}.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth") == SIZES[size][0], (name, scheme, size)
        page.close()


# Words on what is behind them, by WCAG: 4.5 for text, 3 for large text.
CONTRAST = """
() => {
  const bright = ([r, g, b]) => [r, g, b].map(c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const over = (top, below) => top.slice(0, 3).map((c, i) => c * top[3] / 255 + below[i] * (1 - top[3] / 255));
  const behind = (node) => { const layers = [];
    for (let at = node; at; at = at.parentElement) layers.push(rgba(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]); };
  const faint = [];
  for (const node of document.querySelectorAll('main *, header *, footer *')) {
    const own = [...node.childNodes].some(child => child.nodeType === 3 && child.data.trim());
    if (!own || node.closest('[aria-disabled], .unseen, dialog') || !node.checkVisibility()) continue;
    const style = getComputedStyle(node);
    const back = behind(node);
    const paint = node.closest('svg') ? style.fill : style.color;
    const text = over(rgba(paint), back);
    const [high, low] = [bright(text), bright(back)].sort((a, b) => b - a);
    const large = parseFloat(style.fontSize) >= 24;
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < (large ? 3 : 4.5) && !/^on-/.test(node.getAttribute('class')?.split(' ')[1] ?? ''))
      faint.push([node.tagName, node.className.toString(), node.textContent.trim().slice(0, 30), ratio.toFixed(2)]);
  }
  return faint;
}
"""


UNNAMED = """
() => [...document.querySelectorAll('a, button, input, select')].filter(each => each.checkVisibility()
  && !(each.textContent.trim() || each.labels?.length || each.ariaLabel)).length
"""


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_fits_can_be_read_and_is_kept_as_a_picture(
    looking: Callable[..., Looking], runs: tuple[Path, Path], name: str
):
    look = looking(*runs)
    keep(look, name, PAGES[name])
    for scheme in ("light", "dark"):
        page = look.open(scheme, "desktop")
        page.goto(look.url + PAGES[name])
        page.wait_for_selector(".pending", state="detached")
        assert page.evaluate(CONTRAST) == [], (name, scheme)
        assert page.evaluate(UNNAMED) == 0
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.close()
    assert (look.said, look.outside) == ([], [])
