"""Small policies: taught by a scripted teacher, then PPO, with the time of every rollout accounted for."""
