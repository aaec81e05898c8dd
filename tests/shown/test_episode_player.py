"""A policy's episode in a real Chromium: played, stepped through by keyboard, and there without scripts too."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from tests.support.looking import Looking, look_at
from tests.support.small_run import small
from velodrome.training.loop import run_training as train

pytestmark = pytest.mark.slow

WAY = "/run/episodes_sampled/rollout/1"
# The colour in the upper left corner of every cell of the picture.
DRAWN = """
width => {
  const shown = document.querySelector("canvas"), side = shown.width / width;
  const copy = new OffscreenCanvas(shown.width, shown.height).getContext("2d", {willReadFrequently: true});
  copy.drawImage(shown, 0, 0);
  const hex = (x, y) => "#" + [...copy.getImageData(x, y, 1, 1).data].slice(0, 3)
    .map(c => c.toString(16).padStart(2, "0")).join("");
  const found = [];
  for (let y = 0; y < shown.height; y += side) for (let x = 0; x < shown.width; x += side) found.push(hex(x, y));
  return found;
}
"""


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    more = {"env__max_steps": "120", "evaluator__greedy": "False", "output__episodes": "2"}
    folder = tmp_path_factory.mktemp("run")
    settings = small(folder, trainer__total_timesteps="512", supervised__steps="256", **more)
    return train(settings, lambda _: None).folder / "episodes_sampled.jsonl"


def episode_of(path: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(path.read_text().splitlines()[0])["episode"]
    return result


def colours(episode: dict[str, Any], step: int) -> list[str]:
    cells: list[str] = []
    for frame in episode["frames"][: step + 1]:
        if isinstance(frame, list):
            cells = list("".join(frame))
        else:
            for at, letter in zip(frame["at"], frame["put"], strict=True):
                cells[at] = letter
    return [episode["palette"][letter] for letter in cells]


@pytest.fixture(scope="module")
def look(chromium: Any, episodes: Path) -> Iterator[Looking]:
    with look_at(chromium, episodes) as look:
        yield look


def test_an_episode_is_stepped_through_by_keyboard_and_played(look: Looking, episodes: Path):
    episode = episode_of(episodes)
    width, names = len(episode["frames"][0][0]), episode["action_names"]
    returns = list(accumulate(sum(row) / 2 for row in episode["rewards"]))
    look.goto(WAY)

    def at(step: int) -> None:
        """Everything the player shows is of this step."""
        assert look.words("[data-where]") == f"{step + 1} of 120"
        assert look.page.evaluate(DRAWN, width) == colours(episode, step)
        acted = [names[action] for action in episode["actions"][step]]
        assert look.page.locator("[data-action]").all_inner_texts() == acted
        taught = [names[action] for action in episode["teacher_actions"][step]]
        wanted = ["the same" if a == b else b for a, b in zip(acted, taught, strict=True)]
        assert look.page.locator("[data-teacher]").all_inner_texts() == wanted
        assert float(look.words("[data-return]").replace("−", "-")) == pytest.approx(returns[step], abs=1e-3)

    at(0)
    look.page.get_by_label("Step", exact=True).focus()
    look.press(*["ArrowRight"] * 7)
    at(7)
    look.press("ArrowLeft", "ArrowLeft")
    at(5)
    received = look.page.get_attribute("#episode-step", "aria-valuetext")
    said = [f"agent {agent} {names[action]}" for agent, action in enumerate(episode["actions"][5])]
    assert received == ", ".join(["6 of 120", *said])
    look.press("End")
    at(119)
    look.press("Home")
    at(0)
    look.page.get_by_role("button", name="One step on").click()
    at(1)

    look.page.get_by_label("Speed").select_option("30")
    look.page.get_by_label("Step", exact=True).focus()
    look.press("End", "ArrowLeft", "ArrowLeft", "ArrowLeft")
    look.page.get_by_role("button", name="Play").click()
    look.page.locator("[data-where]", has_text="120 of 120").wait_for()
    look.page.get_by_role("button", name="Play").wait_for()  # it stops there
    at(119)
    look.page.get_by_role("button", name="Play").click()  # and begins anew
    look.page.locator("[data-where]", has_text=re.compile(r"^([4-9]|\d\d+) of")).wait_for()
    look.page.get_by_role("button", name="Pause").click()
    stopped = int(look.words("[data-where]").split()[0]) - 1
    look.page.wait_for_timeout(200)  # long enough for steps, if any were to come
    at(stopped)
    assert (look.said, look.outside) == ([], [])
