"""Models: each answers `/v1/responses` calls."""
