"""Rollouts as the files that trainers read."""
