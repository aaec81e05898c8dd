"""A model with scripted answers."""
