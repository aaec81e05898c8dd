"""An episode is read value by value: any JSON may stand there, and only what is one is shown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import HOSTILE, write
from parsed_page import Page
from viewing import ODD, TAGS, page_at, viewing

from velodrome.viewer.parts.episode import (
    ALPHABET,
    MOST_CELLS,
    MOST_LETTERS,
    MOST_STEPS,
    Episode,
    Pictures,
    read_episode,
)
from velodrome.viewer.parts.episode_part import episode_part, picture
from velodrome.viewer.parts.render import page

Json = dict[str, Any]

SMALL: Json = {
    "agents": 2,
    "ended": "truncated",
    "returns": [1.0, 0.5],
    "action_names": ["noop", "north"],
    "actions": [[0, 1], [1, 1]],
    "teacher_actions": [[0, 0], [1, 7]],
    "rewards": [[0.0, 0.5], [1.0, 0]],
    "palette": {".": "#eeeeee", "0": "#dd0000", "1": "#DD0000", "#": "#444444"},
    "frames": [["#.0", "#1."], {"at": [2, 1], "put": ".0"}],
}
TOO_MANY = {chr(200 + place): "#aabbcc" for place in range(len(ALPHABET) + 1)}
WRONG = (None, 7, -1, True, 1e400, 10**400, "text", [], [[]], [[1]], [[1, 2]], {}, {"a": 1}, ["x"], [["x", 1], [1, 1]])


def read(**changed: Any) -> Episode | str | None:
    return read_episode({"episode": {**SMALL, **changed}})


def test_an_episode_is_read_with_its_pictures_in_letters_of_our_own():
    pictures = Pictures(
        ".01#",
        ["#eeeeee", "#dd0000", "#DD0000", "#444444"],
        ["", "0", "1", ""],
        [(3, "DABDCA"), ([2, 1], "AB")],
    )
    columns = ([[0, 1], [1, 1]], [[0, 0], [1, 7]], [[0.0, 0.5], [1.0, 0]])
    assert read() == Episode(2, 2, "its time was over", ["noop", "north"], *columns, pictures, 2)


@pytest.mark.parametrize(
    ("ended", "report"),
    [("terminal", "it ended by the rules"), ("unfinished", "it was left before it ended"), ("<b>", ""), (7, "")],
)
def test_how_it_ended_is_said_in_our_own_words(ended: Any, report: str):
    result = read(ended=ended)
    assert isinstance(result, Episode)
    assert result.ended == report


def test_what_is_not_there_is_left_out_and_a_task_may_have_a_field_of_that_name():
    few = {name: value for name, value in SMALL.items() if name in ("agents", "actions")}
    assert read_episode({"episode": few}) == Episode(2, 2, "", [], [[0, 1], [1, 1]], None, None, None, 2)
    for other in ({}, {"episode": None}, {"episode": "S01E02"}, {"episode": 7}, {"episode": {"title": "Pilot"}}):
        assert read_episode(other) is None
        assert episode_part(read_episode(other)) is None


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"agents": 3}, "actions, step 1: not one number for each agent"),
        ({"agents": 0}, "agents: "),
        ({"frames": []}, "its columns have no steps, or not the same number of them"),
        ({"frames": SMALL["frames"][:1]}, "its columns have no steps, or not the same number of them"),
        ({"frames": {"at": [], "put": ""}}, "frames: "),
        ({"frames": [{"at": [], "put": ""}] * 2}, "frame 1: there is no picture before it"),
        ({"frames": [["#.0", "#1"]] * 2}, "frame 1: it has no rows of letters, or rows that are not all of one length"),
        ({"frames": [["#.0"], ["#x0"]]}, "frame 2: a letter in it has no colour"),
        ({"frames": [["#.0"], {"at": [3], "put": "."}]}, "frame 2: it is not one letter for each of some cells"),
        ({"frames": [["#.0"], {"at": [True], "put": "."}]}, "frames, step 2: "),
        ({"frames": [["#" * 300] * 300] * 2}, f"frame 1: it has more than {MOST_CELLS:,} cells"),
        ({"palette": {**SMALL["palette"], "x": "red"}}, "palette: "),
        ({"palette": {**SMALL["palette"], "x": "#aabbcc\n"}}, "palette: "),
        ({"palette": {**SMALL["palette"], "xy": "#aabbcc"}}, "palette: "),
        ({"palette": TOO_MANY}, "palette: "),
        ({"actions": [[0, 1], [1, 1.5]]}, "actions, step 2: "),
        ({"rewards": [[0, float("nan")], [1, 0]]}, "rewards, step 1: "),
        ({"action_names": [1]}, "action_names: "),
    ],
)
def test_what_is_wrong_with_it_is_reported_with_its_place(changed: Json, where: str):
    why = read(**changed)
    assert isinstance(why, str)
    assert why.startswith(where)


def test_an_action_of_several_numbers_is_shown_with_all_of_them():
    episode = read(actions=[[[0.25, -1.5], [2, 0]], [[1e-9, 3.0], [0.0, 0.123456]]], teacher_actions=None)
    part = episode_part(episode)
    assert isinstance(episode, Episode)
    assert part is not None
    shown = [[cell["action"] for cell in row["agents"]] for row in part["table"]]
    assert shown == [["0.25, -1.5", "2, 0"], ["1e-09, 3", "0, 0.1235"]]
    for bad in ([[[1, "x"], [2]]] * 2, [[[1] * 65, [2]]] * 2, [[[[1]], [2]]] * 2):
        assert isinstance(read(actions=bad), str)


def test_a_long_episode_is_cut_to_what_a_page_can_hold():
    frames = [["."], *([{"at": [], "put": ""}] * 20_000)]
    long = read_episode({"episode": {"agents": 1, "palette": {".": "#eeeeee"}, "frames": frames}})
    assert isinstance(long, Episode)
    assert (long.steps, long.shown) == (20_001, MOST_STEPS)
    large = read_episode({"episode": {"agents": 1, "palette": {".": "#eeeeee"}, "frames": [["." * 200] * 200] * 200}})
    assert isinstance(large, Episode)
    assert (large.steps, large.shown) == (200, MOST_LETTERS // 40_000)
    part = episode_part(large)
    assert part
    assert [each["step"] for each in part["strip"]] == [1]  # a picture of 40,000 cells
    many = read_episode({"episode": {"agents": 1000, "actions": [[1] * 1000] * 900}})
    assert isinstance(many, Episode)
    part = episode_part(many)
    assert part
    assert (many.shown, part["agents"], part["more_agents"], part["listed"]) == (400, 32, 968, 375)


def test_a_picture_is_a_path_for_each_colour_on_the_commonest():
    shapes = [("#dd0000", "M2 0h1v1h-1z"), ("#DD0000", "M1 1h1v1h-1z"), ("#444444", "M0 1h1v1h-1z")]
    drawn = picture("AABDCA", 3, ["#eeeeee", "#dd0000", "#DD0000", "#444444"])
    assert (drawn["width"], drawn["height"], drawn["ground"]) == (3, 2, "#eeeeee")
    assert sorted(drawn["shapes"]) == sorted(shapes)


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=30)
NEARLY = st.fixed_dictionaries(
    {},
    optional={
        name: JSON | st.just(value) | st.lists(JSON | st.sampled_from(value), max_size=3)
        if isinstance(value, list)
        else JSON | st.just(value)
        for name, value in SMALL.items()
    },
).map(lambda changed: {**SMALL, **changed})


@settings(deadline=None)
@given(JSON | NEARLY)
def test_no_json_raises_and_what_is_shown_is_made_of_what_was_looked_at(value: Any):
    part = episode_part(read_episode({"episode": value}))
    shown = page("episode.html", episode=part) if part else ""
    shown.encode()
    assert ODD.findall(shown) == []
    assert set(re.findall(r"<([a-z0-9]+)", shown)) <= TAGS
    if part and not part["flaw"]:
        (film,) = [attrs["data-film"] for _, attrs in Page(shown).tags if "data-film" in attrs]
        assert orjson.loads(film or "")["steps"] == part["shown"]


def test_wrong_shapes_have_a_note_and_the_json_they_are(tmp_path: Path):
    episodes: list[Any] = [{**SMALL, name: wrong} for name in SMALL for wrong in WRONG if wrong != SMALL[name]]
    hostile = {
        **SMALL,
        "ended": HOSTILE,
        "action_names": [HOSTILE, "'\"><img src=x onerror=alert(1)>"],
        "palette": {"<": "#aabbcc", "'": "#aabbcc", "\u202e": "#112233", "&": "#445566"},
        "frames": [["<'", "\u202e&"], {"at": [0], "put": "&"}],
    }
    rows = [
        {"output": [], "reward": 1, "episode": each, "meta": {"key": f"t/{at}"}}
        for at, each in enumerate([*episodes, hostile, {**hostile, "palette": {"<": "#aabbcc;x:url(//x)"}}])
    ]
    path = write(tmp_path / "r.jsonl", [json.dumps(row).encode() for row in rows])
    flawed = 0
    with viewing(path) as client:
        for number in range(1, len(rows) + 1):
            answer = client.get(f"/run/r/rollout/{number}")
            assert answer.status_code == 200, answer.text[:500]
            result = Page(answer.text)
            assert {tag for tag, _ in result.tags} <= TAGS
            names = {name for _, attrs in result.tags for name in attrs}
            assert [name for name in names if name.startswith("on") or name == "style"] == []
            assert ODD.findall(answer.text) == []
            noted = "Its episode cannot be shown: " in result.words
            assert noted != any("data-film" in attrs for _, attrs in result.tags)
            assert noted == any(attrs.get("class") == "long" for tag, attrs in result.tags if tag == "dd")
            flawed += noted
        film = next(
            attrs["data-film"]
            for _, attrs in page_at(client, f"/run/r/rollout/{len(rows) - 1}").tags
            if "data-film" in attrs
        )
    assert 60 < flawed < len(rows)
    sent = orjson.loads(film or "")
    assert sent["frames"] == [[2, "ABCD"], [[0], "D"]]
    assert sent["marks"] == ["", "", "", ""]


def own_pictures(*images: str, every: int = 1) -> Json:
    return {"episode": {**SMALL, "pictures": {"every": every, "images": list(images)}}}


PIXEL = "data:image/png;base64," + (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)


def test_the_environments_own_pictures_are_shown_in_place_of_letters():
    part = episode_part(read_episode(own_pictures(PIXEL, every=2)))
    assert part is not None
    assert (part["own"], part["every"]) == (PIXEL, 2)
    assert [(each["step"], each["image"]) for each in part["strip"]] == [(1, PIXEL)]
    assert '"images":' in part["film"]
    assert '"frames":' not in part["film"]


@pytest.mark.parametrize(
    "image",
    [
        "https://evil.example/x.png",
        "data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9ImFsZXJ0KDEpIi8+",
        "data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==",
        "javascript:alert(1)",
        PIXEL + '" onerror="alert(1)',
    ],
)
def test_a_picture_that_is_no_image_is_not_shown(image: str):
    assert str(read_episode(own_pictures(PIXEL, image))).startswith("pictures, image 2: ")
