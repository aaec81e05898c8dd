"""A hidden word of five letters, with feedback for every guess."""
