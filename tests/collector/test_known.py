"""The plan file: what an earlier run checked of a large input is not checked again, if it is the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from velodrome.collector.keys import Earlier
from velodrome.collector.plan import Plan, TaskSelection, jobs, survey
from velodrome.collector.planning.known import FEWEST, known_tasks, save_known
from velodrome.collector.planning.task_sources import TaskFile
from velodrome.errors import InputError
from velodrome.records.rollout import beside

CHOSEN = TaskSelection(None, 1, "solo", None, {}, ("solo",))


def line(number: int) -> bytes:
    return orjson.dumps({"id": number, "responses_create_params": {"input": "hi"}}) + b"\n"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """An input of just enough tasks, two of them equal, and the plan file of an output that was collected from it."""
    folder = tmp_path_factory.mktemp("known")
    (folder / "tasks.jsonl").write_bytes(b"\n" + b"".join(map(line, [*range(FEWEST - 1), 5])))
    tasks = TaskFile(folder / "tasks.jsonl")
    save_known(tasks, CHOSEN, survey(tasks, CHOSEN, Earlier()), folder / "r.jsonl")
    return folder, (folder / "tasks.jsonl").read_bytes()


def again(folder: Path, data: bytes, chosen: TaskSelection = CHOSEN) -> tuple[Plan | None, Plan]:
    """The tasks that are known of this input, and its whole plan."""
    tasks = TaskFile(folder / "tasks.jsonl")
    tasks.path.write_bytes(data)
    known = known_tasks(tasks, chosen, folder / "r.jsonl")
    return known, survey(tasks, chosen, Earlier(), known_tasks(tasks, chosen, folder / "r.jsonl"))


def test_the_same_input_is_known_and_gives_the_same_plan(saved: tuple[Path, bytes]):
    folder, data = saved
    known, plan = again(folder, data)
    assert known is not None
    tasks = TaskFile(folder / "tasks.jsonl")
    fresh = survey(tasks, CHOSEN, Earlier())
    assert (plan.names, plan.digests, plan.suffixes) == (fresh.names, fresh.digests, fresh.suffixes)
    assert list(jobs(tasks, CHOSEN, plan)) == list(jobs(tasks, CHOSEN, fresh))


def test_tasks_that_were_added_are_checked_and_named_as_if_all_were_new(saved: tuple[Path, bytes]):
    folder, data = saved
    _, plan = again(folder, data + line(5) + line(FEWEST))
    plan.done[:FEWEST] = bytes([1]) * FEWEST
    left = list(jobs(TaskFile(folder / "tasks.jsonl"), CHOSEN, plan))
    assert [(job.key, job.task_index) for job in left] == [("5#3/0", FEWEST), (f"{FEWEST}/0", FEWEST + 1)]
    with pytest.raises(InputError, match=rf"tasks\.jsonl:{FEWEST + 2}: "):
        again(folder, data + b"[]\n")


@pytest.mark.parametrize(
    ("change", "chosen"),
    [
        (lambda data: data.replace(b'"id":7,', b'"id":8,'), CHOSEN),
        (lambda data: data[:-20], CHOSEN),
        (lambda data: data, replace(CHOSEN, limit=10)),
        (lambda data: data, replace(CHOSEN, agent="other", agents=("other",))),
    ],
    ids=["another row", "shorter", "a smaller limit", "another agent"],
)
def test_anything_else_is_checked_again(saved: tuple[Path, bytes], change: object, chosen: TaskSelection):
    folder, data = saved
    changed = change(data) if callable(change) else data
    tasks = TaskFile(folder / "tasks.jsonl")
    tasks.path.write_bytes(changed)
    assert known_tasks(tasks, chosen, folder / "r.jsonl") is None


@pytest.mark.parametrize("damage", [b"", b"{}\n", b"not json\n", None], ids=["empty", "no fields", "no JSON", "cut"])
def test_a_damaged_plan_file_is_not_used(saved: tuple[Path, bytes], damage: bytes | None):
    folder, data = saved
    path = beside(folder / "r.jsonl", "plan")
    good = path.read_bytes()
    (folder / "tasks.jsonl").write_bytes(data)
    path.write_bytes(good[:-1] if damage is None else damage)
    assert known_tasks(TaskFile(folder / "tasks.jsonl"), CHOSEN, folder / "r.jsonl") is None
    path.write_bytes(good)


def test_a_small_input_leaves_no_plan_file(tmp_path: Path):
    (tmp_path / "tasks.jsonl").write_bytes(line(1))
    tasks = TaskFile(tmp_path / "tasks.jsonl")
    save_known(tasks, CHOSEN, survey(tasks, CHOSEN, Earlier()), tmp_path / "r.jsonl")
    assert not beside(tmp_path / "r.jsonl", "plan").exists()


def test_what_is_saved_of_a_longer_input_does_not_depend_on_what_was_known_before(saved: tuple[Path, bytes]):
    folder, data = saved
    _, continued = again(folder, data + line(FEWEST) + b"\n" + line(5))
    tasks = TaskFile(folder / "tasks.jsonl")
    for plan, output in (
        (continued, folder / "continued.jsonl"),
        (survey(tasks, CHOSEN, Earlier()), folder / "s.jsonl"),
    ):
        save_known(tasks, CHOSEN, plan, output)
    assert beside(folder / "continued.jsonl", "plan").read_bytes() == beside(folder / "s.jsonl", "plan").read_bytes()
