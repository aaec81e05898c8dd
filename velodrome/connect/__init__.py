"""What connects to other projects: their environments, MCP, Anthropic's messages, NeMo Gym's folders and routes."""
