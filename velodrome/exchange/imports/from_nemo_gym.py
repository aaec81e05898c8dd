"""NeMo Gym's rollouts and tasks.

Their rollout has the conversation as Response items in `response.output`, the fields of the score and of the task
together, `_ng_task_index`, `_ng_rollout_index` and `agent_ref`. Their collector writes the tasks, in any order, to
`<rollouts>_materialized_inputs.jsonl`, which shows the fields of the task; without it `meta.scored` is left out.
Memory holds the offsets of its lines. A file of `velo export nemo_gym` also has `_velodrome`, with all that their
format has no place for, so the rollout is restored unchanged.
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
    """The index of the task, and of the repeat."""
    task, repeat = _whole(row.get(TASK_INDEX)), _whole(row.get(ROLLOUT_INDEX))
    return task, repeat


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


class Inputs:
    """The tasks in the file of inputs beside the rollouts, if it exists."""

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
        """The task of this rollout, without its indexes."""
        start = self._starts.get(numbers(row))
        if start is None:
            return None
        with self._path.open("rb") as file:
            file.seek(start)
            task: Json = orjson.loads(file.readline())
        return {name: value for name, value in task.items() if name not in (TASK_INDEX, ROLLOUT_INDEX)}


class TaskNames:
    """A name for each task of a file: its id, else a digest. Different indexes are different tasks.

    If no pair of task and repeat occurs twice, the file is of one run, and one index is one task.
    """

    def __init__(self, rollouts: Path, inputs: Inputs, content: Callable[[Json], Json]) -> None:
        self._inputs = inputs
        self._content = content
        self._tasks: dict[str, int] = {}  # id -> index of the first task that has it
        self._shared_ids: set[str] = set()
        self._name_of_index: dict[int, str] = {}
        pairs: set[int] = set()
        self._one_run = True
        for row in _rows(rollouts):
            task, repeat = numbers(row)
            if task is None:
                continue
            pair = hash((task, repeat))
            self._one_run = self._one_run and repeat is not None and pair not in pairs
            pairs.add(pair)
            task_own_id = own_id(inputs.of(row) or row)
            if task_own_id is not None and self._tasks.setdefault(task_own_id, task) != task:
                self._shared_ids.add(task_own_id)

    def of(self, row: Json) -> str:
        """The name of this row's task."""
        index, row = numbers(row)[0], self._inputs.of(row) or row
        own = own_id(row)
        if index is None:
            return own or digest(self._content(row))
        if own is None:
            name = digest({**self._content(row), TASK_INDEX: index})
        else:
            name = f"{own}#{index}" if own in self._shared_ids else own
        return self._name_of_index.setdefault(index, name) if self._one_run else name


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
# The fields beside the request that certainly belong to the task; others may belong to the score.
_REFERENCES = ("expected_answer", "ground_truth", "verifier_metadata", "task_idx", "instance_id", "uuid")
_NOT_TASK = frozenset(("response", "reward", TASK_INDEX, ROLLOUT_INDEX, OURS))


_STEPS = "has an entry for each step, as Aviary writes it; the last step has the whole conversation: give its items"


def restored_rollout(row: Any) -> Json:
    """The rollout that `velo export nemo_gym` wrote as this row. Raises a `ValueError` that describes the problem."""
    check(row)
    return _restored(plain_rollout(row), row[OURS])


def check(row: Any) -> None:
    """Raise a `ValueError` if a row is not a rollout of theirs; such a row is not exported either."""
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
    """The rollout from their fields alone; `task_row` is the task in their file of inputs."""
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
    del ours["meta"]["scored"]  # it is unknown which fields belong to the score
    return ours


def _present(params: Json) -> Json:
    return {name: value for name, value in params.items() if value is not None}


def _content(row: Json) -> Json:
    """The content that all repeats of a task share: the question and the reference answer, without sampling.

    Callers add the index of the task, which alone is not enough: every file has a task 0.
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
    """Convert a task of theirs, or the task of a rollout of theirs."""
    check_task(row)
    if OURS in row:
        return task_of(restored_rollout(row))
    fields = task_row or {name: value for name, value in row.items() if name not in _NOT_TASK}
    return {**fields, "responses_create_params": _present(fields["responses_create_params"])}


def _responded(row: Json) -> Json:
    """A minimal rollout, with messages in `output`, converted to their format."""
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
        converted = task(row, inputs.of(row) if isinstance(row, dict) else None)
        return (task_id(converted) if numbers(row)[0] is None or OURS in row else names.of(row)), converted

    return convert


FORMAT = ForeignFormat("nemo_gym", "NeMo Gym's rollouts and tasks", rollouts, tasks)
