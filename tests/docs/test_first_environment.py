"""The first ten minutes of docs/environments.md: its commands are run, its changes made, its reports compared."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from pages import FENCE, command_lines, read, section
from test_run_pages import runnable, shell

from velodrome.examiner.examination import RULES


def changed(text: str, diff: str) -> str:
    """The text with the lines of a diff changed; those that it does not add must be there, once and in a row."""
    lines = diff.splitlines()
    before = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("+"))
    after = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("-"))
    assert text.count(before) == 1, before
    return text.replace(before, after)


def alike(printed: str, expected: str) -> bool:
    """Whether a report is the one on the page, where `…` ends what is compared of a line."""
    lines, wanted = printed.splitlines(), expected.splitlines()
    pairs = zip(lines, wanted, strict=False)
    return len(lines) >= len(wanted) and all(line.startswith(each.partition("…")[0]) for line, each in pairs)


@pytest.mark.slow
def test_the_first_environment_of_the_docs_comes_about_as_written(tmp_path: Path):
    page = section(read("environments.md"), "Your first, in ten minutes")
    app = tmp_path / "resources_servers" / "my_shop" / "app.py"
    (tmp_path / "env.yaml").write_text("embedded: true\n")
    codes: list[int] = []
    printed, reports = "", 0
    for language, body in FENCE.findall(page):
        if language == "diff":
            app.write_text(changed(app.read_text(), body))
        elif language == "yaml":
            (tmp_path / "model.yaml").write_text(body)
        elif language == "text":
            assert alike(printed, body), printed
            reports += 1
        else:
            lines = list(command_lines(body))
            for line in filter(runnable, lines if "model pull" not in body else []):
                done = subprocess.run(**shell(line, tmp_path), capture_output=True)
                printed = done.stdout
                codes.append(done.returncode)
    assert codes == [0, 0, 3, 0, 0, 0]
    assert reports == 2
    rows = [json.loads(line) for line in (tmp_path / "scripted.jsonl").read_text().splitlines()]
    assert {row["id"]: row["reward"] for row in rows if row["reward"]} == {"one-apple": 1.0}
    assert len(rows) == 6


def test_every_rule_has_a_line_on_the_page_and_every_line_a_rule():
    table = section(read("environments.md"), "Rules")
    named = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]
    assert named == list(RULES)
