"""Folders of NeMo Gym's resources servers, run as they are."""
