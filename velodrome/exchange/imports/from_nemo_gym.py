"""NeMo Gym's rollouts and tasks.

Their rollout has the conversation as Response items in `response.output`, the score's fields and the task's side by
side, `_ng_task_index`, `_ng_rollout_index` and `agent_ref`. The file `<rollouts>_materialized_inputs.jsonl` that their
collector writes beside it has the tasks, in any order: it says which fields are the task's, and without it
`meta.scored` is left out. Memory holds where each of its lines begins. A file that `velo export nemo_gym` wrote has
`_velodrome` besides: what their shape has no place for. With it the rollout comes back as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from velodrome.contracts import Json
from velodrome.exchange.imports.foreign import Convert, ForeignFormat, NamedTask, new_meta
from velodrome.records.conversation import items
from velodrome.records.jsonl import read_lines
from velodrome.records.rollout import beside, make_rollout, split_key, task_of, with_call_ids
from velodrome.records.task import agent_of, check_task, digest, is_minimal, own_id, task_id

TASK_INDEX, ROLLOUT_INDEX = "_ng_task_index", "_ng_rollout_index"


def numbers(row: Json) -> tuple[int | None, int | None]:
    """The number of the task and that of the repeat."""
    task, repeat = _whole(row.get(TASK_INDEX)), _whole(row.get(ROLLOUT_INDEX))
    return task, repeat


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


class Inputs:
    """The tasks of the file of inputs beside the rollouts, if there is one."""

    def __init__(self, rollouts: Path) -> None:
        stem = beside(rollouts, "jsonl").name.removesuffix(".jsonl")
        self._path = rollouts.with_name(f"{stem}_materialized_inputs.jsonl")
        self._starts: dict[tuple[int | None, int | None], int] = {}
        if self._path.is_file():
            start = 0
            with self._path.open("rb") as file:
                for line in file:
                    row = _parsed(line)
                    if row is not None and None not in numbers(row):
                        self._starts[numbers(row)] = start
                    start += len(line)

    def of(self, row: Json) -> Json | None:
        """The task of this rollout, without its numbers."""
        start = self._starts.get(numbers(row))
        if start is None:
            return None
        with self._path.open("rb") as file:
            file.seek(start)
            task: Json = orjson.loads(file.readline())
        return {name: value for name, value in task.items() if name not in (TASK_INDEX, ROLLOUT_INDEX)}


class TaskNames:
    """A name for each task of a file: its own, else a digest. Two numbers are two tasks, whatever else is equal.

    If no two rows have the same two numbers, the file is of one run, and one number is one task, whatever differs.
    """

    def __init__(self, rollouts: Path, inputs: Inputs, content: Callable[[Json], Json]) -> None:
        self._inputs = inputs
        self._content = content
        self._tasks: dict[str, int] = {}  # a name that tasks give themselves -> the first such task
        self._shared: set[str] = set()
        self._first: dict[int, str] = {}
        seen: set[int] = set()
        self._one_run = True
        for row in _rows(rollouts):
            task, repeat = numbers(row)
            if task is None:
                continue
            pair = hash((task, repeat))
            self._one_run = self._one_run and repeat is not None and pair not in seen
            seen.add(pair)
            own = own_id(inputs.of(row) or row)
            if own is not None and self._tasks.setdefault(own, task) != task:
                self._shared.add(own)

    def of(self, row: Json) -> str:
        """The name of this row's task."""
        index, row = numbers(row)[0], self._inputs.of(row) or row
        own = own_id(row)
        if index is None:
            return own or digest(self._content(row))
        if own is None:
            name = digest({**self._content(row), TASK_INDEX: index})
        else:
            name = f"{own}#{index}" if own in self._shared else own
        return self._first.setdefault(index, name) if self._one_run else name


def _rows(path: Path) -> Iterator[Json]:
    for _, line in read_lines(path):
        row = _parsed(line)
        if row is not None:
            yield row


def _parsed(line: bytes) -> Json | None:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None  # reported where the line is imported
    return row if isinstance(row, dict) else None


OURS = "_velodrome"
_ASKED = ("input", "instructions", "tools")
# Of the fields beside the request, those that certainly belong to the task: the others may be the score's.
_REFERENCES = ("expected_answer", "ground_truth", "verifier_metadata", "task_idx", "instance_id", "uuid")
_NOT_TASK = frozenset(("response", "reward", TASK_INDEX, ROLLOUT_INDEX, OURS))


_STEPS = "has an entry for each step, as Aviary writes it; the last step has the whole conversation: give its items"


def restored_rollout(row: Any) -> Json:
    """The rollout that `velo export nemo_gym` wrote as this row. Raises a `ValueError` that describes the problem."""
    check(row)
    return _restored(plain_rollout(row), row[OURS])


def check(row: Any) -> None:
    """Raise a `ValueError` if a row is not one of their rollouts; such a row is not exported either."""
    check_task(row, done=True)
    response = row.get("response")
    if isinstance(response, list) and any(map(_is_step, response)):
        raise ValueError(f'"response" {_STEPS} as "response.output"')
    if not isinstance(response, dict):
        raise ValueError('no "response" in it; a file of tasks is imported with --as tasks')
    _check_objects(response.get("output"), "response.output")
    reward = row.get("reward")
    if reward is not None and not isinstance(reward, int | float):
        raise ValueError(f'"reward" is not a number but {reward!r:.40}')


def _check_objects(values: Any, name: str) -> None:
    if not isinstance(values, list):
        raise ValueError(f'no list "{name}" in it')
    if any(_is_step(value) for value in values):
        raise ValueError(f'"{name}" {_STEPS} alone')
    if not all(isinstance(value, dict) for value in values):
        raise ValueError(f'"{name}" is not a list of objects')


def _is_step(value: Any) -> bool:
    """Whether this is a step of an Aviary rollout: a list of items, or an object that holds one."""
    if not isinstance(value, dict):
        return isinstance(value, list)
    return value.keys().isdisjoint(("type", "role")) and not value.keys().isdisjoint(("output", "response"))


def plain_rollout(row: Json, task_row: Json | None = None) -> Json:
    """The rollout that their fields alone describe; with `task_row`, the task as their collector had it."""
    theirs = {name: value for name, value in row.items() if name not in (TASK_INDEX, ROLLOUT_INDEX, OURS)}
    theirs["responses_create_params"] = _present(row["responses_create_params"])
    task_index, repeat = numbers(row)
    agent = agent_of(row) or agent_of(task_row or {})
    meta = new_meta(own_id(row) or digest(_content(row)), repeat or 0, task_index=task_index or 0, agent=agent)
    deferred = row.get("reward") is None
    if task_row is not None:
        return make_rollout(task_row, {**task_row, **theirs}, meta, deferred=deferred)
    task = {name: value for name, value in theirs.items() if name not in _NOT_TASK}
    ours = make_rollout(task, theirs, meta, deferred=deferred)
    del ours["meta"]["scored"]  # which of the fields are the score's cannot be told
    return ours


def _present(params: Json) -> Json:
    return {name: value for name, value in params.items() if value is not None}


def _content(row: Json) -> Json:
    """What is asked, without how it is sampled, and what the verifier compares with: what all repeats of a task have.

    A task's number is added where it has one, for it does not tell alone: every file has a task 0.
    """
    params = _present(row["responses_create_params"])
    content = {name: params[name] for name in _ASKED if name in params}
    return content | {name: row[name] for name in _REFERENCES if row.get(name) is not None}


def _restored(plain: Json, ours: Any) -> Json:
    """The rollout with the fields that have no place in their format."""
    ours = ours if isinstance(ours, dict) else {}
    meta, exact, absent = ours.get("meta"), ours.get("exact", {}), ours.get("absent", [])
    if not isinstance(meta, dict) or not isinstance(meta.get("key"), str) or not isinstance(exact, dict):
        raise ValueError(f'"{OURS}" is not what velo export writes there; without it the rollout can be read')
    split_key(meta["key"])
    whole = {name: value for name, value in plain.items() if name not in (*absent, "meta")}
    return {**whole, **exact, "meta": meta}


def task(row: Any, task_row: Json | None = None) -> Json:
    """A task of theirs, or the task of a rollout of theirs -> a task of ours."""
    check_task(row)
    if OURS in row:
        return task_of(restored_rollout(row))
    fields = task_row or {name: value for name, value in row.items() if name not in _NOT_TASK}
    return {**fields, "responses_create_params": _present(fields["responses_create_params"])}


def _responded(row: Json) -> Json:
    """A minimal rollout, whose conversation is messages in `output`, in their shape."""
    _check_objects(row["output"], "output")
    for message in row["output"]:
        _check_objects(message.get("tool_calls") or [], "tool_calls")
    fields = {name: value for name, value in row.items() if name != "output"}
    return {**fields, "response": {"status": "completed", "output": items(with_call_ids(row["output"]))}}


def rollouts(agent: str | None, source: Path) -> Convert:
    named = {} if agent is None else {"agent": agent}
    inputs = Inputs(source)
    names = TaskNames(source, inputs, _content)

    def convert(row: Any, place: int) -> list[Json]:
        if isinstance(row, dict) and is_minimal(row):
            row = _responded(row)
        check(row)
        if OURS in row:
            ours = restored_rollout(row)
        else:
            ours = plain_rollout(row, inputs.of(row))
            ours["meta"]["key"] = f"{names.of(row)}/{ours['meta']['rollout_index']}"
        return [{**ours, "meta": {**ours["meta"], **named}}]

    return convert


def tasks(source: Path) -> NamedTask:
    inputs = Inputs(source)
    names = TaskNames(source, inputs, _content)

    def convert(row: Any, place: int) -> tuple[str, Json]:
        made = task(row, inputs.of(row) if isinstance(row, dict) else None)
        return (task_id(made) if numbers(row)[0] is None or OURS in row else names.of(row)), made

    return convert


FORMAT = ForeignFormat("nemo_gym", "NeMo Gym's rollouts and tasks", rollouts, tasks)
