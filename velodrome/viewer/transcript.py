"""A rollout as text: the conversation, the tool results and the score.

Model output is untrusted: characters that move the cursor, change colours, reverse or hide text are escaped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from velodrome.records.facts import RowFacts, is_episode
from velodrome.records.mending import mended
from velodrome.records.outcomes import BETWEEN_TURNS
from velodrome.timing.invisible import escaped
from velodrome.viewer.episode_text import episode_lines
from velodrome.viewer.parts.dialogue import ShownMessage, conversation, pretty

Json = dict[str, Any]

_LONGEST = 4000


def plain(text: str, longest: int = _LONGEST) -> str:
    """Text that is safe in a terminal, and bounded."""
    safe = escaped(text.replace("\r\n", "\n"))
    if len(safe) > longest:
        safe = f"{safe[:longest]}… ({len(safe) - longest} more characters)"
    return safe


def one_line(text: str) -> str:
    """The same on one line, so that it cannot imitate another block."""
    return plain(" ".join(text.split()))


@dataclass(frozen=True, slots=True)
class TranscriptBlock:
    """A part of a transcript; without a title, a remark. `kind` is a role of `dialogue.ROLES`, or "call", "note", …"""

    kind: str
    title: str
    text: str


def transcript(row: Json) -> str:
    """The whole rollout as text, whatever is in it."""
    lines = [f"─── {title(row)}"]
    for block in blocks(row):
        lines += [f"[{one_line(block.title)}]"] if block.title else []
        lines += [f"  {line}" for line in shown(block).splitlines()]
    return "\n".join(lines)


def shown(block: TranscriptBlock, longest: int = _LONGEST) -> str:
    """The text of a block, safe and bounded. Pictures of an episode are both already; a remark is one line."""
    if block.kind == "episode":
        return block.text
    return one_line(block.text) if block.kind == "note" else plain(block.text, longest)


def blocks(row: Json) -> Iterator[TranscriptBlock]:
    """The parts of a transcript, in order. Their texts are as they stand in the row: not escaped."""
    facts = _facts(row)
    talk = conversation(row)
    for message in talk:
        yield from _message(message) if message.in_prompt else ()
    if facts.offered:
        yield TranscriptBlock("note", "", f"(tools: {', '.join(sorted(facts.offered))})")
    for message in talk:
        yield from () if message.in_prompt else _message(message)
    if is_episode(row):
        yield TranscriptBlock("episode", "episode", "\n".join(episode_lines(row)))
    if facts.status == "incomplete":
        what = "stopped" if facts.stopped_by in BETWEEN_TURNS else "cut off"
        yield TranscriptBlock("note", "", f"({what}: {facts.stopped_by or 'no reason given'})")
    if facts.failed:
        attempt = f", attempt {row['attempt']}" if "attempt" in row else ""
        yield TranscriptBlock("failed", f"failed · {row['boundary']}{attempt}", str(row.get("error", "")))
    else:
        yield TranscriptBlock("score", "score", "\n".join(_score(facts)))


def _facts(row: Json) -> RowFacts:
    failed = "boundary" in row
    return RowFacts(mended(row, failed=failed)[0], failed=failed)


def title(row: Json) -> str:
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


def _message(message: ShownMessage) -> Iterator[TranscriptBlock]:
    if message.aloud:
        speaker = "tool result" if message.role == "tool" else message.role
        yield TranscriptBlock(message.role, f"{speaker} · {message.name}" if message.name else speaker, message.aloud)
    for call in message.calls:
        yield TranscriptBlock("call", f"tool call · {call.name}", call.raw)
        if call.aloud is not None:
            yield TranscriptBlock("tool", f"tool result · {call.name}", call.aloud)


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
