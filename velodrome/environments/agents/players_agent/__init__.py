"""Several players, each with a model and a conversation of its own."""
