"""What is measured in the background: no page waits for it for ever, and none keeps what is no longer so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
from starlette.testclient import TestClient

from tests.support.made_runs import make_run, rollout
from tests.support.viewing import PATIENCE_S, page_at, viewing
from velodrome.errors import InputError
from velodrome.viewer.measurements import Background, Measurement, Measurements
from velodrome.viewer.pages import run_charts
from velodrome.viewer.viewed_file import ViewedFile


def quick() -> Measurements:
    """Measurements that are made again without much of a pause."""
    return Measurements(pause_s=0.01)


def version(client: TestClient, path: str) -> tuple[str | None, str | None]:
    """Which version a page is, and where it asks for the newest."""
    body = next(attrs for tag, attrs in page_at(client, path).tags if tag == "body")
    return body["data-version"], body["data-pulse"]


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
def viewed(path: Path, measurements: Measurements) -> Iterator[ViewedFile]:
    source = ViewedFile(path, "baseline", measurements)
    try:
        yield source
    finally:
        measurements.close()
        source.close()


def test_either_file_of_a_comparison_makes_the_page_an_old_one(run: Path, tmp_path: Path):
    other, path = make_run(tmp_path / "other.jsonl", seed=3, tasks=5), "/compare?a=baseline&b=other"
    with viewing(run, other, measurements=quick()) as client:
        pulsing(client, path, "5 tasks are in both runs")
        for each in (run, other):
            seen, pulse = version(client, path)
            with each.open("ab") as stream:
                stream.write(orjson.dumps(rollout(70, 0, Random(5))) + b"\n")
            until(lambda seen=seen, pulse=pulse: client.get(pulse).json()["version"] != seen)
        pulsing(client, path, "6 tasks are in both runs")


class Dying(Measurements):
    """The process that reads ends as one that was killed, as often as told."""

    def __init__(self, times: int) -> None:
        super().__init__(small_bytes=0, pause_s=0.01)
        self.left = times

    def _measured(self, kind: str, paths: list[Path], size: int) -> Any:
        if self.left:
            self.left -= 1
            raise OSError("the reader ended with -9")
        return super()._measured(kind, paths, size)


def test_a_reader_that_dies_is_reported_and_tried_again_when_the_page_is_loaded_again(run: Path):
    facts = Dying(2)
    with viewed(run, facts) as source:
        first = source.measure("metrics", patience_s=PATIENCE_S)
        assert first.value is None
        assert str(first.error).startswith("baseline.jsonl: OSError: the reader ended with -9")
        turns = facts.updates(source)
        until(lambda: source.measure("metrics", patience_s=PATIENCE_S) and facts.left == 0)
        assert facts.updates(source) == turns  # the same failure again does not make pages old
        value = until(lambda: source.measure("metrics", patience_s=PATIENCE_S).value)
    assert value["rollouts/kept"] == 111  # by a process of its own


def test_a_result_for_the_file_before_is_not_the_answer_for_the_one_that_replaced_it():
    answers, go = Background("answers"), threading.Event()
    assert answers.answer("key", (1, 0), go.wait, patience_s=0.0) == Measurement(None, True)
    threading.Timer(0.05, go.set).start()
    assert answers.answer("key", (2, 0), lambda: "new", patience_s=PATIENCE_S) == Measurement(None, True)
    until(lambda: answers.updated("key") == 2)  # without another question
    assert answers.answer("key", (2, 0), lambda: "new", patience_s=0.0) == Measurement("new")
    answers.close()


def test_charts_that_cannot_be_drawn_say_why(run: Path, monkeypatch: pytest.MonkeyPatch):
    def broken(index: Any) -> Any:
        raise InputError("no picture of it")

    monkeypatch.setattr(run_charts, "run_pictures", broken)
    with viewing(run) as client:
        words = page_at(client, "/run/baseline").words
    assert ("no picture of it" in words, "being drawn" in words) == (True, False)
