"""Tasks for a model with a shell in the sandbox, verified by the resulting files."""
