"""Logs of chat completions: requests with their answers, in the shapes people keep them in.

A line is `{"request": …, "response": …}`, a line of OpenAI's batch files (`body`, `response.body`), a request and its
answer in one object (`messages` and `choices`), or a conversation (`messages` that end with the model). They have
no scores: the rewards are deferred, and `velo verify` adds them. Calls with the same request are repeats of one task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from velodrome.contracts import Json
from velodrome.exchange.imports.foreign import Convert, ForeignFormat, new_meta
from velodrome.records.rollout import make_rollout
from velodrome.records.task import check_task, digest, own_id, task_id
from velodrome.responses_api_models.conversion import response_from_chat, response_items, responses_request

# What is about one call and not about what is asked.
_PER_CALL = frozenset(("model", "stream", "stream_options", "n", "store", "user", "service_tier"))
_CONVERSATION = frozenset(("messages", "tools", "functions", "parallel_tool_calls", "model"))


def rollouts(agent: str | None, source: Path) -> Convert:
    """Lines of a log -> rollouts, one for each answer in a line."""
    repeats: Counter[str] = Counter()
    numbers: dict[str, int] = {}

    def convert(row: Any, place: int) -> Iterator[Json]:
        task, answers = read_line(row, place)
        if not answers:
            raise ValueError("no answer in it; questions alone are imported with --as tasks")
        for answer in answers:
            name = (None if "custom_id" in row else own_id(task)) or content(task)
            index = numbers.setdefault(name, len(numbers))
            meta = new_meta(name, repeats[name], task_index=index, agent=agent)
            repeats[name] += 1
            yield make_rollout(task, {**task, "response": answer}, meta, deferred=True)

    return convert


def content(task: Json) -> str:
    """A digest of what is asked, without how it is sampled. A `custom_id` numbers the lines of one file, not tasks."""
    params = task["responses_create_params"]
    question = {name: params[name] for name in ("input", "instructions", "tools") if name in params}
    return digest({**task, "id": None, "responses_create_params": question})


def read_line(row: Any, place: int) -> tuple[Json, list[Json]]:
    """The task of a line, and the Responses to it."""
    if not isinstance(row, dict):
        raise ValueError("a line of a log is a JSON object")
    request = row.get("request", row.get("body"))
    if isinstance(request, dict):
        task = _task(request, {"id": row["custom_id"]} if isinstance(row.get("custom_id"), str) else {})
        return task, _answers(row.get("response"), task["responses_create_params"], place)
    if "choices" in row:
        fields = {name: value for name, value in row.items() if name in ("messages", "tools", "tool_choice")}
        task = _task(fields, {})
        return task, _answers(row, task["responses_create_params"], place)
    return _conversation(row, place)


def _task(request: Json, fields: Json) -> Json:
    params = {name: value for name, value in request.items() if name not in _PER_CALL and value is not None}
    if not isinstance(params.get("messages"), list):
        raise ValueError('no list "messages" in the request')
    if not params["messages"]:
        raise ValueError("no question in it")
    task = {**fields, "responses_create_params": responses_request(params)}
    check_task(task, done=True)
    return task


def _answers(response: Any, params: Json, place: int) -> list[Json]:
    if response is None:
        return []
    body = response.get("body", response) if isinstance(response, dict) else response
    if not isinstance(body, dict) or body.get("error") or not isinstance(body.get("choices"), list):
        error = body.get("error") if isinstance(body, dict) else body
        raise ValueError(f"the call has no answer but {error!r:.120}" if error else 'no "choices" in the response')
    named = {"id": f"chat_{place}", **body}
    # The usage is of the call, not of each choice: the first answer has it, so that sums over rollouts are right.
    calls = [{**named, "usage": None} if at else named for at in range(len(body["choices"]))]
    pairs = zip(calls, body["choices"], strict=True)
    return [response_from_chat({**call, "choices": [choice]}, params) for call, choice in pairs]


def _conversation(row: Json, place: int) -> tuple[Json, list[Json]]:
    """The task and the answer: the question ends with the last message that is not of the model or a tool."""
    messages = row.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise ValueError('neither "request" and "response" nor a list "messages" in it')
    end = len(messages)
    while end and messages[end - 1].get("role") in ("assistant", "tool"):
        end -= 1
    fields = {name: value for name, value in row.items() if name not in _CONVERSATION}
    request = {name: row[name] for name in ("tools", "parallel_tool_calls") if row.get(name) is not None}
    if isinstance(request.get("tools"), str):  # as TRL takes them, and velo export sft writes them
        request["tools"] = orjson.loads(request["tools"])
    task = _task({**request, "messages": messages[:end]}, fields)
    if end == len(messages):
        return task, []
    response = {"id": f"chat_{place}", "status": "completed", "output": response_items(messages[end:])}
    if isinstance(row.get("model"), str):
        response["model"] = row["model"]
    return task, [response]


def named_task(row: Any, place: int) -> tuple[str, Json]:
    """The task of a line, with its name."""
    task = read_line(row, place)[0]
    return task_id(task), task


FORMAT = ForeignFormat(
    "openai_chat",
    "logs of chat completions: requests and answers, or conversations",
    rollouts,
    lambda source: named_task,
)
