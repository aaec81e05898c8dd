"""Draws the output of models: text in, markup out. No I/O.

Each function builds markup from a fixed set of elements and attributes, or returns None: show the text plain.
"""
