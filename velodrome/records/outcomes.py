"""How a rollout ended: `finished`, or the reason it stopped. Writers and readers share this table.

A response that is not complete was stopped, even if its reason is unknown. Rows without `meta.outcome` have the reason
in `response`.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

FINISHED = "finished"
OTHER = "incomplete"  # stopped for an unknown reason
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
# Agents and environments stop for these reasons between two turns, so the last text is whole.
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
    """How the rollout of this response ended. Without a status, the response is complete unless it has a reason: some
    servers send only the reason."""
    status = response.get("status") or "completed"
    if status == "completed" and type(_member(response.get("incomplete_details"), "reason")) is str:
        status = "incomplete"
    if status == "completed":
        return FINISHED
    return _REASONS.get(stop_reason(response, params), OTHER) if status == "incomplete" else OTHER


def _member(part: Any, name: str) -> Any:
    return part.get(name) if type(part) is dict else None
