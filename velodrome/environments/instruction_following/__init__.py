"""Instructions that a program can check, alone and together."""
