"""The numbers of one rollout that can be averaged and compared, each under the name it has everywhere.

Every number at the top level of the row is one, under its own name. So are those that the conversation, the usage and
the timing hold, unless the row has a number of that name itself. What is no finite number is none.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

from velodrome.records.bounds import is_count
from velodrome.records.conversation import text_of

Json = dict[str, Any]

NAMES = frozenset({"id", "task_id"})  # a number here is a name, not a measure
USAGE = {"total_tokens": "tokens", "input_tokens": "input_tokens", "output_tokens": "output_tokens"}
TIMING = ("total_s", "model_s", "tools_s", "verify_s", "queue_s", "retries")
_KINDS = frozenset({float, int, bool})


def numbers_of(row: Json) -> dict[str, float]:
    """Every number of a row, as a `Tally` gives it back."""
    found: dict[str, float] = {}
    for name, value in row.items():
        if type(value) in _KINDS and name not in NAMES and isfinite(value):
            found[name] = float(value) + 0.0  # -0.0 is 0.0
    tools = turns = 0
    for message in row.get("output") or ():
        tools += len(message.get("tool_calls") or ())
        turns += message.get("role") == "assistant"
    found.setdefault("tools", float(tools))
    found.setdefault("turns", float(turns))
    found.setdefault("length", float(len(final_text(row))))
    usage = row.get("usage")
    if isinstance(usage, dict):
        for theirs, ours in USAGE.items():
            tokens = usage.get(theirs)
            if is_count(tokens):
                found.setdefault(ours, float(tokens))
    meta = row.get("meta") or {}
    timing = meta.get("timing")
    later = meta.get("verification") == "deferred" or (isinstance(timing, dict) and "verify_later_s" in timing)
    if later and isinstance(timing, dict) and not timing.get("verify_s"):
        timing = {**timing, "verify_s": None}  # verification was no part of this rollout: that is not zero seconds
    if isinstance(timing, dict):
        for name in TIMING:
            length: Any = timing.get(name)
            if type(length) in _KINDS and isfinite(length):
                found.setdefault(name, float(length) + 0.0)
    return found


def final_text(row: Json) -> str:
    """The answer: `response.content`, or of a row without one the last thing the assistant said."""
    text = (row.get("response") or {}).get("content")
    if isinstance(text, str):
        return text
    for message in reversed(row.get("output") or ()):
        if message.get("role") == "assistant":
            return text_of(message.get("content"))
    return ""
