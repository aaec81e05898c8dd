"""Which rollouts are to be made: keys, repeats, what is done, and rows that are wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

from velodrome.collector.keys import read_earlier
from velodrome.collector.plan import Job, Plan, TaskSelection, survey
from velodrome.collector.plan import jobs as jobs_of
from velodrome.collector.tasks import TaskFiles
from velodrome.errors import InputError
from velodrome.records.task import digest, task_id


def task(text: str = "hi", **fields: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": text}, **fields}


def write(path: Path, *rows: Any) -> Path:
    path.write_bytes(b"".join(row if isinstance(row, bytes) else orjson.dumps(row) + b"\n" for row in rows))
    return path


class Chosen(NamedTuple):
    tasks: TaskFiles
    selection: TaskSelection
    output: Path


def selection(path: Path, **changes: Any) -> Chosen:
    defaults: dict[str, Any] = {"limit": None, "repeats": 1, "agent": None, "default": "solo", "params": {}}
    chosen = TaskSelection(**{**defaults, "agents": ("solo", "other"), **changes})
    return Chosen(TaskFiles([path]), chosen, path.with_name("out.jsonl"))


def plan(chosen: Chosen, done: tuple[str, ...] = ()) -> list[Job]:
    return list(jobs(chosen, surveyed(chosen, done)))


def jobs(chosen: Chosen, made: Plan) -> list[Job]:
    return list(jobs_of(chosen.tasks, chosen.selection, made))


def surveyed(chosen: Chosen, done: tuple[str, ...] = (), *, allow_mixed: bool = True) -> Plan:
    """The plan for an input beside an output that has these rollouts; each may name its digest after a blank."""
    with chosen.output.open("wb") as stream:
        for each in done:
            key, _, content = each.partition(" ")
            meta = {"key": key, **({"task_digest": content} if content else {})}
            stream.write(orjson.dumps({"output": [], "meta": meta}) + b"\n")
    earlier = read_earlier(chosen.output)
    return survey(chosen.tasks, replace(chosen.selection, allow_mixed=allow_mixed), earlier)


def keys(found: list[Job]) -> list[str]:
    return [job.key for job in found]


def problems(chosen: Chosen) -> tuple[str, ...]:
    with pytest.raises(InputError) as caught:
        surveyed(chosen)
    return caught.value.problems


def test_every_row_is_run_as_often_as_asked_task_by_task(tmp_path: Path):
    path = write(tmp_path / "t.jsonl", task(id="a"), task(id="b"))
    assert plan(selection(path, repeats=2)) == [
        Job("a/0", 0, 0, "solo", task(id="a"), None, digest(task(id="a")), 0),
        Job("a/1", 0, 1, "solo", task(id="a"), None, digest(task(id="a")), 1),
        Job("b/0", 1, 0, "solo", task(id="b"), None, digest(task(id="b")), 2),
        Job("b/1", 1, 1, "solo", task(id="b"), None, digest(task(id="b")), 3),
    ]


def test_what_the_output_has_already_is_left_out(tmp_path: Path):
    path = write(tmp_path / "t.jsonl", task(id="a"), task(id="b"), task(id="c"))
    chosen = selection(path, repeats=2)
    result = surveyed(chosen, ("a/0", "a/1", "b/1", "gone/0"))
    assert (result.tasks, result.rollouts, result.kept) == (3, 6, 3)
    assert keys(jobs(chosen, result)) == ["b/0", "c/0", "c/1"]


def test_more_repeats_on_a_later_run_add_to_the_ones_there_are(tmp_path: Path):
    path = write(tmp_path / "t.jsonl", task(id="a"))
    assert keys(plan(selection(path, repeats=3), done=("a/0",))) == ["a/1", "a/2"]


def test_equal_rows_and_equal_ids_get_numbers_that_collide_with_nothing(tmp_path: Path):
    same = task_id(task("same"))
    rows = [task(id="a"), task(id="a#2"), task(id="a"), task(id="a"), task(id="a#2"), task("same"), task("same")]
    path = write(tmp_path / "t.jsonl", *rows)
    result = keys(plan(selection(path)))
    assert result == ["a/0", "a#2/0", "a#3/0", "a#4/0", "a#2#2/0", f"{same}/0", f"{same}#2/0"]
    assert keys(plan(selection(path), done=("a#3/0", "a#2#2/0", f"{same}/0"))) == [
        "a/0",
        "a#2/0",
        "a#4/0",
        f"{same}#2/0",
    ]


def refused(chosen: Chosen, done: tuple[str, ...]) -> str:
    with pytest.raises(InputError) as caught:
        surveyed(chosen, done, allow_mixed=False)
    return str(caught.value)


def test_a_name_that_the_output_has_with_other_content_is_refused_with_the_first_such_row(tmp_path: Path):
    path = write(tmp_path / "t.jsonl", task(id="a"), b"\n", task("new", id="b"), task("new", id="c"), task(id="d"))
    chosen = selection(path)
    old = [f"{name}/0 {digest(task(id=name))}" for name in "abc"]
    assert surveyed(chosen, (*old, "d/0")).kept == 2  # a, and d, whose row has no digest to compare
    own = digest(task("new", id="b"))
    problem = refused(chosen, (*old, "d/0"))
    output = path.with_name("out.jsonl")
    assert problem.startswith(f"{path}:3: the key 'b' is in {output} with other content (and 1 more like it)")
    assert ("allow_mixed" in problem, f"@{own}" in problem) == (True, True)


def test_other_content_under_a_name_gets_a_key_of_its_own_and_is_found_again_under_it(tmp_path: Path):
    first, second, third = (task(text, id="b") for text in ("1", "2", "3"))
    chosen = selection(write(tmp_path / "t.jsonl", second), repeats=2)
    output = [f"b/0 {digest(first)}", f"b/1 {digest(first)}"]
    name = f"b@{digest(second)}"
    assert keys(plan(chosen, tuple(output))) == [f"{name}/0", f"{name}/1"]
    output.append(f"{name}/0 {digest(second)}")
    assert keys(plan(chosen, tuple(output))) == [f"{name}/1"]
    output.append(f"{name}/1 {digest(second)}")
    assert plan(chosen, tuple(output)) == []
    chosen = selection(write(tmp_path / "t.jsonl", third))
    assert keys(plan(chosen, tuple(output))) == [f"b@{digest(third)}/0"]


def test_rows_with_one_id_and_two_contents_do_not_change_places_unnoticed(tmp_path: Path):
    one, two = task("one", id="a"), task("two", id="a")
    output = (f"a/0 {digest(one)}", f"a#2/0 {digest(two)}")
    chosen = selection(write(tmp_path / "t.jsonl", one, two))
    assert surveyed(chosen, output).kept == 2
    for rows in ((two, one), (two,)):
        chosen = selection(write(tmp_path / "t.jsonl", *rows))
        assert "t.jsonl:1: the key 'a' is in" in refused(chosen, output)


def test_the_limit_counts_rows_not_lines(tmp_path: Path):
    path = write(tmp_path / "t.jsonl", b"\n", task(id="a"), b"  \r\n", task(id="b"), b"broken\n")
    assert keys(plan(selection(path, limit=2))) == ["a/0", "b/0"]


def test_the_command_line_names_the_agent_before_the_row_and_the_row_before_the_default(tmp_path: Path):
    path = write(tmp_path / "t.jsonl", task(id="a", agent_ref={"name": "other"}), task(id="b"))
    assert [job.agent for job in plan(selection(path))] == ["other", "solo"]
    assert [job.agent for job in plan(selection(path, agent="other", default=None))] == ["other", "other"]


def test_overrides_change_what_the_model_is_asked_but_not_the_key(tmp_path: Path):
    path = write(tmp_path / "t.jsonl", task("hi"))
    (job,) = plan(selection(path, params={"temperature": 0.5}))
    assert job.task == {"responses_create_params": {"input": "hi", "temperature": 0.5}}
    assert (job.key, job.digest) == (f"{task_id(task('hi'))}/0", digest(task("hi")))


@pytest.mark.parametrize(
    ("params", "place"),
    [
        *(({"input": asked}, "input") for asked in (None, [], ["text"])),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [5]}, "tools"),
    ],
)
def test_an_override_of_a_wrong_shape_or_that_leaves_nothing_to_answer_is_a_mistake(
    tmp_path: Path, params: dict[str, Any], place: str
):
    [line] = problems(selection(write(tmp_path / "t.jsonl", task(id="a")), params=params))
    assert line.startswith("command line: ")
    assert f'"responses_create_params.{place}' in line


def test_each_repeat_has_a_task_of_its_own_to_write_to(tmp_path: Path):
    path = write(tmp_path / "t.jsonl", task(id="a", notes=["n"]))
    first, second = plan(selection(path, repeats=2, params={"top_p": 1}))
    first.task["notes"].append("mine")
    del first.task["responses_create_params"]
    assert second.task == task(id="a", notes=["n"]) | {"responses_create_params": {"input": "hi", "top_p": 1}}


def test_every_kind_of_mistake_is_named_once_with_the_first_line_it_stands_in(tmp_path: Path):
    rows = [
        task(),
        b"{\n",
        task(agent_ref={"name": "sola"}),
        b"[]\n",
        b"[]\n",
        {"responses_create_params": {}},
        b"[]\n",
    ]
    path = write(tmp_path / "t.jsonl", *rows)
    not_json, *others = problems(selection(path))
    assert not_json.startswith(f"{path}:2: not JSON: ")
    assert others == [
        f"{path}:3: no agent is called 'sola'; did you mean \"solo\"?",
        f"{path}:4: a task is a JSON object, not a list (see docs/rollouts.md#task) (and 2 more like it)",
        f'{path}:6: no "responses_create_params.input" (see docs/rollouts.md#task)',
    ]


def test_an_input_without_tasks_a_row_without_an_agent_and_an_endless_line_are_mistakes(tmp_path: Path):
    path = write(tmp_path / "t.jsonl", b"\n \n")
    assert problems(selection(path)) == (f"{path}: no tasks in it (see docs/rollouts.md#task)",)
    write(path, task())
    [unnamed] = problems(selection(path, default=None, agents=("b", "a")))
    assert unnamed.startswith(f"{path}:1: no agent: give +agent_name=…")
    write(path, b"[]\n", b'{"x": "' + b"x" * (33 * 1024 * 1024))
    assert [line.split(": ")[0] for line in problems(selection(path))] == [f"{path}:1", f"{path}:2"]


def test_a_row_that_changes_after_the_survey_is_a_job_with_a_problem_for_what_was_not_done(tmp_path: Path):
    path = write(tmp_path / "t.jsonl", task(id="a"), task(id="b"), task(id="c"))
    chosen = selection(path, repeats=2)
    result = surveyed(chosen, ("a/0",))
    write(path, b"[]\n", task(id="b"), task("another", id="c"), task(id="added"))
    bad, *whole, other, _ = jobs(chosen, result)
    problem = f"{path}:1: the row changed during the collection: a task is a JSON object, not a list"
    assert (bad.key, bad.rollout_index, bad.task) == ("line 1/1", 1, {})
    assert bad.problem == f"{problem} (see docs/rollouts.md#task)"
    assert [(job.key, job.problem) for job in whole] == [("b/0", None), ("b/1", None)]
    assert other.problem == f"{path}:3: the row changed during the collection: its content is not what was checked"
