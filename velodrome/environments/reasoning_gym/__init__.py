"""Every family of the package reasoning-gym: tasks by seed, and its own scorers."""
