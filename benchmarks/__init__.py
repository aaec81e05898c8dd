"""What Velodrome costs, measured beside the least it could cost. `python -m benchmarks.run` runs all of it."""
