"""Where the time of a run went, what limits it, and what a change would give."""
