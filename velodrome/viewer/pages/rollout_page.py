"""The page of one rollout: its conversation, reward, cost, and the line itself.

The row may hold anything. Every text is bounded; one that was cut is sent in full on request.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

from markupsafe import Markup

from velodrome.errors import InputError
from velodrome.index import Entry, Index, Query, Sort
from velodrome.records.facts import RowFacts
from velodrome.records.outcomes import BETWEEN_TURNS
from velodrome.timing.report import duration
from velodrome.viewer.pages.links import Address, Links
from velodrome.viewer.pages.rollouts_page import parsed
from velodrome.viewer.parts import waterfall
from velodrome.viewer.parts.dialogue import Call, ShownMessage, conversation, final_answer, pretty
from velodrome.viewer.parts.episode import Episode, read_episode
from velodrome.viewer.parts.episode_part import episode_part
from velodrome.viewer.parts.render import count, many, moment, number, size
from velodrome.viewer.parts.safe_text import MOST_SHOWN, Folded, folded, plain_line, visible
from velodrome.viewer.viewed_file import ViewedFile

Json = dict[str, Any]

_OWN = frozenset({"responses_create_params", "output", "response", "usage", "meta", "partial"})
_EXPECTED = ("expected_answer", "ground_truth", "reference_answer", "target", "answer")
_TIMES = ("total_s", "model_s", "tools_s", "verify_s", "queue_s", "connection_s", "backoff_s", "session_s")
_FAILURE = frozenset(
    ("key", "task_index", "rollout_index", "agent", "schema", "finished_at", "timing", "boundary", "error", "attempt")
)
_MOST_FIELDS = 60
_MOST_ATTEMPTS = 100  # at a task, searched for its prompt
_RAW_HEAD, _RAW_TAIL = 60_000, 2_000
_COLLAPSED_OVER = {"reasoning": 600, "other": 200}  # characters
_LABELS = {"other": "Something else", "reasoning": "Reasoning", "tool": "Tool result"}


def rollout_page(source: ViewedFile, links: Links, address: Address) -> Json:
    """What the template needs. A rollout that is not there is an `InputError`."""
    index, number_, show = source.index(), address.number, address.show
    entry, row = index.entry(number_), index.row(number_)
    query, sort, _ = parsed(index, address)
    before, after = _neighbours(index, query, sort, number_)
    here = {"q": address.q, "sort": str(sort)}
    meta = row if entry.state == "failed" else _object(row.get("meta"))
    timing = _object(meta.get("timing"))
    raw = pretty(row)
    messages = conversation(row)
    episode = read_episode(row)
    family = index.repeats(entry.task, limit=_MOST_ATTEMPTS)
    if entry.state == "failed" and not any(each.in_prompt for each in messages):
        messages = [*_prompt_of_another(index, family.entries if family else ()), *messages]
    return {
        "entry": entry,
        "q": address.q,
        "up": links.rollouts(**here) or links.run(),
        "previous": None if before is None else links.rollout(before, **here),
        "next": None if after is None else links.rollout(after, **here),
        "task_href": links.task(entry.task),
        "repeats": family.task.n + family.task.failed if family else 1,
        "about": _about(entry),
        "cut_off": _cut_off(row),
        "answer": None if entry.state == "failed" else folded(final_answer(row).strip(), over=1500, head=700, tail=500),
        "expected": expected_answer(row),
        "talk": [_shown(f"m{place}", each, links, number_, here, show) for place, each in enumerate(messages)],
        "failure": _failure(row, entry),
        "episode": episode_part(episode),
        "cards": _cards(row, meta, entry, {"episode"} if isinstance(episode, Episode) else set()),
        "waterfall": waterfall.draw(
            timing.get("tree"), timing.get("total_s"), label=f"Waterfall of rollout {entry.key}"
        ),
        "raw": folded(raw, over=_RAW_HEAD + _RAW_TAIL, head=_RAW_HEAD, tail=_RAW_TAIL),
        "raw_size": size(len(raw.encode("utf-8", "replace"))),
        "raw_open": show == "raw",
    }


def _neighbours(index: Index, query: Query, sort: Sort, number_: int) -> tuple[int | None, int | None]:
    try:
        return index.neighbours(query, sort, number_)
    except InputError:
        return index.neighbours(Query(), Sort(), number_)


def _prompt_of_another(index: Index, family: Sequence[Entry]) -> list[ShownMessage]:
    """The prompt, which the line of a failed attempt does not have, from a rollout of the same task."""
    for entry in family:
        if entry.state != "failed":
            try:
                return [each for each in conversation(index.row(entry.number)) if each.in_prompt]
            except InputError:  # the file is being changed
                return []
    return []


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _about(entry: Entry) -> list[Markup]:
    about = [f"line {entry.line:,}"]
    if entry.agent:
        about.append(plain_line(entry.agent, 60))
    numbers = entry.numbers
    if "tokens" in numbers:
        about.append(many(numbers["tokens"], "token"))
    for name, value in (("turn", numbers.get("turns")), ("tool call", numbers.get("tools"))):
        if value:
            about.append(many(value, name))
    if "total_s" in numbers:
        about.append(duration(numbers["total_s"] * 1000))
    if "finished_at" in numbers:
        about.append(moment(numbers["finished_at"]))
    return [Markup.escape(each) for each in about]


def _cut_off(row: Json) -> str:
    facts = RowFacts(row)
    if facts.status != "incomplete":
        return ""
    what = "Stopped" if facts.stopped_by in BETWEEN_TURNS else "Cut off"
    return f"{what} before its end: {facts.stopped_by or 'no reason given'}"


def expected_answer(row: Json) -> Folded | None:
    """The expected answer, under one of its usual names."""
    value = row.get(_expected_name(row) or "")
    if value is None:
        return None
    return folded(value if isinstance(value, str) else pretty(value), over=1500, head=700, tail=500)


def _expected_name(row: Json) -> str | None:
    return next((name for name in _EXPECTED if row.get(name) is not None), None)


def _shown(name: str, message: ShownMessage, links: Links, number_: int, here: dict[str, str], show: str) -> Json:
    """One message for the template; `show` names the text to show in full. A static copy has all of them in full."""

    def body(part: str, text: str) -> tuple[Folded, str | None]:
        shown = folded(text, whole=show == part or links.static)
        return shown, links.rollout(number_, **here, show=part) if shown.hidden and show != part else None

    def call(place: int, each: Call) -> Json:
        arguments = [(arg.name, *body(f"{name}.a{place}.{at}", arg.text)) for at, arg in enumerate(each.arguments)]
        result, href = (None, None) if each.result is None else body(f"{name}.r{place}", each.result)
        return {"name": each.name, "parsed": each.parsed, "arguments": arguments, "result": result, "href": href}

    text, href = body(name, message.text) if message.text or not message.calls else (None, None)
    label = _LABELS.get(message.role, message.role.capitalize())
    if message.calls:
        label = "Tool call" if len(message.calls) == 1 else f"{len(message.calls)} tool calls, side by side"
    return {
        "id": name,
        "role": message.role,
        "label": label,
        "note": Markup(" · ").join(filter(None, (plain_line(message.name, 60), message.tokens))),
        "text": text,
        "href": href,
        "code": message.role in ("tool", "other"),
        "collapsed": len(message.text) > _COLLAPSED_OVER.get(message.role, MOST_SHOWN) and show != name,
        "calls": [call(place, each) for place, each in enumerate(message.calls)],
    }


def _failure(row: Json, entry: Entry) -> Json | None:
    if entry.state != "failed":
        return None
    attempt = row.get("attempt")
    return {
        "boundary": str(row.get("boundary", "?")),
        "note": f"attempt {attempt}" if isinstance(attempt, int) else "",
        "text": folded(str(row.get("error") or "no message")),
    }


def _cards(row: Json, meta: Json, entry: Entry, elsewhere: set[str]) -> list[Json]:
    """The cards beside the conversation; `elsewhere` are fields the page shows in another place."""
    failed = entry.state == "failed"
    names = meta.get("scored")
    scored = [name for name in (names if isinstance(names, list) else ()) if isinstance(name, str) and name in row]
    gone = {*_OWN, *(_FAILURE if failed else ()), *scored, *elsewhere, "reward", _expected_name(row)}
    score = [] if failed else [(name, _value(row.get(name))) for name in dict.fromkeys(("reward", *scored))]
    task = [(name, _value(value)) for name, value in row.items() if name not in gone]
    task += [(f"{name} (of the task)", _value(value)) for name, value in _object(meta.get("shadowed")).items()]
    tokens = [(name.removesuffix("_tokens"), _value(value)) for name, value in _object(row.get("usage")).items()]
    cards: list[tuple[str, list[tuple[str, Any]]]] = [
        ("Score", score),
        ("Task", task),
        ("Tokens", tokens),
        ("Time", _times(_object(meta.get("timing")))),
        ("Model", _model_card(row)),
    ]
    return [
        {"title": title, "rows": rows[:_MOST_FIELDS], "stack": any(isinstance(value, Folded) for _, value in rows)}
        for title, rows in cards
        if rows
    ]


def _model_card(row: Json) -> list[tuple[str, Any]]:
    """The model and its settings."""
    params, response = _object(row.get("responses_create_params")), _object(row.get("response"))
    rows: list[tuple[str, Any]] = [(name, _value(response[name])) for name in ("model", "status") if name in response]
    known = ("input", "tools", "instructions")
    rows += [(name, _value(value)) for name, value in params.items() if name not in known]
    tools = params.get("tools")
    if isinstance(tools, list) and tools:
        names = ", ".join(str(_object(tool).get("name", "?")) for tool in tools[:50])
        rows.append((f"tools ({len(tools)})", plain_line(names, 300)))
    return rows


def _value(value: Any) -> Markup | Folded:
    """A short value as it is, a long one folded."""
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
