"""Checkpoints are whole or absent, and a damaged one is never used."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from velodrome.errors import InputError, StorageError
from velodrome.training.run import checkpoint
from velodrome.training.run.log import Log
from velodrome.training.run.place import Interrupt, held
from velodrome.training.settings import OutputSettings, Settings


def state(value: float) -> checkpoint.State:
    return {"step": int(value), "weights": {"w": torch.full((3,), value)}, "names": ["a", "b"]}


def same(found: checkpoint.State | None, value: float) -> bool:
    return (
        found is not None
        and found["step"] == int(value)
        and torch.equal(found["weights"]["w"], torch.full((3,), value))
    )


def test_what_is_saved_comes_back_and_the_last_two_are_kept(tmp_path: Path):
    for step in (5, 10, 100, 2_000):
        checkpoint.save(tmp_path, step, state(step))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint_000000000100.pt",
        "checkpoint_000000002000.pt",
    ]
    said: list[str] = []
    assert same(checkpoint.latest(tmp_path, said.append), 2_000)
    assert said == []


@pytest.mark.parametrize("damage", ["cut", "bit", "empty", "other"])
def test_a_damaged_checkpoint_is_said_and_the_one_before_it_is_used(tmp_path: Path, damage: str):
    checkpoint.save(tmp_path, 1, state(1))
    path = checkpoint.save(tmp_path, 2, state(2))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes({"cut": data[:-100], "bit": data, "empty": b"", "other": b"x" * 500}[damage])
    said: list[str] = []
    assert same(checkpoint.latest(tmp_path, said.append), 1)
    assert said == [f"{path}: damaged (its digest does not match); not used"]


def test_with_no_whole_checkpoint_left_a_run_is_not_begun_anew_in_its_place(tmp_path: Path):
    path = checkpoint.save(tmp_path, 1, state(1))
    path.write_bytes(b"gone")
    with pytest.raises(InputError, match=r"no whole checkpoint is left of 1; move the folder away"):
        checkpoint.latest(tmp_path, lambda _: None)
    assert checkpoint.latest(tmp_path / "none", lambda _: None) is None


def test_a_file_with_code_in_it_is_not_run(tmp_path: Path):
    import io
    import pickle
    from hashlib import blake2b

    class Bad:
        def __reduce__(self):
            return (print, ("run!",))

    held = io.BytesIO()
    torch.save({"step": Bad()}, held, pickle_module=pickle)
    data = held.getvalue()
    path = tmp_path / checkpoint.name_of(1)
    path.write_bytes(data + blake2b(data, digest_size=32).digest())
    with pytest.raises(InputError, match=r"not a checkpoint of Velodrome's"):
        checkpoint.read(path)


def signed(path: Path, data: bytes) -> Path:
    from hashlib import blake2b

    path.write_bytes(data + blake2b(data, digest_size=32).digest())
    return path


def test_bytes_that_somebody_has_put_together_are_a_line_whatever_they_do_to_the_reader(tmp_path: Path):
    import io
    import zipfile

    held = io.BytesIO()
    torch.save(state(1), held)
    for code in (b"\x80\x02a.", b"\x80\x02h\x07.", b"\x80\x02c\xff\n\n.", b"", b"\x80\x02]q\x00."):
        made = io.BytesIO()
        with zipfile.ZipFile(held) as old, zipfile.ZipFile(made, "w") as new:
            for name in old.namelist():
                new.writestr(name, code if name.endswith("data.pkl") else old.read(name))
        path = signed(tmp_path / checkpoint.name_of(1), made.getvalue())
        with pytest.raises(InputError, match=r"not a checkpoint of Velodrome's") as caught:
            checkpoint.read(path)
        assert len(str(caught.value)) < 300


def test_one_of_another_version_is_not_read_as_if_it_were_ours(tmp_path: Path):
    import io

    held = io.BytesIO()
    torch.save({"format": 2, "step": 1}, held)
    with pytest.raises(InputError, match=r"made by another version of Velodrome"):
        checkpoint.read(signed(tmp_path / checkpoint.name_of(1), held.getvalue()))


def test_a_run_of_more_steps_than_a_name_has_digits_for_goes_on_from_the_last(tmp_path: Path):
    for step in (10**12 - 64, 10**12, 10**12 + 64):
        checkpoint.save(tmp_path, step, state(step))
    assert [path.name for path in checkpoint.found(tmp_path)] == [
        "checkpoint_1000000000000.pt",
        "checkpoint_1000000000064.pt",
    ]
    found = checkpoint.latest(tmp_path, lambda _: None)
    assert found is not None
    assert found["step"] == 10**12 + 64


LINES = [{"step": step, "loss": 0.123456789012345678, "phase": "supervised"} for step in (64, 128, 192, 256)]


def logged(path: Path) -> list[int]:
    """Where each line of a log begins, and where the next would."""
    log = Log(path, 0)
    places = [log.place]
    for line in LINES:
        log.write(line)
        places.append(log.place)
    log.close()
    return places


@pytest.mark.parametrize("left", [0, 1, 60, 100, 160, 240])
def test_a_metrics_file_that_was_cut_off_costs_its_lines_and_not_the_run(tmp_path: Path, left: int):
    path = tmp_path / "metrics.jsonl"
    places = logged(path)
    path.write_bytes(path.read_bytes()[:left])
    log = Log(path, places[-1])
    log.write(LINES[0])
    log.close()
    kept = sum(place <= left for place in places) - 1
    lost = places[-1] - places[kept]
    assert log.lost == lost > 0
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert found == [*LINES[:kept], {"lost_bytes": lost}, LINES[0]]
    assert path.read_bytes()[: places[-1]].endswith(b"\n")  # so the place is still one of a line


def test_a_metrics_file_in_which_something_was_written_ends_where_a_line_does(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    places = logged(path)
    path.write_text('{"step": 1, "loss": 5}\n' + path.read_text())
    log = Log(path, places[-1])
    log.close()
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert found == [{"step": 1, "loss": 5}, *LINES[:2], {"lost_bytes": log.lost}]
    assert path.stat().st_size == places[-1]


def removed(path: Path) -> None:
    path.unlink()


def replaced(path: Path) -> None:
    path.with_name("other").write_text('{"step": 1}\n')
    path.with_name("other").replace(path)


def appended_to(path: Path) -> None:
    with path.open("ab") as stream:
        stream.write(b"half a line")


@pytest.mark.parametrize("change", [removed, replaced, appended_to], ids=lambda change: change.__name__)
def test_a_metrics_file_that_others_change_while_the_run_lasts_is_put_back(
    tmp_path: Path, change: Callable[[Path], None]
):
    path = tmp_path / "metrics.jsonl"
    log = Log(path, 0)
    log.write(LINES[0])
    change(path)
    log.write(LINES[1])
    change(path)
    log.settle()
    log.close()
    assert [json.loads(line) for line in path.read_text().splitlines()] == LINES[:2]
    assert (log.lost, os.listdir(tmp_path)) == (0, ["metrics.jsonl"])


def test_a_metrics_file_that_is_emptied_while_the_run_lasts_says_how_much_is_gone(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    log = Log(path, 0)
    log.write(LINES[0])
    place = log.place
    path.write_bytes(b"")
    log.write(LINES[1])
    log.close()
    assert [json.loads(line) for line in path.read_text().splitlines()] == [{"lost_bytes": place}, LINES[1]]
    assert log.lost == place


def test_a_log_that_nobody_touched_loses_nothing(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    places = logged(path)
    log = Log(path, places[2])
    log.close()
    assert (log.lost, [json.loads(line) for line in path.read_text().splitlines()]) == (0, LINES[:2])


def test_settings_are_whole_or_as_they_were_and_a_disk_that_refuses_is_a_line(tmp_path: Path):
    settings = Settings(output=OutputSettings(train_dir=str(tmp_path)))
    with held(settings) as folder:
        before = (folder / "settings.json").read_bytes()
    (folder / "settings.new").mkdir()  # in the way of the next one
    with pytest.raises(StorageError, match=r"settings.json: cannot be written"), held(settings):
        pass
    assert (folder / "settings.json").read_bytes() == before
    (folder / "settings.new").rmdir()
    with held(settings):  # nor is the folder still taken
        pass


def test_the_first_ctrl_c_is_answered_and_the_second_stops_at_once():
    said: list[str] = []
    interrupt = Interrupt(said.append)
    with interrupt.heard():
        signal.raise_signal(signal.SIGINT)
        assert (interrupt.asked, said) == (True, ["stopping after this epoch; once more stops at once"])
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_folder_that_cannot_be_written_leaves_the_last_checkpoint(tmp_path: Path):
    checkpoint.save(tmp_path, 1, state(1))
    (tmp_path / "checkpoint_000000000002.new").mkdir()  # in the way of the next one
    with pytest.raises(StorageError, match=r"cannot be written .*The checkpoint before it is good"):
        checkpoint.save(tmp_path, 2, state(2))
    assert same(checkpoint.latest(tmp_path, lambda _: None), 1)
