"""The messages that users see most, word for word, in tests/wording.txt. Other tests assert the place and the meaning.

`WRITE_WORDING=1 pytest tests/test_wording.py` writes the file again.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from velodrome.cli.main import main

FILE = Path(__file__).parent / "wording.txt"
MODEL = "policy_model: {responses_api_models: {scripted_model: {answers: ['36', '37']}}}\n"
AWAY = """
policy_model: {responses_api_models: {openai_model: {base_url: "http://127.0.0.1:1", model: m, max_retries: 0}}}
"""
CALCULATOR = "resources_servers/calculator/configs/calculator.yaml"
COLLECT = f"collect +config_paths=[{CALCULATOR},model.yaml] +embedded=true +input_jsonl_fpath=tasks.jsonl"
RUN = f"{COLLECT} +output_jsonl_fpath=rollouts.jsonl"


@contextmanager
def locked(path: str) -> Iterator[None]:
    """As another collection would hold it."""
    with open(path, "rb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def masked(text: str) -> str:
    """Without what differs between two runs: numbers, the folder, the progress bar, where the time went."""
    lines = [line for line in text.split("\n\n")[0].splitlines() if line.strip() and "Collecting rollouts:" not in line]
    return re.sub(r"\d+(\.\d+)?", "N", "\n".join(lines).replace(str(Path.cwd()), "FOLDER"))


def sections(capfd: pytest.CaptureFixture[str]) -> Iterator[str]:
    def said(command: str) -> str:
        capfd.readouterr()
        code = main(command.split(" "))
        out, err = capfd.readouterr()
        shown = command.replace(COLLECT, "collect …")
        return f"$ velo {shown}\n{out if '--help' in command else masked(err)}\nexit code {code}\n"

    yield said("--help")
    yield said("collect --help")
    yield said(RUN)
    yield said("metrics rolouts.jsonl")
    yield said(f"{COLLECT} +num_sampels_in_parallel=3")
    yield said(f"{COLLECT} +limit=0 +num_repeats=x +overwrite=perhaps")
    yield said(f"{RUN} +responses_create_params.temperature=0.7")
    with open("rollouts.jsonl", "ab") as stream:
        stream.write(b'{"torn')
    yield said(RUN)
    with locked("rollouts.jsonl"):
        yield said(f"{RUN} +num_repeats=2")
    yield said(RUN.replace("tasks.jsonl", "bad.jsonl"))
    yield said(f"{COLLECT.replace('model.yaml', 'away.yaml')} +output_jsonl_fpath=away.jsonl +server_wait_s=0")
    yield said("export sft rollouts.jsonl --to x.jsonl --where reward<")
    yield said("export sfd rollouts.jsonl --to x.jsonl")


def test_messages_are_worded_as_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    rows = [{"id": f"t{n}", "expected_answer": "36", "responses_create_params": {"input": "?"}} for n in range(2)]
    Path("tasks.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    Path("bad.jsonl").write_bytes(orjson.dumps(rows[0]) + b'\n{"responses_create_params": {}}\nnot JSON\n')
    Path("model.yaml").write_text(MODEL)
    Path("away.yaml").write_text(AWAY)
    text = "\n".join(sections(capfd))
    if os.environ.get("WRITE_WORDING"):
        FILE.write_text(text, encoding="utf-8")
    assert text == FILE.read_text(encoding="utf-8")
