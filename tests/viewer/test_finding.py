"""Finding rollouts in the viewer: by checks that are computed beside, by any field, by words wherever they were."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
from starlette.testclient import TestClient

from tests.support.made_runs import make_run, rows_of, write
from tests.support.parsed_page import Page
from tests.support.viewing import page_at, viewing, wait_for
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


def test_a_list_by_checks_says_that_it_waits_for_them_and_that_the_file_has_changed(tmp_path: Path):
    held = Held()
    path = twice(tmp_path / "r.jsonl")
    with viewing(path, measurements=held) as client:
        for page in ("rollouts", "tasks"):
            words = listed(client, "check:duplicate-keys", page).words
            assert ("the checks are being computed" in words, "120 rollouts" in words) == (True, False)
        held.go.set()
        address = f"/run/r/rollouts?q={quote('check:duplicate-keys')}"
        assert "being computed" not in wait_for(client, address, "5 rollouts match").words
        assert "5 tasks have a matching rollout" in listed(client, "check:duplicate-keys", "tasks").words
        assert "120 rollouts match" in listed(client, "-check:duplicate-keys").words
        held.go.clear()
        with path.open("ab") as stream:
            stream.write(orjson.dumps(rows_of(path)[7]) + b"\n")
        assert "5 rollouts match" in wait_for(client, address, "checked before the file changed").words
        held.go.set()
        wait_for(client, address, "6 rollouts match", gone="checked before")
