"""Token ids and log-probabilities: those requested, and those in an answer, in any server's format.

A field that was requested but is missing in the answer is `null` in the row.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from velodrome.records.conversation import TOKEN_FIELDS

Json = dict[str, Any]

log = logging.getLogger(__name__)

LOGPROBS = "message.output_text.logprobs"
PROMPT, IDS, LOG_PROBS = TOKEN_FIELDS
ID_FIELDS = ("return_token_ids", "enable_response_messages")  # vLLM's chat, which SGLang follows; vLLM's Responses
_REQUEST_FIELDS = frozenset((*ID_FIELDS, "logprobs", "top_logprobs", "include"))
_UNREQUESTED = frozenset(
    (PROMPT, "input_messages", "output_messages")
)  # in a Response although they were not requested

_PLACES = frozenset((*TOKEN_FIELDS, "token_ids", "provider_specific_fields", "input_messages", "output_messages"))


def requested(request: Json, over: Json) -> tuple[str, ...]:
    """The token fields that a request asks for; fields of `over` override its own."""
    if _REQUEST_FIELDS.isdisjoint(request) and _REQUEST_FIELDS.isdisjoint(over):
        return ()
    values = {name: over.get(name, request.get(name)) for name in _REQUEST_FIELDS}
    names = (PROMPT, IDS) if any(values[name] for name in ID_FIELDS) else ()
    probs = values["logprobs"] or values["top_logprobs"] is not None or LOGPROBS in (values["include"] or ())
    return (*names, LOG_PROBS) if probs else names


def add_request_fields(body: Json, names: Sequence[str], *, chat: bool) -> None:
    """Add the fields that request token fields from this endpoint."""
    if IDS in names:
        body["return_token_ids"] = True
        if not chat:
            body["enable_response_messages"] = True
    if LOG_PROBS not in names:
        return
    if chat:
        body["logprobs"] = True
    else:
        body.pop("logprobs", None)  # a field of chat only
        include = body.get("include") or []
        body["include"] = include if LOGPROBS in include else [*include, LOGPROBS]


def has_tokens(response: Json) -> bool:
    """Whether a Response has token ids, requested or not."""
    return not _UNREQUESTED.isdisjoint(response)


def token_fields(answer: Json) -> Json:
    """The token ids and log-probabilities of a chat completion or a Response, under the names of a rollout.

    They are in or next to the first choice (vLLM, SGLang), in its `provider_specific_fields` (litellm), in its
    message (Velodrome), with the log-probabilities (llama.cpp), or in the raw messages of a Response (vLLM).
    """
    choice: Json = (answer.get("choices") or ({},))[0]
    message, hidden = choice.get("message") or {}, choice.get("provider_specific_fields") or {}
    if choice and not choice.get("logprobs") and all(map(_PLACES.isdisjoint, (answer, choice, message))):
        return {}
    probs = _log_probs(answer, choice)
    usage = answer.get("usage") or {}
    generated = usage.get("completion_tokens") or usage.get("output_tokens") or len(probs)
    prompt = (
        answer.get(PROMPT)
        or choice.get(PROMPT)
        or hidden.get(PROMPT)
        or message.get(PROMPT)
        or _raw_tokens(answer, "input_messages")
    )
    ids = (
        choice.get("token_ids")
        or hidden.get("token_ids")
        or message.get(IDS)
        or _raw_tokens(answer, "output_messages")
        or (_ids_in(probs) if len(probs) == generated else None)
    )
    log_probs = [entry["logprob"] for entry in probs] if probs else message.get(LOG_PROBS)
    if not prompt and not ids and not log_probs:
        return {}
    if (ids and len(log_probs or ids) != len(ids)) or (not ids and len(probs) != generated):
        log_probs = None  # they cover only some tokens, and it is unknown which
    if not ids and (message.get("content") or not message):
        log_probs = None  # they are on the text part
    fields = {PROMPT: prompt, IDS: ids, LOG_PROBS: log_probs}
    return {name: value for name, value in fields.items() if value}


def mark_missing(output: list[Json], names: Sequence[str]) -> list[str]:
    """The fields that no item of an answer has; sets them to `null` on the last item."""
    if not names:
        return []
    missing = [name for name in names if not any(item.get(name) for item in output)]
    if LOG_PROBS in missing and IDS not in names and any(_part_log_probs(item) for item in output):
        missing.remove(LOG_PROBS)  # without ids they are on the text part
    if output:
        output[-1].update(dict.fromkeys(missing))
    return missing


class MissingTokens:
    """Logs once per model which requested fields are missing; a collection has its own report."""

    def __init__(self) -> None:
        self._is_logged = False

    def log_once(self, names: Sequence[str], where: str, hint: str) -> None:
        if names and not self._is_logged:
            self._is_logged = True
            listed = " and ".join(names)
            log.info("%s: asked for %s, which did not come (%s)", where, listed, hint)


def _log_probs(answer: Json, choice: Json) -> list[Json]:
    if choice:
        return (choice.get("logprobs") or {}).get("content") or []
    return [entry for item in answer.get("output") or () for entry in _part_log_probs(item)]


def _part_log_probs(item: Json) -> list[Json]:
    content = item.get("content")
    parts = content if item.get("type") == "message" and isinstance(content, list) else ()
    return [entry for part in parts for entry in part.get("logprobs") or ()]


def _raw_tokens(answer: Json, name: str) -> list[int] | None:
    """The tokens of a single raw message. Several messages (hosted tools) are several turns: None."""
    raw = answer.get(name)
    if not isinstance(raw, list) or len(raw) != 1 or not isinstance(raw[0], dict):
        return None
    return raw[0].get("tokens")


def _ids_in(probs: Iterable[Json]) -> list[int]:
    """The token ids in log-probabilities: in `id` (llama.cpp) or as `token_id:7` (vLLM); empty if one is missing."""
    ids: list[int] = []
    for entry in probs:
        token_id = entry.get("id")
        if token_id is None and entry["token"].startswith("token_id:"):
            token_id = int(entry["token"][9:])
        if token_id is None:
            return []
        ids.append(token_id)
    return ids
