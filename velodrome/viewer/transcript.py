"""A rollout as text: the conversation, the tool results and the score.

Model output is untrusted: characters that move the cursor, change colours, reverse or hide text are escaped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from velodrome.records.bounds import is_count
from velodrome.records.facts import RowFacts, is_episode
from velodrome.records.mending import mended
from velodrome.records.outcomes import BETWEEN_TURNS
from velodrome.timing.figures import counted
from velodrome.timing.invisible import one_line, plain
from velodrome.viewer.parts.dialogue import ShownMessage, conversation, pretty
from velodrome.viewer.parts.episode import how_it_ended, is_reward

Json = dict[str, Any]

_MOST_RETURNS = 16  # of an episode


def transcript(row: Json) -> str:
    """The whole rollout as text."""
    lines = [f"─── {_title(row)}"]
    for title, text in _blocks(row):
        lines += [f"[{one_line(title)}]"] if title else []
        lines += [f"  {line}" for line in (plain(text) if title else one_line(text)).splitlines()]
    return "\n".join(lines)


def _blocks(row: Json) -> Iterator[tuple[str, str]]:
    """The title and the text of each part, in order. A remark has no title. The texts are not escaped yet."""
    facts = _facts(row)
    talk = conversation(row)
    for message in talk:
        yield from _message(message) if message.in_prompt else ()
    if facts.offered:
        yield "", f"(tools: {', '.join(sorted(facts.offered))})"
    for message in talk:
        yield from () if message.in_prompt else _message(message)
    if is_episode(row):
        yield "episode", "\n".join(_episode(row))
    if facts.status == "incomplete":
        what = "stopped" if facts.stopped_by in BETWEEN_TURNS else "cut off"
        yield "", f"({what}: {facts.stopped_by or 'no reason given'})"
    if facts.failed:
        attempt = f", attempt {row['attempt']}" if "attempt" in row else ""
        yield f"failed · {row['boundary']}{attempt}", str(row.get("error", ""))
    else:
        yield "score", "\n".join(_score(facts))


def _facts(row: Json) -> RowFacts:
    failed = "boundary" in row
    return RowFacts(mended(row, failed=failed)[0], failed=failed)


def _title(row: Json) -> str:
    """The rollout on one line: its key, agent, time and tokens."""
    facts = _facts(row)
    parts = [one_line(str(facts.meta.get("key", "a rollout")))]
    if facts.agent:
        parts.append(one_line(facts.agent))
    if facts.total_s is not None:
        parts.append(f"{facts.total_s:.2f} s ({facts.seconds('model_s') or 0:.2f} s model)")
    if facts.total_tokens:
        parts.append(f"{facts.total_tokens} token{'s' if facts.total_tokens != 1 else ''}")
    return " · ".join(parts)


def _message(message: ShownMessage) -> Iterator[tuple[str, str]]:
    if message.aloud:
        speaker = "tool result" if message.role == "tool" else message.role
        yield f"{speaker} · {message.name}" if message.name else speaker, message.aloud
    for call in message.calls:
        yield f"tool call · {call.name}", call.raw
        if call.aloud is not None:
            yield f"tool result · {call.name}", call.aloud


def _episode(row: Json) -> list[str]:
    """An episode in a few lines. `episode` is untrusted: malformed parts are left out."""
    raw = row["episode"]
    sizes = ((raw.get("agents"), "agent"), (row.get("length"), "step"))
    parts = [*(counted(each, noun) for each, noun in sizes if is_count(each)), *filter(None, [how_it_ended(raw)])]
    lines = [", ".join(parts) or "its agents and steps are not known"]
    returns = raw.get("returns")
    if isinstance(returns, list) and (values := [f"{each:.6g}" for each in returns[:_MOST_RETURNS] if is_reward(each)]):
        lines.append(f"returns: {', '.join(values)}{', …' if len(returns) > _MOST_RETURNS else ''}")
    return [*lines, "velo view plays it"]


def _score(facts: RowFacts) -> Iterator[str]:
    if facts.deferred:
        yield "reward: deferred (velo verify gives it)"
    scored = facts.meta.get("scored")
    names = ("reward", "expected_answer", *(scored if isinstance(scored, list) else ()))
    for name in dict.fromkeys(names):
        value = facts.row.get(name)
        if value is not None:
            yield f"{name}: {_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))  # writes NaN and infinity too
    except (TypeError, ValueError, RecursionError):
        return pretty(value)
