"""NeMo Gym's rollouts: one line each, which their tools read and `velo import nemo_gym` turns back exactly.

What their fields cannot hold is kept in `_velodrome`.
"""

from __future__ import annotations

from typing import Any

from velodrome.contracts import Json
from velodrome.exchange.export.chat import Unfit
from velodrome.exchange.export.format import Convert, ExportSettings, Format, LeaveOut, per_rollout
from velodrome.exchange.imports.from_nemo_gym import OURS, ROLLOUT_INDEX, TASK_INDEX, check, plain_rollout
from velodrome.records.rollout import OWN_FIELDS, response_of, split_key

_ID = {"message": "msg", "function_call": "fc", "reasoning": "rs"}


def start(settings: ExportSettings, leave_out: LeaveOut) -> Convert:
    numbers = RolloutNumbers()

    def checked_record(row: Json) -> Json:
        made = record(row, *numbers.of(row["meta"]))
        try:
            check(made)
        except ValueError as error:
            raise Unfit(str(error)) from error
        return made

    return per_rollout(checked_record)


class NumberPool:
    """RolloutNumbers that are in use."""

    def __init__(self) -> None:
        self._used: set[int] = set()
        self._most = -1

    def take(self, wanted: int) -> int:
        """The number that is wanted, or one beyond all if it is gone."""
        number = wanted if wanted not in self._used else self._most + 1
        self._used.add(number)
        self._most = max(self._most, number)
        return number


class RolloutNumbers:
    """Which task and which repeat of it a rollout is. No two rollouts have the same pair.

    They are those of the collection, unless several files, or inputs of one file, use a number twice.
    """

    def __init__(self) -> None:
        self._tasks: dict[str, int] = {}
        self._task_numbers = NumberPool()
        self._repeats: dict[str, NumberPool] = {}

    def of(self, meta: Json) -> tuple[int, int]:
        name, repeat = split_key(meta["key"])
        if name not in self._tasks:
            self._tasks[name] = self._task_numbers.take(meta.get("task_index", 0))
        return self._tasks[name], self._repeats.setdefault(name, NumberPool()).take(meta.get("rollout_index", repeat))


def record(row: Json, task: int, repeat: int) -> Json:
    made: Json = {"responses_create_params": row["responses_create_params"], "response": _response(row)}
    made |= {name: value for name, value in row.items() if name not in (*OWN_FIELDS, *made)}
    made |= {TASK_INDEX: task, ROLLOUT_INDEX: repeat}
    if isinstance(row["meta"].get("agent"), str):
        made["agent_ref"] = {"name": row["meta"]["agent"]}
    back = plain_rollout(made)
    exact = {name: value for name, value in row.items() if name != "meta" and not _same(back, name, value)}
    absent = [name for name in back if name not in row]
    ours = {"meta": row["meta"], "exact": exact, "absent": absent}
    made[OURS] = {name: value for name, value in ours.items() if value}
    return made


def _same(back: Json, name: str, value: Any) -> bool:
    return name in back and bool(back[name] == value)


def _response(row: Json) -> Json:
    """The OpenAI Response, with the fields that its readers insist on."""
    params, meta = row["responses_create_params"], row["meta"]
    response = response_of(row)
    response["output"] = [_with_id(item, at) for at, item in enumerate(response["output"])]
    usage = response["usage"]
    details = {
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    return {
        "id": f"resp_{meta['key']}",
        "created_at": meta.get("finished_at", 0),
        "model": "",
        "parallel_tool_calls": params.get("parallel_tool_calls", True),
        "tool_choice": params.get("tool_choice", "auto"),
        "tools": params.get("tools") or [],
        "error": None,
        "incomplete_details": None,
        "instructions": params.get("instructions"),
        **response,
        "usage": {**details, **usage} if usage else None,
    }


def _with_id(item: Any, at: int) -> Any:
    kind = item.get("type", "message") if isinstance(item, dict) else None
    if kind not in _ID or "id" in item or item.get("role", "assistant") != "assistant":
        return item
    return {"id": f"{_ID[kind]}_{at}", **item}


FORMAT = Format(
    name="nemo_gym",
    about="NeMo Gym's rollouts; velo import nemo_gym gives the same rollouts back",
    fields={
        "responses_create_params": "what was asked",
        "response": "an OpenAI Response; its `output` has every item of the conversation, tool results included",
        "reward": "the score; null while verification is deferred",
        "_ng_task_index, _ng_rollout_index": "which task, and which repeat of it",
        "agent_ref": "the agent's name",
        "_velodrome": "what their shape has no place for: bookkeeping and timing",
        "everything else": "the fields of the task and of the score",
    },
    start=start,
    content=lambda record: [record["responses_create_params"], record["response"]["output"]],
    episodes=True,  # every row can be imported again
)
