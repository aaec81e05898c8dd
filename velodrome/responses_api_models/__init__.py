"""Models: who answers one `/v1/responses` call."""
