"""Names of kinds and of keys, and what a misspelt name was probably meant to be. A guess is offered, never taken."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

RESOURCES = "resources_servers"
AGENTS = "responses_api_agents"
MODELS = "responses_api_models"
KINDS = (RESOURCES, AGENTS, MODELS)
# The folders of the package with components of each kind: the core's, then those of wings, which may be missing.
HOMES: dict[str, tuple[str, ...]] = {
    RESOURCES: (RESOURCES, "environments"),
    AGENTS: (AGENTS, "environments/agents"),
    MODELS: (MODELS,),
}
ENVIRONMENT_KEYS = ("resources_server", "environment")  # an agent's reference to its environment

# Keys a block may carry that are not settings of the component itself: how it is hosted, and what NeMo Gym notes there.
THEIRS_UNSET: dict[
    str, tuple[object, ...]
] = {  # settings that NeMo Gym's config of openai_model spells out, with the values that change nothing
    "openai_default_headers": ({}, None),
    "drop_input_reasoning_items": (False, "False", "false"),
}
FOREIGN = frozenset(
    (
        *("entrypoint", "domain", "description", "verified", "value", "datasets"),
        *("host", "port", "num_workers", "url", "token"),
        *("return_token_id_information", "uses_reasoning_parser"),
    )
)


def nearest(word: str, candidates: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The candidate that looks most like `word`, if one does."""
    matches = difflib.get_close_matches(word, sorted(set(candidates) - {word}), n=1, cutoff=cutoff)
    return matches[0] if matches else None


def hint(word: str, candidates: Iterable[str], *, cutoff: float = 0.6) -> str:
    """`; did you mean "x"?`, or nothing: the end of a problem line."""
    guess = nearest(word, candidates, cutoff=cutoff)
    return f'; did you mean "{guess}"?' if guess else ""
