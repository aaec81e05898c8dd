"""Environments beyond those of the core, and the sandbox for code that a model wrote. The core works without it."""
