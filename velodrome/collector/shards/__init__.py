"""Outputs of several runs as one."""
