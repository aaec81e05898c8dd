"""The folder of a run: nothing is left of one that was refused, and one Ctrl-C is one however often it arrives."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from velodrome.errors import InputError, StorageError
from velodrome.training.run.folder import folder
from velodrome.training.run.place import Interrupt, held
from velodrome.training.settings import OutputSettings, Settings


def settings_in(path: Path) -> Settings:
    return Settings(output=OutputSettings(train_dir=str(path)))


def refused(settings: Settings, *files: str) -> None:
    def begin() -> None:
        with held(settings) as place:
            for name in files:
                (place / name).touch()
            raise InputError("no such mission")

    with pytest.raises(InputError, match="no such mission"):
        begin()


def test_a_run_that_is_refused_leaves_no_folder(tmp_path: Path):
    settings = settings_in(tmp_path)
    refused(settings)
    assert list(tmp_path.iterdir()) == []
    with held(settings) as place:  # and can be begun later
        pass
    assert sorted(path.name for path in place.iterdir()) == [".lock", "settings.json"]


def test_a_folder_that_was_there_or_in_which_something_was_done_stays(tmp_path: Path):
    settings = settings_in(tmp_path)
    refused(settings, "metrics.jsonl")  # an empty one is nothing that was done
    place = folder(settings)
    assert not place.exists()
    refused(settings, "checkpoint_000000000064.pt")
    assert sorted(path.name for path in place.iterdir()) == [".lock", "checkpoint_000000000064.pt", "settings.json"]
    (place / "checkpoint_000000000064.pt").unlink()
    refused(settings)
    assert sorted(path.name for path in place.iterdir()) == [".lock", "settings.json"]


def test_whoever_finds_the_folder_taken_leaves_it_to_the_other(tmp_path: Path):
    settings = settings_in(tmp_path)
    with held(settings) as place:
        with pytest.raises(InputError, match="another process trains this run"), held(settings):
            pass
        assert sorted(path.name for path in place.iterdir()) == [".lock", "settings.json"]


def test_a_lock_that_was_taken_away_while_it_was_waited_for_holds_nothing(tmp_path: Path):
    """Between opening and locking the file, another process was refused and has removed it."""
    settings = settings_in(tmp_path)
    place = folder(settings)
    refused(settings)
    opened = os.open

    with pytest.MonkeyPatch.context() as patch:

        def late(path: Path, *more: int) -> int:
            patch.undo()
            found = opened(path, *more)
            path.unlink()
            place.rmdir()
            return found

        patch.setattr(os, "open", late)
        with held(settings), pytest.raises(InputError, match="another process trains this run"), held(settings):
            pass
    assert sorted(path.name for path in place.iterdir()) == [".lock", "settings.json"]


def test_a_file_in_the_place_of_the_folder_is_a_line(tmp_path: Path):
    settings = settings_in(tmp_path)
    folder(settings).touch()
    with pytest.raises(StorageError, match=r"cannot be made \(File exists\); see output.train_dir"), held(settings):
        pass


def test_two_ctrl_c_within_a_second_are_one():
    times, said = iter((5.0, 5.01, 5.99, 6.0)), list[str]()
    interrupt = Interrupt(said.append, clock=lambda: next(times))
    stopped = []
    with interrupt.heard():
        for _ in range(4):
            try:
                signal.raise_signal(signal.SIGINT)
                stopped.append(False)
            except KeyboardInterrupt:
                stopped.append(True)
    assert stopped == [False, False, False, True]
    assert (interrupt.asked, said) == (True, ["stopping after this epoch; once more stops at once"])


def test_a_second_signal_of_another_kind_stops_at_once_whenever_it_comes():
    interrupt = Interrupt(clock=lambda: 0.0)
    with interrupt.heard():
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
