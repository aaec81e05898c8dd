"""An agent that runs somewhere else."""
