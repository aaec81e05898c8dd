"""The three kinds of component, by the names they have in configuration files and as folders."""

from __future__ import annotations

RESOURCES = "resources_servers"
AGENTS = "responses_api_agents"
MODELS = "responses_api_models"
KINDS = (RESOURCES, AGENTS, MODELS)
ENVIRONMENT_KEYS = ("resources_server", "environment")  # an agent's reference to its environment

# Keys a block may carry that are not settings of the component itself: how it is hosted, and what NeMo Gym notes there.
FOREIGN = frozenset(
    (
        *("entrypoint", "domain", "description", "verified", "value", "datasets"),
        *("host", "port", "num_workers", "url", "token"),
        *("return_token_id_information", "uses_reasoning_parser"),
    )
)
