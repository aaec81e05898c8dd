"""One module per page of the viewer."""
