"""Environments of other projects: each runs in a process and a virtual environment of its own."""
