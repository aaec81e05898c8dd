"""A help desk whose customers are played by a second model."""
