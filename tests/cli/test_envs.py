"""`velo envs` as a user sees it."""

from __future__ import annotations

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
    assert own == ["weather", "  Says the weather.", *files]
