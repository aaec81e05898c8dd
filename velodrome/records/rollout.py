"""One line of the output: converts an agent's result to a rollout, and a rollout to its task and response.

The conversation is in `output`, once; all bookkeeping is under `meta`. A line is a rollout only if the whole line
parses: readers ignore a line whose start was overwritten, even if its end is intact.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from velodrome.records import conversation
from velodrome.records.jsonl import loads
from velodrome.records.outcomes import outcome_of
from velodrome.records.response_fields import complete

Json = dict[str, Any]

SCHEMA = 1
SIDECARS = (
    "failures.jsonl",
    "notes.jsonl",
    "samples.jsonl",
    "run.json",
    "metrics.json",
    "profile.json",
    "progress.json",
    "keys",
)
FAILED = 1_000_000_000  # entries with larger numbers are lines of the failures file
OWN_FIELDS = ("output", "response", "usage", "meta")
TURN_FIELDS = ("step_rewards", "terminated", "truncated", "players")  # of the turns: scoring again does not change them
_ENCODE = orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY


def make_rollout(task: Json, result: Json, meta: Json, *, deferred: bool = False) -> Json:
    """The row for the result of `agent.run(task)`.

    A task field whose name the rollout or the score uses for another value is kept in `meta.shadowed`.
    """
    response = result["response"]
    items = response.get("output") or []
    usage = response.get("usage")
    row: Json = {
        "responses_create_params": result.get("responses_create_params", task["responses_create_params"]),
        "output": conversation.messages(items),
        "response": _summary(response, items),
        "usage": usage if isinstance(usage, dict) else {},
    }
    scored = []
    for name, value in result.items():
        if name not in row and name != "meta":
            row[name] = value
            if name not in task or (task[name] is not value and task[name] != value):
                scored.append(name)
    if deferred:
        row["reward"] = None
        meta["verification"] = "deferred"
    meta["outcome"] = outcome_of(response, row["responses_create_params"])
    meta["scored"] = scored
    _shadow(meta, task, scored)
    row["meta"] = meta
    return row


def _shadow(meta: Json, task: Json, scored: list[str]) -> None:
    shadowed = {name: task[name] for name in (*OWN_FIELDS, "reward", *scored) if name in task}
    if shadowed:
        meta["shadowed"] = shadowed


def _summary(response: Json, items: list[Json]) -> Json:
    summary = {name: response[name] for name in ("id", "model", "status", "incomplete_details") if response.get(name)}
    metadata = response.get("metadata")
    if isinstance(metadata, dict) and metadata.get("stop") and response.get("status") == "incomplete":
        summary["metadata"] = {"stop": metadata["stop"]}  # the rest is from the request
    summary["content"] = conversation.final_text(items)
    return summary


def task_of(row: Json) -> Json:
    """The task of a rollout: the row without the fields that the run added."""
    meta = row["meta"]
    added = {*OWN_FIELDS, "reward", *meta.get("scored", ())}
    task = {name: value for name, value in row.items() if name not in added}
    task.update(meta.get("shadowed", {}))
    return task


def rescored(row: Json, task: Json, score: Json, *, verify_s: float) -> Json:
    """The row with a new score instead of its old one."""
    turn_fields = [name for name in TURN_FIELDS if name in row and name in row["meta"].get("scored", ())]
    score = {**score, **{name: row[name] for name in turn_fields}}
    fields = {name: value for name, value in score.items() if name not in (*OWN_FIELDS, "responses_create_params")}
    task_fields = {name: value for name, value in task.items() if name not in OWN_FIELDS}
    meta = {name: value for name, value in row["meta"].items() if name != "verification"}
    meta["timing"] = {**meta.get("timing", {}), "verify_later_s": round(verify_s, 6)}
    meta["scored"] = [name for name, value in fields.items() if name not in task or task[name] != value]
    _shadow(meta, task, meta["scored"])
    own_fields = {name: row[name] for name in ("output", "response", "usage")}
    return {**task_fields, **own_fields, **fields, "meta": meta}


def completed(row: Json, task: str, number: int) -> Json:
    """Add the required parts to a minimal rollout. `number`, such as its line number, makes its key unique."""
    messages = with_call_ids(row["output"])
    items = conversation.items(messages)
    return {
        **row,
        "output": messages,
        "response": {"status": "completed", "content": conversation.final_text(items)},
        "usage": row.get("usage") or {},
        "meta": {"key": f"{task}/{number}", "rollout_index": number, "schema": SCHEMA},
    }


def with_call_ids(messages: list[Json]) -> list[Json]:
    """Add missing ids to tool calls. A result without an id belongs to the first open call of its name."""
    result: list[Json] = []
    open_calls: list[Json] = []
    call_count = 0
    for message in messages:
        calls = []
        for call in message.get("tool_calls") or ():
            call_count += 1
            calls.append(call if call.get("id") else {**call, "id": f"call_{call_count}"})
        open_calls += calls
        if calls:
            message = {**message, "tool_calls": calls}
        elif message.get("role") == "tool" and open_calls and not message.get("tool_call_id"):
            call = next((call for call in open_calls if call.get("name") == message.get("name")), open_calls[0])
            open_calls = [each for each in open_calls if each is not call]
            message = {**message, "tool_call_id": call["id"]}
        result.append(message)
    return result


def response_of(row: Json) -> Json:
    """The OpenAI Response that the verifier received, rebuilt from the row."""
    meta = row.get("meta") or {}
    response = {
        "id": f"resp_{meta.get('key', '')}",
        "created_at": meta.get("finished_at") or 0,
        **{name: value for name, value in row["response"].items() if name != "content"},
        "output": conversation.items(row["output"]),
        "usage": row.get("usage"),
    }
    return complete(response, row.get("responses_create_params") or {})


def encode(row: Json) -> bytes:
    """The row as one line. A value that is not JSON is a `TypeError`."""
    return orjson.dumps(row, option=_ENCODE)


def meta_in(line: bytes) -> Json | None:
    """The `meta` of a line of a rollouts file, or None if it is not a rollout. The whole line must parse."""
    try:
        meta = loads(line)["meta"]
    except (ValueError, KeyError, TypeError, IndexError):
        return None
    return meta if isinstance(meta, dict) and isinstance(meta.get("key"), str) else None


def key_in(line: bytes) -> str | None:
    """The key of a line of a rollouts file, or None if it is not a rollout."""
    meta = meta_in(line)
    return None if meta is None else meta["key"]


def split_key(key: str) -> tuple[str, int]:
    """Split `<task id>/<repeat>`."""
    task, _, repeat = key.rpartition("/")
    return task, int(repeat)


def beside(path: Path, kind: str) -> Path:
    """The path of a file beside a rollouts file: `rollouts.jsonl` or `rollouts.jsonl.zst` -> `rollouts.<kind>`."""
    name = path.name
    for suffix in (".jsonl.zst", ".jsonl"):
        if name.endswith(suffix):
            name = name[: -len(suffix)]
            break
    return path.with_name(f"{name}.{kind}")
