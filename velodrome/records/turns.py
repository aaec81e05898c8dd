"""A conversation in memory: a list of turns. An answer is parsed once, where it arrives; a `Turn` is valid.

`raw` holds items of OpenAI's Responses API; from a server of that API they are unchanged. The model modules convert
from and to the formats of other providers, and `conversation.py` to the messages of a rollouts file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from velodrome.errors import ModelError
from velodrome.records.bounds import usage_flaw
from velodrome.records.conversation import TOKEN_FIELDS, final_text, flaw, text_of
from velodrome.records.response_fields import complete, distinct_ids, stopped

Json = dict[str, Any]

_NOTHING: Json = {}
_NUMBER = (int, float)  # not a union: making one takes longer than the check
# Items that only the caller of a model may send. Items of hosted tools (`web_search_call`, …) may be in an answer.
_CALLER_ITEMS = frozenset(
    (
        "function_call_output",
        "custom_tool_call_output",
        "computer_call_output",
        "local_shell_call_output",
        "mcp_approval_response",
        "item_reference",
    )
)


@dataclass(slots=True)
class FunctionCall:
    """A call of a tool, as the model wrote it."""

    id: str
    name: str
    arguments: Any


@dataclass(slots=True)
class Turn:
    """One turn: of the model with its calls, of a tool, or of an environment that speaks as the user.

    `about`, of a model's turn, is the metadata of its answer: id, model, why it stopped. `tokens` may hold the exact
    tokens of the call.
    """

    role: str
    raw: list[Json]
    calls: Sequence[FunctionCall] = ()
    usage: Json | None = None
    about: Json | None = None
    tokens: Any = None

    @property
    def text(self) -> str:
        """The text of the turn, without reasoning."""
        return final_text(self.raw)

    @property
    def is_cut(self) -> bool:
        """Whether a limit of the server ended the turn."""
        return self.about is not None and self.about.get("status") == "incomplete"

    def response(self, request: Json) -> Json:
        """The model's turn as a Response to the request. A turn parsed from a Response returns that Response."""
        about = self.about or _NOTHING
        return about if "output" in about else complete({**about, "output": self.raw, "usage": self.usage}, request)


def model_turn(output: list[Json], usage: Json | None, about: Json) -> Turn:
    """The turn of a model that produced these items."""
    calls = [
        FunctionCall(item.get("call_id") or item.get("id") or "", item["name"], item.get("arguments") or "{}")
        for item in output
        if item.get("type") == "function_call"
    ]
    return Turn("assistant", output, calls, usage, about)


def result_turn(call: FunctionCall, text: str) -> Turn:
    """The turn of a tool that returned this text."""
    return Turn("tool", [{"type": "function_call_output", "call_id": call.id, "output": text}])


def spoken_turn(message: Json) -> Turn:
    """The turn of an environment that sends this message."""
    return Turn(message.get("role", "user"), [{"type": "message", **message}])


def parse(response: Any, *, by_agent: bool = False) -> Turn:
    """Parse a Response. Raises `ModelError` if it is not a valid answer of a model."""
    problem = answer_flaw(response, by_agent=by_agent)
    if problem is not None:
        usage = response.get("usage") if isinstance(response, dict) else None
        raise ModelError(problem, tokens=total_tokens(usage) if usage and usage_flaw(usage) is None else 0)
    return model_turn(response["output"], response.get("usage"), response)


def answer_flaw(response: Any, *, by_agent: bool = False) -> str | None:
    """Why this is not a valid answer of a model, or None. With `by_agent`, results of tool calls are allowed."""
    if not isinstance(response, dict):
        return f"the answer is not an object but {response!r:.40}"
    output = response.get("output")
    if not isinstance(output, list):
        return f'"output" is not a list but {output!r:.40}'
    is_cut = response.get("status") == "incomplete"
    return output_flaw(output, is_cut=is_cut, by_agent=by_agent) or usage_flaw(response.get("usage"))


def output_flaw(output: list[Any], *, is_cut: bool, by_agent: bool = False) -> str | None:
    """Why these items are not a valid answer of a model, or None."""
    for index, item in enumerate(output):
        problem = flaw(item) or (None if by_agent and item.get("type") in _CALLER_ITEMS else forged(item))
        if problem is not None:
            return f"output[{index}]: {problem}"
    if not is_cut and not any(map(_has_content, output)):
        return "the answer is empty: no text, no reasoning, no tool call"
    return None


def forged(item: Json) -> str | None:
    """Why a model is not allowed to produce this item, or None."""
    kind = item.get("type", "message")
    if kind in _CALLER_ITEMS:
        return f"a model may not produce a {kind}; only its caller can"
    if kind == "message" and item.get("role", "assistant") != "assistant":
        return f"a model may not speak as {item['role']!r:.40}, only as the assistant"
    return None


def _has_content(item: Json) -> bool:
    kind = item.get("type", "message")
    if kind != "message" and kind != "reasoning":
        return True
    content = item.get("content")
    if kind == "reasoning":
        return bool(text_of(content) or text_of(item.get("summary")) or item.get("encrypted_content"))
    if isinstance(content, str) or item.get(TOKEN_FIELDS[1]):
        return True  # an empty text too: a policy may end its turn at once, and is scored for it
    return any(isinstance(part.get("text"), str) or part.get("refusal") for part in content or ())


class GrowingInput(list[Json]):
    """The input of a request in a growing conversation. Each request has a new list; all share `converted`.

    A model may cache the first items in `converted`, in its own format, so that each item is converted only once.
    """

    __slots__ = ("converted",)

    def __init__(self, items: Iterable[Json], converted: dict[Any, Any]) -> None:
        super().__init__(items)
        self.converted = converted


class Conversation:
    """The conversation of one rollout: the request (set by `begin`), the turns since, and their usage."""

    __slots__ = ("_converted", "_first_answer", "_last_answer", "items", "prompt", "request", "turns", "usage")

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.items: list[Json] = []  # of all turns
        self.usage: Json = {}
        self._converted: dict[Any, Any] = {}
        self._first_answer: Json = _NOTHING  # metadata (id, created_at …) of the first answer
        self._last_answer: Json = _NOTHING  # metadata of the last answer

    def begin(self, request: Json) -> None:
        """Set the request that the next turns answer."""
        self.request = request
        self.prompt = prompt_of(request)
        self._first_answer = _NOTHING

    def next_request(self) -> Json:
        """The request with all turns since."""
        return {**self.request, "input": GrowingInput([*self.prompt, *self.items], self._converted)}

    def add(self, turns: Iterable[Turn]) -> None:
        """Append turns."""
        for turn in turns:
            self.turns.append(turn)
            self.items += turn.raw
            if turn.about is not None:
                self._first_answer = self._first_answer or turn.about
                self._last_answer = turn.about
                if turn.usage:
                    add_usage(self.usage, turn.usage)

    def response(self, limit: str = "") -> Json:
        """All turns as one Response with the id of the first answer. `limit` names the limit that ended it, if any."""
        last = {**stopped(self._last_answer, limit), "status": "incomplete"} if limit else self._last_answer
        head = {"id": self._first_answer.get("id"), "created_at": self._first_answer.get("created_at")}
        whole = complete({**last, **head, "output": self.items, "usage": self.usage}, self.request)
        whole["output"] = distinct_ids(whole["output"], whole["id"])
        return whole


def prompt_of(request: Json) -> list[Json]:
    """The prompt of a request as messages."""
    prompt = request["input"]
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}] if prompt else []
    messages: list[Json] = prompt
    return messages


def add_usage(total: Json, usage: Json) -> None:
    """Add one call's token counts, nested details included. A name keeps its first type: a number or details."""
    for name, value in usage.items():
        before = total.get(name)
        if isinstance(value, dict):
            if before is None or isinstance(before, dict):
                add_usage(total.setdefault(name, {}), value)
        elif isinstance(value, _NUMBER) and not isinstance(before, dict):
            total[name] = (before or 0) + value


def total_tokens(usage: Json) -> int:
    """All tokens of a usage; some servers report no total."""
    total = usage.get("total_tokens")
    if total and isinstance(total, int):
        return total
    counts = (usage.get("input_tokens"), usage.get("output_tokens"))
    return sum(count for count in counts if isinstance(count, int))
