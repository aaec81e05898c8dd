"""`velo data`, `velo export` and `velo import`."""
