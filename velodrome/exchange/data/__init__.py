"""Data sets as tasks: prepare them, and look at what there is."""
