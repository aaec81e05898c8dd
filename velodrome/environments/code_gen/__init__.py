"""Programs a model writes, run on test cases in the sandbox."""
