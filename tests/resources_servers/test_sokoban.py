"""Sokoban: levels are checked, moves are replayed, and only boxes on goals count."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from velodrome import SimpleAgent, examine
from velodrome.errors import TaskError
from velodrome.resources_servers.sokoban.app import Sokoban
from velodrome.resources_servers.sokoban.sokoban_level import read_level
from velodrome.responses_api_models.scripted_model.app import ScriptedModel

DATA = Path(__file__).parents[2] / "velodrome" / "resources_servers" / "sokoban" / "data" / "example.jsonl"
ROOM = "######\n#@$ .#\n######"
NAMES = {"u": "up", "d": "down", "l": "left", "r": "right"}


def play(level: Any, *answers: str, **settings: Any) -> dict[str, Any]:
    agent = SimpleAgent(model=ScriptedModel(answers=list(answers)), environment=Sokoban(**settings))
    return asyncio.run(agent.run({"responses_create_params": {"input": []}, "level": level}))


def test_it_passes_its_examination() -> None:
    report = asyncio.run(examine("sokoban"))
    assert report.passed, str(report)


@pytest.mark.parametrize(
    "task", [json.loads(line) for line in DATA.read_text().splitlines()], ids=lambda task: task["id"]
)
def test_the_solution_of_each_level_solves_it_and_not_before_its_last_move(task: dict[str, Any]) -> None:
    level = read_level(task["level"])
    assert level.drawn() == task["level"]
    for letter in task["solution"]:
        assert not level.solved
        level = level.moved(NAMES[letter])
    assert level.solved


def test_a_box_is_pushed_if_there_is_room_and_never_pulled() -> None:
    level = read_level(ROOM)
    pushed = level.moved("right")
    assert pushed.drawn() == "######\n# @$.#\n######"
    assert pushed.moved("left").drawn() == "######\n#@ $.#\n######"
    assert level.moved("left") is level.moved("up") is level
    solved = pushed.moved("right")
    assert (solved.solved, solved.drawn(), solved.moved("right") is solved) == (True, "######\n#  @*#\n######", True)
    two = read_level("#######\n#@$$..#\n#######")
    assert two.moved("right") is two


def test_moves_are_counted_and_blocked_ones_are_reported() -> None:
    result = play(ROOM, "up, LEFT\nright", "right")
    texts = [item["content"] for item in result["response"]["output"] if item["role"] == "user"]
    assert texts[0].startswith("2 of these moves were blocked.")
    assert (result["reward"], result["moves"], result["boxes_on_goals"]) == (1.0, 4, 1.0)
    cut = play(ROOM, "left", max_moves=3)
    assert (cut["reward"], cut["truncated"], cut["moves"]) == (0.0, True, 3)
    assert play(ROOM, "right right", moves_per_turn=1)["reward"] == 0.0


@pytest.mark.parametrize("text", ["\ud800", "right " * 1_000_000, "[" * 100_000, "right\0right", ""])
def test_hostile_answers_are_no_moves(text: str) -> None:
    assert play(ROOM, text)["reward"] == 0.0


@pytest.mark.parametrize(
    "level",
    [
        None,
        7,
        "",
        "#####\n#@ .#\n#####",
        "#####\n#@$ #\n#####",
        "#####\n#$$.#\n#####",
        "#####\n#@*.#\n#####",
        "#####\n@$ .#\n#####",
        "#####\n#@$.",
        "#####\n#@$x#\n#####",
        "#" * 65,
        "########\n#@#$ .##\n########",
    ],
)
def test_a_level_that_cannot_be_played_is_blamed_on_the_input(level: Any) -> None:
    with pytest.raises(TaskError, match='"level"'):
        play(level, "up")
