"""Kills, torn lines, full disks, two collectors: what was finished is in the file once, and what happened is said."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import time
from typing import Any

import pytest

from tests.shown.conftest import numbered
from tests.support.patience import DEADLINE_S

COLLECT = "ng_collect_rollouts +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=rollouts.jsonl"
COLLECT += " +num_samples_in_parallel=8"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("output", "tasks", "runs"),
    [
        ("rollouts.jsonl", 50, 4),
        pytest.param("rollouts.jsonl", 150, 40, marks=pytest.mark.chaos),
        pytest.param("rollouts.jsonl.zst", 150, 40, marks=pytest.mark.chaos),
    ],
)
def test_a_collection_killed_at_random_moments_ends_with_every_rollout_once(
    workplace: Any, output: str, tasks: int, runs: int
) -> None:
    workplace.scripted(latency_s=0.01)
    workplace.tasks("tasks.jsonl", tasks)
    chance = random.Random(7)
    command = f"{COLLECT.replace('rollouts.jsonl', output)} +num_repeats=2"
    kills = 0

    for _ in range(runs):
        size = workplace.size_of(output)
        process = workplace.start(command)
        workplace.wait_for_bytes(output, process, size)
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
    assert kills >= 2
    assert json.loads(final.stdout)["rollouts/kept"] == 2 * tasks
    shown = workplace.run(f"velo show {output} --all").stdout
    assert [key for key in numbered(tasks, 2) if shown.count(f"─── {key} ·") != 1] == []


@pytest.fixture
def collected(workplace: Any, typed: Any) -> Any:
    """A collection of ten rollouts is there."""
    workplace.scripted()
    workplace.tasks("tasks.jsonl", 10)
    assert typed(COLLECT).returncode == 0
    return workplace


def test_a_torn_last_line_is_cut_said_and_run_again(collected: Any, typed: Any) -> None:
    path = collected.folder / "rollouts.jsonl"
    path.write_bytes(path.read_bytes()[:-100])

    done = typed(COLLECT)

    assert done.returncode == 0
    assert "rollouts.jsonl: the last line was torn" in done.stderr
    assert sorted(collected.keys()) == numbered(10)


def test_a_damaged_line_counts_for_no_reader_and_its_rollout_runs_again(collected: Any, typed: Any) -> None:
    path = collected.folder / "rollouts.jsonl"
    lost = [collected.keys()[number] for number in (2, 4, 6)]
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = b'{"half a ro\n'
    lines[4] = b"#" * 200 + lines[4][200:]  # its end, with the key, is intact
    lines[6] = lines[1][:90] + lines[6]  # it follows half of another line that has no end
    path.write_bytes(b"".join(lines))
    assert json.loads(typed("velo metrics rollouts.jsonl").stdout)["rollouts/kept"] == 7

    done = typed(COLLECT)

    assert done.returncode == 0, done.stderr
    assert "rollouts.jsonl:3: not a rollout" in done.stderr
    assert "7 of 10 rollouts are there already" in done.stderr
    assert json.loads(done.stdout)["rollouts/kept"] == 10
    assert json.loads((collected.folder / "rollouts.profile.json").read_text())["rollouts"] == 10
    after = path.read_bytes().splitlines(keepends=True)
    assert after[:10] == lines
    assert sorted(json.loads(line)["meta"]["key"] for line in after[10:]) == sorted(lost)


def test_a_full_disk_stops_with_whole_lines_and_the_same_command_goes_on(workplace: Any) -> None:
    workplace.scripted()
    workplace.tasks("tasks.jsonl", 60)

    full = workplace.run(COLLECT, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000)))

    assert full.returncode == 1, full.stderr
    assert "rollouts.jsonl: File too large; everything finished before is in the file" in full.stderr
    assert "Traceback" not in full.stderr
    before = workplace.rows()
    assert 0 < len(before) < 60
    account = f"requested 60 = kept {len(before)} + failed 0 + {60 - len(before)} not run (the disk refused a write)"
    assert account in full.stderr

    done = workplace.run(COLLECT)
    assert done.returncode == 0, done.stderr
    assert workplace.rows()[: len(before)] == before
    assert sorted(workplace.keys()) == numbered(60)


def test_a_second_collector_on_the_same_file_is_refused(workplace: Any) -> None:
    workplace.scripted(latency_s=0.05)
    workplace.tasks("tasks.jsonl", 5000)
    first = workplace.start(COLLECT)
    workplace.wait_for_bytes("rollouts.jsonl", first)

    second = workplace.run(COLLECT)
    first.send_signal(signal.SIGTERM)
    _, stderr = first.communicate(timeout=DEADLINE_S)

    assert (second.returncode, "another collection" in second.stderr) == (2, True)
    kept = len(workplace.keys())
    assert (first.returncode, len(set(workplace.keys()))) == (143, kept), stderr
    assert f"requested 5000 = kept {kept} + failed 0 + {5000 - kept} not run (terminated)" in stderr


def test_one_interrupt_lets_what_is_in_flight_finish(workplace: Any) -> None:
    workplace.scripted(latency_s=0.05)
    workplace.tasks("tasks.jsonl", 400)
    process = workplace.start(COLLECT)
    workplace.wait_for_bytes("rollouts.jsonl", process)

    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 130, stderr
    kept = len(workplace.rows())
    assert f"requested 400 = kept {kept} + failed 0 + {400 - kept} not run (interrupted)" in stderr
    assert json.loads(stdout)["rollouts/kept"] == kept
    assert sorted(workplace.keys()) == numbered(kept)  # the first ones of the input: all that had been started


def stopped(workplace: Any, settings: str, *numbers: signal.Signals) -> tuple[int, str, str]:
    """Signals for a collection of which every third call is never answered; its exit code, stdout and stderr."""
    workplace.scripted()
    workplace.calculating(faults="{kind: never, every: 3}")
    workplace.tasks("tasks.jsonl", 50)
    process = workplace.start(f"{COLLECT} {settings}")
    workplace.wait_for_bytes("rollouts.jsonl", process)
    for number in numbers:
        process.send_signal(number)
    stdout, stderr = process.communicate(timeout=DEADLINE_S)
    assert len(set(workplace.keys())) == len(workplace.keys()) > 0
    return process.returncode, stdout, stderr


def test_sigterm_gives_up_what_does_not_finish_within_its_time(workplace: Any) -> None:
    code, stdout, stderr = stopped(workplace, "+drain_s=6000 +sigterm_drain_s=0.2", signal.SIGTERM)
    assert (code, "0.2 s (sigterm_drain_s)" in stderr) == (143, True), stderr
    assert json.loads(stdout)["rollouts/kept"] == len(workplace.keys())


def test_a_second_interrupt_stops_at_once_and_loses_no_finished_rollout(workplace: Any) -> None:
    # Not the same signal, which within a second would be a copy. The system may deliver them in either order.
    code, _, stderr = stopped(workplace, "+drain_s=6000 +sigterm_drain_s=6000", signal.SIGINT, signal.SIGTERM)
    assert code in (130, 143), stderr


def test_a_budget_stops_cleanly_and_the_same_command_goes_on(workplace: Any, typed: Any) -> None:
    workplace.scripted()
    workplace.tasks("tasks.jsonl", 50)

    first = typed(f"{COLLECT} +max_total_tokens=500")

    kept = len(workplace.rows())
    assert (first.returncode, 0 < kept < 50) == (4, True), first.stderr
    assert f"kept {kept} + failed 0 + {50 - kept} not run (max_total_tokens=500 reached" in first.stderr
    assert typed(COLLECT).returncode == 0
    assert sorted(workplace.keys()) == numbered(50)


def test_a_changed_model_or_override_is_refused_on_resume_unless_asked_for(workplace: Any, typed: Any) -> None:
    workplace.scripted()
    workplace.tasks("tasks.jsonl", 10)
    typed(f"{COLLECT} +limit=5 +responses_create_params.temperature=0.7")
    before = (workplace.folder / "rollouts.jsonl").read_bytes()

    refused = typed(f"{COLLECT} +responses_create_params.temperature=0.2")

    assert refused.returncode == 2
    assert "responses_create_params.temperature: was 0.7, now 0.2" in refused.stderr
    assert (workplace.folder / "rollouts.jsonl").read_bytes() == before
    assert typed(f"{COLLECT} +responses_create_params.temperature=0.2 +allow_mixed=true").returncode == 0
    assert len(workplace.rows()) == 10


def test_nothing_is_thrown_away_without_overwrite(collected: Any, typed: Any) -> None:
    first = collected.rows()

    typed(COLLECT)
    assert collected.rows() == first
    compressed = typed(COLLECT.replace("rollouts.jsonl", "rollouts.jsonl.zst"))
    assert compressed.returncode == 2
    assert "rollouts.jsonl is there, and both would share one run file" in compressed.stderr
    typed(f"{COLLECT} +overwrite=true")
    assert len(collected.rows()) == 10
    assert collected.rows() != first  # made anew: other times


def test_no_process_or_part_file_is_left_behind(workplace: Any) -> None:
    workplace.scripted()
    workplace.tasks("tasks.jsonl", 5)

    assert workplace.run(COLLECT.replace("rollouts.jsonl", "out/rollouts.jsonl")).returncode == 0

    ends = ("jsonl", "keys", "metrics.json", "profile.json", "progress.json", "run.json", "samples.jsonl")
    assert sorted(os.listdir(workplace.folder / "out")) == [f"rollouts.{end}" for end in ends]


STUBBORN = """
import asyncio
from velodrome import Environment


class Stubborn(Environment):
    async def verify(self, task, response):
        while task["id"] == "task-0":
            try:
                await asyncio.sleep(3600)
            except BaseException:
                pass
        return {"reward": 1.0}
"""


def test_a_verifier_that_swallows_cancellation_cannot_keep_the_process(workplace: Any) -> None:
    workplace.scripted()
    workplace.environment("stubborn", STUBBORN)
    workplace.model("answers: [hi]")
    workplace.tasks("tasks.jsonl", 20)

    process = workplace.start(f"{COLLECT} +sigterm_drain_s=0.2")
    size = 0
    while not size or len(workplace.keys()) < 19:
        workplace.wait_for_bytes("rollouts.jsonl", process, size)
        assert process.poll() is None
        size = workplace.size_of("rollouts.jsonl")
    process.terminate()
    _, stderr = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 143, stderr
    assert "requested 20 = kept 19 + failed 0 + 1 not run" in stderr
    assert "would not end when they were cancelled" in stderr
    assert sorted(workplace.keys()) == sorted(set(numbered(20)) - {"task-0/0"})
