"""Verbs in this process: `velo("metrics", "r.jsonl")` in a working directory of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import orjson
import pytest

from velodrome.cli.main import main


class Done(NamedTuple):
    code: int
    out: str
    err: str


Velo = Callable[..., Done]


@pytest.fixture
def velo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Velo:
    """Runs a verb in `tmp_path`, or in `cwd`."""

    def run(*argv: str, cwd: Path = tmp_path) -> Done:
        monkeypatch.chdir(cwd)
        capsys.readouterr()
        return Done(main(argv), *capsys.readouterr())

    return run


@pytest.fixture
def collect(velo: Velo, tmp_path: Path) -> Velo:
    """Runs `velo collect` into r.jsonl, with a model that answers "It is 36" and tasks that want these answers."""

    def run(answers: Sequence[str], *more: str) -> Done:
        rows = [
            {"id": str(number), "expected_answer": answer, "responses_create_params": {"input": "?"}}
            for number, answer in enumerate(answers)
        ]
        (tmp_path / "t.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
        model = "policy_model: {responses_api_models: {scripted_model: {answers: [It is 36]}}}\n"
        (tmp_path / "model.yaml").write_text(model)
        paths = "+config_paths=[resources_servers/calculator/configs/calculator.yaml,model.yaml]"
        files = ("+input_jsonl_fpath=t.jsonl", "+output_jsonl_fpath=r.jsonl")
        return velo("collect", paths, "+embedded=true", *files, *more)

    return run
