"""Trained policies: find one by name, act with it, evaluate it, export it."""
