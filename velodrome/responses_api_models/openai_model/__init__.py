"""Any OpenAI-compatible server as a model."""
