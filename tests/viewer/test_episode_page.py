"""The page of an episode that a trained policy has played."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import Any

import orjson
import pytest
from parsed_page import Page
from small_run import small
from viewing import TAGS, page_at, viewing

from velodrome.training.loop import run_training as train
from velodrome.viewer.static_copy import write_copy
from velodrome.viewer.viewed_file import opened

Json = dict[str, Any]

pytestmark = pytest.mark.slow  # a policy is trained first


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    more = {"env__max_steps": "160", "evaluator__greedy": "False", "output__episodes": "2"}
    settings = small(tmp_path_factory.mktemp("run"), trainer__total_timesteps="512", supervised__steps="256", **more)
    return train(settings, lambda _: None).folder / "episodes_drawn.jsonl"


def film(page: Page) -> Json:
    (found,) = [attrs["data-film"] for _, attrs in page.tags if "data-film" in attrs]
    sent: Json = orjson.loads(found or "")
    return sent


def pictures(sent: Json) -> list[list[str]]:
    """What the player would draw, in colours."""
    colour = dict(zip(sent["letters"], sent["colours"], strict=False))
    found: list[list[str]] = []
    cells: list[str] = []
    for what, letters in sent["frames"]:
        if isinstance(what, list):
            for at, letter in zip(what, letters, strict=True):
                cells[at] = letter
        else:
            cells = list(letters)
        found.append([colour[letter] for letter in cells])
    return found


def replayed(episode: Json) -> list[list[str]]:
    """The same from the file, by what docs say."""
    found: list[list[str]] = []
    cells: list[str] = []
    for frame in episode["frames"]:
        if isinstance(frame, dict):
            for at, letter in zip(frame["at"], frame["put"], strict=True):
                cells[at] = letter
        else:
            cells = list("".join(frame))
        found.append([episode["palette"][letter] for letter in cells])
    return found


def test_the_page_has_every_step_of_the_file(episodes: Path):
    row = json.loads(episodes.read_text().splitlines()[0])
    episode, names = row["episode"], row["episode"]["action_names"]
    with viewing(episodes) as client:
        page = page_at(client, "/run/episodes_drawn/rollout/1")
        assert client.get("/static/player.js").headers["content-type"].startswith("text/javascript")
    sent = film(page)
    assert pictures(sent) == replayed(episode)
    assert [sent[name] for name in ("actions", "taught", "rewards")] == [
        episode[name] for name in ("actions", "teacher_actions", "rewards")
    ]
    assert sum(sent["means"]) == pytest.approx(row["reward"])
    assert {tag for tag, _ in page.tags} <= TAGS
    assert "160 steps; its time was over." in page.words
    strip = [attrs["href"] for tag, attrs in page.tags if tag == "a" and "data-step" in attrs]
    steps = [attrs["id"] for tag, attrs in page.tags if tag == "tr" and "id" in attrs]
    assert steps == [f"step-{step}" for step in range(1, 161)]
    assert (len(strip), strip[0], strip[-1]) == (12, "#step-1", "#step-160")
    acted, taught = (list(chain(*episode[name])) for name in ("actions", "teacher_actions"))
    differ = sum(a != b for a, b in zip(acted, taught, strict=True))
    assert differ > 0
    assert [attrs.get("class") for tag, attrs in page.tags if tag == "span"].count("differs") == differ
    told_first = [names[action] for action in episode["actions"][0]]
    assert f"Reward Return 1 {told_first[0]}" in page.words
    assert '"zlib_base64"' not in "".join(page.text).split("Raw JSON")[0]  # no longer a field of the task


def test_a_copy_plays_it_too_and_a_page_without_an_episode_has_none_of_it(episodes: Path, tmp_path: Path):
    with opened(episodes) as source:
        write_copy(source, tmp_path / "copy")
    text = (tmp_path / "copy" / "rollout-2.html").read_text()
    page = Page(text)
    assert (page.crossed, page.unclosed) == ([], [])
    assert len(film(page)["frames"]) == 160
    assert text.count("<script") == 1
    assert "function player(root)" in text
    assert "data-film='" not in (tmp_path / "copy" / "index.html").read_text()
