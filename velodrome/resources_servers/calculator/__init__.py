"""Arithmetic with a calculator tool: the example of the rollout collection guide."""
