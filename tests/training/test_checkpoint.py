"""What a run keeps on disk: checkpoints, the metrics file and the folder are whole or absent, whatever happens."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

import pytest
import torch

from velodrome.errors import InputError, StorageError
from velodrome.training.run import checkpoint
from velodrome.training.run.metrics_log import MetricsLog
from velodrome.training.run.train_folder import held_folder, run_folder
from velodrome.training.settings import OutputSettings, RunSettings


def state(value: float) -> checkpoint.State:
    return {"step": int(value), "weights": {"w": torch.full((3,), value)}, "names": ["a", "b"]}


def quiet(_: str) -> None:
    return None


def latest_step(folder: Path, say: Callable[[str], None] = quiet) -> int | None:
    newest = checkpoint.latest(folder, say)
    if newest is None:
        return None
    assert torch.equal(newest["weights"]["w"], torch.full((3,), float(newest["step"])))
    return int(newest["step"])


def signed(folder: Path, data: bytes) -> Path:
    path = folder / checkpoint.name_of(1)
    path.write_bytes(data + blake2b(data, digest_size=32).digest())
    return path


@pytest.mark.parametrize("damage", ["cut", "bit", "empty"])
def test_a_damaged_checkpoint_is_reported_and_the_one_before_it_is_used(tmp_path: Path, damage: str):
    checkpoint.save(tmp_path, 1, state(1))
    path = checkpoint.save(tmp_path, 2, state(2))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes({"cut": data[:-100], "bit": data, "empty": b""}[damage])
    lines: list[str] = []
    assert latest_step(tmp_path, lines.append) == 1
    (line,) = lines
    assert line.startswith(f"{path}: damaged")


def test_with_only_damaged_checkpoints_a_run_does_not_start_over(tmp_path: Path):
    checkpoint.save(tmp_path, 1, state(1)).write_bytes(b"gone")
    with pytest.raises(InputError, match=str(tmp_path)):
        checkpoint.latest(tmp_path, quiet)
    assert checkpoint.latest(tmp_path / "none", quiet) is None


class Code:
    def __reduce__(self):
        return (print, ("run!",))


def test_no_file_runs_code_and_none_that_is_not_ours_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    ours, code, version = io.BytesIO(), io.BytesIO(), io.BytesIO()
    torch.save(state(1), ours)
    torch.save({"step": Code()}, code, pickle_module=pickle)
    torch.save({"format": 1, "step": 1}, version)
    files = [code.getvalue(), version.getvalue()]
    for pickled in (b"\x80\x02a.", b"\x80\x02h\x07.", b"\x80\x02c\xff\n\n.", b"", b"\x80\x02]q\x00."):
        made = io.BytesIO()
        with zipfile.ZipFile(ours) as old, zipfile.ZipFile(made, "w") as new:
            for name in old.namelist():
                new.writestr(name, pickled if name.endswith("data.pkl") else old.read(name))
        files.append(made.getvalue())
    for data in files:
        with pytest.raises(InputError, match="Velodrome") as caught:
            checkpoint.read(signed(tmp_path, data))
        assert len(str(caught.value)) < 300
    assert capsys.readouterr().out == ""


def test_a_folder_that_cannot_be_written_leaves_the_last_checkpoint(tmp_path: Path):
    checkpoint.save(tmp_path, 1, state(1))
    (tmp_path / "checkpoint_000000000002.new").mkdir()  # in the way of the next one
    with pytest.raises(StorageError, match=r"cannot be written"):
        checkpoint.save(tmp_path, 2, state(2))
    assert latest_step(tmp_path) == 1


LINES = [{"step": step, "loss": 0.123456789012345678, "phase": "supervised"} for step in (64, 128, 192)]


def read(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_metrics_file_is_cut_back_to_its_checkpoint_and_continues_if_others_cut_or_remove_it(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path, 0)
    offsets = [0]
    for line in LINES:
        log.write(line)
        offsets.append(log.offset)
    again = MetricsLog(path, offsets[1])
    again.write(LINES[2])
    assert read(path) == [LINES[0], LINES[2]]
    shorter = MetricsLog(path, 10**6)
    assert shorter.offset == offsets[2]
    path.unlink()
    shorter.write(LINES[1])
    assert read(path) == [LINES[1]]


def settings_in(path: Path) -> RunSettings:
    return RunSettings(output=OutputSettings(train_dir=str(path)))


def refused(settings: RunSettings, *files: str) -> None:
    def begin() -> None:
        with held_folder(settings) as folder:
            for name in files:
                (folder / name).write_text("" if name == "metrics.jsonl" else "x")
            raise InputError("no such mission")

    with pytest.raises(InputError, match="no such mission"):
        begin()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_refused_run_leaves_no_folder_unless_something_was_done_in_it(tmp_path: Path):
    settings = settings_in(tmp_path)
    folder = run_folder(settings)
    refused(settings, "metrics.jsonl")  # an empty one
    assert names(tmp_path) == []
    refused(settings, "checkpoint_000000000064.pt")
    assert names(folder) == [".lock", "checkpoint_000000000064.pt", "settings.json"]
    (folder / "checkpoint_000000000064.pt").unlink()
    refused(settings)  # the folder was there before
    assert names(folder) == [".lock", "settings.json"]


def test_a_folder_that_is_taken_is_left_to_the_other_process(tmp_path: Path):
    settings = settings_in(tmp_path)
    with held_folder(settings) as folder:
        with pytest.raises(InputError, match="another process trains this run"), held_folder(settings):
            pass
        assert names(folder) == [".lock", "settings.json"]
