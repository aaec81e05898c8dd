"""`velo env add nemo_gym:FOLDER`: a resources-server folder is checked, and copied as it is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.gym_folders import TILL, write_folder, write_till


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """What a folder loads is forgotten with its test."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.partition(".")[0] in ("nemo_gym", "rounding") or name.startswith("velodrome_added_"):
            del sys.modules[name]


def test_a_folder_is_copied_with_its_config_and_data_and_can_be_examined(velo: Any, tmp_path: Path):
    theirs = write_till(tmp_path / "theirs")
    (theirs / "data").mkdir()
    (theirs / "data" / "example.jsonl").write_text("{}\n")
    (theirs / "__pycache__").mkdir()
    done = velo("env", "add", f"nemo_gym:{theirs}")
    assert (done.code, done.out.split()) == (
        0,
        [f"resources_servers/till/{name}" for name in ("configs/till.yaml", "app.py", "data/example.jsonl")],
    ), done.err
    home = tmp_path / "resources_servers" / "till"
    assert (home / "rounding.py").read_bytes() == (theirs / "rounding.py").read_bytes()
    assert not (home / "__pycache__" / "app.pyc").exists()
    again = velo("env", "add", f"nemo_gym:{theirs}")
    assert (again.code, "there already" in again.err) == (2, True)
    assert velo("env", "add", f"nemo_gym:{theirs}", "--overwrite").code == 0
    before = (home / "app.py").stat().st_mtime_ns
    assert velo("env", "add", "nemo_gym:resources_servers/till").code == 0  # at home: only checked
    assert (home / "app.py").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("from nemo_gym.server_utils import SESSION_ID_KEY", "from nemo_gym.sandbox import X"), "nemo_gym.sandbox.X"),
        (("from rounding import", "from no_such_package import"), "no_such_package"),
        (("nemo_gym", "other_gym"), "not a resources server of NeMo Gym"),
        ((TILL, "from nemo_gym.config_types import ModelServerRef\n"), "no class"),
    ],
)
def test_what_keeps_a_folder_from_running_is_one_line_and_nothing_is_copied(
    velo: Any, tmp_path: Path, change: tuple[str, str], problem: str
):
    folder = write_till(tmp_path / "theirs")
    (folder / "app.py").write_text(TILL.replace(*change))
    done = velo("env", "add", f"nemo_gym:{folder}")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert problem in done.err
    bare = write_folder(tmp_path / "more", "bare", TILL)
    assert velo("env", "add", f"nemo_gym:{bare}").code == 2  # it has no configs
    assert velo("env", "add", "nemo_gym:nowhere").code == 2
    assert not (tmp_path / "resources_servers").exists()
