"""The page on environments, followed to the letter: its files written as they stand there, its commands run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent.parent.parent / "docs" / "environments.md"


def test_the_environment_of_the_docs_runs_as_it_is_written_there(workplace: Any) -> None:
    section = PAGE.read_text().split("## One in twenty lines")[1].split("\n## ")[0]
    blocks = re.findall(r"```(\w+)\n(.*?)```", section, re.DOTALL)
    assert [kind for kind, _ in blocks] == ["python", "yaml", "jsonl", "yaml", "bash"]
    names = ["resources_servers/weather/app.py", "weather.yaml", "tasks.jsonl", "model.yaml"]
    for name, (_, text) in zip(names, blocks[:4], strict=True):
        workplace.write(name, text)
    workplace.write("env.yaml", "embedded: true\n")

    done = workplace.run(f"set -e\n{blocks[4][1]}")

    assert done.returncode == 0, done.stderr
    assert {row["id"]: row["reward"] for row in workplace.rows()} == {"oslo": 1.0, "lima": 0.0}
    assert "[tool call · get_weather]" in done.stdout
