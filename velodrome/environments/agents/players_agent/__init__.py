"""Several players, each with its model and conversation."""
