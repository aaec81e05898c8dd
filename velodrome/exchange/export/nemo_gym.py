"""NeMo Gym's rollouts: one line each, which their tools read and `velo import nemo_gym` turns back exactly.

Their own types take every record. What their fields cannot hold is kept in `_velodrome`; a rollout that has no form in
their types is left out.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from velodrome.contracts import Json
from velodrome.exchange.export.chat import Unfit
from velodrome.exchange.export.format import Convert, ExportSettings, Format, LeaveOut, as_text, per_rollout
from velodrome.exchange.imports.from_nemo_gym import OURS, ROLLOUT_INDEX, TASK_INDEX, check, plain_rollout
from velodrome.records.conversation import messages, text_of
from velodrome.records.response_fields import complete_items
from velodrome.records.rollout import OWN_FIELDS, response_of, split_key
from velodrome.responses_api_models.conversion import flat, response_items

_ASKED = frozenset(
    {
        "background",
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
        "metadata",
        "model",
        "parallel_tool_calls",
        "previous_response_id",
        "prompt",
        "reasoning",
        "service_tier",
        "store",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "truncation",
        "user",
        "stream",
    }
)
_KINDS = ("message", "reasoning", "function_call", "function_call_output")
_ROLES = ("assistant", "user", "system", "developer")
_STATUSES = ("completed", "failed", "in_progress", "cancelled", "queued", "incomplete")
_PARTS = ("input_text", "input_image", "input_file")


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


class RolloutNumbers:
    """Which task and which repeat of it a rollout is: by their order, so that no two rollouts have the same pair."""

    def __init__(self) -> None:
        self._tasks: dict[str, int] = {}
        self._repeats: Counter[str] = Counter()

    def of(self, meta: Json) -> tuple[int, int]:
        name, _ = split_key(meta["key"])
        self._repeats[name] += 1
        return self._tasks.setdefault(name, len(self._tasks)), self._repeats[name] - 1


def record(row: Json, task: int, repeat: int) -> Json:
    if row.get("reward") is None:
        raise Unfit("its reward is deferred: velo verify gives it one")
    params = _params(row["responses_create_params"])
    made: Json = {"responses_create_params": params, "response": _response(row, params)}
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


def _params(request: Json) -> Json:
    """The request in the fields they know. Others go where their servers look for them: `metadata.extra_body`."""
    params = {name: value for name, value in request.items() if name in _ASKED and value is not None}
    extra = {name: value for name, value in request.items() if name not in _ASKED and value is not None}
    metadata = {name: as_text(value) for name, value in (request.get("metadata") or {}).items()}
    if extra:
        metadata["extra_body"] = as_text(extra)
    if metadata:
        params["metadata"] = metadata
    if isinstance(params.get("input"), list):
        params["input"] = _items(response_items(params["input"]), "input")
    if "tools" in params:
        params["tools"] = [_tool(tool) for tool in params["tools"]]
    if isinstance(params.get("tool_choice"), dict):
        params["tool_choice"] = flat(params["tool_choice"])
    return params


def _tool(tool: Json) -> Json:
    tool = flat(tool)
    return {"parameters": None, "strict": None, **tool} if tool.get("type") == "function" else tool


def _response(row: Json, params: Json) -> Json:
    """The OpenAI Response, of the items that they know."""
    response = response_of({**row, "responses_create_params": params})
    if response["usage"] is not None:
        response["usage"] = {"input_tokens": 0, "output_tokens": 0, **response["usage"]}
    if response["status"] not in _STATUSES:
        response["status"] = "completed"
    return {**response, "instructions": params.get("instructions"), "output": _items(response["output"], "output")}


def _items(items: list[Any], name: str) -> list[Json]:
    return [_item(item) for item in complete_items(items, name)]


def _item(item: Json) -> Json:
    """An item as their types hold it: reasoning is a summary there, and what a tool returns is a text."""
    kind = item["type"]
    if kind not in _KINDS or (kind == "message" and item["role"] not in _ROLES):
        raise Unfit(f"NeMo Gym's types have no item {item.get('role', '')} {kind!r:.40}")
    if kind == "message" and item["role"] != "assistant":
        return {**item, "content": _asked(item.get("content"))}
    if kind == "reasoning" and item.get("content"):
        thought = {"type": "summary_text", "text": text_of(item["content"])}
        return {name: value for name, value in item.items() if name != "content"} | {"summary": [thought]}
    if kind == "function_call_output" and not isinstance(item.get("output"), str):
        parts = item.get("output")
        if not isinstance(parts, list) or not all(isinstance(part.get("text"), str) for part in parts):
            raise Unfit("NeMo Gym's types take the result of a tool as text only")
        return {**item, "output": text_of(parts)}
    return item


def _asked(content: Any) -> Any:
    """What a user or a system says: a text, or parts, in which an image says how closely to look."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not all(part.get("type") in _PARTS for part in content):
        raise Unfit("NeMo Gym's types have no such part of a message")
    return [{"detail": "auto", **part} if part["type"] == "input_image" else part for part in content]


FORMAT = Format(
    name="nemo_gym",
    about="NeMo Gym's rollouts; velo import nemo_gym gives the same rollouts back",
    fields={
        "responses_create_params": "what was asked",
        "response": "an OpenAI Response; its `output` has every item of the conversation, tool results included",
        "reward": "the score; a rollout whose verification is deferred is left out",
        "_ng_task_index, _ng_rollout_index": "which task, and which repeat of it",
        "agent_ref": "the agent's name",
        "_velodrome": "what their shape has no place for: bookkeeping and timing",
        "everything else": "the fields of the task and of the score",
    },
    start=start,
    content=lambda record: [record["responses_create_params"], messages(record["response"]["output"])],
    episodes=True,  # every row can be imported again
)
