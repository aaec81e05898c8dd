"""The strip above a conversation: the question, the expected answer, the end of the answer, and its scores.

For a failure, the reason comes first, in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

from markupsafe import Markup

from velodrome.records.task import ANSWER_KEYS
from velodrome.viewer.content.markdown_text import rich_text
from velodrome.viewer.parts.dialogue import ShownMessage, final_answer, pretty
from velodrome.viewer.parts.render import number
from velodrome.viewer.parts.safe_text import MOST_SHOWN, Folded, folded, plain_line, visible

Json = dict[str, Any]

_ASKED, _ANSWERED = 320, 420  # characters
_MOST_PARTS = 8


def strip(row: Json, messages: Sequence[ShownMessage], *, failed: bool) -> Json:
    """The values of the template."""
    question_place = _asked(messages)
    question = "" if question_place is None else messages[question_place].aloud.strip()
    answer = "" if failed else final_answer(row).strip()
    return {
        "failure": _failure(row) if failed else None,
        "asked": _beginning(question) if question else None,
        "asked_at": None if question_place is None else question_place + 1,
        "expected": expected_answer(row),
        "answer": _end(answer) if answer else None,
        "answer_at": _last_answer(messages) if answer else None,
        "parts": [] if failed else _parts(row),
    }


def expected_answer(row: Json) -> Folded | None:
    """The expected answer, under one of its usual names."""
    value = row.get(expected_name(row) or "")
    if value is None:
        return None
    return folded(value if isinstance(value, str) else pretty(value), over=1500, head=700, tail=500)


def expected_name(row: Json) -> str | None:
    """The name of the field with the expected answer."""
    return next((name for name in ANSWER_KEYS if row.get(name) is not None), None)


def scored_names(row: Json, meta: Json) -> list[str]:
    """The fields from the verifier."""
    names = meta.get("scored")
    return [name for name in (names if isinstance(names, list) else ()) if isinstance(name, str) and name in row]


def _asked(messages: Sequence[ShownMessage]) -> int | None:
    """The place of the last user message in the prompt, or else of the first one from the environment."""
    users = [place for place, each in enumerate(messages) if each.role == "user"]
    prompt = [place for place in users if messages[place].in_prompt]
    return prompt[-1] if prompt else next(iter(users), None)


def _last_answer(messages: Sequence[ShownMessage]) -> int | None:
    places = range(len(messages), 0, -1)
    return next(
        (at for at in places if messages[at - 1].role in ("assistant", "refusal") and not messages[at - 1].calls), None
    )


def _beginning(text: str) -> Markup:
    return _drawn(text if len(text) <= _ASKED else f"{text[:_ASKED]}…")


def _end(text: str) -> Markup:
    """The end of an answer, from the beginning of a line or a word."""
    if len(text) <= _ANSWERED:
        return _drawn(text)
    end = text[-_ANSWERED:]
    starts = [place + 1 for mark in ("\n", " ") if 0 <= (place := end.find(mark)) < _ANSWERED // 2]
    return _drawn(f"…{end[starts[0] if starts else 0 :]}")


def _drawn(text: str) -> Markup:
    drawn = rich_text(text)
    if drawn is not None:
        return Markup('<div class="drawn" dir="auto">{}</div>').format(drawn)
    return Markup('<div class="text" dir="auto">{}</div>').format(visible(text))


def _parts(row: Json) -> list[tuple[Markup, Markup]]:
    """The parts of the score: the numbers and short texts from the verifier beside the reward."""
    meta = row.get("meta")
    parts: list[tuple[Markup, Markup]] = []
    for name in scored_names(row, meta if isinstance(meta, dict) else {}):
        value = row[name]
        if isinstance(value, bool):
            parts.append((plain_line(name, 40), Markup("yes" if value else "no")))
        elif isinstance(value, int | float) and isfinite(value):
            parts.append((plain_line(name, 40), Markup.escape(number(value))))
        elif isinstance(value, str):
            parts.append((plain_line(name, 40), plain_line(value, 60)))
    return [part for part in parts if part[0] != "reward"][:_MOST_PARTS]


def _failure(row: Json) -> Json:
    attempt = row.get("attempt")
    text = str(row.get("error") or "no message")
    return {
        "boundary": str(row.get("boundary", "?")),
        "note": f"attempt {attempt}" if isinstance(attempt, int) else "",
        "text": folded(text, over=MOST_SHOWN),
    }
