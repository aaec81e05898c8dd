"""Boxes to be pushed onto goals, in small levels with known solutions."""
