"""One conversation inside: turns. An answer is parsed once, where it arrives; whoever has a `Turn` need not check it.

`raw` keeps what was sent, as items of OpenAI's Responses API: those of a server that speaks it are the very ones. The
shapes of other providers are known to the modules that speak to them, the file's messages to `conversation.py`.
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
# What only the caller of a model may say. A hosted tool's own items (`web_search_call`, …) are not among them.
_NOT_A_MODELS = frozenset(
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
    """What one side said at once: the model with its calls, a tool, an environment that speaks as the user.

    `about`, of a model's turn, is what its answer says besides: its id, its model, why it stopped. `tokens` is the
    place for the exact tokens of the call.
    """

    role: str
    raw: list[Json]
    calls: Sequence[FunctionCall] = ()
    usage: Json | None = None
    about: Json | None = None
    tokens: Any = None

    @property
    def text(self) -> str:
        """What was said, without the reasoning."""
        return final_text(self.raw)

    @property
    def is_cut(self) -> bool:
        """Whether a limit of the server ended it."""
        return self.about is not None and self.about.get("status") == "incomplete"

    def response(self, request: Json) -> Json:
        """The model's turn as a Response to that request: the very one that it was parsed from, if there is one."""
        about = self.about or _NOTHING
        return about if "output" in about else complete({**about, "output": self.raw, "usage": self.usage}, request)


def model_turn(output: list[Json], usage: Json | None, about: Json) -> Turn:
    """The turn of a model that said these items."""
    calls = [
        FunctionCall(item.get("call_id") or item.get("id") or "", item["name"], item.get("arguments") or "{}")
        for item in output
        if item.get("type") == "function_call"
    ]
    return Turn("assistant", output, calls, usage, about)


def result_turn(call: FunctionCall, text: str) -> Turn:
    """What a tool returned."""
    return Turn("tool", [{"type": "function_call_output", "call_id": call.id, "output": text}])


def spoken_turn(message: Json) -> Turn:
    """What an environment says."""
    return Turn(message.get("role", "user"), [{"type": "message", **message}])


def parse(response: Any, *, by_agent: bool = False) -> Turn:
    """The turn that a Response holds; raises `ModelError` if no model can have said it."""
    problem = answer_flaw(response, by_agent=by_agent)
    if problem is not None:
        usage = response.get("usage") if isinstance(response, dict) else None
        raise ModelError(problem, tokens=total_tokens(usage) if usage and usage_flaw(usage) is None else 0)
    return model_turn(response["output"], response.get("usage"), response)


def answer_flaw(response: Any, *, by_agent: bool = False) -> str | None:
    """Why this is not an answer to a model call, or None. An agent's may hold the results of tools that it called."""
    if not isinstance(response, dict):
        return f"the answer is not an object but {response!r:.40}"
    output = response.get("output")
    if not isinstance(output, list):
        return f'"output" is not a list but {output!r:.40}'
    is_cut = response.get("status") == "incomplete"
    return output_flaw(output, is_cut=is_cut, by_agent=by_agent) or usage_flaw(response.get("usage"))


def output_flaw(output: list[Any], *, is_cut: bool, by_agent: bool = False) -> str | None:
    """Why a model cannot have said these items, or None."""
    for index, item in enumerate(output):
        problem = flaw(item) or (None if by_agent and item.get("type") in _NOT_A_MODELS else forged(item))
        if problem is not None:
            return f"output[{index}]: {problem}"
    if not is_cut and not any(map(_says_something, output)):
        return "the answer is empty: no text, no reasoning, no tool call"
    return None


def forged(item: Json) -> str | None:
    """Why a model may not produce this item, or None."""
    kind = item.get("type", "message")
    if kind in _NOT_A_MODELS:
        return f"a model may not produce a {kind}; only its caller can"
    if kind == "message" and item.get("role", "assistant") != "assistant":
        return f"a model may not speak as {item['role']!r:.40}, only as the assistant"
    return None


def _says_something(item: Json) -> bool:
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
    """The input of a request in a conversation that grows. Each request has a list of its own; `made` is shared.

    A model may keep in `made` what it made of the first items, so that an item is converted and encoded only once.
    """

    __slots__ = ("made",)

    def __init__(self, items: Iterable[Json], made: dict[Any, Any]) -> None:
        super().__init__(items)
        self.made = made


class Conversation:
    """A conversation of one rollout: what was asked, the turns since, and what they cost."""

    __slots__ = ("_first", "_last", "_made", "items", "prompt", "request", "turns", "usage")

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.items: list[Json] = []  # of all turns
        self.usage: Json = {}
        self._made: dict[Any, Any] = {}
        self._first: Json = _NOTHING  # what the first answer says of itself, and the last
        self._last: Json = _NOTHING

    def begin(self, request: Json) -> None:
        """The next answers are those to this request."""
        self.request = request
        self.prompt = prompt_of(request)
        self._first = _NOTHING

    def next_request(self) -> Json:
        """The request with all that was said since."""
        return {**self.request, "input": GrowingInput([*self.prompt, *self.items], self._made)}

    def add(self, turns: Iterable[Turn]) -> None:
        """What was said next."""
        for turn in turns:
            self.turns.append(turn)
            self.items += turn.raw
            if turn.about is not None:
                self._first = self._first or turn.about
                self._last = turn.about
                if turn.usage:
                    add_usage(self.usage, turn.usage)

    def response(self, limit: str = "") -> Json:
        """All of it as one Response, with the id of the first answer; `limit` is the word for what stopped it."""
        last = {**stopped(self._last, limit), "status": "incomplete"} if limit else self._last
        head = {"id": self._first.get("id"), "created_at": self._first.get("created_at")}
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
    """Add one call's token counts, nested details included. A name has numbers or details, as its first one was."""
    for name, value in usage.items():
        before = total.get(name)
        if isinstance(value, dict):
            if before is None or isinstance(before, dict):
                add_usage(total.setdefault(name, {}), value)
        elif isinstance(value, _NUMBER) and not isinstance(before, dict):
            total[name] = (before or 0) + value


def total_tokens(usage: Json) -> int:
    """All tokens of a usage; some servers leave the sum to the reader."""
    total = usage.get("total_tokens")
    if total and isinstance(total, int):
        return total
    counts = (usage.get("input_tokens"), usage.get("output_tokens"))
    return sum(count for count in counts if isinstance(count, int))
