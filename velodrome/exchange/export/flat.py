"""One rollout per row of a Parquet file: ids, rewards, numbers, texts, and the conversation as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import orjson

from velodrome.contracts import Json
from velodrome.errors import ModelError
from velodrome.exchange.export import chat
from velodrome.exchange.export.format import Convert, ExportSettings, Format, LeaveOut, Unit, only
from velodrome.exchange.parquet import arrow as load_pyarrow
from velodrome.exchange.problems import FLAWS
from velodrome.records.conversation import text_of
from velodrome.records.facts import TOKENS, RowFacts
from velodrome.responses_api_models.conversion import nested

_ABOUT = ("source", "key", "task", "agent", "model", "status", "stop", "outcome")
_TEXTS = (*_ABOUT, "system", "prompt", "answer", "expected_answer")
_COUNTS = ("repeat", "task_index", "input_tokens", "output_tokens", "total_tokens", "tool_calls", "turns", "retries")
_SECONDS = ("total_s", "model_s", "tools_s", "verify_s", "queue_s")
_JSON = ("messages", "tools", "fields")
_OWN = frozenset((*_TEXTS, *_COUNTS, *_SECONDS, *_JSON, "reward", "finished_at"))
_NOT_FIELDS = frozenset(("responses_create_params", "output", "response", "usage", "reward", "meta"))


def start(settings: ExportSettings, leave_out: LeaveOut) -> Convert:
    def convert(unit: Unit) -> Iterator[Json]:
        for row, source in zip_longest(unit.rows, unit.sources):
            yield {"source": source, **_columns(row, settings.style)}

    return convert


def _columns(row: Json, style: chat.Style) -> Json:
    """The columns of one rollout; numeric fields that have none of their own are columns too."""
    facts = RowFacts(row)
    if facts.task is None:
        raise KeyError("meta.key")
    prompt, answer = _conversation(row, style)
    expected = row.get("expected_answer")
    extra = {name: float(value) for name, value in facts.numbers.items() if name not in _OWN}
    return extra | {
        "key": facts.key,
        "task": facts.task,
        "repeat": facts.repeat,
        "task_index": _count(facts.meta.get("task_index")),
        "agent": facts.agent or None,
        "model": facts.model or None,
        "status": facts.status or None,
        "stop": facts.stopped_by or None,
        "outcome": facts.outcome or None,
        "reward": _number(facts.reward),
        "finished_at": _number(facts.finished_at),
        **{name: getattr(facts, name) for name in TOKENS},
        "tool_calls": sum(len(message.get("tool_calls") or ()) for message in answer),
        "turns": sum(message.get("role") == "assistant" for message in answer),
        "retries": facts.count("retries"),
        **{name: _number(facts.seconds(name)) for name in _SECONDS},
        "system": _said("system", prompt),
        "prompt": _said("user", prompt),
        "answer": _text((facts.row.get("response") or {}).get("content")),
        "expected_answer": expected if isinstance(expected, str) or expected is None else _json(expected),
        "messages": _json(prompt + answer),
        "tools": _json([nested(tool) for tool in row["responses_create_params"].get("tools") or ()]),
        "fields": _json({name: value for name, value in row.items() if name not in _NOT_FIELDS}),
    }


def _conversation(row: Json, style: chat.Style) -> tuple[list[Json], list[Json]]:
    """The prompt and the answer as chat messages; unchanged if chat has no form for them.

    Arguments that are not an object are text, whatever the style.
    """
    for each in (style, replace(style, arguments="text")):
        try:
            return chat.prompt(row, each), chat.completion(row, each)
        except (chat.Unfit, ModelError):
            continue
    prompt = row["responses_create_params"].get("input")
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt or ()), row["output"]


def _said(role: str, messages: list[Json]) -> str | None:
    texts = [text_of(message.get("content")) for message in messages if message.get("role") == role]
    return texts[-1] if texts else None


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)  # Arrow refuses a whole number that a float would round


def _count(value: Any) -> int | None:
    return value if type(value) is int and abs(value) < 2**63 else None


def schema(arrow: Any, numeric: Sequence[str]) -> Any:
    """The columns, in an order in which a person reads them."""
    kinds = {
        **dict.fromkeys((*_TEXTS, *_JSON), arrow.string()),
        **dict.fromkeys(_COUNTS, arrow.int64()),
        **dict.fromkeys((*_SECONDS, "reward", "finished_at"), arrow.float64()),
    }
    first = (*_ABOUT[:3], "repeat", "task_index", *_ABOUT[3:], "reward", "finished_at")
    order = [*first, *(name for name in kinds if name not in first)]
    columns = {name: kinds[name] for name in order}
    extra = [name for name in numeric if name not in _OWN]
    return arrow.schema({**columns, **dict.fromkeys(extra, arrow.float64())})


def arrow_table(rows: Iterable[Json]) -> Any:
    """The columns of the Parquet export. A row that is not a rollout is left out."""
    pyarrow = load_pyarrow("a table of rollouts")
    numbers: dict[str, None] = {}
    records: list[Json] = []
    convert = start(ExportSettings(), lambda row, error: None)
    for row in rows:
        try:
            records += convert(Unit("", [row]))
        except FLAWS:
            continue
        numbers |= dict.fromkeys(name for name, value in row.items() if isinstance(value, int | float))
    return pyarrow.Table.from_pylist(records, schema=schema(pyarrow, list(numbers)))


FORMAT = Format(
    name="parquet",
    about="one rollout a row of a Parquet file: ids, rewards, numbers, texts, the conversation as JSON",
    fields={
        "source": "the rollouts file it is from; its path if several have one name",
        "key, task, repeat, task_index, agent, model, status": "which rollout it is and how it ended",
        "outcome": "`finished`, or the limit that stopped it: `steps`, `tokens`, `time`, `truncated`, `content_filter`",
        "stop": "why it was stopped early: `max_steps`, `max_output_tokens`, `content_filter`; null if it was not",
        "reward": "null while verification is deferred",
        "input_tokens, output_tokens, total_tokens, tool_calls, turns, retries": "counts",
        "total_s, model_s, tools_s, verify_s, queue_s, finished_at": "seconds",
        "system, prompt, answer, expected_answer": "texts: the last system and user message, the final answer",
        "messages, tools": "JSON text: the whole conversation as chat messages, the tools on offer",
        "fields": "JSON text: every other field of the rollout",
    },
    start=start,
    content=only("messages", "tools"),
    settings=("arguments", "reasoning"),
    episodes=True,
    schema=schema,
)
