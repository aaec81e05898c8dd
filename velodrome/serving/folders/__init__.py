"""Folders of other projects' environments, run as they are."""
