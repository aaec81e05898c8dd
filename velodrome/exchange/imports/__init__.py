"""Rollouts and tasks from files that others wrote."""
