"""Agents that some of these environments need."""
