"""Where the tasks of a run come from, and what of them is left to do."""
