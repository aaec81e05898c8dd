"""What is at rest: tasks, rollouts, the conversation in them, and JSONL that is whole or absent."""
