"""Names of kinds and of keys, and guesses for misspelt names. A guess is suggested, never used."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

RESOURCES = "resources_servers"
AGENTS = "responses_api_agents"
MODELS = "responses_api_models"
KINDS = (RESOURCES, AGENTS, MODELS)
# The folders of the package with components of each kind: the core first, then wings, which may be missing.
HOMES: dict[str, tuple[str, ...]] = {
    RESOURCES: (RESOURCES, "environments"),
    AGENTS: (AGENTS, "environments/agents"),
    MODELS: (MODELS,),
}
ENVIRONMENT_KEYS = ("resources_server", "environment")  # an agent's reference to its environment

# Settings in NeMo Gym's config of openai_model that have no effect here, with the values that may be ignored.
IGNORED_SETTINGS: dict[str, tuple[object, ...]] = {
    "openai_default_headers": ({}, None),
    "drop_input_reasoning_items": (False, "False", "false"),
}
# Keys of a block that are not settings of its component: hosting, and notes of NeMo Gym.
FOREIGN = frozenset(
    (
        *("entrypoint", "domain", "description", "verified", "value", "datasets"),
        *("host", "port", "num_workers", "url", "token"),
        *("return_token_id_information", "uses_reasoning_parser"),
    )
)


def nearest(word: str, candidates: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The candidate most similar to `word`, if one is similar enough."""
    matches = difflib.get_close_matches(word, sorted(set(candidates) - {word}), n=1, cutoff=cutoff)
    return matches[0] if matches else None


def hint(word: str, candidates: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The end of a problem line: `; did you mean "x"?`, or nothing."""
    guess = nearest(word, candidates, cutoff=cutoff)
    return f'; did you mean "{guess}"?' if guess else ""
