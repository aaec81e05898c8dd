"""What is measured in the background: no page waits for it for ever, and none keeps what is no longer so."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
from made_runs import make_run, rollout, write
from starlette.testclient import TestClient
from viewing import PATIENCE_S, page_at, viewing

from velodrome.viewer.measurements import MeasuredFile, Measurement, Measurements
from velodrome.viewer.viewed_file import ViewedFile


def quick() -> Measurements:
    """Measurements that are made again without much of a pause."""
    return Measurements(pause_s=0.01)


class Late(Measurements):
    """Answers each first question as if nothing were known, though by then it is."""

    def __init__(self) -> None:
        super().__init__()
        self._kinds: set[str] = set()

    def read(self, kind: str, *files: MeasuredFile, patience_s: float = 0.0) -> Measurement:
        result = super().read(kind, *files, patience_s=PATIENCE_S)
        first = kind not in self._kinds
        self._kinds.add(kind)
        return Measurement() if first else result


def version(client: TestClient, path: str) -> tuple[str | None, str | None]:
    """Which version a page is, and where it asks for the newest."""
    body = next(attrs for tag, attrs in page_at(client, path).tags if tag == "body")
    return body["data-version"], body["data-pulse"]


@pytest.mark.parametrize("path", ["/run/baseline", "/compare?a=baseline&b=other"])
def test_what_is_learned_while_a_page_is_made_makes_the_page_an_old_one(run: Path, tmp_path: Path, path: str):
    other = make_run(tmp_path / "other.jsonl", seed=3, tasks=5)
    with viewing(run, other, measurements=Late()) as client:
        first, pulse = version(client, path)
        assert first != client.get(pulse or "").json()["version"]
        again, _ = version(client, path)
        assert again == client.get(pulse or "").json()["version"]


def until(holds: Callable[[], Any]) -> Any:
    """What comes true by itself, in its time."""
    end = time.monotonic() + PATIENCE_S
    while not (result := holds()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)
    return result


def pulsing(client: TestClient, path: str, words: str) -> str:
    """A page that is loaded again only if its pulse says so, as a browser does it, until it says these words."""
    seen, pulse = version(client, path)
    page = page_at(client, path)

    def there() -> str | None:
        nonlocal seen, page
        if client.get(pulse or "").json()["version"] != seen:
            seen, _ = version(client, path)
            page = page_at(client, path)
        return page.words if words in page.words else None

    result: str = until(there)
    return result


@contextmanager
def viewed(path: Path, measurements: Measurements, **options: Any) -> Iterator[ViewedFile]:
    source = ViewedFile(path, "baseline", measurements, **options)
    try:
        yield source
    finally:
        measurements.close()
        source.close()


def test_numbers_that_are_old_for_a_pause_become_new_though_the_file_rests(run: Path):
    with viewed(run, quick()) as source:
        before = source.measure("metrics", patience_s=PATIENCE_S).value["rollouts/kept"]
        turns = source.measurements.updates(source)
        with run.open("ab") as stream:
            stream.write(orjson.dumps(rollout(77, 0, Random(5))) + b"\n")
        os.utime(run, (1.0, 1.0))  # not live: nothing else will change
        assert source.measure("metrics", patience_s=0).stale
        until(lambda: source.measurements.updates(source) > turns)
        after = source.measure("metrics", patience_s=PATIENCE_S).value["rollouts/kept"]
    assert (before, after) == (111, 112)


def test_either_file_of_a_comparison_makes_the_page_an_old_one(run: Path, tmp_path: Path):
    other = make_run(tmp_path / "other.jsonl", seed=3, tasks=5)
    with viewing(run, other, measurements=quick()) as client:
        pulsing(client, "/compare?a=baseline&b=other", "5 tasks are in both runs")
        for path in (run, other):
            seen, pulse = version(client, "/compare?a=baseline&b=other")
            with path.open("ab") as stream:
                stream.write(orjson.dumps(rollout(70, 0, Random(5))) + b"\n")
            until(lambda seen=seen, pulse=pulse: client.get(pulse).json()["version"] != seen)
        pulsing(client, "/compare?a=baseline&b=other", "6 tasks are in both runs")


class Killed(Measurements):
    """The process that reads is killed, as often as told."""

    def __init__(self, times: int) -> None:
        super().__init__(small_bytes=0, pause_s=0.01)
        self.left = times

    def _measured(self, kind: str, paths: list[Path], size: int) -> Any:
        if self.left:
            self.left -= 1
            import subprocess

            with subprocess.Popen(["sleep", "60"]) as child:
                os.kill(child.pid, signal.SIGKILL)
            raise OSError(f"the reader ended with {child.returncode}")
        return super()._measured(kind, paths, size)


def test_a_reader_that_dies_is_reported_and_tried_again_when_the_page_is_loaded_again(run: Path):
    facts = Killed(2)
    with viewed(run, facts) as source:
        first = source.measure("metrics", patience_s=PATIENCE_S)
        assert first.value is None
        assert str(first.error).startswith("baseline.jsonl: OSError: the reader ended with -9")
        turns = facts.updates(source)
        until(lambda: source.measure("metrics", patience_s=PATIENCE_S) and facts.left == 0)
        assert facts.updates(source) == turns  # the same failure again does not make pages old
        value = until(lambda: source.measure("metrics", patience_s=PATIENCE_S).value)
    assert value["rollouts/kept"] == 111


def test_the_numbers_of_a_file_that_is_gone_go_with_it_and_come_back_with_it(run: Path):
    kept = run.read_bytes()
    with viewing(run, measurements=quick()) as client:
        pulsing(client, "/run/baseline", "tokens_per_s")
        run.unlink()
        words = pulsing(client, "/run/baseline", "the file is gone")
        assert "pass@4" not in words
        assert "0 kept + 9 failed so far" in words
        assert "the file cannot be read now" in words
        words = pulsing(client, "/run/baseline", "The metrics could not be read: ")
        run.write_bytes(kept)
        words = pulsing(client, "/run/baseline", "pass@4")
        assert "111 kept + 9 failed" in words
        assert "the file is gone" not in pulsing(client, "/run/baseline", "Rollout Total")


def test_the_numbers_of_another_file_are_not_shown_beside_this_ones(run: Path, tmp_path: Path):
    with viewing(run, measurements=quick()) as client:
        pulsing(client, "/run/baseline", "pass@4")
        write(tmp_path / "new.jsonl", [rollout(5, 9, Random(5))]).replace(run)
        words = pulsing(client, "/run/baseline", "1 kept + 9 failed")
        assert "pass@4" not in words
        assert "pass@4" not in pulsing(client, "/run/baseline", "tokens_per_s")


def test_the_numbers_of_a_file_that_was_emptied_and_filled_with_more_are_not_kept(run: Path):
    with viewing(run, measurements=quick()) as client:
        pulsing(client, "/run/baseline", "pass@4")
        rows = [rollout(task, 0, Random(task)) for task in range(200)]
        with run.open("r+b") as stream:  # the same file, and longer than it was
            stream.truncate(0)
            stream.write(b"".join(orjson.dumps(row) + b"\n" for row in rows))
        words = pulsing(client, "/run/baseline", "200 kept")
        assert "pass@4" not in words


def test_a_directory_in_the_place_of_the_file_is_reported_and_is_not_live(run: Path):
    with viewing(run, measurements=quick()) as client:
        page_at(client, "/run/baseline")
        run.unlink()
        run.mkdir()
        words = pulsing(client, "/run/baseline", "cannot be read: Is a directory")
        assert "the file cannot be read now" in words
        assert "live: rollouts are being added" not in words
        assert "Is a directory" in page_at(client, "/run/baseline/rollouts").words
        assert "tokens_per_s" not in words


def test_why_a_file_was_read_again_is_noted_for_a_while(run: Path):
    now = [0.0]
    with viewed(run, quick(), clock=lambda: now[0]) as source:
        size = run.stat().st_size
        source.read_on()
        first = run.read_bytes().splitlines(keepends=True)[0]
        run.write_bytes(first)
        source.read_on()
        cut = f"baseline.jsonl: the file was cut from {size} to {len(first)} bytes; read again from the start"
        assert source.notes == [cut]
        noted = source.version
        now[0] = 119.0
        assert source.notes == [cut]
        now[0] = 121.0
        assert source.notes == []
        assert source.version != noted


def test_the_end_of_a_run_is_noticed_whenever_it_is_written(run: Path):
    beside = run.with_name("baseline.run.json")
    data = orjson.loads(beside.read_bytes())
    ended = data["runs"][0].pop("finished_at")
    beside.write_bytes(orjson.dumps(data))
    with viewing(run, measurements=quick()) as client:
        pulsing(client, "/run/baseline", "no end recorded")
        data["runs"][0]["finished_at"] = ended
        beside.write_bytes(orjson.dumps(data))
        pulsing(client, "/run/baseline", "finished")
