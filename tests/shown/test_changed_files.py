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

from velodrome.index import Index
from velodrome.records.appender import Appender
from velodrome.records.jsonl import read_lines

COMMAND = (
    "exec ng_collect_rollouts +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=rollouts.jsonl"
    " +num_samples_in_parallel=6"
)
ACCOUNT = re.compile(r"requested (\d+) = kept (\d+) \+ failed (\d+)(?: \+ (\d+) not run.*)?  ->  (\S+)$", re.MULTILINE)
TASKS = 150
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
    output = workplace.folder / (PACKED if PACKED in command else OUTPUT)
    size, deadline = size_of(output), time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline and process.poll() is None and size_of(output) <= size:
        time.sleep(0.002)
    time.sleep(chance.random() * 0.4)  # the random moment itself, not a wait for something
    assert process.poll() is None, process.communicate()[1]
    change(workplace.folder)
    _, stderr = process.communicate(timeout=DEADLINE_S)
    return Ended(process.returncode, stderr)


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def kept_in(path: Path) -> list[str]:
    """The keys of the lines that are whole."""
    keys = []
    for _, line in read_lines(path, lost=lambda *_: None):
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


OUTPUT, PACKED = "rollouts.jsonl", "rollouts.jsonl.zst"
ROUNDS = [
    *((OUTPUT, change) for change in (remove, rename, replace_by_a_copy, drop_lines, empty, cut, overwrite)),
    *((OUTPUT, change) for change in (append_half_a_line, put_a_folder_there)),
    *((PACKED, change) for change in (remove, cut, overwrite)),
    *(("rollouts.failures.jsonl", change) for change in (remove, replace_by_a_copy, empty, append_half_a_line)),
    *(("tasks.jsonl", change) for change in (remove, drop_lines, empty, cut, overwrite)),
    *(("rollouts.run.json", change) for change in (remove, put_a_folder_there)),
    *((name, empty) for name in ("rollouts.metrics.json", "rollouts.jsonl.index.sqlite", "env.yaml", "trace.json")),
]


def chaos(workplace: Any, name: str, change: Callable[[Path], None], seed: int) -> None:
    """One disturbed collection, held to the law."""
    folder = workplace.folder
    output = name if name == PACKED else OUTPUT
    command = COMMAND.replace(OUTPUT, output) + " +trace_path=trace.json"
    before = len(records(folder))
    ended = disturbed(workplace, command, lambda place: change(place / name), random.Random(seed))

    assert "Traceback" not in ended.stderr
    assert "fault of its own" not in ended.stderr
    requested, kept, failed, left, named = ended.account
    assert requested == TASKS == kept + failed + left
    keys = kept_in(folder / named)
    assert len(set(keys)) == len(keys) == kept
    if name == output:
        assert (ended.code, named) == (1, output.replace("rollouts", "rollouts.saved-1"))
    else:
        assert named == output
    if name == "rollouts.failures.jsonl":
        saved = FAILURES.findall(ended.stderr)
        assert ended.code == 1 or not failed
        assert all(int(count.replace(",", "")) == len(records(folder, file)) for count, file in saved)
    else:
        assert len(records(folder)) == before + failed
    if name == "trace.json":
        assert "trace.json: another program removed or changed it" in ended.stderr


def records(folder: Path, name: str = "rollouts.failures.jsonl") -> list[str]:
    return (folder / name).read_text().splitlines() if (folder / name).exists() else []


@pytest.mark.slow
def test_whatever_is_changed_under_a_run_what_is_claimed_is_in_the_file(workplace: Any, tmp_path: Path) -> None:
    """Every second collection is a resumed one."""
    workplace.scripted(latency_s=0.02)
    faults = "      faults: [{kind: status, status: 400, every: 9}]\n"
    workplace.write("model.yaml", (workplace.folder / "model.yaml").read_text() + faults)
    workplace.tasks("tasks.jsonl", TASKS)
    fresh, resumed = tmp_path / "fresh", tmp_path / "resumed"
    shutil.copytree(workplace.folder, fresh, ignore=lambda *_: {"fresh"})
    shutil.copytree(fresh, resumed)
    type(workplace)(resumed).run(f"{COMMAND} +limit=60")
    places = []
    for number, (name, _) in enumerate(ROUNDS):
        shutil.copytree(resumed if number % 2 and name != PACKED else fresh, tmp_path / f"{number}")
        places.append(type(workplace)(tmp_path / f"{number}"))
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
    done = workplace.run(COMMAND.replace("parallel=6", "parallel=64") + " +trace_path=trace.json")

    assert done.returncode == 0, done.stderr
    assert f"{kept} of 400 rollouts are there already" in done.stderr
    assert json.loads(done.stdout)["rollouts/kept"] == 400
    assert sorted(workplace.keys()) == sorted(f"task-{number}/0" for number in range(400))
    name_every_file(workplace.folder)


CUTTING = """
import os
from velodrome import Environment


class Cutting(Environment):
    async def verify(self, task, response):
        os.truncate("INPUT", min(os.stat("INPUT").st_size, 300_000))
        return {"reward": 1.0}
"""


@pytest.mark.parametrize("name", ["tasks.jsonl", "tasks.jsonl.zst"])
def test_what_is_cut_off_the_input_while_it_is_read_counts_as_not_run(workplace: Any, name: str) -> None:
    workplace.scripted()
    workplace.write("resources_servers/cutting/app.py", CUTTING.replace("INPUT", name))
    agent = (workplace.folder / "agent.yaml").read_text()
    workplace.write("agent.yaml", agent.replace("calculator: {entrypoint", "cutting: {entrypoint"))
    workplace.write("model.yaml", "policy_model: {responses_api_models: {scripted_model: {answers: [hi]}}}\n")
    file = Appender(workplace.folder / name)
    for number in range(200):  # more than is read ahead
        prompt = random.Random(number).randbytes(10_000).hex()
        file.append(json.dumps({"id": f"{number}", "responses_create_params": {"input": prompt}}).encode() + b"\n")
    file.close()

    done = workplace.run(COMMAND.replace("tasks.jsonl", name))

    ended = Ended(done.returncode, done.stderr)
    requested, kept, failed, left, _ = ended.account
    assert (ended.code, requested, kept + failed + left) == (3, 200, 200)
    assert kept == len(workplace.rows()) > 0
    assert left > 0
    assert "the input changed while it was read" in ended.stderr


def name_every_file(folder: Path) -> None:
    """The table in the docs names every file that a collection, and a look at it, leaves or reads."""
    index = Index(folder / "rollouts.jsonl")
    index.refresh()
    index.close()
    page = (Path(__file__).parents[2] / "docs" / "errors.md").read_text()
    table = page.partition("### Files that change under a run")[2].partition("\n## ")[0]
    named = set(re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE))
    assert {each.name for each in folder.iterdir()} - {"agent.yaml", "model.yaml"} <= named
    assert {"rollouts.failures.jsonl", "rollouts.saved-1.jsonl", "rollouts.jsonl.zst"} <= named
