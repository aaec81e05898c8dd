"""Answers that are one JSON value of a given schema, with the right content."""
