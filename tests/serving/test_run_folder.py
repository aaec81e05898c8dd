"""The private folder of a run: removed with it, and swept by the next one if its owner was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import running

from velodrome.serving.process.run_folder import run_folder, sweep

pytestmark = pytest.mark.slow


def folders(temp: Path) -> list[str]:
    return sorted(each.name for each in temp.glob("velodrome-*"))


def test_folders_of_killed_owners_are_swept_and_those_of_living_ones_are_not(tmp_path: Path):
    temp = tmp_path / "temp"
    temp.mkdir()
    env = {"TMPDIR": str(temp)}
    with running.Session(tmp_path, running.calculator(tmp_path), env=env) as killed:
        pids = killed.up().pids()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)  # so that no worker clears up after the supervisor
        killed.process.send_signal(signal.SIGKILL)
        killed.ends()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            assert running.gone(pid)
    left = folders(temp)
    assert len(left) == 1
    assert list((temp / left[0]).glob("*.json"))  # with the keys of its servers

    with running.Session(tmp_path, running.calculator(tmp_path), env=env) as living:
        own = folders(temp) if living.up() else []
        assert len(own) == 1
        assert own != left
        command = [sys.executable, "-m", "velodrome.cli.main", "status", f"+head_server.port={living.port}"]
        assert subprocess.run(command, env=os.environ | env, capture_output=True, cwd=tmp_path).returncode == 0
        assert folders(temp) == own
        assert living.ends(signal.SIGINT) == 0
    assert folders(temp) == []


def test_what_is_not_a_folder_of_a_run_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "velodrome-run-notes").mkdir()
    (tmp_path / "velodrome-run-1-file").touch()
    other = tmp_path / "other"
    other.mkdir()
    (other / "precious").touch()
    (tmp_path / "velodrome-run-1-link").symlink_to(other)
    before = sorted(each.name for each in tmp_path.iterdir())
    with run_folder() as folder:
        (folder / "key").touch()
        sweep()
        assert (folder / "key").exists()
    assert sorted(each.name for each in tmp_path.iterdir()) == before
    assert (other / "precious").exists()
