"""The first ten minutes of docs/environments.md: its commands are run, its changes made, its reports compared."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.docs.test_run_pages import runnable, shell
from tests.support.pages import FENCE, command_lines, read, section
from velodrome.examiner.examination import RULES


def changed(text: str, diff: str) -> str:
    """The text with the lines of a diff changed; those that it does not add must be there, once and in a row."""
    lines = diff.splitlines()
    before = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("+"))
    after = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("-"))
    assert text.count(before) == 1, before
    return text.replace(before, after)


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
            pairs = zip(printed.splitlines(), body.splitlines(), strict=False)
            assert printed.count("\n") >= body.count("\n"), printed
            assert all(line.startswith(each.partition("…")[0]) for line, each in pairs), printed
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
