"""Equality by rule: numbers, units, sets, lists, dates and texts."""
