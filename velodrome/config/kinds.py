"""The three kinds of component, by the names they have in configuration files and as folders."""

from __future__ import annotations

RESOURCES = "resources_servers"
AGENTS = "responses_api_agents"
MODELS = "responses_api_models"
KINDS = (RESOURCES, AGENTS, MODELS)
