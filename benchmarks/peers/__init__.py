"""What a rollout costs here and in the programs of others that do the same job."""
