"""A rollout as text: the conversation, the tool results and the score.

Model output is untrusted: characters that move the cursor, change colours, reverse or hide text are escaped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from velodrome.records.facts import RowFacts, is_episode
from velodrome.records.mending import mended
from velodrome.records.outcomes import BETWEEN_TURNS
from velodrome.timing.invisible import escaped
from velodrome.viewer.episode_text import episode_lines
from velodrome.viewer.parts.dialogue import ShownMessage, conversation, pretty

Json = dict[str, Any]

_LONGEST = 4000


def plain(text: str) -> str:
    """Text that is safe in a terminal, and bounded."""
    shown = escaped(text.replace("\r\n", "\n"))
    if len(shown) > _LONGEST:
        shown = f"{shown[:_LONGEST]}… ({len(shown) - _LONGEST} more characters)"
    return shown


def one_line(text: str) -> str:
    """The same on one line, so that it cannot imitate another block."""
    return plain(" ".join(text.split()))


def transcript(row: Json) -> str:
    """The whole rollout as text, whatever is in it."""
    failed = "boundary" in row
    facts = RowFacts(mended(row, failed=failed)[0], failed=failed)
    talk = conversation(row)
    lines = [_title(facts)]
    for message in talk:
        lines += _message(message) if message.in_prompt else ()
    if facts.offered:
        lines.append(f"  (tools: {one_line(', '.join(sorted(facts.offered)))})")
    for message in talk:
        lines += () if message.in_prompt else _message(message)
    if is_episode(row):
        lines += ["[episode]", *(f"  {line}" for line in episode_lines(row))]
    if facts.status == "incomplete":
        what = "stopped" if facts.stopped_by in BETWEEN_TURNS else "cut off"
        lines.append(f"  ({what}: {one_line(facts.stopped_by or 'no reason given')})")
    if failed:
        attempt = f", attempt {row['attempt']}" if "attempt" in row else ""
        lines += _block(f"failed · {row['boundary']}{attempt}", str(row.get("error", "")))
    else:
        lines += _block("score", "\n".join(_score(facts)))
    return "\n".join(lines)


def _title(facts: RowFacts) -> str:
    parts = [one_line(str(facts.meta.get("key", "a rollout")))]
    if facts.agent:
        parts.append(one_line(facts.agent))
    if facts.total_s is not None:
        parts.append(f"{facts.total_s:.2f} s ({facts.seconds('model_s') or 0:.2f} s model)")
    if facts.total_tokens:
        parts.append(f"{facts.total_tokens} token{'s' if facts.total_tokens != 1 else ''}")
    return "─── " + " · ".join(parts)


def _message(message: ShownMessage) -> Iterator[str]:
    if message.text:
        title = "tool result" if message.role == "tool" else message.role
        yield from _block(f"{title} · {message.name}" if message.name else title, message.text)
    for call in message.calls:
        yield from _block(f"tool call · {call.name}", call.raw)
        if call.result is not None:
            yield from _block(f"tool result · {call.name}", call.result)


def _score(facts: RowFacts) -> Iterator[str]:
    if facts.deferred:
        yield "reward: deferred (velo verify gives it)"
    for name in dict.fromkeys(("reward", "expected_answer", *facts.meta.get("scored", ()))):
        value = facts.row.get(name)
        if value is not None:
            yield f"{name}: {_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))  # which has words for NaN and infinity
    except (TypeError, ValueError, RecursionError):
        return pretty(value)


def _block(title: str, text: str) -> list[str]:
    return [f"[{one_line(title)}]", *(f"  {line}" for line in plain(text).splitlines())]
