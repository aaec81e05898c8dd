"""Rollouts files as pages. Nothing here runs a rollout or sends a request to another machine."""
