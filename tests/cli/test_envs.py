"""`velo envs` as a user sees it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def test_an_environment_of_ones_own_is_listed_with_its_config_wherever_that_is(velo: Any, tmp_path: Path):
    folder = tmp_path / "resources_servers" / "weather"
    for name in ("app.py", "weather.yaml", "configs/other.yaml", "data/example.jsonl"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    (folder / "README.md").write_text("# Weather\n\nSays the weather.\n")
    own = velo("envs").out.partition("\ncalculator")[0].splitlines()[:5]
    below = "  resources_servers/weather/"
    files = [below + name for name in ("configs/other.yaml", "data/example.jsonl", "weather.yaml")]
    assert own == ["weather (this folder)", "  Says the weather.", *files]


def test_one_environment_is_described_with_its_tools_fields_settings_answers_and_an_example(velo: Any):
    lines = velo("envs", "example_single_tool_call").out.splitlines()
    assert lines[0] == "example_single_tool_call (built in)"
    assert "  get_weather(city: string): Look up the weather in a city." in lines
    assert "  city: text" in lines
    assert "12 example tasks with 12 reference answers, 36 wrong answers, 72 cheats" in lines
    game = velo("envs", "blackjack").out
    assert "  prompt: (the environment speaks first)\n" in game
    described = json.loads(velo("envs", "math_with_judge", "--json").out)
    assert described["origin"] == "built in"
    assert "fast_mode" in [name for name, _ in described["settings"]]


def test_the_list_as_json_and_a_name_that_is_not_there(velo: Any):
    names = {entry["name"]: entry["files"] for entry in json.loads(velo("envs", "--json").out)}
    assert "resources_servers/calculator/configs/calculator.yaml" in names["calculator"]
    done = velo("envs", "calclator")
    assert (done.code, 'did you mean "calculator"' in done.err) == (2, True)
