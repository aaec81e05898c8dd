"""A training run on disk and on screen: checkpoints, logs, the timing table."""
