"""NeMo Gym's rollouts and tasks.

Their rollout has the conversation as Response items in `response.output`, the score's fields and the task's side by
side, `_ng_task_index`, `_ng_rollout_index` and `agent_ref`. A file that `velo export nemo_gym` wrote has `_velodrome`
besides: what their shape has no place for. With it the rollout comes back as it was.
"""

from __future__ import annotations

from typing import Any

from velodrome.contracts import Json
from velodrome.exchange.imports.foreign import Convert, ForeignFormat, new_meta
from velodrome.records.rollout import make_rollout, split_key, task_of
from velodrome.records.task import agent_of, check_task, digest, own_id

TASK_INDEX, ROLLOUT_INDEX, OURS = "_ng_task_index", "_ng_rollout_index", "_velodrome"
_ASKED = ("input", "instructions", "tools")
# Of the fields beside the request, those that certainly belong to the task: the others may be the score's.
_REFERENCES = ("expected_answer", "ground_truth", "verifier_metadata", "task_idx", "instance_id", "uuid")
_NOT_TASK = frozenset(("response", "reward", TASK_INDEX, ROLLOUT_INDEX, OURS))


def rollout(row: Any) -> Json:
    """One of theirs -> one of ours; a `ValueError` says what is wrong with it."""
    check(row)
    plain = plain_rollout(row)
    return _restored(plain, row[OURS]) if OURS in row else plain


def check(row: Any) -> None:
    """Raise a `ValueError` if it is not one of their rollouts; such a row is not exported either."""
    check_task(row, done=True)
    if not isinstance(row.get("response"), dict):
        raise ValueError('no "response" in it; a file of tasks is imported with --as tasks')
    if not isinstance(row["response"].get("output"), list):
        raise ValueError('no list "response.output" in it')
    reward = row.get("reward")
    if reward is not None and not isinstance(reward, int | float):
        raise ValueError(f'"reward" is not a number but {reward!r:.40}')


def plain_rollout(row: Json) -> Json:
    """The rollout that their fields alone describe."""
    params = {name: value for name, value in row["responses_create_params"].items() if value is not None}
    theirs = {name: value for name, value in row.items() if name not in (TASK_INDEX, ROLLOUT_INDEX, OURS)}
    theirs["responses_create_params"] = params
    task_index, repeat = _whole(row.get(TASK_INDEX)), _whole(row.get(ROLLOUT_INDEX))
    name = own_id(row) or _content(row, params)
    meta = new_meta(name, repeat or 0, task_index=task_index or 0, agent=agent_of(row))
    task = {name: value for name, value in theirs.items() if name not in _NOT_TASK}
    return make_rollout(task, theirs, meta, deferred=row.get("reward") is None)


def _content(row: Json, params: Json) -> str:
    """A digest of the task: of what is asked, without how it is sampled, and of what the verifier compares with.

    So all repeats have it, in every file; a task's number does not tell, for every file has a task 0.
    """
    content = {name: params[name] for name in _ASKED if name in params}
    return digest(content | {name: row[name] for name in _REFERENCES if row.get(name) is not None})


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _restored(plain: Json, ours: Any) -> Json:
    """The rollout with what was kept beside their fields."""
    meta, exact, absent = ours.get("meta"), ours.get("exact", {}), ours.get("absent", [])
    if not isinstance(meta, dict) or not isinstance(meta.get("key"), str) or not isinstance(exact, dict):
        raise ValueError(f'"{OURS}" is not what velo export writes there; without it the rollout can be read')
    split_key(meta["key"])
    whole = {name: value for name, value in plain.items() if name not in (*absent, "meta")}
    return {**whole, **exact, "meta": meta}


def task(row: Any, place: int) -> Json:
    """A task of theirs, or the task of a rollout of theirs -> a task of ours."""
    check_task(row)
    if OURS in row:
        return task_of(rollout(row))
    fields = {name: value for name, value in row.items() if name not in _NOT_TASK}
    params = row["responses_create_params"]
    fields["responses_create_params"] = {name: value for name, value in params.items() if value is not None}
    return fields


def rollouts(agent: str | None) -> Convert:
    named = {} if agent is None else {"agent": agent}

    def convert(row: Any, place: int) -> list[Json]:
        ours = rollout(row)
        return [{**ours, "meta": {**ours["meta"], **named}}]

    return convert


FORMAT = ForeignFormat("nemo_gym", "NeMo Gym's rollouts and tasks", rollouts, task)
