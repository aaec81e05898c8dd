"""Rollouts and tasks in other programs' formats: export, import, data sets."""
