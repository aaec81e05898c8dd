"""`velo train`, `velo policy`, and `velo profile` of a training run."""
