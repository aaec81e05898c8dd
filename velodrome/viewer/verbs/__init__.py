"""`velo view`, `velo show`, `velo judgements`, and the page of `velo profile`."""
