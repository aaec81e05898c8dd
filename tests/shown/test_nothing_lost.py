"""Kills, torn lines, full disks, two collectors: what was finished is in the file once, and what happened is said."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from patience import DEADLINE_S

COLLECT = "exec ng_collect_rollouts +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=OUT +num_samples_in_parallel=8"


def start(workplace: Any, command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["bash", "-c", command],
        cwd=workplace.folder,
        env=workplace.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_bytes(path: Path, size: int, process: subprocess.Popen[str]) -> None:
    """Until the file has more than this; bounded."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline and process.poll() is None:
        if path.exists() and path.stat().st_size > size:
            return
        time.sleep(0.002)
    assert process.poll() is not None, "no rollout was written within a minute"


@pytest.mark.slow
@pytest.mark.parametrize("output", ["rollouts.jsonl", "rollouts.jsonl.zst"])
def test_a_collection_killed_at_random_moments_ends_with_every_rollout_once(workplace: Any, output: str) -> None:
    workplace.scripted(latency_s=0.004)
    workplace.tasks("tasks.jsonl", 150)
    chance = random.Random(7)
    command = COLLECT.replace("OUT", output) + " +num_repeats=2"
    path = workplace.folder / output
    kills = 0

    for _ in range(40):
        process = start(workplace, command)
        size = path.stat().st_size if path.exists() else 0
        wait_for_bytes(path, size, process)
        time.sleep(chance.random() * 0.08)  # the random moment itself, not a wait for something
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.communicate(timeout=DEADLINE_S)
        if process.returncode == 0:
            break
        keys = workplace.folder / "rollouts.keys"
        if keys.exists() and chance.random() < 0.5:  # what a crash can leave of it
            os.truncate(keys, chance.randrange(keys.stat().st_size + 1))

    final = workplace.run(command)
    assert final.returncode == 0, final.stderr
    assert kills >= 3
    workplace.run(f"velo metrics {output} > metrics.json")
    assert json.loads((workplace.folder / "metrics.json").read_text())["rollouts/kept"] == 300
    shown = workplace.run(f"velo show {output} --all").stdout
    for number in range(150):
        for repeat in range(2):
            assert shown.count(f"─── task-{number}/{repeat} ·") == 1


def test_a_torn_last_line_is_cut_said_and_run_again(workplace: Any) -> None:
    workplace.scripted()
    workplace.tasks("tasks.jsonl", 20)
    command = COLLECT.replace("OUT", "rollouts.jsonl")
    workplace.run(command)
    path = workplace.folder / "rollouts.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])

    done = workplace.run(command)

    assert done.returncode == 0
    assert "rollouts.jsonl: the last line was torn" in done.stderr
    assert sorted(workplace.keys()) == sorted(f"task-{number}/0" for number in range(20))


@pytest.mark.parametrize(
    ("spoil", "ran_again"),
    [
        (lambda data: b"", 20),
        (lambda data: data.replace(b"\n", b"\r\n"), 0),
        (lambda data: data.rstrip(b"\n"), 0),
        (lambda data: b"\n" + data + b"\n\n", 0),
        (lambda data: data.split(b"\n", 1)[1], 1),
    ],
    ids=["empty file", "CRLF", "no final newline", "blank lines", "first line gone"],
)
def test_an_output_that_was_touched_is_read_as_it_is(workplace: Any, spoil: Any, ran_again: int) -> None:
    workplace.scripted()
    workplace.tasks("tasks.jsonl", 20)
    command = COLLECT.replace("OUT", "rollouts.jsonl")
    workplace.run(command)
    path = workplace.folder / "rollouts.jsonl"
    path.write_bytes(spoil(path.read_bytes()))
    kept = 20 - ran_again

    done = workplace.run(command)

    assert done.returncode == 0, done.stderr
    assert (f"{kept} of 20 rollouts are there already" in done.stderr) == (kept > 0)
    keys = [json.loads(line)["meta"]["key"] for line in path.read_text().splitlines() if line.strip()]
    assert sorted(keys) == sorted(f"task-{number}/0" for number in range(20))


def test_a_garbage_line_in_the_middle_is_left_alone_and_said(workplace: Any) -> None:
    workplace.scripted()
    workplace.tasks("tasks.jsonl", 10)
    command = COLLECT.replace("OUT", "rollouts.jsonl")
    workplace.run(command)
    path = workplace.folder / "rollouts.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    lost = json.loads(lines[4])["meta"]["key"]
    lines[4] = '{"half a ro\n'
    path.write_text("".join(lines))

    done = workplace.run(command)

    assert done.returncode == 0, done.stderr
    assert "rollouts.jsonl:5: not a rollout" in done.stderr
    after = path.read_text().splitlines(keepends=True)
    assert after[:10] == lines
    assert [json.loads(line)["meta"]["key"] for line in after[10:]] == [lost]


def overwritten(data: bytes) -> bytes:
    """The third line with its first 200 bytes overwritten; its end, with the key, is intact."""
    lines = data.splitlines(keepends=True)
    lines[2] = b"#" * 200 + lines[2][200:]
    return b"".join(lines)


def glued(data: bytes) -> bytes:
    """The third line behind half of another one that has no line end."""
    lines = data.splitlines(keepends=True)
    lines[2] = lines[1][:90] + lines[2]
    return b"".join(lines)


@pytest.mark.parametrize("damage", [overwritten, glued])
def test_a_damaged_line_counts_for_no_reader_and_its_rollout_runs_again(workplace: Any, damage: Any) -> None:
    workplace.scripted()
    workplace.tasks("tasks.jsonl", 10)
    command = COLLECT.replace("OUT", "rollouts.jsonl")
    workplace.run(command)
    path = workplace.folder / "rollouts.jsonl"
    lost = workplace.keys()[2]
    path.write_bytes(damage(path.read_bytes()))
    assert json.loads(workplace.run("velo metrics rollouts.jsonl").stdout)["rollouts/kept"] == 9

    done = workplace.run(command)

    assert done.returncode == 0, done.stderr
    assert "rollouts.jsonl:3: not a rollout" in done.stderr
    assert "9 of 10 rollouts are there already" in done.stderr
    assert json.loads(done.stdout)["rollouts/kept"] == 10
    assert json.loads((workplace.folder / "rollouts.profile.json").read_text())["rollouts"] == 10
    lines = path.read_text().splitlines()
    assert len(lines) == 11
    assert json.loads(lines[10])["meta"]["key"] == lost


def test_a_compressed_file_damaged_in_the_middle_is_continued(workplace: Any) -> None:
    workplace.scripted()
    workplace.tasks("tasks.jsonl", 10)
    command = COLLECT.replace("OUT", "rollouts.jsonl.zst")
    workplace.run(command)
    path = workplace.folder / "rollouts.jsonl.zst"
    data = bytearray(path.read_bytes())
    middle = data.index(b"\x28\xb5\x2f\xfd", len(data) // 2)
    data[middle + 4 : middle + 100] = bytes(96)
    path.write_bytes(data)

    done = workplace.run(command)

    assert done.returncode == 0, done.stderr
    assert f"bytes from byte {middle:,} on cannot be decompressed" in done.stderr
    assert "9 of 10 rollouts are there already" in done.stderr
    assert json.loads(done.stdout)["rollouts/kept"] == 10
    again = workplace.run(command)
    assert "10 of 10 rollouts are there already; nothing is left to do" in again.stderr, again.stderr


def test_a_full_disk_stops_with_whole_lines_and_the_same_command_goes_on(workplace: Any) -> None:
    workplace.scripted()
    workplace.tasks("tasks.jsonl", 60)
    command = COLLECT.replace("OUT", "rollouts.jsonl")

    full = workplace.run(command, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000)))

    assert full.returncode == 1, full.stderr
    assert "rollouts.jsonl: File too large; everything finished before is in the file" in full.stderr
    assert "Traceback" not in full.stderr
    before = workplace.rows()
    assert 0 < len(before) < 60
    account = f"requested 60 = kept {len(before)} + failed 0 + {60 - len(before)} not run (the disk refused a write)"
    assert account in full.stderr

    done = workplace.run(command)
    assert done.returncode == 0, done.stderr
    assert workplace.rows()[: len(before)] == before
    assert sorted(workplace.keys()) == sorted(f"task-{number}/0" for number in range(60))


def test_a_second_collector_on_the_same_file_is_refused(workplace: Any) -> None:
    workplace.scripted(latency_s=0.05)
    workplace.tasks("tasks.jsonl", 5000)
    command = COLLECT.replace("OUT", "rollouts.jsonl")
    first = start(workplace, command)
    wait_for_bytes(workplace.folder / "rollouts.jsonl", 0, first)

    second = workplace.run(command)
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=DEADLINE_S)

    assert second.returncode == 2
    assert "another collection" in second.stderr
    assert first.returncode == 130
    assert len(set(workplace.keys())) == len(workplace.keys()) > 0


@pytest.mark.parametrize(
    ("number", "reason", "code"), [(signal.SIGINT, "interrupted", 130), (signal.SIGTERM, "terminated", 143)]
)
def test_one_interrupt_lets_what_is_in_flight_finish(workplace: Any, number: int, reason: str, code: int) -> None:
    workplace.scripted(latency_s=0.05)
    workplace.tasks("tasks.jsonl", 400)
    command = COLLECT.replace("OUT", "rollouts.jsonl")
    process = start(workplace, command)
    wait_for_bytes(workplace.folder / "rollouts.jsonl", 0, process)

    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == code, stderr
    kept = len(workplace.rows())
    assert f"requested 400 = kept {kept} + failed 0 + {400 - kept} not run ({reason})" in stderr
    assert json.loads(stdout)["rollouts/kept"] == kept
    # what had been started was finished: the rollouts kept are the first ones of the input
    assert sorted(workplace.keys(), key=lambda key: int(key[5:-2])) == [f"task-{number}/0" for number in range(kept)]


def test_sigterm_gives_up_what_does_not_finish_within_its_time(workplace: Any) -> None:
    workplace.scripted()
    stuck = (workplace.folder / "model.yaml").read_text() + "      faults: [{kind: never, every: 3}]\n"
    workplace.write("model.yaml", stuck)
    workplace.tasks("tasks.jsonl", 50)
    command = COLLECT.replace("OUT", "rollouts.jsonl") + " +drain_s=6000 +sigterm_drain_s=0.2"
    process = start(workplace, command)
    wait_for_bytes(workplace.folder / "rollouts.jsonl", 0, process)

    process.send_signal(signal.SIGTERM)
    stdout, stderr = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 143, stderr
    assert "0.2 s (sigterm_drain_s)" in stderr
    assert json.loads(stdout)["rollouts/kept"] == len(set(workplace.keys())) > 0


def test_a_second_interrupt_stops_at_once_and_loses_no_finished_rollout(workplace: Any) -> None:
    workplace.scripted()
    slow = (workplace.folder / "model.yaml").read_text() + "      faults: [{kind: never, every: 3}]\n"
    workplace.write("model.yaml", slow)
    workplace.tasks("tasks.jsonl", 50)
    command = COLLECT.replace("OUT", "rollouts.jsonl") + " +drain_s=6000 +sigterm_drain_s=6000"
    process = start(workplace, command)
    wait_for_bytes(workplace.folder / "rollouts.jsonl", 0, process)

    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)  # not the same one, which within a second would be a copy
    _, stderr = process.communicate(timeout=DEADLINE_S)

    assert process.returncode in (130, 143), stderr  # the system may deliver them in either order
    assert len(set(workplace.keys())) == len(workplace.keys()) > 0


GATED = """
import pathlib
import signal
import time

from velodrome import Environment


class Gated(Environment):
    def verify(self, task, response):
        for _ in range(task.get("presses", 0)):
            signal.raise_signal(signal.SIGINT)
        deadline = time.monotonic() + 300
        while task["id"] != "task-0" and not pathlib.Path("go").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        return {"reward": 1.0}
"""


def test_the_first_interrupt_after_a_budget_stop_lets_what_is_in_flight_finish(workplace: Any) -> None:
    workplace.scripted()
    workplace.write("resources_servers/gated/app.py", GATED)
    agent = workplace.folder / "agent.yaml"
    agent.write_text(agent.read_text().replace("calculator: {entry", "gated: {entry"))
    workplace.tasks("tasks.jsonl", 50)
    command = COLLECT.replace("OUT", "rollouts.jsonl") + " +max_total_tokens=1 +num_samples_in_parallel=4 +drain_s=600"
    process = start(workplace, command)
    wait_for_bytes(workplace.folder / "rollouts.jsonl", 0, process)

    process.send_signal(signal.SIGINT)
    workplace.write("go", "")
    _, stderr = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 4, stderr
    assert "requested 50 = kept 4 + failed 0 + 46 not run (max_total_tokens=1 reached" in stderr


def test_a_ctrl_c_that_is_delivered_twice_counts_once(workplace: Any) -> None:
    workplace.scripted()
    workplace.write("resources_servers/gated/app.py", GATED)
    agent = workplace.folder / "agent.yaml"
    agent.write_text(agent.read_text().replace("calculator: {entry", "gated: {entry"))
    tasks = workplace.tasks("tasks.jsonl", 50)
    tasks.write_text(tasks.read_text().replace('"id": "task-0"', '"id": "task-0", "presses": 2', 1))
    process = start(workplace, COLLECT.replace("OUT", "rollouts.jsonl") + " +num_samples_in_parallel=4 +drain_s=600")
    wait_for_bytes(workplace.folder / "rollouts.jsonl", 0, process)

    workplace.write("go", "")
    _, stderr = process.communicate(timeout=DEADLINE_S)

    kept = len(workplace.rows())
    assert (process.returncode, 4 <= kept < 50) == (130, True), stderr
    assert f"requested 50 = kept {kept} + failed 0 + {50 - kept} not run (interrupted)" in stderr
    assert sorted(workplace.keys()) == [f"task-{number}/0" for number in range(kept)]


def test_a_budget_stops_cleanly_and_the_same_command_goes_on(workplace: Any) -> None:
    workplace.scripted()
    workplace.tasks("tasks.jsonl", 50)
    command = COLLECT.replace("OUT", "rollouts.jsonl")

    first = workplace.run(command + " +max_total_tokens=500")

    kept = len(workplace.rows())
    assert first.returncode == 4, first.stderr
    assert f"kept {kept} + failed 0 + {50 - kept} not run (max_total_tokens=500 reached" in first.stderr
    assert 0 < kept < 50
    assert workplace.run(command).returncode == 0
    assert sorted(workplace.keys()) == sorted(f"task-{number}/0" for number in range(50))


def test_a_changed_model_or_override_is_refused_on_resume_unless_asked_for(workplace: Any) -> None:
    workplace.scripted()
    workplace.tasks("tasks.jsonl", 10)
    command = COLLECT.replace("OUT", "rollouts.jsonl")
    workplace.run(command + " +limit=5 +responses_create_params.temperature=0.7")
    before = (workplace.folder / "rollouts.jsonl").read_bytes()

    refused = workplace.run(command + " +responses_create_params.temperature=0.2")

    assert refused.returncode == 2
    assert "responses_create_params.temperature: was 0.7, now 0.2" in refused.stderr
    assert (workplace.folder / "rollouts.jsonl").read_bytes() == before
    mixed = workplace.run(command + " +responses_create_params.temperature=0.2 +allow_mixed=true")
    assert mixed.returncode == 0
    assert len(workplace.rows()) == 10


def test_nothing_is_thrown_away_without_overwrite(workplace: Any) -> None:
    workplace.scripted()
    workplace.tasks("tasks.jsonl", 5)
    command = COLLECT.replace("OUT", "rollouts.jsonl")
    workplace.run(command)
    first = workplace.rows()

    workplace.run(command)
    assert workplace.rows() == first
    workplace.run(command + " +overwrite=true")
    assert len(workplace.rows()) == 5
    assert workplace.rows() != first  # made anew: other times


def test_no_process_or_part_file_is_left_behind(workplace: Any) -> None:
    workplace.scripted()
    workplace.tasks("tasks.jsonl", 5)

    workplace.run(COLLECT.replace("OUT", "out/rollouts.jsonl"))

    assert sorted(os.listdir(workplace.folder / "out")) == [
        "rollouts.jsonl",
        "rollouts.keys",
        "rollouts.metrics.json",
        "rollouts.profile.json",
        "rollouts.progress.json",
        "rollouts.run.json",
    ]


def test_a_verifier_that_swallows_cancellation_cannot_keep_the_process(workplace: Any) -> None:
    workplace.scripted()
    workplace.write(
        "resources_servers/stubborn/app.py",
        "import asyncio\nfrom velodrome import Environment\n\n\nclass Stubborn(Environment):\n"
        "    async def verify(self, task, response):\n"
        "        while task['id'] == 'task-0':\n"
        "            try:\n                await asyncio.sleep(3600)\n"
        "            except BaseException:\n                pass\n"
        "        return {'reward': 1.0}\n",
    )
    agent = (workplace.folder / "agent.yaml").read_text()
    workplace.write("agent.yaml", agent.replace("calculator: {entrypoint", "stubborn: {entrypoint"))
    workplace.write("model.yaml", "policy_model: {responses_api_models: {scripted_model: {answers: [hi]}}}\n")
    workplace.tasks("tasks.jsonl", 20)

    done = workplace.run(COLLECT.replace("OUT", "rollouts.jsonl") + " +max_wall_s=1 +drain_s=0.5")

    assert done.returncode == 4, done.stderr
    assert "requested 20 = kept 19 + failed 0 + 1 not run" in done.stderr
    assert "would not end when they were cancelled" in done.stderr
    assert sorted(workplace.keys()) == sorted(f"task-{number}/0" for number in range(1, 20))


def test_a_plain_and_a_compressed_output_of_one_name_are_refused(workplace: Any) -> None:
    workplace.scripted()
    workplace.tasks("tasks.jsonl", 3)
    workplace.run(COLLECT.replace("OUT", "rollouts.jsonl"))
    done = workplace.run(COLLECT.replace("OUT", "rollouts.jsonl.zst"))
    assert done.returncode == 2
    assert "rollouts.jsonl is there, and both would share one run file" in done.stderr
