"""Trace files and training runs, read back."""
