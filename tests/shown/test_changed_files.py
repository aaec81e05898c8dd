"""Files of a running collection that other programs change: what is claimed is in the file that is named."""

from __future__ import annotations

import json
import os
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
from patience import DEADLINE_S

COMMAND = (
    "exec ng_collect_rollouts +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=rollouts.jsonl"
    " +num_samples_in_parallel=6"
)
ACCOUNT = re.compile(r"requested (\d+) = kept (\d+) \+ failed (\d+)(?: \+ (\d+) not run.*)?  ->  (\S+)$", re.MULTILINE)
FAILURES = re.compile(r"([\d,]+) of its failures are saved in (\S+);")


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
    """Run a collection, and make the change at a random moment after its first rollout."""
    process = subprocess.Popen(
        ["bash", "-c", command],
        cwd=workplace.folder,
        env=workplace.environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    output, deadline = workplace.folder / "rollouts.jsonl", time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline and process.poll() is None:
        if output.exists() and output.stat().st_size:
            break
        time.sleep(0.002)
    time.sleep(chance.random() * 0.4)  # the random moment itself, not a wait for something
    assert process.poll() is None, process.communicate()[1]
    change(workplace.folder)
    _, stderr = process.communicate(timeout=DEADLINE_S)
    return Ended(process.returncode, stderr)


def kept_in(path: Path) -> list[str]:
    """The keys of the lines that are whole."""
    keys = []
    for line in path.read_bytes().splitlines():
        try:
            keys.append(json.loads(line)["meta"]["key"])
        except (ValueError, KeyError, TypeError):
            continue
    return keys


def remove(path: Path) -> None:
    path.unlink(missing_ok=True)


def rename(path: Path) -> None:
    if path.exists():
        path.rename(path.with_name("elsewhere"))


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


CHANGES = [remove, rename, replace_by_a_copy, drop_lines, empty, cut, overwrite, append_half_a_line]
ROUNDS = [
    *(("rollouts.jsonl", change) for change in (*CHANGES, put_a_folder_there)),
    *(("rollouts.failures.jsonl", change) for change in (remove, replace_by_a_copy, empty, append_half_a_line)),
    *(("tasks.jsonl", change) for change in (remove, replace_by_a_copy, drop_lines, empty, cut, overwrite)),
    *(("rollouts.run.json", change) for change in (remove, empty, put_a_folder_there)),
    *((name, empty) for name in ("rollouts.metrics.json", "rollouts.jsonl.index.sqlite", "env.yaml")),
]


def chaos(workplace: Any, name: str, change: Callable[[Path], None], seed: int) -> None:
    """One disturbed collection, held to the law."""
    folder = workplace.folder
    workplace.scripted(latency_s=0.02)
    faults = "      faults: [{kind: status, status: 400, every: 9}]\n"
    workplace.write("model.yaml", (folder / "model.yaml").read_text() + faults)
    workplace.tasks("tasks.jsonl", 150)
    ended = disturbed(workplace, COMMAND, lambda place: change(place / name), random.Random(seed))

    assert "Traceback" not in ended.stderr
    assert "fault of its own" not in ended.stderr
    requested, kept, failed, left, named = ended.account
    assert requested == 150 == kept + failed + left
    keys = kept_in(folder / named)
    assert len(set(keys)) == len(keys) == kept
    if name.startswith("rollouts.failures"):
        for count, saved in FAILURES.findall(ended.stderr):
            assert int(count.replace(",", "")) == len((folder / saved).read_text().splitlines())
        assert FAILURES.search(ended.stderr) or "none of its failures could be saved" in ended.stderr or ended.code == 3
    elif name == "rollouts.jsonl":
        assert ended.code == 1
        assert named == "rollouts.saved-1.jsonl"
    else:
        assert ended.code == (1 if change is put_a_folder_there else 3)
        assert named == "rollouts.jsonl"
        assert len((folder / "rollouts.failures.jsonl").read_text().splitlines()) == failed


@pytest.mark.slow
def test_whatever_is_changed_under_a_run_what_is_claimed_is_in_the_file(workplace: Any) -> None:
    places = [type(workplace)(workplace.folder / f"{number}") for number in range(len(ROUNDS))]
    with ThreadPoolExecutor(4) as pool:
        rounds = [
            pool.submit(chaos, place, name, change, number)
            for number, (place, (name, change)) in enumerate(zip(places, ROUNDS, strict=True))
        ]
    broken = [
        f"{name}, {change.__name__}: {one.exception()}"
        for (name, change), one in zip(ROUNDS, rounds, strict=True)
        if one.exception() is not None
    ]
    assert not broken, "\n".join(broken)


def test_the_way_out_that_is_named_leads_to_every_rollout_once(workplace: Any) -> None:
    workplace.scripted(latency_s=0.02)
    workplace.tasks("tasks.jsonl", 400)
    ended = disturbed(workplace, COMMAND, lambda place: drop_lines(place / "rollouts.jsonl"), random.Random(1))
    _, kept, _, left, named = ended.account
    assert (ended.code, named) == (1, "rollouts.saved-1.jsonl")
    assert left > 0
    assert f"rollouts.jsonl: it was replaced by another file during the run; {kept} of its rollouts" in ended.stderr

    os.replace(workplace.folder / named, workplace.folder / "rollouts.jsonl")
    done = workplace.run(COMMAND.replace("parallel=6", "parallel=64"))

    assert done.returncode == 0, done.stderr
    assert f"{kept} of 400 rollouts are there already" in done.stderr
    assert json.loads(done.stdout)["rollouts/kept"] == 400
    assert sorted(workplace.keys()) == sorted(f"task-{number}/0" for number in range(400))
