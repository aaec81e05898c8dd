"""Rollouts for the systems that others watch their programs with."""
