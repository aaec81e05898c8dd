"""A model that says what it is told to say."""
