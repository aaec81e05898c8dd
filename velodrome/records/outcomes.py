"""How a rollout ended: `finished`, or what stopped it. One table for writers and readers.

A response that is not complete was stopped, whatever its reason: no limit looks like a clean finish. Rows from before
`meta.outcome` say it in `response`.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

FINISHED = "finished"
OTHER = "incomplete"  # stopped by a word that is not known here
_REASONS = {
    "max_steps": "steps",
    "max_turns": "steps",
    "max_output_tokens": "tokens",
    "max_tokens": "tokens",
    "length": "tokens",
    "max_rollout_tokens": "tokens",
    "max_rollout_s": "time",
    "truncated": "truncated",
    "content_filter": "content_filter",
}
OUTCOMES = (FINISHED, *dict.fromkeys(_REASONS.values()), OTHER)
# Reasons of an agent or an environment, which stop between two turns: the last text is whole.
BETWEEN_TURNS = frozenset(("max_steps", "max_turns", "max_rollout_tokens", "max_rollout_s", "truncated"))


def stop_reason(response: Json, params: Json) -> str:
    """Why an incomplete response ended: OpenAI's reason, else `metadata.stop`, unless that is the request's own."""
    reason = _member(response.get("incomplete_details"), "reason")
    if type(reason) is not str:
        reason = _member(response.get("metadata"), "stop")
        if reason == _member(params.get("metadata"), "stop"):
            return ""
    return reason if type(reason) is str else ""


def outcome_of(response: Json, params: Json) -> str:
    """How the rollout of this response ended. A response without a status is taken for a whole one, unless it says why
    it is not: some servers give the reason and leave the status."""
    status = response.get("status") or "completed"
    if status == "completed" and type(_member(response.get("incomplete_details"), "reason")) is str:
        status = "incomplete"
    if status == "completed":
        return FINISHED
    return _REASONS.get(stop_reason(response, params), OTHER) if status == "incomplete" else OTHER


def _member(part: Any, name: str) -> Any:
    return part.get(name) if type(part) is dict else None
