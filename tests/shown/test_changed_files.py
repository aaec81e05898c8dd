"""Files that other programs change under a run: it ends with an error, and what is claimed is in the file."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.patience import DEADLINE_S
from velodrome.records.jsonl import read_lines

COMMAND = (
    "ng_collect_rollouts +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=rollouts.jsonl +num_samples_in_parallel=6"
)
GATED = """
import asyncio
from pathlib import Path

import velodrome as velo


class Gated(velo.Environment):
    @velo.tool
    def calculator(self, expression: str) -> str:
        return "36"

    async def verify(self, task, response):
        while int(task["id"].removeprefix("task-")) >= LAST and not Path("open").exists():
            await asyncio.sleep(0.01)
        return {"reward": 1.0}
"""
ACCOUNT = re.compile(r"requested (\d+) = kept (\d+) \+ failed (\d+)(?: \+ (\d+) not run.*)?  ->  (\S+)$", re.MULTILINE)
TASKS = 150


@dataclass
class Ended:
    """How a collection ended, and what it claims."""

    code: int
    stderr: str

    @property
    def account(self) -> tuple[int, int, int, int, str]:
        assert len(ACCOUNT.findall(self.stderr)) == 1, self.stderr
        requested, kept, failed, left, name = ACCOUNT.findall(self.stderr)[0]
        return int(requested), int(kept), int(failed), int(left or 0), name


def disturbed(workplace: Any, command: str, change: Callable[[Path], None], chance: random.Random) -> Ended:
    """Run a collection, and make the change at a random moment after its first rollout; its last ones wait for it."""
    output = PACKED if PACKED in command else OUTPUT
    size = workplace.size_of(output)
    process = workplace.start(command)
    workplace.wait_for_bytes(output, process, size)
    time.sleep(chance.random() * 0.4)  # the random moment itself, not a wait for something
    assert process.poll() is None, process.communicate()[1]
    change(workplace.folder)
    workplace.write("open", "")
    _, stderr = process.communicate(timeout=DEADLINE_S)
    return Ended(process.returncode, stderr)


def kept_in(path: Path) -> list[str]:
    """The keys of the lines that are whole."""
    keys = []
    for _, line in read_lines(path, lost=lambda *_: None) if path.is_file() else ():
        try:
            keys.append(json.loads(line)["meta"]["key"])
        except (ValueError, KeyError, TypeError):
            continue
    return keys


def remove(path: Path) -> None:
    path.unlink(missing_ok=True)


def replace_by_a_copy(path: Path) -> None:
    if path.exists():
        shutil.copy(path, path.with_name("copy"))
        path.with_name("copy").replace(path)


def drop_lines(path: Path) -> None:
    subprocess.run(["sed", "-i", "2,$d", str(path)], check=False, capture_output=True)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    with path.open("ab") as stream:
        stream.truncate(stream.tell() * 2 // 3)


def overwrite(path: Path) -> None:
    if path.exists():
        with path.open("r+b") as stream:
            stream.seek(path.stat().st_size // 2)
            stream.write(b"#" * 50)


def append_half_a_line(path: Path) -> None:
    with path.open("ab") as stream:
        stream.write(b'{"half')


def put_a_folder_there(path: Path) -> None:
    remove(path)
    path.mkdir()


OUTPUT, PACKED = "rollouts.jsonl", "rollouts.jsonl.zst"
FEW = [(OUTPUT, replace_by_a_copy), (OUTPUT, cut), (PACKED, overwrite), ("rollouts.failures.jsonl", remove)]
MANY = [
    *((OUTPUT, change) for change in (remove, replace_by_a_copy, drop_lines, empty, cut, overwrite)),
    *((OUTPUT, change) for change in (append_half_a_line, put_a_folder_there)),
    *((PACKED, change) for change in (remove, cut, overwrite)),
    *(("rollouts.failures.jsonl", change) for change in (remove, replace_by_a_copy, empty, append_half_a_line)),
    *(("tasks.jsonl", change) for change in (remove, drop_lines, empty, cut, overwrite)),
    *(("rollouts.run.json", change) for change in (remove, put_a_folder_there)),
    *((name, empty) for name in ("rollouts.metrics.json", "rollouts.jsonl.index.sqlite", "env.yaml", "trace.json")),
]


def hold(workplace: Any, name: str, change: Callable[[Path], None], seed: int) -> None:
    """One disturbed collection, held to the law."""
    folder = workplace.folder
    output = name if name == PACKED else OUTPUT
    command = COMMAND.replace(OUTPUT, output) + " +trace_path=trace.json"
    before = len(records(folder))
    ended = disturbed(workplace, command, lambda place: change(place / name), random.Random(seed))

    assert "Traceback" not in ended.stderr
    assert "internal error" not in ended.stderr
    requested, kept, failed, left, named = ended.account
    assert (requested, named) == (TASKS, output)
    assert requested == kept + failed + left
    keys = kept_in(folder / output)
    assert len(set(keys)) == len(keys) == kept
    change_found = ended.code == 1 and name in (output, "rollouts.failures.jsonl")
    if name == output and change is not overwrite:  # which may leave a line whole, with another text in it
        assert change_found
    if change_found:
        assert f"velo: {name}: " in ended.stderr
        assert "during the run; the same command again continues" in ended.stderr
    if name != "rollouts.failures.jsonl":
        assert len(records(folder)) == before + failed
    if name == "trace.json":
        assert json.loads((folder / "trace.json").read_text())["traceEvents"]  # it is written at the end


def records(folder: Path) -> list[str]:
    path = folder / "rollouts.failures.jsonl"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [FEW, pytest.param(MANY, marks=pytest.mark.chaos)], ids=["few", "many"])
def test_whatever_is_changed_under_a_run_what_is_claimed_is_in_the_file(
    workplace: Any, tmp_path: Path, rounds: list[tuple[str, Callable[[Path], None]]]
) -> None:
    """Every second collection is a resumed one."""
    workplace.scripted()
    workplace.environment("gated", GATED.replace("LAST", str(TASKS - 6)))
    workplace.calculating(latency_s=0.02, faults="{kind: status, status: 400, every: 9}")
    workplace.tasks("tasks.jsonl", TASKS)
    fresh, resumed = tmp_path / "fresh", tmp_path / "resumed"
    shutil.copytree(workplace.folder, fresh, ignore=lambda *_: {"fresh"})
    shutil.copytree(fresh, resumed)
    type(workplace)(resumed).run(f"{COMMAND} +limit=60")
    with ThreadPoolExecutor(4) as pool:
        held = []
        for number, (name, change) in enumerate(rounds):
            place = type(workplace)(tmp_path / f"{number}")
            shutil.copytree(resumed if number % 2 and name != PACKED else fresh, place.folder)
            held.append(pool.submit(hold, place, name, change, number))
    problems = [
        f"{name}, {change.__name__}: {one.exception()}"
        for (name, change), one in zip(rounds, held, strict=True)
        if one.exception() is not None
    ]
    assert not problems, "\n".join(problems)
