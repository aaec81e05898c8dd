"""Finding rollouts in the viewer: by checks that are computed beside, by any field, by words wherever they were."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import orjson
import pytest
from made_runs import make_run, rollout, rows_of, write
from parsed_page import Page
from starlette.testclient import TestClient
from viewing import page_at, viewing, wait_for

from velodrome.cli.main import main
from velodrome.viewer.measurements import Measurements


class Held(Measurements):
    """Measurements of large files, which begin when they are let."""

    def __init__(self) -> None:
        super().__init__(small_bytes=0, pause_s=0.0)
        self.go = threading.Event()

    def _measured(self, kind: str, paths: list[Path], size: int) -> Any:
        self.go.wait()
        return super()._measured(kind, paths, size)

    def close(self) -> None:
        self.go.set()
        super().close()


def listed(client: TestClient, where: str, page: str = "rollouts") -> Page:
    return page_at(client, f"/run/r/{page}?q={quote(where)}")


def twice(path: Path) -> Path:
    """A run in which five rollouts are there twice."""
    rows = rows_of(make_run(path, failed=0))
    return write(path, [*rows, *rows[:5]])


def test_a_list_by_checks_says_that_it_waits_for_them_and_then_has_them(tmp_path: Path):
    held = Held()
    with viewing(twice(tmp_path / "r.jsonl"), measurements=held) as client:
        for page in ("rollouts", "tasks"):
            words = listed(client, "check:duplicate-keys", page).words
            assert "the checks are being computed; the rollouts appear when they are done" in words
            assert "counting" in words
            assert "Being looked for; what matches appears here." in words
        assert "120 rollouts" not in listed(client, "check:duplicate-keys").words
        held.go.set()
        address = f"/run/r/rollouts?q={quote('check:duplicate-keys')}"
        assert "being computed" not in wait_for(client, address, "5 rollouts match").words
        assert "5 tasks have a matching rollout" in listed(client, "check:duplicate-keys", "tasks").words
        assert "120 rollouts match" in listed(client, "-check:duplicate-keys").words


def test_a_list_by_checks_says_that_the_file_has_changed_until_they_are_new(tmp_path: Path):
    held = Held()
    path = twice(tmp_path / "r.jsonl")
    with viewing(path, measurements=held) as client:
        held.go.set()
        address = f"/run/r/rollouts?q={quote('check:duplicate-keys')}"
        wait_for(client, address, "5 rollouts match")
        held.go.clear()
        with path.open("ab") as stream:
            stream.write(orjson.dumps(rows_of(path)[7]) + b"\n")
        words = wait_for(client, address, "checked before the file changed").words
        assert "5 rollouts match" in words
        held.go.set()
        wait_for(client, address, "6 rollouts match", gone="checked before")


def test_every_part_of_a_rollout_is_found_and_the_list_says_what_was_searched(tmp_path: Path):
    rows = [rollout(task, 0, Random(task)) for task in range(12)]
    rows[4]["output"][0]["reasoning_content"] = "A quixotic thought."
    rows[5]["output"][0]["tool_calls"][0]["arguments"] = '{"expression": "zanzibar"}'
    rows[6]["output"][1]["content"] = "Traceback: xylophone"
    with viewing(write(tmp_path / "r.jsonl", rows)) as client:
        for word in ("quixotic", "zanzibar", "xylophone", "quixotic*"):
            words = listed(client, word).words
            assert "1 rollout matches · searched: prompts, answers, reasoning, tools" in words
        assert "12 rollouts match" in listed(client, "tool=calculator model:smollm").words
        assert "search in prompts, answers, reasoning, and what tools were given" in listed(client, "").words
        assert "searched:" not in listed(client, "reward>=0").words


def test_hostile_names_and_values_of_fields_are_text_on_every_page(tmp_path: Path):
    name, value = '<img src=x onerror="alert(1)">', "</td><script>alert(2)</script>\u202e"
    rows = [{**rollout(task, 0, Random(task)), name: value, "x" * 5000: "y", "z": "w" * 100_000} for task in range(3)]
    with viewing(write(tmp_path / "r.jsonl", rows)) as client:
        for page in ("rollouts", "tasks"):
            where = (
                f'"{name}"='.replace('"', r"\"").replace(r"\"<", '"<', 1).replace(r">\"=", '>"=') + '"' + value + '"'
            )
            result = listed(client, where, page)
            assert "3 rollouts match" in result.words or "3 tasks have a matching rollout" in result.words
            assert not [tag for tag, _ in result.tags if tag == "img"]
            assert "\u202e" not in "".join(result.text)


@pytest.mark.parametrize("where", ["check:duplicate-keys", "tool=calculator id=task-003", "expected_answer:*"])
def test_copies_and_exports_hold_what_the_viewer_lists(tmp_path: Path, where: str):
    path = twice(tmp_path / "r.jsonl")
    with viewing(path) as client:
        count = re.search(r"(\d+) rollouts match", wait_for(client, f"/run/r/rollouts?q={quote(where)}", "match").words)
    assert count
    assert main(["view", str(path), "--export", str(tmp_path / "copy"), "--where", where]) == 0
    assert len([*(tmp_path / "copy").glob("rollout-*.html")]) == int(count[1])
    out = tmp_path / "out.jsonl"
    assert main(["export", "nemo_gym", str(path), "--to", str(out), "--where", where]) == 0
    assert len(rows_of(out)) == int(count[1])
