"""Lines of the files that an index follows: found, read on, and parsed."""
