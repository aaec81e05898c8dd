"""What people add to rollouts."""
