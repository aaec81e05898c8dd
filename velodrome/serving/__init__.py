"""HTTP and processes: where components live."""
