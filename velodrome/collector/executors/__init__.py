"""Executors: attempts in this process, or in worker processes."""
