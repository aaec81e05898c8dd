"""`velo model`: what it refuses before it serves."""

from __future__ import annotations

from pathlib import Path

import pytest

from velodrome.cli.model import run
from velodrome.errors import InputError

SCRIPTED = "policy_model: {responses_api_models: {scripted_model: {answers: [x]}}}\n"


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["lst"], "'lst'"),
        (["serve", "+config_paths=[m.yaml]", "+port=99999"], "port"),
        (["serve", "+config_paths=[m.yaml]", "+host=0.0.0.0"], "host"),
        (["serve", "+config_paths=[m.yaml]", "+hots=::1"], '"host"'),
    ],
)
def test_what_cannot_be_served_is_one_line_that_names_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], place: str
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.yaml").write_text(SCRIPTED)
    with pytest.raises(InputError) as caught:
        run(words)
    [problem] = caught.value.problems
    assert place in problem
