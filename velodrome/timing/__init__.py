"""Measuring time; knows nothing of rollouts."""
