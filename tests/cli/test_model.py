"""`velo model`: which local models there are, and where they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from velodrome.errors import ServerError
from velodrome.responses_api_models.local_model import weights


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VELODROME_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_model_that_is_not_in_the_cache_is_listed_with_the_command_that_fetches_it(velo: Any):
    done = velo("model", "list")
    assert (done.code, "not pulled yet: velo model pull smollm2-135m" in done.out) == (0, True)
    place = weights.TABLE["smollm2-135m"].path
    place.parent.mkdir(parents=True)
    with place.open("wb") as file:
        file.truncate(weights.TABLE["smollm2-135m"].size_bytes)
    assert velo("model", "list").out.rstrip().endswith(str(place))


@pytest.mark.slow
def test_pulling_runs_no_module_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "pip.py").write_text("open('ran', 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ServerError, match="could not download"):
        weights.pull()
    assert not (tmp_path / "ran").exists()
