"""One line of the input: checks that it is a task, and finds its id.

A task's id is its own `id` or `task_id`, else a digest of its content, so that the same row has the same key in every
run and every file. The digest is stored in any case, to distinguish tasks with the same id.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import orjson

Json = dict[str, Any]

_SEE = "(see docs/rollouts.md#task)"
# Usual names of the expected answer: a number there belongs to the task, not to the score.
ANSWER_KEYS = ("expected_answer", "expected", "ground_truth", "reference_answer", "target", "answer")
DEEPEST = 250  # levels of a task or of a request


def parse_task(line: bytes) -> Json:
    """Parse and check the task on a line. A `ValueError` describes the problem."""
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} (character {error.pos + 1} of the line)") from error
    check_task(row)
    if is_too_deep(line, row):
        raise ValueError(f"nested deeper than {DEEPEST} levels {_SEE}")
    task: Json = row
    return task


def check_task(row: Any, *, done: bool = False) -> None:
    """Raise a `ValueError` if this is not a task. With `done`, check only what readers rely on."""
    if not isinstance(row, dict):
        raise ValueError(f"a task is a JSON object, not {_kind(row)} {_SEE}")
    params = row.get("responses_create_params")
    if params is None:
        raise ValueError(f'no "responses_create_params" {_SEE}')
    if not isinstance(params, dict):
        raise ValueError(f'"responses_create_params" must be an object, not {_kind(params)} {_SEE}')
    if params.get("input") != []:  # an agent or an environment may bring the prompt
        check_input(params.get("input"))
    flaw = _shape_flaw(params) if done else request_flaw(params)
    if flaw is not None:
        raise ValueError(f"{flaw.below('responses_create_params')} {_SEE}")
    if row.get("agent_ref") is not None and agent_of(row) is None:
        raise ValueError('"agent_ref" must be an object with the name of an agent: {"name": "my_agent"}')


def check_input(prompt: Any) -> None:
    """Check a prompt: a text that is not empty, or messages. A `ValueError` describes the problem."""
    if prompt is None:
        raise ValueError(f'no "responses_create_params.input" {_SEE}')
    if not prompt or not isinstance(prompt, str | list):
        raise ValueError(
            f'"responses_create_params.input" must be a text that is not empty, or a list of messages {_SEE}'
        )
    if isinstance(prompt, list) and not all(isinstance(message, dict) for message in prompt):
        raise ValueError(f'a message of "responses_create_params.input" is not an object {_SEE}')


def is_too_deep(line: bytes, row: Json) -> bool:
    """Whether a row is nested too deeply to be encoded. Lines with few brackets need no test."""
    return line.count(b"{") + line.count(b"[") > DEEPEST and not can_be_encoded(row)


def can_be_encoded(value: Any) -> bool:
    """Whether orjson, which parses deeper than it encodes, can encode this value inside a rollout."""
    try:
        orjson.dumps([[[[value]]]])
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
    """The row's own id, else its digest."""
    return own_id(row) or digest(row)


def own_id(row: Json) -> str | None:
    """The row's own id, or None."""
    for name in ("id", "task_id"):
        value = row.get(name)
        if (isinstance(value, str) and value) or (isinstance(value, int) and not isinstance(value, bool)):
            return str(value)
    return None


def digest(content: Json) -> str:
    """A digest of the content as sixteen hex digits; the order of keys does not matter."""
    return hashlib.blake2b(orjson.dumps(content, option=orjson.OPT_SORT_KEYS), digest_size=8).hexdigest()


def hashed(text: str | bytes) -> int:
    """A 64-bit hash, the same in every process."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest())


def is_minimal(row: Json) -> bool:
    """Whether a row is a minimal rollout: a request, a conversation and a score, without `meta` (seed 004)."""
    params = row.get("responses_create_params")
    has_parts = isinstance(params, dict) and "input" in params and isinstance(row.get("output"), list)
    return has_parts and row.get("meta") is None and row.get("response") is None


def task_of_minimal(row: Json) -> str | None:
    """The id of a minimal rollout's task: its own, else a digest of the prompt and the expected answer."""
    params = row["responses_create_params"]
    content = {name: params[name] for name in ("input", "instructions", "tools") if params.get(name) is not None}
    try:
        return own_id(row) or digest(content | {name: row[name] for name in ANSWER_KEYS if row.get(name) is not None})
    except TypeError:
        return None  # nested too deeply


def agent_of(row: Json) -> str | None:
    """The agent that the row names (`agent_ref.name`)."""
    reference = row.get("agent_ref")
    name = reference.get("name") if isinstance(reference, dict) else None
    return name if isinstance(name, str) else None


_CONTENT_SUBSTITUTES = ("tool_calls", "function_call", "refusal", "reasoning_content", "audio")
_ROLES = frozenset((None, "system", "developer", "user", "assistant", "tool", "function", "other"))
_TEXT_PARTS = ("text", "input_text", "output_text")
_NUMBERS = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
_LIMITS = ("max_output_tokens", "max_tokens", "max_completion_tokens")
_PLAIN = frozenset(("type", "role", "content"))  # the fields of most messages
# Tuples, not unions: creating a union takes longer than the check.
_TEXT, _OBJECT, _NUMBER = (str, type(None)), (dict, type(None)), (int, float)


class RequestFlaw(NamedTuple):
    """An invalid field of a request. `problem` continues a sentence that starts with the field's name."""

    param: str
    problem: str

    def __str__(self) -> str:
        return f'"{self.param}" {self.problem}'

    def below(self, place: str) -> RequestFlaw:
        """The flaw with a path before the field's name."""
        return RequestFlaw(f"{place}.{self.param}" if self.param else place, self.problem)


def request_flaw(params: Json, conversation: str = "input") -> RequestFlaw | None:
    """The first flaw of a request, or None. Unknown fields are not checked."""
    flaw = _shape_flaw(params, conversation)
    if flaw is not None:
        return flaw
    items = params.get(conversation)
    if isinstance(items, list):
        for index, item in enumerate(items):
            if item.get("role", "user") not in _ROLES and item.get("type", "message") == "message":
                roles = "system, developer, user, assistant or tool"
                return RequestFlaw(f"{conversation}[{index}].role", f"must be {roles}, not {item['role']!r:.40}")
    for index, tool in enumerate(params.get("tools") or ()):
        flaw = _tool_flaw(tool)
        if flaw is not None:
            return flaw.below(f"tools[{index}]")
    return _setting_flaw(params)


def _shape_flaw(params: Json, conversation: str = "input") -> RequestFlaw | None:
    items = params.get(conversation)
    if isinstance(items, list):
        for index, item in enumerate(items):
            flaw = item_flaw(item)
            if flaw is not None:
                return flaw.below(f"{conversation}[{index}]")
    if not _objects(params.get("tools")):
        return _not_objects("tools")
    if params.get("include") is not None and not isinstance(params["include"], list):
        return RequestFlaw("include", "must be a list of texts")
    for name in ("text", "reasoning", "metadata"):
        if params.get(name) is not None and not isinstance(params[name], dict):
            return RequestFlaw(name, "must be an object")
    shape = (params.get("text") or {}).get("format")
    if shape is not None and not isinstance(shape, dict):
        return RequestFlaw("text.format", "must be an object")
    return _choice_flaw(params.get("tool_choice"))


def _setting_flaw(params: Json) -> RequestFlaw | None:
    if not isinstance(params.get("model", ""), _TEXT):
        return RequestFlaw("model", f"must be a text, not {params['model']!r:.40}")
    if not all(isinstance(each, str) for each in params.get("include") or ()):
        return RequestFlaw("include", "must be a list of texts")
    for name in _NUMBERS:
        value = params.get(name)
        if value is not None and not _is_number(value):
            return RequestFlaw(name, f"must be a number, not {value!r:.40}")
    for name in _LIMITS:
        value = params.get(name)
        if value is not None and not (_is_number(value) and value >= 1 and value % 1 == 0):
            return RequestFlaw(name, f"must be a whole number from 1, not {value!r:.40}")
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, _NUMBER) and not isinstance(value, bool)


def _not_objects(name: str) -> RequestFlaw:
    return RequestFlaw(name, "must be a list of objects")


def _tool_flaw(tool: Json) -> RequestFlaw | None:
    """The flaw of a tool of the Responses or the Chat Completions API, or None. Only functions are examined."""
    if not isinstance(tool.get("type"), str):
        return RequestFlaw("type", "must be a text")
    if tool["type"] != "function":
        return None
    function = tool.get("function", tool)
    where = "" if function is tool else "function."
    if not isinstance(function, dict):
        return RequestFlaw("function", "must be an object")
    if not isinstance(function.get("name"), str) or not function["name"]:
        return RequestFlaw(f"{where}name", "must be a text that is not empty")
    if not isinstance(function.get("parameters"), _OBJECT):
        return RequestFlaw(f"{where}parameters", "must be an object")
    return None


def _choice_flaw(choice: Any) -> RequestFlaw | None:
    if choice is None or isinstance(choice, str):
        return None
    allowed = choice.get("allowed_tools", choice) if isinstance(choice, dict) else None
    tools = allowed.get("tools", []) if isinstance(allowed, dict) else None
    if not isinstance(tools, list) or not _objects(tools):
        return RequestFlaw("tool_choice", "must be a text or an object, and its tools objects")
    return None


def item_flaw(item: Any) -> RequestFlaw | None:
    """The flaw of a message or an item of a request, or None. Unknown kinds are not examined."""
    if not isinstance(item, dict):
        return RequestFlaw("", "must be an object")
    kind = item.get("type", "message")
    if not isinstance(kind, str):
        return RequestFlaw("type", "must be a text")
    if kind == "function_call_output":
        return _content_flaw("output", item.get("output"), any_value=True)
    if kind not in ("message", "reasoning"):
        return None
    if item.keys() <= _PLAIN and isinstance(item.get("role"), str) and isinstance(item.get("content"), str):
        return None
    for name in ("role", "refusal"):
        if not isinstance(item.get(name, ""), _TEXT):
            return RequestFlaw(name, "must be a text")
    if not _objects(item.get("annotations")):
        return _not_objects("annotations")
    for index, call in enumerate(_list(item.get("tool_calls"))):
        if not _is_call(call):
            return RequestFlaw(f"tool_calls[{index}]", "has no function name")
    if kind == "message" and item.get("content") is None and not any(map(item.get, _CONTENT_SUBSTITUTES)):
        return RequestFlaw("", 'is a message without "content"')
    return _content_flaw("content", item.get("content")) or _content_flaw("summary", item.get("summary"))


def _list(value: Any) -> list[Any]:
    """The list; for null an empty list; for any other value a list with an invalid entry."""
    return value if isinstance(value, list) else [None] if value else []


def _is_call(call: Any) -> bool:
    function = call.get("function", call) if isinstance(call, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str)


def _content_flaw(name: str, content: Any, *, any_value: bool = False) -> RequestFlaw | None:
    if content is None or isinstance(content, str) or (any_value and not isinstance(content, list)):
        return None
    if not isinstance(content, list) or not _objects(content):
        return RequestFlaw(name, "must be a text or a list of objects")
    for index, part in enumerate(content):
        if not _is_part(part):
            return RequestFlaw(f"{name}[{index}]", "has nothing of its type")
    return None


def _is_part(part: Json) -> bool:
    """Whether a part has the field that its type requires."""
    kind = part.get("type", "")
    if not isinstance(kind, str):
        return False
    if kind in _TEXT_PARTS:
        return isinstance(part.get("text"), str)
    if kind == "refusal":
        return isinstance(part.get("refusal"), str)
    if kind == "image_url":
        image = part.get("image_url")
        return isinstance(image, str) or (isinstance(image, dict) and isinstance(image.get("url"), str))
    if kind == "input_image":
        return isinstance(part.get("image_url") or part.get("file_id"), str)
    return kind != "file" or isinstance(part.get("file"), dict)


def _objects(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(each, dict) for each in value))
