"""Multiple choice: one letter, read from the answer in the ways that prompts ask for it."""
