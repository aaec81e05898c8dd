"""Programs that run in the virtual environments of others. Nothing here is imported by velodrome."""
