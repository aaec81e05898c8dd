"""The calls of the Python API, one module per group. `velodrome` exports them."""
