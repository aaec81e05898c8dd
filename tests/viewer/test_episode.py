"""An episode is read value by value: any JSON may stand there, and only what is one is shown."""

from __future__ import annotations

import re
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.drawn_markup import DATA as PIXEL
from tests.support.parsed_page import Page
from tests.support.viewing import ODD, TAGS
from velodrome.viewer.parts.episode import (
    MOST_COLOURS,
    MOST_LETTERS,
    MOST_STEPS,
    Episode,
    Pictures,
    read_episode,
)
from velodrome.viewer.parts.episode_part import episode_part
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
TOO_MANY = {chr(200 + place): "#aabbcc" for place in range(MOST_COLOURS + 1)}


def read(**changed: Any) -> Episode | str | None:
    return read_episode({"episode": {**SMALL, **changed}})


def test_an_episode_is_read_with_its_pictures():
    colours = ["#eeeeee", "#dd0000", "#DD0000", "#444444"]
    pictures = Pictures([*".01#"], colours, ["", "0", "1", ""], [(3, "#.0#1."), ([2, 1], ".0")])
    columns = ([[0, 1], [1, 1]], [[0, 0], [1, 7]], [[0.0, 0.5], [1.0, 0]])
    assert read() == Episode(2, 2, "its time was over", ["noop", "north"], *columns, pictures, 2)
    ends = {"terminal": "it ended by the rules", "unfinished": "it was left before it ended", "<b>": "", 7: ""}
    assert {ended: getattr(read(ended=ended), "ended", None) for ended in ends} == ends


def test_what_is_not_there_is_left_out_and_a_task_may_have_a_field_of_that_name():
    few = {name: value for name, value in SMALL.items() if name in ("agents", "actions")}
    assert read_episode({"episode": few}) == Episode(2, 2, "", [], [[0, 1], [1, 1]], None, None, None, 2)
    of_numbers = episode_part(read(actions=[[[0.25, -1.5], [2, 0]]] * 2, teacher_actions=None)) or {}
    assert [cell["action"] for cell in of_numbers["table"][0]["agents"]] == ["0.25, -1.5", "2, 0"]
    for other in ({}, {"episode": None}, {"episode": "S01E02"}, {"episode": 7}, {"episode": {"title": "Pilot"}}):
        assert episode_part(read_episode(other)) is read_episode(other) is None


FLAWS: list[tuple[Json, str]] = [
    ({"agents": 3}, "actions, step 1: not one number for each agent"),
    ({"agents": 0}, "agents: "),
    ({"frames": []}, "its columns have no steps, or not the same number of them"),
    ({"frames": {"at": [], "put": ""}}, "frames: "),
    ({"frames": [{"at": [], "put": ""}] * 2}, "frame 1: "),
    ({"frames": [["#.0", "#1"]] * 2}, "frame 1: "),
    ({"frames": [["#.0", "#1", "#1.."]] * 2}, "frame 1: "),
    ({"frames": [["#" * 300] * 300] * 2}, "frame 1: "),
    ({"frames": [["#.0", "#1."], {"at": [6], "put": "."}]}, "frame 2: "),
    ({"frames": [["#.0", "#1."], {"at": [2, 1], "put": "."}]}, "frame 2: "),
    ({"palette": {**SMALL["palette"], "x": "#aabbcc\n"}}, "palette: "),
    ({"palette": {**SMALL["palette"], "xy": "#aabbcc"}}, "palette: "),
    ({"palette": TOO_MANY}, "palette: "),
    ({"actions": [[0, 1], [1, 1.5]]}, "actions, step 2: "),
    ({"rewards": [[0, float("nan")], [1, 0]]}, "rewards, step 1: "),
    ({"action_names": [1]}, "action_names: "),
]


def test_what_is_wrong_with_it_is_reported_with_its_place():
    for changed, where in FLAWS:
        assert str(read(**changed)).startswith(where), changed


def test_a_long_episode_is_cut_to_what_a_page_can_hold():
    frames = [["."], *([{"at": [], "put": ""}] * 20_000)]
    palette = {".": "#eeeeee"}
    for episode, steps, shown in (
        ({"agents": 1, "palette": palette, "frames": frames}, 20_001, MOST_STEPS),
        ({"agents": 1, "palette": palette, "frames": [["." * 200] * 200] * 200}, 200, MOST_LETTERS // 40_000),
        ({"agents": 1000, "actions": [[1] * 1000] * 900}, 900, 400),
    ):
        read = read_episode({"episode": episode})
        assert isinstance(read, Episode)
        assert (read.steps, read.shown) == (steps, shown)
    part = episode_part(read)
    assert part
    assert (part["agents"], part["more_agents"], part["listed"]) == (32, 968, 375)


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


def own_pictures(*images: str, every: int = 1) -> Json:
    return {"episode": {**SMALL, "pictures": {"every": every, "images": list(images)}}}


def test_the_environments_own_pictures_are_shown_in_place_of_letters_and_what_is_no_image_is_not():
    part = episode_part(read_episode(own_pictures(PIXEL, every=2)))
    assert part is not None
    assert (part["own"], part["every"]) == (PIXEL, 2)
    assert ('"images":' in part["film"], '"frames":' in part["film"]) == (True, False)
    svg = "data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9ImFsZXJ0KDEpIi8+"
    for image in ("https://evil.example/x.png", svg, "javascript:alert(1)", PIXEL + '" onerror="alert(1)'):
        assert str(read_episode(own_pictures(PIXEL, image))).startswith("pictures, image 2: ")
