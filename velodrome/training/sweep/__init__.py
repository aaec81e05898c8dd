"""Sweeps: the same recipe with several values of some settings, to find the best."""
