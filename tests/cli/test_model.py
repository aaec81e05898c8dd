"""`velo model`: what it refuses before it serves."""

from __future__ import annotations

from pathlib import Path

import pytest

from velodrome.cli.model import run
from velodrome.errors import InputError

SCRIPTED = "policy_model: {responses_api_models: {scripted_model: {answers: [x]}}}\n"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["lst"], "velo model pull, list or serve, not 'lst'"),
        (["serve", "+config_paths=[m.yaml]", "+port=99999"], "port is a whole number from 1 to 65535, not 99999"),
        (
            ["serve", "+config_paths=[m.yaml]", "+host=0.0.0.0"],
            "host '0.0.0.0': a scripted model is served on loopback only (127.0.0.1)",
        ),
    ],
)
def test_what_cannot_be_served_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], problem: str
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.yaml").write_text(SCRIPTED)
    with pytest.raises(InputError) as caught:
        run(words)
    assert str(caught.value) == problem
