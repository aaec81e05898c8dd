"""The loop of model and tools."""
