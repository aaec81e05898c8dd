"""Questions in words, answered with a query of a real SQLite database."""
