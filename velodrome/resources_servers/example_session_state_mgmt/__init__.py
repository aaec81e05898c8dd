"""State that lasts for one rollout: a counter."""
