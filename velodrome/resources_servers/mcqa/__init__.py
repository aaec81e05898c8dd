"""Multiple choice: one letter, extracted from the answer in the forms that prompts request."""
