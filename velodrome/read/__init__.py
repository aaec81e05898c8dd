"""What a rollouts file says. Knows the file, never the collector."""
