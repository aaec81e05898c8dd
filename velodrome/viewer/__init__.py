"""Rollouts files as pages: what is in the file, drawn. Nothing here runs a rollout or asks another machine."""
