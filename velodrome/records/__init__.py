"""Files and rows: tasks, rollouts, their conversations, and JSONL lines that are complete or absent."""
