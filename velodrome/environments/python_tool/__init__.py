"""Questions for a model with a Python interpreter that keeps its variables."""
