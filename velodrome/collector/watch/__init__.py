"""Watchers of a running collection: progress, trace, metrics."""
