"""One line of the input: what makes it a task, and what it is called.

A task's id is its own `id` or `task_id`, else a digest of its content, so that the same row has the same key in every
run and every file. The digest is kept either way: it tells two tasks with the same id apart.
"""

from __future__ import annotations

import hashlib
from typing import Any

import orjson

from velodrome.records.prompt import request_flaw

Json = dict[str, Any]

_SEE = "(see docs/rollouts.md#task)"
_DEEPEST = 250


def parse_task(line: bytes) -> Json:
    """The row of one line; a `ValueError` says what is wrong with it."""
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} (character {error.pos + 1} of the line)") from error
    check_task(row)
    if line.count(b"{") + line.count(b"[") > _DEEPEST and not _can_be_written(row):
        raise ValueError(f"nested deeper than {_DEEPEST} levels {_SEE}")
    found: Json = row
    return found


def check_task(row: Any) -> None:
    """Raise a `ValueError` unless this is a task."""
    if not isinstance(row, dict):
        raise ValueError(f"a task is a JSON object, not {_kind(row)} {_SEE}")
    params = row.get("responses_create_params")
    if params is None:
        raise ValueError(f'no "responses_create_params" {_SEE}')
    if not isinstance(params, dict):
        raise ValueError(f'"responses_create_params" is an object, not {_kind(params)} {_SEE}')
    if params.get("input") != []:  # an agent or an environment may bring the prompt
        check_input(params.get("input"))
    flaw = request_flaw(params)
    if flaw is not None:
        raise ValueError(f'"responses_create_params": {flaw} {_SEE}')
    if row.get("agent_ref") is not None and agent_of(row) is None:
        raise ValueError('"agent_ref" is an object with the name of an agent: {"name": "my_agent"}')


def check_input(asked: Any) -> None:
    """What a model can be asked: a text, or messages; a `ValueError` says what is wrong with anything else."""
    if asked is None:
        raise ValueError(f'no "responses_create_params.input" {_SEE}')
    if not asked or not isinstance(asked, str | list):
        raise ValueError(f'"responses_create_params.input" is a text that is not empty, or a list of messages {_SEE}')
    if isinstance(asked, list) and not all(isinstance(message, dict) for message in asked):
        raise ValueError(f'a message of "responses_create_params.input" is not an object {_SEE}')


def _can_be_written(row: Json) -> bool:
    """Whether the row is not too deep for orjson, which reads deeper than it writes; a rollout wraps it twice."""
    try:
        orjson.dumps([[[[row]]]])
    except orjson.JSONEncodeError:
        return False
    return True


def _kind(value: Any) -> str:
    names = {
        list: "a list",
        str: "a text",
        bool: "true or false",
        int: "a number",
        float: "a number",
        dict: "an object",
    }
    return "null" if value is None else names.get(type(value), type(value).__name__)


def task_id(row: Json) -> str:
    """The row's own name, else its digest."""
    return own_id(row) or digest(row)


def own_id(row: Json) -> str | None:
    """The name the row gives itself."""
    for name in ("id", "task_id"):
        own = row.get(name)
        if (isinstance(own, str) and own) or (isinstance(own, int) and not isinstance(own, bool)):
            return str(own)
    return None


def digest(content: Json) -> str:
    """Sixteen hex digits that equal content shares, whatever the order of its keys."""
    return hashlib.blake2b(orjson.dumps(content, option=orjson.OPT_SORT_KEYS), digest_size=8).hexdigest()


def agent_of(row: Json) -> str | None:
    """The agent the row asks for (`agent_ref.name`)."""
    reference = row.get("agent_ref")
    name = reference.get("name") if isinstance(reference, dict) else None
    return name if isinstance(name, str) else None
