"""A row of a rollouts or failures file as typed facts: the only reader of the schema of a row.

    for facts in read_facts(path, lost):            # records/rows.py; or RowFacts(row)
        facts.key, facts.task, facts.repeat          # None, None, 0 if missing
        facts.reward, facts.numbers, facts.total_tokens
        facts.seconds("model_s"), facts.times        # None if missing
        facts.answer, facts.prompt, facts.calls      # texts and tool calls, read on first use

A row may be from another program. A part of a wrong type is dropped and its name is in `wrong`; a token count beyond
its bounds is in `damaged`. Nothing raises. Attributes are read at once, because nearly every reader needs them;
expensive ones are computed on first use. `RowFacts(failure, failed=True)` reads a line of a failures file, which has
its bookkeeping at the top level and its conversation in `partial`.

A change of the schema of a rollout changes this module and `records/rollout.py`; `records/mending.py` has the types,
`records/row_times.py` reads `meta.timing`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any, Generic, TypeVar, overload

import orjson

from velodrome.records.bounds import MAX_TOKENS, is_count
from velodrome.records.conversation import text_of, token_flaws
from velodrome.records.mending import HOSTILE, LATEST_S, LONGEST_S, mended
from velodrome.records.outcomes import OUTCOMES, outcome_of, stop_reason
from velodrome.records.row_times import RowTimes, read_times
from velodrome.records.task import ANSWER_KEYS, is_minimal, task_of_minimal

Json = dict[str, Any]
T = TypeVar("T")

TOKENS = ("input_tokens", "output_tokens", "total_tokens")
_LARGEST_INT = 2**64  # the parsers return larger numbers as floats
_LONGEST_REPEAT = 18  # digits
_NAMES = frozenset({"id", "task_id"})  # a number here is a name, not a measure
_ABSENT: Json = {}
_OUTCOMES = [*OUTCOMES]  # not a set: a row may have anything there
_OBJECT = frozenset({dict})
_NO_NAMES: tuple[str, ...] = ()


class lazy(Generic[T]):
    """An attribute computed on first use. `cached_property` takes a lock on Python 3.11: 2.5 us more per row."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, owner: None, kind: type) -> lazy[T]: ...
    @overload
    def __get__(self, owner: object, kind: type) -> T: ...
    def __get__(self, owner: object | None, kind: type) -> Any:
        if owner is None:
            return self
        value = owner.__dict__[self._name] = self._compute(owner)
        return value


class RowFacts:
    """One row. `line` is the number of its line, `size` its bytes; both are 0 without a file."""

    row: Json  # without the parts that are `wrong`
    line: int
    size: int
    failed: bool  # a line of a failures file
    wrong: Sequence[str]  # names of parts of a wrong type, as in "meta.timing.total_s"
    damaged: Sequence[str]  # names of token counts below 0 or beyond MAX_TOKENS
    key: str | None  # any text; a key `<task>/<repeat>` sets the next two, and so does a minimal rollout
    task: str | None
    repeat: int
    agent: str  # "" if missing
    status: str  # of the response
    deferred: bool  # to be verified later
    reward: float | None
    numbers: dict[str, float]  # every finite number at the top level, by name; ids are not numbers
    not_finite: Sequence[str]  # names of numbers that are NaN or infinite
    messages: Sequence[Json]  # the conversation after the prompt
    turns: int
    tool_calls: int
    input_tokens: int | None
    output_tokens: int | None
    total_tokens: int | None
    timing: Json  # unchecked; read it with `seconds`, `count` and `times`
    total_s: float | None
    finished_at: float | None  # seconds since 1970

    def __init__(self, row: Json, *, line: int = 0, size: int = 0, failed: bool = False) -> None:
        self.line = line
        self.size = size
        self.failed = failed
        self.wrong = self.damaged = _NO_NAMES
        try:
            self._read(row)
        except HOSTILE:
            row, self.wrong = mended(row, failed=failed)
            self._read(row)

    def _read(self, row: Json) -> None:
        """Read the cheap attributes. A wrong type that readers could not handle raises; others are noted in `wrong`."""
        self.row = row
        failed, get = self.failed, row.get
        usage, response = get("usage") or _ABSENT, get("response") or _ABSENT
        meta = row if failed else get("meta") or _ABSENT
        params, timing = get("responses_create_params") or _ABSENT, meta.get("timing") or _ABSENT
        if not (type(usage) is type(response) is type(meta) is type(timing) is type(params) is dict):
            raise TypeError
        tools = params.get("tools")
        if tools and not _are_objects(tools):
            raise TypeError
        self.messages = messages = get("partial" if failed else "output") or ()
        turns = tool_calls = 0
        for message in messages:
            if message.get("role") == "assistant":
                turns += 1
            calls = message.get("tool_calls")
            if calls:
                if not _are_objects(calls):
                    raise TypeError
                tool_calls += len(calls)
        self.turns, self.tool_calls = turns, tool_calls
        self.timing = timing
        self.total_s, self.finished_at = total_s, finished_at = timing.get("total_s"), meta.get("finished_at")
        if total_s is not None and not 0 <= total_s < LONGEST_S:
            raise ValueError(total_s)
        if finished_at is not None and not abs(finished_at) < LATEST_S:
            raise ValueError(finished_at)
        agent, status = meta.get("agent"), response.get("status")
        self.agent = agent if type(agent) is str else ""
        self.status = status if type(status) is str else ""
        self.deferred = meta.get("verification") == "deferred"
        self._read_key(meta.get("key"))
        self._read_numbers(row)
        sent: Any
        received: Any
        total: Any
        self.input_tokens = sent = usage.get("input_tokens")
        self.output_tokens = received = usage.get("output_tokens")
        self.total_tokens = total = usage.get("total_tokens")
        whole = type(sent) is type(received) is type(total) is int
        if not (whole and 0 <= sent <= MAX_TOKENS and 0 <= received <= MAX_TOKENS and 0 <= total <= MAX_TOKENS):
            self._mend_tokens(usage)

    def _read_key(self, key: Any) -> None:
        self.key = self.task = None
        self.repeat = 0
        if type(key) is str:
            self.key = key
            task, _, repeat = key.rpartition("/")
            if task and repeat.isdecimal() and repeat.isascii() and len(repeat) <= _LONGEST_REPEAT:
                self.task, self.repeat = task, int(repeat)
                return
        if key is not None:
            self.wrong = (*self.wrong, "key" if self.failed else "meta.key")
        elif not self.failed and is_minimal(self.row):
            self.task = task_of_minimal(self.row)

    def _read_numbers(self, row: Json) -> None:
        numbers: dict[str, float] = {}
        not_finite: list[str] | None = None
        for name, value in row.items():
            kind = type(value)
            if kind is float or kind is int or kind is bool:
                if isfinite(value) if kind is float else -_LARGEST_INT <= value <= _LARGEST_INT:
                    if name not in _NAMES:
                        numbers[name] = value
                elif not_finite is None:
                    not_finite = [name]
                else:
                    not_finite.append(name)
        self.numbers, self.not_finite = numbers, not_finite or _NO_NAMES
        self.reward = reward = numbers.get("reward")
        if reward is None or reward is True or reward is False:
            self.reward = None
            numbers.pop("reward", None)
            if row.get("reward") is not None and "reward" not in self.not_finite:
                self.wrong = (*self.wrong, "reward")

    def _mend_tokens(self, usage: Json) -> None:
        for name in TOKENS:
            value = usage.get(name)
            if value is not None and not is_count(value):
                setattr(self, name, None)
                if type(value) is int:
                    self.damaged = (*self.damaged, f"usage.{name}")
                else:
                    self.wrong = (*self.wrong, f"usage.{name}")

    @property
    def meta(self) -> Json:
        return self.row if self.failed else self.row.get("meta") or _ABSENT

    @property
    def params(self) -> Json:
        return self.row.get("responses_create_params") or _ABSENT

    @property
    def model(self) -> str:
        """The name of the model; "" if missing."""
        name = (self.row.get("response") or _ABSENT).get("model")
        return name if type(name) is str else ""

    @property
    def digest(self) -> str:
        """The digest of the task's content; "" if missing."""
        digest = self.meta.get("task_digest")
        return digest if type(digest) is str else ""

    @property
    def stopped_by(self) -> str:
        """Why an incomplete response ended, as the server or the agent gave it; "" if the response is complete."""
        return stop_reason(self.row["response"], self.params) if self.status == "incomplete" else ""

    @property
    def outcome(self) -> str:
        """One of `OUTCOMES`: `finished`, or the reason it stopped. "" for a failure, which has a boundary."""
        if self.failed:
            return ""
        outcome = self.meta.get("outcome")
        return outcome if outcome in _OUTCOMES else outcome_of(self.row.get("response") or _ABSENT, self.params)

    @lazy
    def scored(self) -> frozenset[str]:
        """The fields that `verify` returned. If the row does not list them: all numbers except answer keys."""
        names = self.meta.get("scored")
        if type(names) is list:
            return frozenset([name for name in names if type(name) is str])
        return frozenset(self.numbers).difference(ANSWER_KEYS)

    @property
    def token_flaws(self) -> list[str]:
        """The requested token ids and log-probabilities that are missing or incomplete."""
        missing, broken = token_flaws(self.messages)
        if not missing and not broken and self.turns and self.params.get("return_token_ids"):
            ids = any(message.get("generation_token_ids") is not None for message in self.messages)
            return [] if ids else ["no generation_token_ids"]
        return [*missing, *broken]

    @property
    def error(self) -> str:
        """The boundary and the message of a failure."""
        boundary, error = self.row.get("boundary") or "?", self.row.get("error") or ""
        return failure_reason(boundary if type(boundary) is str else "?", error if type(error) is str else "?")

    @property
    def episode(self) -> bool:
        """Whether this is an episode of a policy: its reward is a return of any size, its texts are placeholders."""
        return is_episode(self.row)

    @property
    def missing(self) -> list[str]:
        """The required parts of a rollout that are missing. A part of a wrong type is not missing."""
        get = self.row.get
        if (
            self.key is not None
            and get("response") is not None
            and get("output") is not None
            and "input" in self.params
        ) or is_minimal(self.row):
            return []
        parts = [name for name in ("meta", "response", "output") if get(name) is None]
        if "meta" not in parts and self.key is None:
            parts.append("meta.key")
        if "input" not in self.params:
            parts.append("responses_create_params.input")
        return [name for name in parts if name not in self.wrong]

    @lazy
    def answer(self) -> str:
        """The final answer: `response.content`, else the last text of the assistant."""
        text = (self.row.get("response") or _ABSENT).get("content")
        return text if type(text) is str else self.last_words

    @property
    def last_words(self) -> str:
        """The last text of the assistant in the conversation."""
        for message in reversed(self.messages):
            if message.get("role") == "assistant":
                return text_of(message.get("content"))
        return ""

    @lazy
    def questions(self) -> list[str]:
        """The texts of the user in the prompt, in order."""
        prompt = self.params.get("input")
        if type(prompt) is str:
            return [prompt]
        items = [item for item in prompt if type(item) is dict] if type(prompt) is list else []
        return [text for item in items if item.get("role") == "user" and (text := text_of(item.get("content")))]

    @property
    def context(self) -> list[str]:
        """The other texts of the prompt: system messages, earlier answers, then the instructions."""
        prompt = self.params.get("input")
        items = [item for item in prompt if type(item) is dict] if type(prompt) is list else []
        texts = [text_of(item.get("content")) for item in items if item.get("role") != "user"]
        return [text for text in (*texts, text_of(self.params.get("instructions"))) if text]

    @property
    def prompt(self) -> str:
        """The question: the user's last text in the prompt (earlier ones are examples), else the first text."""
        return self.questions[-1] if self.questions else next(iter(self.context), "")

    @lazy
    def written(self) -> list[str]:
        """Every text the model wrote, in order: reasoning, content, arguments of calls."""
        texts: list[str] = []
        for message in self.messages:
            get = message.get
            if get("role") == "assistant":
                for text in (get("reasoning_content"), get("content")):
                    if text:
                        texts.append(text if type(text) is str else text_of(text))
                for call in get("tool_calls") or ():
                    arguments = call.get("arguments") if "name" in call else _function(call).get("arguments")
                    texts.append(arguments if type(arguments) is str else str(arguments))
        return texts

    @lazy
    def calls(self) -> list[tuple[Any, Any]]:
        """Every tool call: its name and its arguments, as the model wrote them; None if they are nested too deep."""
        if not self.tool_calls:
            return []
        calls = [call for message in self.messages for call in message.get("tool_calls") or ()]
        functions = [call if "name" in call else _function(call) for call in calls]
        return [(function.get("name"), _bounded(function.get("arguments"))) for function in functions]

    @property
    def results(self) -> list[tuple[str, str]]:
        """The name and the text of every tool result that has both."""
        tools = [message for message in self.messages if message.get("role") == "tool"]
        pairs = [(message.get("name"), message.get("content")) for message in tools]
        return [(name, content) for name, content in pairs if type(name) is str and type(content) is str]

    @property
    def refused(self) -> bool:
        """Whether the model's server marked a part of an answer as a refusal."""
        return bool(
            [message for message in self.messages if message.get("refusal") and message.get("role") == "assistant"]
        )

    @property
    def offered(self) -> set[str]:
        """The names of the tools in the request."""
        tools = self.params.get("tools")
        functions = [_function(tool) for tool in tools if type(tool) is dict] if type(tools) is list else []
        return {function["name"] for function in functions if type(function.get("name")) is str}

    def seconds(self, name: str) -> float | None:
        """A time of `meta.timing`; None if it is missing or invalid."""
        value: Any = self.timing.get(name)
        kind = type(value)
        return value if (kind is float or kind is int) and 0 <= value < LONGEST_S else None

    def count(self, name: str) -> int:
        """A count of `meta.timing`, such as `retries`; 0 if it is missing or invalid."""
        value = self.timing.get(name)
        return value if is_count(value) else 0

    @property
    def verified_later(self) -> bool:
        """Whether verification is not a part of this rollout's time."""
        return (self.deferred or "verify_later_s" in self.timing) and not self.timing.get("verify_s")

    @lazy
    def times(self) -> RowTimes | None:
        """Where the time of the rollout went; None if the row has no valid times."""
        return read_times(self.timing)


def is_episode(row: Json) -> bool:
    """Whether a row is an episode of a policy. A task may have another field with the name `episode`."""
    episode = row.get("episode")
    return (
        isinstance(episode, dict)
        and "agents" in episode
        and not episode.keys().isdisjoint(("returns", "actions", "frames"))
    )


def _are_objects(values: Any) -> bool:
    return type(values) is list and _OBJECT.issuperset(map(type, values))


def _bounded(arguments: Any) -> Any:
    """Arguments that can be compared and printed: a text, or values that are not nested too deep for JSON."""
    if type(arguments) is str:
        return arguments
    try:
        orjson.dumps(arguments)
    except TypeError:
        return None
    return arguments


def _function(call: Json) -> Json:
    """The object with the name of a call or a tool: itself, or its `function`, as in chat completions."""
    if call.get("name") is None:
        function = call.get("function")
        if type(function) is dict:
            return function
    return call


def failure_reason(boundary: str, error: str) -> str:
    """A failure as one line that begins with its boundary."""
    return error if error.startswith(f"{boundary}: ") else f"{boundary}: {error}"
