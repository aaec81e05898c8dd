"""Executors beyond one machine. The collector loads one by its name, when a run asks for it."""
