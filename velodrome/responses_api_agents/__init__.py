"""Agents: who runs a task to its end."""
