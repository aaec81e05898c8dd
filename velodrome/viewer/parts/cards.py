"""The cards beside a conversation: score, task, tokens, times and the model's settings."""

from __future__ import annotations

from math import isfinite
from typing import Any

from markupsafe import Markup

from velodrome.timing.figures import duration
from velodrome.viewer.parts.dialogue import other_players, pretty
from velodrome.viewer.parts.render import count, number
from velodrome.viewer.parts.safe_text import Folded, folded, plain_line, visible
from velodrome.viewer.parts.strip import expected_name, scored_names

Json = dict[str, Any]

_OWN = frozenset({"responses_create_params", "output", "response", "usage", "meta", "partial"})
_TIMES = ("total_s", "model_s", "tools_s", "verify_s", "queue_s", "connection_s", "backoff_s", "session_s")
_FAILURE = frozenset(
    ("key", "task_index", "rollout_index", "agent", "schema", "finished_at", "timing", "boundary", "error", "attempt")
)
_MOST_FIELDS = 60


def cards(row: Json, meta: Json, *, failed: bool, elsewhere: set[str]) -> list[Json]:
    """The cards; `elsewhere` are the fields that the page shows in another place."""
    elsewhere = elsewhere | ({"players"} if other_players(row) else set())
    scored = [name for name in scored_names(row, meta) if name not in elsewhere]
    hidden = {*_OWN, *(_FAILURE if failed else ()), *scored, *elsewhere, "reward", expected_name(row)}
    score = [] if failed else [(name, _value(row.get(name))) for name in dict.fromkeys(("reward", *scored))]
    task = [(name, _value(value)) for name, value in row.items() if name not in hidden]
    task += [(f"{name} (of the task)", _value(value)) for name, value in _object(meta.get("shadowed")).items()]
    tokens = [(name.removesuffix("_tokens"), _value(value)) for name, value in _object(row.get("usage")).items()]
    listed: list[tuple[str, list[tuple[str, Any]]]] = [
        ("Score", score),
        ("Task", task),
        ("Tokens", tokens),
        ("Time", _times(_object(meta.get("timing")))),
        ("Model", _model_card(row)),
    ]
    return [
        {"title": title, "rows": [(*row, isinstance(row[1], Folded)) for row in rows[:_MOST_FIELDS]]}
        for title, rows in listed
        if rows
    ]


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _model_card(row: Json) -> list[tuple[str, Any]]:
    """The model and its settings."""
    params, response = _object(row.get("responses_create_params")), _object(row.get("response"))
    rows: list[tuple[str, Any]] = [(name, _value(response[name])) for name in ("model", "status") if name in response]
    shown_elsewhere = ("input", "tools", "instructions")
    rows += [(name, _value(value)) for name, value in params.items() if name not in shown_elsewhere]
    tools = params.get("tools")
    if isinstance(tools, list) and tools:
        names = ", ".join(str(_object(tool).get("name", "?")) for tool in tools[:50])
        rows.append((f"tools ({len(tools)})", plain_line(names, 300)))
    return rows


def _value(value: Any) -> Markup | Folded:
    """A short value unchanged, a long one folded."""
    if isinstance(value, bool) or value is None:
        return Markup(str(value).lower() if value is not None else "null")
    if isinstance(value, int | float):
        return Markup.escape(number(value) if isfinite(value) else str(value))
    text = value if isinstance(value, str) else pretty(value)
    if len(text) <= 60 and "\n" not in text:
        return visible(text)
    return folded(text, over=1200, head=800, tail=200)


def _times(timing: Json) -> list[tuple[str, Markup]]:
    rows = []
    for name in _TIMES:
        value = timing.get(name)
        if isinstance(value, int | float) and isfinite(value) and (value or name == "total_s"):
            rows.append((name.removesuffix("_s"), Markup.escape(duration(value * 1000))))
    for name in ("model_calls", "retries"):
        if isinstance(timing.get(name), int):
            rows.append((name.replace("_", " "), Markup.escape(count(timing[name]))))
    return rows
