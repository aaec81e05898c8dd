"""What training costs, beside others that do the same work."""
